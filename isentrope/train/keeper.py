"""Which checkpoints stay: the newest few, the newest few that an alarm wrote, and the one that did best."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from isentrope.config.schema import RunConfig
from isentrope.models.policy import Policy
from isentrope.train.checkpoint import best_checkpoint, mark_best, read_record, remove_old, save_checkpoint


class Keeper:
    """Saves checkpoints. The success on the first of `eval.splits` decides which one is best."""

    def __init__(self, folder: Path, config: RunConfig) -> None:
        self.folder, self.keep_last, self.split = folder, config.run.keep_last, config.eval.splits[0]

    def save(
        self,
        step: int,
        policy: Policy,
        state: dict[str, Any],
        metrics: Mapping[str, float] | None = None,
        alarm: bool = False,
    ) -> None:
        """`metrics` of an evaluation made at this very step, if there was one; `alarm`: one is the reason to save."""
        success = (metrics or {}).get(f"eval/{self.split}/success")
        self.settle(save_checkpoint(self.folder, step, policy, state, success, alarm))

    def settle(self, checkpoint: Path) -> None:
        """Compare the newest checkpoint with the best and clear old ones away. Called again when a run is resumed:
        it may have been killed before it got here."""
        success = read_record(checkpoint)["success"]
        if success is not None:
            best = best_checkpoint(self.folder)
            if best is None or success >= best[1] or best[0] == checkpoint.name:
                mark_best(self.folder, checkpoint, success)
        remove_old(self.folder, self.keep_last)
