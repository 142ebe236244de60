"""A run that has lost one of the processes that learn goes on by itself from its last checkpoint."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TypeVar, cast

from isentrope.config.schema import RunConfig
from isentrope.core.errors import RankLost
from isentrope.runs.checkpoints import latest_checkpoint
from isentrope.runs.layout import CHECKPOINTS

LOG = logging.getLogger("isentrope")
MOST_LOST = 3
"""In a row, without a new checkpoint in between."""
Train = TypeVar("Train", bound=Callable[..., dict[str, float]])


def restarting(train: Train) -> Train:
    """The same, with as many starts as it takes."""

    @wraps(train)
    def whole(
        config: RunConfig, out: Path, resume: bool = False, quiet: bool = False, from_step: int | None = None
    ) -> dict[str, float]:
        saved, lost = latest_checkpoint(out / CHECKPOINTS), 0
        while True:
            try:
                return train(config, out, resume, quiet, from_step)
            except RankLost as error:
                before, saved = saved, latest_checkpoint(out / CHECKPOINTS)
                lost = 1 if saved != before else lost + 1
                if lost == MOST_LOST:
                    raise RankLost(f"{error}; {lost} in a row, without a checkpoint in between") from error
                where = f"from the checkpoint {saved.name}" if saved is not None else "from the beginning"
                LOG.warning(f"{error}; all ranks are started again, {where}")
                resume, from_step = True, None

    return cast("Train", whole)
