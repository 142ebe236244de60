"""Studies of others: a compact file says what it likes, and neither numbers nor pages may suffer."""

from __future__ import annotations

import json
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from isentrope.core.errors import RunError
from isentrope.study.read import read_compact, read_study, write_compact
from isentrope.study.results import render
from tests.builders.run_folders import cell, make_study, whole_run
from tools.study_docs import write

Lines = list[dict[str, Any]]  # the plan, then the runs


def changed(folder: Path, change: Callable[[Lines], object]) -> Path:
    """The compact form of a study with two seeds of a and of b, changed by hand."""
    make_study(folder / "runs", [cell("a"), cell("b", against="a")])
    for name in "ab":
        for seed in (0, 1):
            whole_run(folder / "runs", name, seed, 0.5)
    path = write_compact(read_study(folder / "runs"), folder / "kept")
    lines: Lines = [json.loads(line) for line in lzma.decompress(path.read_bytes()).splitlines()]
    change(lines)
    path.write_bytes(lzma.compress("".join(json.dumps(line) + "\n" for line in lines).encode()))
    return folder / "kept"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda lines: lines[-1].update(cell="<b>"), "'<b>/seed-1' is not in the plan"),
        (lambda lines: lines[-1].update(seed=7), "'b/seed-7' is not in the plan"),
        (lambda lines: lines.append(lines[-1]), "'b/seed-1' is not in the plan, or stands there twice"),
        (lambda lines: lines[0]["plan"]["cells"].append(lines[0]["plan"]["cells"][0]), "stands there twice"),
        (lambda lines: lines[0]["plan"]["cells"][0].update(seeds=[0, 0, 1]), "stands there twice"),
    ],
)
def test_runs_that_the_plan_does_not_have_once_are_refused(
    tmp_path: Path, change: Callable[[Lines], object], told: str
) -> None:
    """They would be counted as done and not shown, or one run as two seeds."""
    with pytest.raises(RunError, match=told):
        read_study(changed(tmp_path, change))


@pytest.mark.parametrize(("limit", "told"), [("RUN_BYTES", "has a run of more than"), ("COMPACT_BYTES", "unpacks to")])
def test_what_unpacks_to_more_than_a_study_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, told: str
) -> None:
    """A kilobyte may be gigabytes, also in a single line."""
    monkeypatch.setattr(f"isentrope.study.read.{limit}", 5000)
    with pytest.raises(RunError, match=told):
        read_study(changed(tmp_path, lambda lines: lines[-1]["events"].append({"text": "x" * 5000})))


def test_a_cell_may_be_tagged_with_its_warm_up(tmp_path: Path) -> None:
    make_study(tmp_path, [cell("short", (0,), warmup="short")])
    whole_run(tmp_path, "short", 0, 0.5)
    data = read_study(tmp_path)
    assert read_compact(write_compact(data, tmp_path / "kept")) == data


def test_numbers_that_are_none_are_left_out(tmp_path: Path) -> None:
    def change(lines: Lines) -> None:
        lines[1]["evals"]["eval/unseen/success"][1:] = [float("inf"), float("nan")]

    data = read_study(changed(tmp_path, change))
    assert data.runs[0].series("eval/unseen/success") == ((0,), (0.2,))


EVIL = "x\n\n# y\ud800<b>|`z`\u202e[l](http://l)"


def test_a_kept_page_has_no_text_of_others_but_as_text(tmp_path: Path) -> None:
    def change(lines: Lines) -> None:
        plan = lines[0]["plan"]
        plan["name"] = plan["split"] = EVIL
        for one in (*plan["cells"], *lines[1:]):
            one["tags"] = {"method": EVIL}
        for run in lines[1:]:
            run["begun"] = EVIL
            run["evals"][f"eval/{EVIL}/success"] = run["evals"].pop("eval/unseen/success")
            run["status"], run["reason"] = ("failed", EVIL) if run["seed"] else ("done", "")

    folder = changed(tmp_path, change)
    assert any(path.name == "a-success.svg" for path in write(folder))
    for page in ("README.md", "tables.md"):
        text = (folder / page).read_text()
        for part in ("\n# y", "<b>", "[l](", "\u202e", "`z`"):
            assert part not in text.replace("\\", "\\ "), (page, part)
    assert "\n# y" not in render(read_study(folder), "latex")
