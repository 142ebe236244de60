"""Text, scales and charts: as SVG, and as data for the pages' script."""

from __future__ import annotations

import json
import math
import re
import unicodedata
import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isentrope.charts.axes import Scale, decimals, nice_ticks, spread
from isentrope.charts.chart import Chart, Panel, Series
from isentrope.charts.data import as_json
from isentrope.charts.svg import lines, picture
from isentrope.charts.text import clipped, duration, file_name, safe, short, unbroken, visible
from isentrope.metrics.log import Record
from isentrope.report.figures import stage_marks

SVG = "{http://www.w3.org/2000/svg}"
numbers = st.floats(-1e9, 1e9)


@given(st.text())
def test_nothing_unseen_is_left_in_a_text(text: str) -> None:
    shown = visible(text)
    hidden = [char for char in shown if char not in "\n\t" and unicodedata.category(char)[0] == "C"]
    assert hidden == []
    assert not set(safe(text)) & set("<>\"'")


def test_a_direction_override_is_written_out() -> None:
    assert visible("a\u202eb\x00\u2028c\n") == "a⟨U+202E⟩b⟨U+0000⟩⟨U+2028⟩c\n"
    assert safe('</script a="b">') == "&lt;/script a=&quot;b&quot;&gt;"


def test_numbers_and_long_texts() -> None:
    shown = [short(value) for value in (0, 1234.5, 12.345, 0.0213, 0.00002, 2.5e7)]
    assert shown == ["0", "1,234", "12.3", "0.0213", "2e-05", "2.5e+07"]
    assert [duration(value) for value in (59, 600, 7200)] == ["59 s", "10 min", "2.0 h"]
    assert clipped("abcdef", 3) == "abc … (3 more characters)"
    assert clipped("abc", 3) == "abc"


def test_lines_do_not_end_inside_of_options_and_numbers() -> None:
    said = unbroken(safe("Try: --resume; learn.lr is 1e-06, 84 % solved <b> a--b"))
    together = re.findall(r'<span class="together">(.*?)</span>', said)
    assert together == ["--resume", "1e-06", "84 %"]
    assert re.sub(r'<span class="together">(.*?)</span>', r"\1", said) == safe(
        "Try: --resume; learn.lr is 1e-06, 84 % solved <b> a--b"
    )


@given(numbers, numbers, st.integers(1, 8))
def test_ticks_cover_the_range_at_even_steps(one: float, other: float, count: int) -> None:
    low, high = spread([one, other], zero=False, most=None)
    ticks = nice_ticks(low, high, count)
    slack = 1e-6 * (ticks[1] - ticks[0])
    assert ticks[0] <= low + slack
    assert ticks[-1] >= high - slack
    assert len(ticks) <= count + 3
    labels = [f"{tick:.{decimals(ticks)}f}" for tick in ticks]
    assert len(set(labels)) == len(labels)


def test_ticks_by_hand() -> None:
    assert nice_ticks(0, 1, 5) == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1.0])
    assert nice_ticks(0, 97, 4) == [0, 50, 100]
    assert nice_ticks(0, 2, 8, least=1.0) == [0, 1, 2]
    assert Scale(0, 10, 100, 0)(2.5) == 75.0


def chart(*series: Series) -> ElementTree.Element:
    return ElementTree.fromstring(lines(Chart("a < b", [Panel(list(series))]), 460, 240))


def test_a_gap_breaks_the_line() -> None:
    line = chart(Series("a", [0, 1, 2, 3, 4], [1, 2, None, 2, 1])).find(f"{SVG}path")
    assert line is not None
    assert line.attrib["d"].count("M") == 2


def test_a_single_point_is_seen() -> None:
    drawn = chart(Series("a", [3], [0.5], [0.4], [0.6]))
    assert len(drawn.findall(f"{SVG}circle")) == 1
    assert [one for one in drawn.findall(f"{SVG}line") if "c0" in one.attrib["class"]]


def test_smoothing_leaves_a_peak_where_it_is() -> None:
    values = [math.exp(-(((i - 60) / 5) ** 2)) for i in range(100)]
    paths = chart(Series("a", list(range(100)), list(values), smooth=True)).findall(f"{SVG}path")
    assert len(paths) == 2
    for path in paths:
        heights = [float(point.split()[1]) for point in path.attrib["d"][1:].split("L")]
        assert heights.index(min(heights)) == 60


@given(st.lists(st.one_of(st.none(), numbers), min_size=1, max_size=40), st.booleans())
def test_any_numbers_can_be_drawn(values: list[float | None], zero: bool) -> None:
    series = Series("a", [float(i) for i in range(len(values))], values, values, values, markers=True, smooth=True)
    text = lines(Chart("x", [Panel([series]), Panel([series])], zero=zero), 460, 240)
    ElementTree.fromstring(text)
    assert "nan" not in text
    assert "inf" not in text


def test_a_change_of_stage_is_marked_where_it_happens() -> None:
    records: list[Record] = [{"step": step, "plan/stage": 1.0 if step <= 3 else 2.0} for step in range(1, 7)]
    assert stage_marks(records) == ((4.0, "stage 2"),)
    assert stage_marks([{"step": 1}, {"step": 2}]) == ()
    series = Series("a", [1.0, 6.0], [0.0, 1.0])
    chart = Chart("x", [Panel([series], marks=((4.0, "stage <2>"), (99.0, "outside")))])
    drawn = lines(chart, 460, 240)
    assert drawn.count('class="change"') == 1
    assert "stage &lt;2&gt;" in drawn
    assert "outside" not in drawn


@pytest.mark.parametrize("width", [340, 460])
@pytest.mark.parametrize("low", [-0.004, -12_345.0, -3e-7])
def test_labels_of_the_y_axis_have_room(width: int, low: float) -> None:
    chart = Chart("x", [Panel([Series("a", [0.0, 1.0], [low, 0.0])])])
    drawn = ElementTree.fromstring(lines(chart, width, 240))
    labels = [one for one in drawn.findall(f"{SVG}text") if one.attrib.get("text-anchor") == "end"]
    assert any((one.text or "").startswith("-") for one in labels)
    for label in labels:
        assert float(label.attrib["x"]) - 7 * len(label.text or "") >= 0, label.text


def test_a_mark_at_the_right_edge_stays_on_the_page() -> None:
    series = Series("a", [float(x) for x in range(31)], [0.0] * 31)
    for at in (2.0, 29.0):
        drawn = ElementTree.fromstring(lines(Chart("x", [Panel([series], marks=((at, "stage 2"),))]), 340, 240))
        (label,) = [one for one in drawn.iter(f"{SVG}text") if one.text == "stage 2"]
        x, width = float(label.attrib["x"]), 7 * len("stage 2")
        left, right = (x - width, x) if label.attrib.get("text-anchor") == "end" else (x, x + width)
        assert left >= 0
        assert right <= 340


def data_of(*series: Series, bars: bool = False) -> dict[str, Any]:
    return json.loads(as_json(Chart("a < b", [Panel(list(series))], bars=bars)))


def test_long_lines_are_thinned_and_keep_their_end() -> None:
    (panel,) = data_of(Series("a", list(range(5000)), [float(i) for i in range(5000)]))["panels"]
    assert len(panel["steps"][0]) <= 1002
    assert panel["steps"][0][-1] == panel["lines"][0]["y"][-1] == 4999


def test_data_for_the_script_is_what_was_measured() -> None:
    (panel,) = data_of(Series("a", [0, 1], [0.5, None], color=2), Series("b<i>", [1], [3.0]))["panels"]
    assert panel["steps"] == [[0, 1], [1]]
    first, second = panel["lines"]
    assert first == {"name": "a", "place": 0, "color": 2, "steps": 0, "y": [0.5, None], "markers": True}
    assert second == {"name": "b<i>", "place": 1, "color": 0, "steps": 1, "y": [3.0], "markers": True}


def test_a_moving_mean_comes_with_what_was_measured() -> None:
    values: list[float | None] = [float(i % 2) for i in range(40)]
    (line,) = data_of(Series("a", list(range(40)), values, values, values, smooth=True))["panels"][0]["lines"]
    assert line["measured"] == line["low"] == line["high"] == values
    assert line["y"][5] == pytest.approx(1 / 3, abs=1e-4)  # 0, 1, 0


def test_no_text_ends_the_data() -> None:
    text = as_json(Chart("t", [Panel([Series("</script><!--\u202e&", [0], [1.0])], marks=((0.0, "<b>"),))]))
    assert not set(text) & set("<>&\u202e")
    assert json.loads(text)["panels"][0]["lines"][0]["name"] == "</script><!--⟨U+202E⟩&"


def test_several_charts_have_one_legend() -> None:
    charts = [Chart(name, [Panel([Series("a", [0, 1], [0.0, 1.0]), Series("b", [0, 1], [1.0, 2.0], color=1)], name)])
              for name in ("turns", "tokens")]  # fmt: skip
    drawn = ElementTree.fromstring(picture(*charts, title="Time < 2"))
    texts = [text.text for text in drawn.iter(f"{SVG}text")]
    assert [texts.count(name) for name in ("Time < 2", "a", "b", "turns", "tokens")] == [1] * 5
    assert len([one for one in drawn.iter(f"{SVG}svg") if one.attrib.get("class") == "chart"]) == 2


@pytest.mark.parametrize(
    ("key", "name"), [("a/b", "a-b"), ("../../x", "x"), ("success/été!", "success-t"), ("/", "figure")]
)
def test_file_names_stay_in_their_folder(key: str, name: str) -> None:
    assert file_name(key) == name
