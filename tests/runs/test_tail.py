"""Logs that grow, are cut, replaced or damaged while they are read."""

from __future__ import annotations

import json
import math
import os
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isentrope.core.errors import RunError
from isentrope.runs.columns import Columns
from isentrope.runs.folder import Run
from isentrope.runs.layout import EVENTS, METRICS
from isentrope.runs.log import Tail, mend_end, read_records, truncate_logs


def line(step: int, **values: Any) -> str:
    return json.dumps({"step": step, "kind": "train", **values}) + "\n"


def test_only_what_is_new_is_read(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    tail = Tail(path)
    assert tail.new_records() == (False, [])
    path.write_text(line(1, a=1.0) + line(2, a=2.0))
    assert [record["step"] for record in tail.new_records()[1]] == [1, 2]
    assert tail.new_records() == (False, [])
    with path.open("a") as file:
        file.write(line(3, a=3.0))
    again, records = tail.new_records()
    assert (again, [record["step"] for record in records]) == (False, [3])


def test_a_half_written_line_waits_for_its_other_half(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    tail = Tail(path)
    whole = line(2, a=0.5)
    path.write_text(line(1) + whole[:9])
    assert len(tail.new_records()[1]) == 1
    assert tail.new_records() == (False, [])
    with path.open("a") as file:
        file.write(whole[9:])
    assert tail.new_records()[1] == [{"step": 2, "kind": "train", "a": 0.5}]
    assert tail.bad == 0


def test_a_resumed_run_begins_anew(tmp_path: Path) -> None:
    """Resuming writes a new file with fewer lines; by the next look it may have grown past the old one."""
    path = tmp_path / "metrics.jsonl"
    path.write_text(line(1) + line(2) + line(3))
    tail = Tail(path)
    tail.new_records()
    other = tmp_path / "new"
    other.write_text(line(1) + line(2) + line(3, again=1.0) + line(4))
    other.replace(path)
    again, records = tail.new_records()
    assert again
    assert tail.begun == 1
    assert [record["step"] for record in records] == [1, 2, 3, 4]
    os.truncate(path, len(line(1)))
    again, records = tail.new_records()
    assert again
    assert [record["step"] for record in records] == [1]
    path.unlink()
    assert tail.new_records() == (True, [])


def test_lines_that_are_no_records_are_counted_and_left_out(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b"[1]\nnot json\n\xff\xfe\n" + b'{"step": "x"}\n{"step": 1e999}\n' + line(5).encode())
    tail = Tail(path)
    assert [record["step"] for record in tail.new_records()[1]] == [5]
    assert tail.bad == 5


@given(st.lists(st.integers(1, 60), max_size=12))
def test_in_whatever_pieces_it_arrives_the_log_reads_the_same(cuts: list[int]) -> None:
    import tempfile

    data = "".join(line(step, a=step / 7) for step in range(8)).encode()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "metrics.jsonl"
        tail, seen, at = Tail(path), [], 0
        for cut in [*cuts, len(data)]:
            with path.open("ab") as file:
                file.write(data[at : at + cut])
            at += cut
            seen += tail.new_records()[1]
        assert seen == read_records(path)


def test_a_line_without_an_end_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("isentrope.runs.log._LOOK_BYTES", 30)
    monkeypatch.setattr("isentrope.runs.log._LONG_LOOK_BYTES", 100)
    path = tmp_path / "log"
    path.write_text("x" * 250 + '\n{"step": 7}\n')
    tail = Tail(path)
    found = [tail.new_records()[1] for _ in range(4)]
    assert [record["step"] for records in found for record in records] == [7]


def test_a_line_longer_than_a_look_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("isentrope.runs.log._LOOK_BYTES", 30)
    path = tmp_path / "log"
    path.write_text(line(1, a=0.5, b=0.25, long_name_of_a_metric=3.0) + line(2))
    tail = Tail(path)
    assert [record["step"] for _ in range(3) for record in tail.new_records()[1]] == [1, 2]


def test_a_log_may_begin_with_a_mark_and_hold_half_letters(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"\xef\xbb\xbf" + line(1, a=0.5).encode() + b'{"step": 2, "b": "\xed\xa0\x80"}\n\xff\xfe\n')
    tail = Tail(path)
    assert [record["step"] for record in tail.new_records()[1]] == [1, 2]
    assert tail.bad == 1


def test_of_a_very_large_log_one_of_so_many_training_records_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("isentrope.runs.log.THIN_BYTES", 400)
    monkeypatch.setattr("isentrope.runs.log._LOOK_BYTES", 100)
    path = tmp_path / METRICS
    lines = [line(step, a=0.5) for step in range(1, 43)]
    lines.insert(20, '{"step": 20, "kind": "eval", "eval/seen/success": 0.5}\n')
    path.write_text("".join(lines))
    every = -(-path.stat().st_size // 400)
    tail = Tail(path, thin=True)
    records = list(tail.all_records())
    assert [record["step"] for record in records if record["kind"] == "train"] == [*range(1, 43, every), 42]
    assert [record["step"] for record in records if record["kind"] == "eval"] == [20]
    assert f"one of {every} training records" in tail.problem
    with path.open("a") as file:
        file.write(line(43))
    assert [record["step"] for record in tail.all_records()] == [43]  # the newest one
    assert len(read_records(path)) == 44
    assert Tail(path).problem == ""
    assert len(Run.open(tmp_path).records) == 44
    assert len(Run.open(tmp_path, thin=True).records) < 15


def test_a_reason_for_an_end_is_not_written_into_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / EVENTS)
    with pytest.raises(RunError, match=r"events.jsonl: events.jsonl is not a file"):
        mend_end(tmp_path / EVENTS)


def test_a_log_is_written_anew_without_holding_its_records(tmp_path: Path) -> None:
    path = tmp_path / METRICS
    text = '{"step": 3, "kind": "train", "entropy/token": 0.5}\n'
    path.write_text(text * 10_000 + text.replace("3", "4") * 10_000 + '{"step": 5, "ki')
    tracemalloc.start()
    truncate_logs(tmp_path, 3)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5.5e6  # of 1 MB of text, and room for one more; all records take 7 MB
    assert path.read_text() == text * 10_000


def test_columns_give_what_came_between_two_records() -> None:
    columns = Columns()
    for record in (
        {"step": 0, "kind": "eval", "e": 0.25},
        {"step": 1, "kind": "train", "a": 1.0, "b": None},
        {"step": 2, "kind": "train", "a": 2.123456789},
        {"step": 3, "kind": "train", "a": math.inf, "c": "text", "d": True},
    ):
        columns.add(record)
    assert columns.rows == 4
    assert columns.last_step == 3
    assert sorted(columns.keys) == ["a", "b", "e"]
    assert columns.between("a", 0, 4) == ([1, 2, 3], [1.0, 2.12346, None])
    assert columns.between("a", 2, 3) == ([2], [2.12346])
    assert columns.between("b", 0, 4) == ([1], [None])
    assert columns.between("nothing", 0, 4) == ([], [])
    assert columns.last("a") == 2.123456789
    assert columns.last("b") is None
