"""Reads source archives and folders into memory. An archive is untrusted: nothing of it is written to the disk."""

from __future__ import annotations

import hashlib
import os
import stat
import tarfile
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from isentrope.core.errors import TaskError
from isentrope.sandbox.base import Item, clean_path, tar_items

MAX_BYTES = 64 << 20
MAX_FILES = 10_000
_SKIPPED = {".git", ".hg", ".svn", "__pycache__", ".tox", ".venv", "node_modules", ".pytest_cache"}
SMALL = Path(__file__).with_name("small")


def read_archive(reference: str) -> dict[str, Item]:
    """The files of a .tar.gz, .zip or folder, or of one of our own small packages (`small:NAME`), by path."""
    if reference.startswith("small:"):
        return _small(reference.removeprefix("small:"))
    path = Path(reference)
    try:
        if path.is_dir():
            return _bounded(_folder(path), reference)
        if zipfile.is_zipfile(path):
            return _without_top(_bounded(_zip(path), reference))
        with tarfile.open(path, "r:*") as tar:
            return _without_top(_bounded(tar_items(tar, MAX_BYTES), reference))
    except (OSError, tarfile.TarError, zipfile.BadZipFile, EOFError, RuntimeError, NotImplementedError) as error:
        raise TaskError(
            f"could not read {reference!r}: {error}; give a source archive (.tar.gz or .zip) or a folder"
        ) from error


def archive_hash(reference: str) -> str:
    """SHA-256 of the archive's bytes; of a folder, of all its paths and contents."""
    path = Path(reference)
    if not reference.startswith("small:") and path.is_file():
        return hashlib.sha256(path.read_bytes()).hexdigest()
    digest = hashlib.sha256()
    for name, item in sorted(read_archive(reference).items()):
        digest.update(f"{name}\0{item.link}\0{len(item.data)}\0".encode("utf-8", "surrogateescape") + item.data)
    return digest.hexdigest()


def small_packages() -> list[str]:
    return sorted(folder.name for folder in SMALL.iterdir() if folder.is_dir())


@cache
def _small(name: str) -> dict[str, Item]:
    """Our own packages lie there with .txt behind every name, so that no tool takes them for parts of ours."""
    if name not in small_packages():
        raise TaskError(f"there is no small package {name!r}; there are {', '.join(small_packages())}")
    files = _bounded(_folder(SMALL / name), name)
    return {path.removesuffix(".txt"): item for path, item in files.items()}


def _folder(top: Path) -> Iterator[tuple[str, Item]]:
    for folder, folders, names in os.walk(top):
        folders[:] = sorted(name for name in folders if name not in _SKIPPED)
        for name in sorted(names):
            path = Path(folder, name)
            if not path.is_symlink() and path.is_file() and not name.endswith(".pyc"):
                about = path.stat()
                if about.st_size > MAX_BYTES:
                    raise TaskError(f"{path} is larger than the {MAX_BYTES >> 20} MB of a whole package")
                item = Item(path.read_bytes(), bool(about.st_mode & stat.S_IXUSR))
                yield path.relative_to(top).as_posix(), item


def _zip(path: Path) -> Iterator[tuple[str, Item]]:
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            if not info.is_dir():
                with archive.open(info) as file:
                    yield info.filename, Item(file.read(MAX_BYTES + 1))


def _bounded(items: Iterator[tuple[str, Item]], reference: str) -> dict[str, Item]:
    files: dict[str, Item] = {}
    total = 0
    for name, item in items:
        path = clean_path(name)
        if not path or _SKIPPED & set(path.split("/")):
            continue  # an absolute path or one that leads out of the tree is no file of the package
        total += len(item.data)
        if total > MAX_BYTES or len(files) >= MAX_FILES:
            raise TaskError(f"{reference!r} unpacks to more than {MAX_BYTES >> 20} MB or {MAX_FILES} files")
        files[path] = item
    if not files:
        raise TaskError(f"{reference!r} holds no files")
    return files


def _without_top(files: dict[str, Item]) -> dict[str, Item]:
    """Source archives hold one folder, named after the package and its version."""
    tops = {path.partition("/")[0] for path in files}
    if len(tops) != 1 or any("/" not in path for path in files):
        return files
    return {path.partition("/")[2]: item for path, item in files.items()}
