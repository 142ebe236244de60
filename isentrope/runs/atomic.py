"""Atomic writes: a file or folder is on the disk in full or not there at all."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from isentrope.core.errors import writing


def write_atomically(path: Path, data: bytes | bytearray) -> None:
    """Put `data` at `path` so that a reader, or a power cut, sees the old file or the new one, never a part."""
    with writing(path):
        if not path.name:  # "." and "/"
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        temporary = path.with_name(f".{path.name}.tmp")
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            temporary.unlink(missing_ok=True)  # left by a kill; or a link or a pipe that somebody else put there
            with temporary.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        with suppress(OSError):  # systems that cannot open a folder have no way to make the rename itself last
            flush_folder(path.parent, deep=False)


def open_to_append(path: Path) -> BinaryIO:
    """Open a file to write at its end. A link is not followed: in a folder of somebody else it may lead to any file."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    return os.fdopen(os.open(path, flags, 0o666), "ab")


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
