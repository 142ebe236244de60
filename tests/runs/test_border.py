"""Only `isentrope/runs` knows what the files of a run folder are called."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from isentrope.runs import layout

PACKAGE = Path(__file__).parents[2] / "isentrope"
FILES = [path for path in sorted(PACKAGE.rglob("*.py")) if path.parent != PACKAGE / "runs"]

_NAMES = {value for name, value in vars(layout).items() if name.isupper() and isinstance(value, str)}
FILE_NAMES = {name for name in _NAMES if "." in name}  # nothing else is called so
FOLDER_NAMES = _NAMES - FILE_NAMES  # plain words: they count only where a path is made
_NUMBERED = re.compile(r"(step|eval|dropped|scores)-(\*|\(|\\d|$|.*\.parquet)|own\.parquet|\.part-")
_PATH_CALLS = {"Path", "joinpath", "with_name", "glob", "rglob"}

ALLOWED = {
    ("loop/export.py", ".part-"): "an exported model while it is written, which lies in no run folder",
}


def offences(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and text of every string that names a file of a run folder. Sentences and docstrings may name what they
    like."""
    in_paths = {id(part) for node in ast.walk(tree) for part in _path_parts(node)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str) or re.search(r"\s", node.value):
            continue
        pieces = node.value.split("/")
        if (
            FILE_NAMES.intersection(pieces)
            or any(_NUMBERED.match(piece) for piece in pieces)
            or (id(node) in in_paths and FOLDER_NAMES.intersection(pieces))
        ):
            yield node.lineno, node.value


def _path_parts(node: ast.AST) -> list[ast.expr]:
    """What stands beside a / or is handed to a function that makes or looks for paths."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        return [node.left, node.right]
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        return node.args if name in _PATH_CALLS else []
    return []


def test_no_name_of_a_run_folder_stands_elsewhere() -> None:
    places = [(str(path.relative_to(PACKAGE)), ast.parse(path.read_text("utf-8"))) for path in FILES]
    named = [
        (where, *offence) for where, tree in places for offence in offences(tree) if (where, offence[1]) not in ALLOWED
    ]
    assert not named, f"names of files in a run folder: {named}; take them from isentrope.runs.layout"


@pytest.mark.parametrize(
    ("code", "is_one"),
    [
        ('run / "metrics.jsonl"', True),
        ('name == "run.json"', True),
        ('run.glob("episodes/*")', True),
        ('run / "checkpoints" / name', True),
        ('f"step-{step:06d}"', True),
        ('re.compile(r"eval-(\\d+)-(.+)\\.parquet")', True),
        ('name.removeprefix("step-")', True),
        ('f"{run} has no metrics.jsonl yet"', False),
        ('raise Error("no metrics.jsonl in the folder")', False),
        ('{"episodes": 3, "policy": "pocket"}', False),
        ('Entry("loss/policy", "alarm")', False),
        ('"""Reads metrics.jsonl of a run."""', False),
    ],
)
def test_the_rule_itself(code: str, is_one: bool) -> None:
    assert bool(list(offences(ast.parse(code)))) == is_one
