"""What a bench says: kept as JSON, judged against its bar, shown as a table."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from isentrope.bench.results import Result, Row, finish, read_result, table_of
from isentrope.core.errors import RunError

numbers = st.floats(0, 1e6)
rows = st.builds(
    Row,
    st.text(max_size=9),
    numbers,
    st.text(max_size=9),
    st.none() | numbers,
    st.text(max_size=9),
    st.none() | numbers,
)


@given(st.lists(rows, max_size=4))
def test_comes_back_as_written(tmp_path_factory: pytest.TempPathFactory, rows: list[Row]) -> None:
    path = tmp_path_factory.mktemp("r") / "deep" / "one.json"
    result = Result("one", "a machine", "2026-01-02", rows)
    result.write(path)
    assert read_result(path) == result


@pytest.mark.parametrize(
    ("ratio", "bar", "met"), [(3.0, 3.0, True), (2.99, 3.0, False), (None, 3.0, None), (9.0, None, None)]
)
def test_bars(ratio: float | None, bar: float | None, met: bool | None) -> None:
    row = Row("step", 1.0, "s", ratio, "peer", bar)
    assert row.met is met
    assert Result("x", "m", "d", [row]).met is (met is not False)


@pytest.mark.parametrize(
    "text", ["", "[]", '{"name": 1}', '{"name":"a","machine":"b","date":"c","rows":[{"what":"x"}]}']
)
def test_what_is_no_result_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(RunError, match=r"bad\.json is no result of a bench"):
        read_result(path)


def test_the_table_shows_ratio_bar_and_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    finish("speed", [Row("step [b]", 2.5, "s", 2.0, "TRL", 3.0, "4 × 8")], tmp_path / "speed.json")
    told = capsys.readouterr().out
    for text in ("step [b]", "2.5", "2.00 ×", "TRL", "3 × MISSED", "4 × 8"):
        assert text in told
    assert json.loads((tmp_path / "speed.json").read_text())["rows"][0]["bar"] == 3.0
    console = Console(file=StringIO(), width=120)
    console.print(table_of(Result("a", "b", "c", [Row("x", 12345.0, "tokens/s", 4.0, "p", 3.0)])))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "12,345" in shown
    assert "met" in shown
