"""A finished run without what only a further training would need: a study of hundreds of runs would fill the disk."""

from __future__ import annotations

import shutil
from pathlib import Path

_FOLDERS = ("checkpoints", "reference", "episodes", "tensorboard")
_FILES = ("tokens.json",)


def prune(run: Path) -> None:
    """Settings, metrics, timings and events stay. A folder that is a link is somebody else's and stays too."""
    for name in _FOLDERS:
        if (run / name).is_dir() and not (run / name).is_symlink():
            shutil.rmtree(run / name)
    for name in _FILES:
        (run / name).unlink(missing_ok=True)
