"""Repair problems: the files, the text for the agent, and how a repair is graded.

Source archives and folders are read into memory. An archive is untrusted: nothing of it is written to the disk.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import stat
import tarfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, cast

from isentrope.core.errors import TaskError
from isentrope.runs.atomic import write_atomically
from isentrope.sandbox.base import Item, Sandbox, clean_path, tar_items
from isentrope.worlds.code_repair.calls import Make
from isentrope.worlds.code_repair.exams import Exam, exam_of, graded
from isentrope.worlds.code_repair.grade import Verdict
from isentrope.worlds.code_repair.mutate import KINDS, Mutant
from isentrope.worlds.code_repair.running import TestRun, run_tests

NAMED = 5  # failing tests named in the goal
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


@dataclass(frozen=True)
class Repair:
    """A package with one injected bug, one line of a JSONL file. Tests are named as pytest names them."""

    package: str
    archive: str  # a file or folder, relative to the task file; or small:NAME
    sha256: str
    mutant: Mutant
    fail_to_pass: tuple[str, ...]  # fail because of the bug
    pass_to_pass: tuple[str, ...]  # pass in spite of it
    seed: int = 0
    grading: str = ""  # how a repair is decided, as it was when the task was built (exams.py); empty: not written down
    whole: tuple[str, ...] = ()  # tests that are more than calls, and are run whole

    work = "/repo"  # where the package lies in the sandbox
    new_files = False  # whether a repair may need files that are not there yet
    image = ""  # the docker image it has to be played in; empty: any sandbox will do

    @property
    def kind(self) -> str:
        return self.mutant.kind

    @property
    def goal(self) -> str:
        failing = self.fail_to_pass
        total = len(failing) + len(self.pass_to_pass)
        more = f" and {len(failing) - NAMED} more" if len(failing) > NAMED else ""
        return (
            f"The package {self.package} has a bug: {len(failing)} of its {total} tests fail. Failing: "
            f"{', '.join(failing[:NAMED])}{more}. Correct the package so that all tests pass."
        )

    @cached_property
    def fingerprint(self) -> str:
        one = self.mutant
        return hashlib.sha256(f"{self.sha256} {one.file} {one.offset} {one.old!r} {one.new!r}".encode()).hexdigest()

    def known(self) -> dict[str, Item]:
        """The package without the bug."""
        return _checked(self.archive, self.sha256)

    def files(self) -> dict[str, Item]:
        """The package with the bug in it."""
        files = dict(self.known())
        path = self.mutant.file
        if path not in files:
            raise TaskError(f"{self.archive} has no file {path!r}, which the task says the bug is in")
        files[path] = Item(self.mutant.apply(files[path].data), files[path].executable)
        return files

    def run_tests(self, sandbox: Sandbox, targets: list[str]) -> TestRun:
        return run_tests(sandbox, targets)

    def exam(self, make: Make, seed: int = 0) -> Exam:
        """What a repair is asked, and by what it is graded."""
        tests = {*self.fail_to_pass, *self.pass_to_pass}
        return exam_of(self.sha256, self.fingerprint, self.known, self.files, make, tests, seed, self.fail_to_pass)

    def grade(self, make: Make, diff: Mapping[str, bytes], seed: int = 0) -> Verdict:
        """`make` gives a fresh sandbox each time, that may take so many times the usual time."""
        given = self.exam(make, seed)
        return graded(given, self.files(), make, diff, self.fail_to_pass, self.pass_to_pass, self.mutant.old)


@cache
def _checked(archive: str, sha256: str) -> dict[str, Item]:
    """The archive's files. A reference is checked once a process; an archive that changed is another archive."""
    found = archive_hash(archive)
    if found != sha256:
        raise TaskError(
            f"{archive} is not the archive of the tasks: its SHA-256 is {found}, expected {sha256}; get that "
            "version, or build tasks for this one with isentrope build-repairs"
        )
    return read_archive(archive)


def write_repairs(repairs: Iterable[Repair], path: Path) -> None:
    lines = [json.dumps(_as_json(repair, path.parent), ensure_ascii=False) for repair in repairs]
    write_atomically(path, "".join(line + "\n" for line in lines).encode())


def _as_json(repair: Repair, folder: Path) -> dict[str, Any]:
    archive = repair.archive
    if not archive.startswith("small:"):
        given = Path(archive).resolve()
        archive = str(given.relative_to(folder.resolve()) if given.is_relative_to(folder.resolve()) else given)
    one = repair.mutant
    row: dict[str, Any] = {
        "package": repair.package, "archive": archive, "sha256": repair.sha256, "kind": one.kind, "file": one.file,
        "offset": one.offset, "old": one.old, "new": one.new, "function": one.function,
        "fail_to_pass": list(repair.fail_to_pass), "pass_to_pass": list(repair.pass_to_pass), "seed": repair.seed,
    }  # fmt: skip
    return row | ({"grading": repair.grading, "whole": list(repair.whole)} if repair.grading else {})


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a .jsonl, .json or .parquet file."""
    try:
        if path.suffix == ".parquet":
            rows: Any = importlib.import_module("pyarrow.parquet").read_table(path).to_pylist()
        elif path.suffix == ".json":
            rows = json.loads(path.read_text(encoding="utf-8"))
        else:
            rows = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]
    except (OSError, ValueError, RecursionError) as error:
        raise TaskError(f"could not read tasks from {path}: {error}; expected .jsonl, .json or .parquet") from error
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in cast("list[object]", rows)):
        raise TaskError(f"{path} does not hold a list of tasks, each with named fields")
    if not rows:
        raise TaskError(f"{path} holds no tasks")
    return cast("list[dict[str, Any]]", rows)


def repair_of(row: dict[str, Any], folder: Path, number: int) -> Repair:
    try:
        archive = str(row["archive"])
        if not archive.startswith("small:"):
            archive = str(folder / archive)
        mutant = Mutant(
            _text(row, "file"), int(row["offset"]), _text(row, "old"), _text(row, "new"), _text(row, "kind"),
            str(row.get("function", "")),
        )  # fmt: skip
        if mutant.kind not in KINDS or mutant.offset < 0:
            raise ValueError(f"kind {mutant.kind!r} at {mutant.offset}")
        return Repair(
            _text(row, "package"), archive, _text(row, "sha256"), mutant, _names(row, "fail_to_pass"),
            _names(row, "pass_to_pass"), int(row.get("seed", 0)), str(row.get("grading", "")),
            _names(row, "whole") if "whole" in row else (),
        )  # fmt: skip
    except (KeyError, TypeError, ValueError) as error:
        raise TaskError(f"task {number} is not one that isentrope build-repairs writes: {error!r}") from error


def _text(row: dict[str, Any], name: str) -> str:
    if not isinstance(row[name], str):
        raise TypeError(f"{name} is not text")
    return row[name]


def _names(row: dict[str, Any], name: str) -> tuple[str, ...]:
    values: list[Any] = row[name]
    if not isinstance(cast(object, values), list) or not all(isinstance(value, str) for value in values):
        raise TypeError(f"{name} is not a list of names")
    return tuple(values)
