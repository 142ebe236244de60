"""What has been written is on the disk, and not only on its way there."""

from __future__ import annotations

import os
from pathlib import Path


def flush_folder(folder: Path, deep: bool = True) -> None:
    """Make sure that the folder's files are on the disk before something relies on them."""
    for path in [*(folder.rglob("*") if deep else ()), folder]:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def share_as(like: Path) -> None:
    """Give the files beside `like` its permissions, which are the usual ones: safetensors lets only the owner read."""
    for file in like.parent.iterdir():
        if file.is_file():
            file.chmod(like.stat().st_mode)
