"""Sandbox for untrusted code: its interface, the limits, the work tree, and the choice of a back end.

    sandbox = make_sandbox("bubblewrap", Limits())
    sandbox.start({"sums/add.py": Item(b"..."), ...})
    outcome = sandbox.exec(["python", "-c", "print(1)"])
    sandbox.tree.write("sums/add.py", b"...")
    sandbox.tree.diff()
    sandbox.close()

The work tree is held in this process's memory. Every `exec` starts a fresh box, gets a copy of the tree in it, runs
one command and throws the box away. So a command cannot change the tree, cannot leave a process behind, and nothing
that it makes (a link that points elsewhere, a file of a terabyte) is ever read on this side.
"""

from __future__ import annotations

import io
import posixpath
import stat
import tarfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from isentrope.core.errors import TaskError

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
    """A work tree in memory: files by path. The files it was made from are never changed, so trees can share them."""

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
        """The files written since the start, with their contents."""
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


def tar_items(tar: tarfile.TarFile, max_bytes: int) -> Iterator[tuple[str, Item]]:
    """The files of an open tar archive, and the links that stay inside it, by name."""
    for member in tar:
        if member.isfile():
            if member.size > max_bytes:
                raise TaskError(f"{member.name!r} is larger than the {max_bytes >> 20} MB of a whole package")
            file = tar.extractfile(member)
            yield member.name, Item(file.read() if file else b"", bool(member.mode & stat.S_IXUSR))
        elif member.issym():
            target = member.linkname
            joined = posixpath.normpath(posixpath.join(posixpath.dirname(member.name), target))
            if not target.startswith("/") and not joined.startswith("..") and "\0" not in target:
                yield member.name, Item(link=target)


BACK_ENDS = ("bubblewrap", "docker")


@dataclass(frozen=True)
class Limits:
    """What one command may take."""

    seconds: float = 20.0  # by the clock
    memory: int = 1 << 30  # bytes, of all its processes together
    processes: int = 32  # and threads
    disk: int = 64 << 20  # bytes in the work folder
    file: int = 16 << 20  # bytes of one file
    files: int = 20_000  # in all folders that it can write to
    output: int = 1 << 20  # bytes of standard output and error


@dataclass(frozen=True)
class Outcome:
    """How a command ended. `ended` is exit, or the limit at which it was stopped: time, memory, files or output."""

    code: int
    output: bytes
    ended: str = "exit"


class Sandbox(ABC):
    """The work tree is in this process, from `start` to `close`; back ends differ in how they run a command."""

    work: str  # the work folder, as commands see it
    python: str  # the Python that runs the package there
    _tree: Tree | None = None

    def start(self, files: Mapping[str, Item]) -> None:
        """Begin with these files. Raises a TaskError if nothing can be confined here: code never runs unconfined."""
        self._check_works()
        self._tree = Tree(files)

    @abstractmethod
    def _check_works(self) -> None:
        """Raise a TaskError if nothing can be confined here."""

    @abstractmethod
    def exec(self, command: Sequence[str], extra: Mapping[str, bytes] | None = None) -> Outcome:
        """Run one command in a fresh box with a copy of the tree; `extra` files lie in the folder /box there."""

    @property
    def tree(self) -> Tree:
        """To read and write what the next command gets."""
        if self._tree is None:
            raise TaskError("the sandbox is not started")
        return self._tree

    def close(self) -> None:
        self._tree = None


def make_sandbox(back_end: str, limits: Limits, image: str = "", work: str = "/repo") -> Sandbox:
    """A sandbox of that kind, checked to work on this machine; a TaskError says how to get what is missing."""
    if back_end == "bubblewrap":
        from isentrope.sandbox.bubblewrap import Bubblewrap

        return Bubblewrap(limits)
    if back_end == "docker":
        from isentrope.sandbox.docker import Docker

        return Docker(limits, image, work)
    raise TaskError(f"sandbox = {back_end!r}: choose one of {', '.join(BACK_ENDS)}")
