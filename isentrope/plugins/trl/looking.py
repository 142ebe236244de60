"""GRPOTrainer as the instruments see it: it tells them what it does, and nothing of TRL is changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor

from isentrope.methods.registry import Listed
from isentrope.plugins.trl.base import GRPOTrainer, TrainerCallback
from isentrope.plugins.trl.instruments import Instruments
from isentrope.plugins.trl.rolled import reader_of

FOLDER = "isentrope"
"""Where our run folder lies in TRL's `output_dir`, if nobody says otherwise."""


class _Steps(TrainerCallback):
    """TRL has no method of its own that runs at these moments."""

    def __init__(self, trainer: WatchedGRPOTrainer) -> None:
        self.trainer = trainer

    def on_train_begin(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        if self.trainer.instruments is not None:
            self.trainer.instruments.open()

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        self.trainer.after_update()

    def on_train_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        if self.trainer.instruments is not None:
            self.trainer.instruments.close()


class WatchedGRPOTrainer(GRPOTrainer):
    instruments: Instruments | None = None
    _rewards: Tensor | None = None

    def watch(
        self, run_folder: str | Path | bool, listed: Sequence[Listed], solved_at: float | None, tags: tuple[str, ...]
    ) -> None:
        """Once TRL has made itself."""
        if run_folder is not False:
            place = Path(self.args.output_dir) / FOLDER if run_folder is True else Path(run_folder)
            self.instruments = Instruments(self, place, listed, solved_at, tags)
        if listed or self.instruments is not None:
            self.add_callback(_Steps(self))

    @property
    def methods(self) -> list[Any]:
        return []

    @property
    def words(self) -> Any:
        """The tokenizer, of a processor its own."""
        return self._tokenizer

    def recorded(self, mode: str) -> dict[str, list[float]]:
        """What TRL has recorded since it logged last, in train or eval."""
        return self._metrics[mode]

    @cached_property
    def read_piece(self) -> Callable[[int], bytes]:
        """The bytes that each token stands for."""
        return reader_of(self.words)

    def _generate(self, prompts: Any) -> tuple[Any, ...]:
        given = super()._generate(prompts)
        if self.instruments is not None:
            self.instruments.generated(prompts, given)
        return given

    def _calculate_rewards(self, *args: Any) -> Tensor:
        self._rewards = super()._calculate_rewards(*args)
        if self.instruments is not None:
            self.instruments.sampled.rewards = self._rewards
        return self._rewards

    def from_all(self, values: Tensor) -> Tensor:
        """The rows of all processes, in TRL's order, padded to one width."""
        if self.accelerator.num_processes == 1:
            return values
        if values.ndim > 1:
            values = self.accelerator.pad_across_processes(values.contiguous(), dim=1)
        return self.accelerator.gather(values.contiguous())

    def after_update(self) -> None:
        """The optimizer has made its step, or left it out."""
        if self.instruments is not None:
            skipped = bool(self.accelerator.optimizer_step_was_skipped)
            self.instruments.updated(float(self.lr_scheduler.get_last_lr()[0]), skipped)

    def _get_grad_norm(self, model: Any, grad_norm: Any = None) -> Any:
        norm = super()._get_grad_norm(model, grad_norm=grad_norm)
        if self.instruments is not None:
            self.instruments.grad_norm = norm
        return norm

    def train(self, *args: Any, **options: Any) -> Any:
        try:
            return super().train(*args, **options)
        except BaseException as error:
            if self.instruments is not None:
                self.instruments.close(error)
            raise

    def evaluate(self, *args: Any, **options: Any) -> Any:
        if self.instruments is not None:
            self.instruments.evaluated.clear()
        metrics = super().evaluate(*args, **options)
        if self.instruments is not None:
            prefix = args[2] if len(args) > 2 else options.get("metric_key_prefix", "eval")
            self.instruments.evaluation(str(prefix))
        return metrics

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        if self.instruments is not None and self.args.should_save:
            folder = Path(self._get_output_dir(trial=trial)) / f"checkpoint-{self.state.global_step}"
            self.instruments.save(folder)
        super()._save_checkpoint(model, trial)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if self.instruments is not None:
            self.instruments.resumed = checkpoint
