"""Which files an agent may repair, and which decide whether it did."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

_TEST_FOLDERS = {"test", "tests", "testing"}
_TEST_FILE = re.compile(r"(test_.*|.*_tests?|tests?|conftest)\.py")
_COLLECTED = re.compile(r"(test_.*|.*_test)\.py")
# read by pytest or by Python as it starts: whoever writes them decides what a test run says
_STEERING = {
    "pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml", "tox.ini", "setup.cfg", "setup.py", "pyproject.toml",
    "sitecustomize.py", "usercustomize.py", "noxfile.py", "Makefile",
}  # fmt: skip
_STEERING_ENDS = (".pth", ".pyc", ".pyo", ".so", ".pyd", ".egg-link")


def is_test(path: str) -> bool:
    *folders, name = path.split("/")
    return bool(_TEST_FOLDERS & {folder.lower() for folder in folders}) or _TEST_FILE.fullmatch(name) is not None


def is_protected(path: str) -> bool:
    """Tests, and files that steer how tests are run. Changes to them are not graded."""
    folders = path.split("/")[:-1]
    name = path.split("/")[-1]
    return (
        is_test(path)
        or name in _STEERING
        or name.endswith(_STEERING_ENDS)
        or any(folder.startswith(".") or folder == "__pycache__" for folder in folders)
    )


def files_with_tests(paths: Iterable[str]) -> list[str]:
    """The files that pytest would look for tests in."""
    return sorted(
        path for path in paths if is_test(path) and re.fullmatch(r"(.*/)?(test_[^/]*|[^/]*_tests?)\.py", path)
    )


def graded_part(diff: Mapping[str, bytes], known: Iterable[str], new_files: bool) -> dict[str, bytes]:
    """The part of a diff that counts: no tests, nothing that steers them, and new files only where they may be needed.

    A new file could stand in for a module that the tests import, which no repair of an injected bug needs.
    """
    there = set(known)
    return {path: data for path, data in diff.items() if not is_protected(path) and (new_files or path in there)}
