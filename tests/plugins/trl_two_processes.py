"""Two processes with the plug-in against our learner in one: `torchrun --nproc-per-node 2 -m ... MODEL FOLDER`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from isentrope.plugins.trl import EntropyGRPOTrainer
from tests.plugins.trl_lab import Gradients, OurLearner, Talks, Weighing, compare, make_trainer, settings

SETS: tuple[list[Any], ...] = (
    ["aem"],
    [("epo", {"coefficient": 0.5})],
    [("entropy_bonus", {"coefficient": 0.1})],
    [("seal", {"alpha": 0.5, "groups": "mixed"})],
    [Weighing],
    ["aem", "ea", ("epo", {"coefficient": 0.5}), ("seal", {"alpha": 0.5}), Weighing],
)


def main(model: Path, folder: Path) -> None:
    from accelerate.utils import gather_object

    for number, methods in enumerate(SETS):
        seen, talks = Gradients(), Talks()
        args = settings(folder / str(number), per_device_train_batch_size=3, gradient_accumulation_steps=2)
        trainer = make_trainer(EntropyGRPOTrainer, model, args, talks, [seen], methods=methods)
        assert trainer.accelerator.num_processes == 2  # six rows each, so the second of three groups lies on both
        seen.trainer = trainer
        trainer.train()
        given = [gather_object(rows) for rows in talks.given]  # the first process's rows first, as in TRL
        if trainer.accelerator.is_main_process:
            ours = OurLearner(model, methods)
            for k, rows in enumerate(given):
                compare(ours, seen, k, rows, trainer.state.log_history[k])
        trainer.accelerator.wait_for_everyone()
    if trainer.accelerator.is_main_process:
        print(f"equal: {len(SETS)} sets of methods")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
