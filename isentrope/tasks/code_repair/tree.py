"""A work tree in memory: the files of an archive, and what was changed since."""

from __future__ import annotations

import io
import posixpath
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass

from isentrope.errors import TaskError

MAX_PATH = 300
_EPOCH = 1_000_000_000  # every file in a box is equally old: nothing there tells one run from another


@dataclass(frozen=True)
class Item:
    """A file, or a symbolic link. Links are made inside boxes only; nothing on this side follows them."""

    data: bytes = b""
    executable: bool = False
    link: str = ""


def clean_path(path: str, work: str = "/repo") -> str | None:
    """The path inside the tree, or None if it leads out of it or is no path at all."""
    if len(path) > MAX_PATH or not path.isprintable():
        return None
    if path == work or path.startswith(work + "/"):
        path = path[len(work) :].lstrip("/")
    path = posixpath.normpath(path)
    if path.startswith(("/", "../")) or path == "..":
        return None
    return "" if path == "." else path


class Tree:
    """Files by path. What it was made from is never changed, so many trees can share one."""

    def __init__(self, files: Mapping[str, Item]) -> None:
        self._base = files
        self._changed: dict[str, Item] = {}

    def paths(self) -> list[str]:
        return sorted({*self._base, *self._changed})

    def item(self, path: str) -> Item | None:
        return self._changed.get(path) or self._base.get(path)

    def read(self, path: str) -> bytes:
        item = self.item(path)
        if item is None:
            raise TaskError(f"there is no file {path!r} in the tree")
        if item.link:
            raise TaskError(f"{path!r} is a symbolic link; links are not followed")
        return item.data

    def write(self, path: str, data: bytes) -> None:
        """Change or add a file. Its path may not lead out of the tree, nor through a link or a file."""
        if clean_path(path) != path or not path:
            raise TaskError(f"{path!r} is not a path inside the tree")
        parents = path.split("/")[:-1]
        above = ("/".join(parents[:depth]) for depth in range(1, len(parents) + 1))
        before = self.item(path)
        if any(self.item(parent) for parent in above) or (before is not None and before.link):
            raise TaskError(f"{path!r} leads through a link or a file")
        self._changed[path] = Item(data, before is not None and before.executable)

    def restore(self, path: str) -> None:
        """Take back what was written there; a file that was added is gone."""
        self._changed.pop(path, None)

    def diff(self) -> dict[str, bytes]:
        return {
            path: item.data
            for path, item in sorted(self._changed.items())
            if path not in self._base or self._base[path].data != item.data
        }

    def as_tar(self, folder: str, extra: Mapping[str, bytes]) -> bytes:
        """The tree under `folder`, and `extra` files under /box, packed to be unpacked at the root of a box."""
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as tar:
            for path in self.paths():
                _add(tar, f"{folder}/{path}".lstrip("/"), self.item(path) or Item())
            for path, data in sorted(extra.items()):
                _add(tar, f"box/{path}", Item(data))
        return packed.getvalue()


def _add(tar: tarfile.TarFile, name: str, item: Item) -> None:
    info = tarfile.TarInfo(name)
    info.mtime = _EPOCH
    info.mode = 0o755 if item.executable else 0o644
    if item.link:
        info.type, info.linkname = tarfile.SYMTYPE, item.link
        tar.addfile(info)
    else:
        info.size = len(item.data)
        tar.addfile(info, io.BytesIO(item.data))
