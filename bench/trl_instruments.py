"""What our instruments cost a step of TRL's GRPOTrainer: processor time of one thread, with and without them in turn.

    python bench/trl_instruments.py MODEL_FOLDER [--completions 16] [--tokens 64] [--steps 12]

One trainer; the instruments watch every second step. Completions have a fixed length, so all steps are the same work.
Needs `pip install trl==1.16.0 datasets`.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

# bench/trl.py has the name of the library: this folder must not be searched for it
sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != Path(__file__).resolve().parent]


def rewarded(completion_ids: Sequence[Sequence[int]], **rest: Any) -> list[float]:
    return [float(sum(ids) % 2) for ids in completion_ids]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--completions", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--steps", type=int, default=12, help="measured ones of each kind")
    given = parser.parse_args()
    torch.set_num_threads(1)
    spent: dict[bool, list[float]] = {False: [], True: []}
    with tempfile.TemporaryDirectory() as folder:
        trainer_of(given, folder, spent).train()
    off, on = (statistics.median(spent[kind]) for kind in (False, True))
    parts = [b / a - 1 for a, b in zip(spent[False], spent[True], strict=False)]
    print(f"step without {off:.3f} s, with {on:.3f} s of one thread: {on / off - 1:+.1%}; pairs {parts_of(parts)}")


def parts_of(parts: Sequence[float]) -> str:
    low, mid, high = statistics.quantiles(parts, n=4)
    return f"{mid:+.1%} ({low:+.1%} to {high:+.1%}, the middle half of {len(parts)})"


def trainer_of(given: argparse.Namespace, folder: str, spent: dict[bool, list[float]]) -> Any:
    import datasets
    import transformers
    import trl

    from isentrope.plugins.trl import EntropyGRPOTrainer

    class InTurn(transformers.TrainerCallback):
        began = 0.0
        instruments: Any = None

        def on_step_begin(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
            self.instruments = self.instruments or trainer.instruments
            trainer.instruments = self.instruments if state.global_step % 2 else None
            self.began = time.process_time()

        def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
            if state.global_step > 2:
                spent[trainer.instruments is not None].append(time.process_time() - self.began)
                print(f"step {state.global_step}: {time.process_time() - self.began:.3f} s", file=sys.stderr)
            trainer.instruments = self.instruments

    args = trl.GRPOConfig(
        output_dir=folder, max_steps=2 * given.steps + 2, use_cpu=True, bf16=False, report_to=[], disable_tqdm=True,
        per_device_train_batch_size=min(8, given.completions), num_generations=min(8, given.completions),
        gradient_accumulation_steps=max(1, given.completions // 8), max_completion_length=given.tokens,
        generation_kwargs={"min_new_tokens": given.tokens}, gradient_checkpointing=False, save_strategy="no",
        logging_strategy="no", model_init_kwargs={"dtype": "float32"},
    )  # fmt: skip
    trainer: Any = EntropyGRPOTrainer(
        model=str(given.model), reward_funcs=rewarded, args=args, callbacks=[InTurn()],
        train_dataset=datasets.Dataset.from_dict({"prompt": ["Where is the mug? " * 8] * 64}),
    )  # fmt: skip
    return trainer


if __name__ == "__main__":
    main()
