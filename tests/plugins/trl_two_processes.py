"""Two processes with the plug-in against our learner in one: `torchrun --nproc-per-node 2 -m ... MODEL FOLDER`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from isentrope.plugins.trl import EntropyGRPOTrainer
from isentrope.plugins.trl import instruments as instruments
from isentrope.runs.folder import Run
from tests.plugins.trl_lab import (
    Gradients,
    OurLearner,
    Talks,
    Weighing,
    compare,
    compare_records,
    episodes_of,
    make_trainer,
    settings,
)

SETS: tuple[list[Any], ...] = (
    ["aem"],
    [("epo", {"coefficient": 0.5})],
    [("entropy_bonus", {"coefficient": 0.1})],
    [("seal", {"alpha": 0.5, "groups": "mixed"})],
    [Weighing],
    ["aem", "ea", ("epo", {"coefficient": 0.5}), ("seal", {"alpha": 0.5}), Weighing],
)


class Faulty:
    """Breaks in the second process alone, in the second step."""

    def __init__(self, name: str, trainer: Any) -> None:
        self.name, self.trainer, self.real = name, trainer, getattr(instruments, name)

    def __call__(self, *given: Any) -> Any:
        if self.trainer.accelerator.process_index == 1 and self.trainer.state.global_step == 1:
            raise ZeroDivisionError("planted")
        return self.real(*given)


def with_faults(model: Path, folder: Path) -> None:
    """The process whose instruments do not break does not wait for what is not brought, and the steps before and behind
    are written."""
    for broken in ("last", "put"):
        args = settings(folder / broken, per_device_train_batch_size=3, gradient_accumulation_steps=2)
        trainer = make_trainer(EntropyGRPOTrainer, model, args, Talks())
        faulty = Faulty(broken, trainer)
        setattr(instruments, broken, faulty)
        trainer.train()
        setattr(instruments, broken, faulty.real)
        assert trainer.state.global_step == 3
        if trainer.accelerator.is_main_process:
            records = Run.open(folder / broken / "isentrope").records
            assert [record["step"] for record in records] == [1, 2], records
        trainer.accelerator.wait_for_everyone()
    if trainer.accelerator.is_main_process:
        print("went on: 2 faults")


def main(model: Path, folder: Path) -> None:
    from accelerate.utils import gather_object

    for number, methods in enumerate(SETS):
        seen, talks = Gradients(), Talks()
        args = settings(folder / str(number), per_device_train_batch_size=3, gradient_accumulation_steps=2)
        trainer = make_trainer(EntropyGRPOTrainer, model, args, talks, [seen], methods=methods, solved_at=1.0)
        assert trainer.accelerator.num_processes == 2  # six rows each, so the second of three groups lies on both
        seen.trainer = trainer
        trainer.train()
        given = [gather_object(rows) for rows in talks.given]  # the first process's rows first, as in TRL
        if trainer.accelerator.is_main_process:
            ours = OurLearner(model, methods)
            for k, rows in enumerate(given):
                compare(ours, seen, k, rows, trainer.state.log_history[k])
            run = Run.open(folder / str(number) / "isentrope")
            for record, rows in zip(run.records, given, strict=True):
                compare_records(record, episodes_of(rows, ours.policy, 1.0))
                assert record["return/mean"] == np.mean([row["ret"] for row in rows])
                assert len(run.episodes(int(record["step"]))) == len(rows) == 12
        trainer.accelerator.wait_for_everyone()
    if trainer.accelerator.is_main_process:
        print(f"equal: {len(SETS)} sets of methods")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
    with_faults(Path(sys.argv[1]), Path(sys.argv[2]))
