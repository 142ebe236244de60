"""Text, scales, token texts and charts, each on its own."""

from __future__ import annotations

import json
import math
import re
import unicodedata
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isentrope.report.axes import Chart, Panel, Series
from isentrope.report.episodes import LEVELS, MOST_NATS, level_of
from isentrope.report.figures import draw, stage_marks
from isentrope.report.plots import SECTIONS
from isentrope.report.scale import Scale, decimals, nice_ticks, spread
from isentrope.report.svg import line_chart, stacked_bars
from isentrope.report.text import clipped, duration, safe, short, unbroken, visible
from isentrope.runs.log import Record
from isentrope.runs.token_texts import PARTIAL, TokenTexts, shown_token_texts

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


def test_texts_of_tokens() -> None:
    duck = "🦆".encode()
    tokens = TokenTexts([b"go", duck[:2], duck[2:], b"\xff", None, b"!"])
    assert tokens.texts([0, 1, 2, 3, 4, 9, -1]) == ["go", PARTIAL, "🦆", "�", "[4]", "[9]", "[-1]"]


@pytest.mark.parametrize("content", [None, "{", "{}", "3", '[[256], [-1], ["a"], 7, null]', "\udc80"])
def test_a_bad_table_of_tokens_shows_ids(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "tokens.json").write_bytes(content.encode("utf-8", "surrogateescape"))
    assert shown_token_texts(tmp_path).texts([0, 4]) == ["[0]", "[4]"]


def test_a_table_holds_bytes_or_texts(tmp_path: Path) -> None:
    (tmp_path / "tokens.json").write_text(json.dumps([[104, 105], " you"]))
    assert shown_token_texts(tmp_path).texts([0, 1, 2]) == ["hi", " you", "[2]"]


def test_shades_of_entropy() -> None:
    assert [level_of(value) for value in (0.0, -1.0, math.nan, MOST_NATS, 99.0)] == [0, 0, 0, LEVELS - 1, LEVELS - 1]
    levels = [level_of(value / 100) for value in range(400)]
    assert levels == sorted(levels)
    assert set(levels) == set(range(LEVELS))


def chart(*series: Series) -> ElementTree.Element:
    return ElementTree.fromstring(line_chart(Chart([Panel(list(series))], "a < b")))


def test_a_gap_breaks_the_line() -> None:
    line = chart(Series("a", [0, 1, 2, 3, 4], [1, 2, None, 2, 1])).find(f"{SVG}path")
    assert line is not None
    assert line.attrib["d"].count("M") == 2


def test_a_single_point_is_seen() -> None:
    drawn = chart(Series("a", [3], [0.5], [0.4], [0.6]))
    assert len(drawn.findall(f"{SVG}circle")) == 1
    assert [one for one in drawn.findall(f"{SVG}line") if "c0" in one.attrib["class"]]


def test_long_lines_are_thinned_and_keep_their_end() -> None:
    drawn = chart(Series("a", list(range(5000)), [float(i) for i in range(5000)]))
    stops = json.loads(drawn.attrib["data-hover"])["stops"]
    assert len(stops) <= 402
    assert stops[-1][1] == "step 4999"


def test_what_hovers_is_what_was_measured() -> None:
    drawn = chart(Series("a", [0, 1], [0.5, None], color=2), Series("b<i>", [1], [3.0]))
    data = json.loads(drawn.attrib["data-hover"])
    assert data["names"] == ["a", "b<i>"]
    assert data["colors"] == [2, 0]
    assert [(label, [(row[0], row[2]) for row in rows]) for _, label, rows in data["stops"]] == [
        ("step 0", [(0, "0.5")]),
        ("step 1", [(1, "3")]),
    ]


def test_smoothing_leaves_a_peak_where_it_is() -> None:
    values = [math.exp(-(((i - 60) / 5) ** 2)) for i in range(100)]
    paths = chart(Series("a", list(range(100)), list(values), smooth=True)).findall(f"{SVG}path")
    assert len(paths) == 2
    for path in paths:
        heights = [float(point.split()[1]) for point in path.attrib["d"][1:].split("L")]
        assert heights.index(min(heights)) == 60


def test_bars_stand_on_each_other() -> None:
    layers = [Series("a", [0, 1], [1, 3]), Series("b", [0, 1], [2, 1], color=1)]
    drawn = ElementTree.fromstring(stacked_bars(Chart([Panel(layers)], "time"), "s"))
    low, _, high, _ = drawn.findall(f"{SVG}rect")
    assert float(high.attrib["y"]) + float(high.attrib["height"]) == pytest.approx(float(low.attrib["y"]), abs=0.11)
    assert float(high.attrib["height"]) == pytest.approx(2 * float(low.attrib["height"]), abs=0.3)


@pytest.mark.parametrize("count", [1, 3, 60])
def test_bars_fill_the_width(count: int) -> None:
    chart = Chart([Panel([Series("a", [float(i) for i in range(count)], [1.0] * count)])], "time", width=1060)
    bars = ElementTree.fromstring(stacked_bars(chart, "s")).findall(f"{SVG}rect")
    middles = [float(bar.attrib["x"]) + float(bar.attrib["width"]) / 2 for bar in bars]
    assert len(bars) == count
    assert max(middles) - min(middles) == pytest.approx((count - 1) / count * 1000, rel=0.1)
    assert (max(middles) + min(middles)) / 2 == pytest.approx(530, abs=40)


@given(st.lists(st.one_of(st.none(), numbers), min_size=1, max_size=40), st.booleans())
def test_any_numbers_can_be_drawn(values: list[float | None], zero: bool) -> None:
    series = Series("a", [float(i) for i in range(len(values))], values, values, values, markers=True, smooth=True)
    text = line_chart(Chart([Panel([series]), Panel([series])], "x", zero=zero))
    ElementTree.fromstring(text)
    assert "nan" not in text
    assert "inf" not in text


def test_a_change_of_stage_is_marked_where_it_happens() -> None:
    records: list[Record] = [{"step": step, "plan/stage": 1.0 if step <= 3 else 2.0} for step in range(1, 7)]
    assert stage_marks(records) == ((4.0, "stage 2"),)
    assert stage_marks([{"step": 1}, {"step": 2}]) == ()
    series = Series("a", [1.0, 6.0], [0.0, 1.0])
    chart = Chart([Panel([series], marks=((4.0, "stage <2>"), (99.0, "outside")))], "x")
    drawn = line_chart(chart)
    assert drawn.count('class="change"') == 1
    assert "stage &lt;2&gt;" in drawn
    assert "outside" not in drawn


@pytest.mark.parametrize("width", [340, 460])
@pytest.mark.parametrize("low", [-0.004, -12_345.0, -3e-7])
def test_labels_of_the_y_axis_have_room(width: int, low: float) -> None:
    chart = Chart([Panel([Series("a", [0.0, 1.0], [low, 0.0])])], "x", width=width)
    drawn = ElementTree.fromstring(line_chart(chart))
    labels = [one for one in drawn.findall(f"{SVG}text") if one.attrib.get("text-anchor") == "end"]
    assert any((one.text or "").startswith("-") for one in labels)
    for label in labels:
        assert float(label.attrib["x"]) - 7 * len(label.text or "") >= 0, label.text


def test_a_mark_at_the_right_edge_stays_on_the_page() -> None:
    series = Series("a", [float(x) for x in range(31)], [0.0] * 31)
    for at in (2.0, 29.0):
        chart = Chart([Panel([series], marks=((at, "stage 2"),))], "x", width=340)
        (label,) = [
            one for one in ElementTree.fromstring(line_chart(chart)).iter(f"{SVG}text") if one.text == "stage 2"
        ]
        x, width = float(label.attrib["x"]), 7 * len("stage 2")
        left, right = (x - width, x) if label.attrib.get("text-anchor") == "end" else (x, x + width)
        assert left >= 0
        assert right <= 340


def test_a_reason_that_did_not_occur_is_zero_and_not_a_gap() -> None:
    (plot,) = [one for one in SECTIONS["Behaviour"] if "verdict/" in one.keys]
    records: list[Record] = [{"step": step, "valid_ratio": 1.0} for step in range(4)] + [{"step": 4}]
    records[0] |= {"valid_ratio": 0.5, "verdict/too_long": 0.5}
    records[3] |= {"valid_ratio": 0.5, "verdict/too_long": 0.5}
    figure = draw(plot, records)
    assert figure is not None
    stops = json.loads(ElementTree.fromstring(figure.pictures[0]).attrib["data-hover"])["stops"]
    assert [rows[0][2] for _, _, rows in stops] == ["50.0%", "0.0%", "0.0%", "50.0%"]
