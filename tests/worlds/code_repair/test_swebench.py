"""SWE-bench's rows: read, named, refused without docker, and graded as SWE-bench grades them."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from isentrope.core.errors import TaskError
from isentrope.sandbox.base import Item, Outcome, Tree
from isentrope.sandbox.bubblewrap import Bubblewrap
from isentrope.worlds.code_repair import swebench
from isentrope.worlds.code_repair.swebench import Issue, image_name, issues, read_log
from isentrope.worlds.code_repair.world import CodeRepairOptions, CodeRepairWorld
from tests.sandbox.boxes import QUICK, needs_bwrap

ROW: dict[str, Any] = {
    "instance_id": "maths__sums-7",
    "repo": "maths/sums",
    "base_commit": "0" * 40,
    "version": "1.0",
    "problem_statement": "add(1, 2) gives -1\x1b[31m",
    "patch": "",
    "test_patch": "--- a/tests/test_add.py\n+++ b/tests/test_add.py\n@@ -0,0 +1 @@\n+x\n",
    "FAIL_TO_PASS": json.dumps(["tests/test_add.py::test_add"]),
    "PASS_TO_PASS": ["tests/test_add.py::test_zero"],
}
LOG = """noise PASSED tests/test_add.py::test_add
>>>>> tests start here
PASSED tests/test_add.py::test_zero
FAILED tests/test_add.py::test_add - assert -1 == 3
ERROR tests/test_add.py::test_setup - fixture
SKIPPED [1] tests/test_add.py:3: no reason
XFAIL tests/test_add.py::test_known
"""


@pytest.mark.parametrize("suffix", ["jsonl", "json", "parquet"])
def test_rows_from_files(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"rows.{suffix}"
    if suffix == "parquet":
        pq.write_table(pa.Table.from_pylist([ROW]), path)
    else:
        path.write_text(json.dumps([ROW] if suffix == "json" else ROW))
    world = CodeRepairWorld(CodeRepairOptions(tasks=str(path)))
    assert world.splits() == ("test",)
    issue = world.problem(world.instance("test", 0))
    assert isinstance(issue, Issue)
    assert (issue.fail_to_pass, issue.pass_to_pass) == (
        ("tests/test_add.py::test_add",),
        ("tests/test_add.py::test_zero",),
    )
    assert issue.goal == "Resolve this issue of maths/sums:\nadd(1, 2) gives -1[31m"
    assert world.instance("test", 0).kind == "issue"
    assert world.expert(0) is None


def test_no_docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rows.jsonl").write_text(json.dumps(ROW))
    world = CodeRepairWorld(CodeRepairOptions(tasks=str(tmp_path / "rows.jsonl")))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(TaskError, match=r"no docker here.*docs.docker.com"):
        world.open().start(world.instance("test", 0))


def test_names_of_images(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(swebench.platform, "machine", lambda: "x86_64")
    assert image_name("Astropy__astropy-12907") == "swebench/sweb.eval.x86_64.astropy_1776_astropy-12907:latest"
    for bad in ("a b", "--privileged x", "a:b", "", "a/b"):
        with pytest.raises(TaskError):
            image_name(bad)


@pytest.mark.parametrize(
    ("change", "said"),
    [({"repo": None}, "lacks repo"), ({"FAIL_TO_PASS": "x"}, "not JSON"), ({"PASS_TO_PASS": "{}"}, "not a list")],
)
def test_odd_rows(change: dict[str, Any], said: str) -> None:
    with pytest.raises(TaskError, match=said):
        list(issues([ROW | change]))


def test_reading_a_log() -> None:
    run = read_log("maths/sums", LOG)
    assert run.outcomes == {
        "tests/test_add.py::test_zero": "passed",
        "tests/test_add.py::test_add": "failed",
        "tests/test_add.py::test_setup": "failed",
        "[1] tests/test_add.py:3: no reason": "skipped",
        "tests/test_add.py::test_known": "passed",
    }
    assert run.complete
    assert not read_log("maths/sums", "").complete


class LocalImage(Bubblewrap):
    """Stands in for a container: the same tree and commands, in a bubblewrap box that has no conda."""

    def __init__(self) -> None:
        super().__init__(QUICK)
        self.scripts: list[str] = []

    def exec(self, command: Sequence[str], extra: Mapping[str, bytes] | None = None) -> Outcome:
        script = command[-1].removeprefix(swebench._BASH)  # pyright: ignore
        self.scripts.append(script)
        script = script.replace("&& pytest", f"&& PYTHONPATH=. {sys.executable} -m pytest")
        return super().exec(["/bin/bash", "-c", script], extra)


TEST = "from sums.add import add\n\n\ndef test_zero():\n    assert add(2, 0) == 2\n"
PATCH = """--- a/tests/test_add.py
+++ b/tests/test_add.py
@@ -3,3 +3,7 @@

 def test_zero():
     assert add(2, 0) == 2
+
+
+def test_add():
+    assert add(1, 2) == 3
"""


@needs_bwrap
def test_grading(monkeypatch: pytest.MonkeyPatch) -> None:
    files = {
        "sums/__init__.py": b"",
        "sums/add.py": b"def add(a, b):\n    return a - b\n",
        "tests/test_add.py": TEST.encode(),
    }
    items = {path: Item(data) for path, data in files.items()}
    monkeypatch.setattr(swebench, "_files", lambda image: items)  # pyright: ignore
    issue = next(issues([ROW | {"test_patch": PATCH}]))

    def graded(diff: dict[str, str]) -> tuple[bool, int, int]:
        found = issue.grade(lambda _: LocalImage(), {path: text.encode() for path, text in diff.items()})
        return found.resolved, found.fixed, found.kept

    right = "def add(a, b):\n    return a + b\n"
    assert graded({}) == (False, 0, 1)
    assert graded({"sums/add.py": right}) == (True, 1, 1)
    assert graded({"sums/add.py": "def add(a, b):\n    return 3\n"}) == (False, 1, 0)
    assert graded({"sums/add.py": "from sums.new import add\n", "sums/new.py": right}) == (True, 1, 1)
    assert graded({"tests/test_add.py": "def test_add(): pass\ndef test_zero(): pass\n"}) == (False, 0, 1)
    image = LocalImage()
    image.start(items)
    assert issue.run_tests(image, ["tests/test_add.py"]).passed() == {"tests/test_add.py::test_zero"}
    assert image.scripts == [
        "echo '>>>>> tests start here' && pytest -rA --tb=short -p no:cacheprovider tests/test_add.py"
    ]
    assert Tree(items).read("sums/add.py").startswith(b"def add")


def test_agrees_with_swebench_itself() -> None:
    """The package that grades SWE-bench reads the same logs, and comes to the same verdict."""
    pytest.importorskip("swebench", reason="needs the swebench package: pip install swebench==5.0.2")
    from swebench.harness.constants import FAIL_TO_PASS, PASS_TO_PASS, ResolvedStatus
    from swebench.harness.grading import get_eval_tests_report, get_resolution_status
    from swebench.harness.log_parsers.python import parse_log_pytest

    theirs = parse_log_pytest(LOG.partition(">>>>> tests start here\n")[2], None)
    ours = read_log("maths/sums", LOG)
    for test, status in theirs.items():
        if "::" in test:
            assert (ours.outcomes[test] == "passed") == (status in ("PASSED", "XFAIL")), test
    for fail, keep in ((["a"], ["b"]), (["a", "c"], ["b"]), (["a"], ["b", "c"]), ([], ["a"])):
        for passed in ({"a", "b"}, {"a"}, {"b"}, {"a", "b", "c"}, set[str]()):
            log = {test: "PASSED" if test in passed else "FAILED" for test in "abc"}
            report = get_eval_tests_report(log, {FAIL_TO_PASS: fail, PASS_TO_PASS: keep})
            full = get_resolution_status(report) == ResolvedStatus.FULL.value
            assert swebench.verdict(passed, fail, keep).resolved == full, (fail, keep, passed)
