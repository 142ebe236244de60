"""Phases, alarms and the doctor's words on the page of a run."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from itertools import pairwise
from pathlib import Path
from typing import Any

from isentrope.charts.axes import BOTTOM, TOP, Scale, alarm_flags, phase_bands
from isentrope.charts.chart import Chart, Flag, Panel, Series, Shade
from isentrope.charts.svg import lines
from isentrope.metrics.log import record_of
from isentrope.report.page import write_report
from isentrope.report.story import alarms_of, phases_of
from isentrope.runs.folder import Run
from isentrope.runs.layout import EVENTS, METRICS
from tests.builders.run_folders import make_run
from tests.report.test_page import HOSTILE, Tags


def write_lines(path: Path, lines: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def charts_of(page: str, section: str) -> list[dict[str, Any]]:
    """The charts' data in a section of a page."""
    text = page.split(f'<section id="{section}">')[1].split("</section>")[0]
    return [json.loads(data) for data in re.findall(r'<script type="application/json">(.*?)</script>', text)]


def alarm(step: int, text: str = "Entropy rose.", remedy: str = "seal") -> dict[str, Any]:
    return {"step": step, "kind": "alarm", "name": "eruption", "text": text, "remedy": remedy}


def test_the_phases_of_a_run_that_erupts_once(tmp_path: Path) -> None:
    """The made run has its eruption around 55 % of the way: exp(-((step / 100 - 0.55) / 0.07)²)."""
    phases = phases_of(Run.open(make_run(tmp_path / "a")))
    assert [phase.name for phase in phases] == ["descent", "eruption", "subsidence"]
    assert phases[0].first == 0
    assert phases[-1].last == 99
    assert all(b.first == a.last + 1 for a, b in pairwise(phases))
    assert 40 <= phases[1].first <= 52
    assert 52 <= phases[1].last <= 60


def test_phases_without_an_entropy_curve(tmp_path: Path) -> None:
    """As the metric tells them, or else as the events do; a phase nobody knows is left out."""
    (tmp_path / "a").mkdir()
    told = [0, 0, 1, 1, 2, 7, 2]
    write_lines(
        tmp_path / "a" / METRICS, [{"step": n, "kind": "train", "phase": phase} for n, phase in enumerate(told)]
    )
    shades = [(shade.first, shade.last, shade.name) for shade in phases_of(Run.open(tmp_path / "a"))]
    assert shades == [(0, 1, "descent"), (2, 3, "eruption"), (4, 6, "subsidence")]
    (tmp_path / "b").mkdir()
    write_lines(tmp_path / "b" / METRICS, [{"step": n, "kind": "train"} for n in range(9)])
    events = [{"step": 4, "kind": "phase", "name": "eruption"}, {"step": 5, "kind": "phase", "name": "<b>"}, alarm(4)]
    write_lines(tmp_path / "b" / EVENTS, events)
    shades = [(shade.first, shade.last, shade.name) for shade in phases_of(Run.open(tmp_path / "b"))]
    assert shades == [(4, 8, "eruption")]


def test_alarms_are_as_they_were_said(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a")
    assert [one.name for one in alarms_of(Run.open(run))][:1] == ["eruption"]  # no events: as they would be said now
    switched = {"step": 50, "kind": "switch", "name": "seal", "text": "The method seal is on.", "remedy": ""}
    write_lines(run / EVENTS, [{"step": 44, "kind": "phase", "name": "eruption"}, switched, alarm(44)])
    assert [(one.step, one.name) for one in alarms_of(Run.open(run))] == [(44, "eruption"), (50, "seal")]
    write_lines(run / EVENTS, [{"step": 44, "kind": "phase", "name": "eruption"}])
    assert alarms_of(Run.open(run)) == ()


def test_the_page_tells_them(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a")
    write_lines(run / EVENTS, [alarm(44, "Entropy rose from 0.3 to 0.6.", "seal."), alarm(60)])
    page = write_report(run).read_text()
    text = Tags(page).text
    assert "What happened" in text
    assert re.search(r"Entropy \([^)]+\) erupted at step", text)  # the doctor's words, explained
    assert "Step 44, eruption. Entropy rose from 0.3 to 0.6. Try: seal." in text
    (panel,) = charts_of(page, "entropy")[0]["panels"]
    assert [name for _, _, name in panel["shades"]] == ["eruption", "subsidence"]
    assert [number for _, number, _ in panel["flags"]] == [1, 2]
    assert panel["flags"][0] == [44, 1, "eruption. Entropy rose from 0.3 to 0.6."]
    assert '<li class="phase-key eruption">' in page


def test_hostile_events_stay_text(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a", steps=4)
    events = [{"step": 2, "kind": "alarm", "name": HOSTILE, "text": HOSTILE, "remedy": HOSTILE}, {"step": 1, "kind": 3}]
    write_lines(
        run / EVENTS, [*events, {"step": 3, "kind": "phase", "name": HOSTILE}, {"step": 3, "name": [1], "text": 2}]
    )
    page = write_report(run).read_text()
    tags = Tags(page)
    assert tags.tags.count("script") == tags.tags.count("style") == 1
    assert not {"img", "b onload"} & set(tags.tags)
    assert not [name for name, _ in tags.attributes if name.startswith("on") or name == "style"]
    assert "</script><script>alert(1)</script>" in tags.text


def test_a_phase_covers_its_steps_and_no_more() -> None:
    """Steps 0 to 10 on 100 to 200: a step is 10 wide. Steps 2 to 4 reach from 1.5 to 4.5, i.e. 115 to 145."""
    panel = Panel([], shades=(Shade(2, 4, "eruption"), Shade(9, 30, "subsidence"), Shade(20, 30, "eruption")))
    drawn = ElementTree.fromstring(f"<g>{phase_bands(panel, Scale(0, 10, 100, 200), TOP, 240 - BOTTOM - TOP)}</g>")
    bands = [one for one in drawn if "top" not in one.attrib["class"]]
    assert [(one.attrib["x"], one.attrib["width"]) for one in bands] == [("115.0", "30.0"), ("185.0", "15.0")]
    assert {one.attrib["y"] for one in drawn} == {str(TOP)}
    assert bands[0].attrib["height"] == str(240 - BOTTOM - TOP)


def test_flags_that_would_overlap_keep_their_lines() -> None:
    flags = tuple(Flag(step, number, "x") for number, step in enumerate((1.0, 1.5, 5.0, 99.0), start=1))
    drawn = ElementTree.fromstring(f"<g>{alarm_flags(Panel([], flags=flags), Scale(0, 10, 100, 200), 12, 200, 7)}</g>")
    assert [group.findtext("text") for group in drawn] == ["1", None, "3"]  # step 99 is outside
    assert all(group.find("line") is not None for group in drawn)


def test_bands_lie_behind_the_lines() -> None:
    panel = Panel([Series("a", [0.0, 9.0], [0.0, 1.0])], shades=(Shade(2, 4, "eruption"),))
    drawn = lines(Chart("x", [panel]), 460, 240)
    assert drawn.index("phase eruption") < drawn.index('class="line c0"')


def test_the_instruments_have_figures_where_they_measured(tmp_path: Path) -> None:
    values = {
        "entropy/turns/1": 0.5, "entropy/turns/16": 0.1, "entropy/turns/2": 0.4, "entropy/kind/pick": 0.3,
        "entropy/outcome/solved": 0.2, "entropy/outcome/failed": 0.4, "drift/predicted": 20.0, "drift/measured": -0.1,
        "drift/agreement": 0.7, "likelihood/valid": -0.3, "degeneracy/duplication": 0.02,
        "degeneracy/length_drift": 1.1, "response/outcome/solved": 15.0, "response/outcome/failed": 40.0,
        "probe/delta_h": 0.2, "probe/similarity/between": 0.9,
        "probe/interference/negative": 3.0,
    }  # fmt: skip
    records = [record_of(step, {key: value * step for key, value in values.items()}, "train") for step in (1, 2)]
    write_lines(tmp_path / METRICS, records)
    page = write_report(tmp_path).read_text()
    for title in (
        "Entropy by turn",
        "Entropy by task type",
        "Entropy by outcome",
        "Likelihood by outcome",
        "Length of a response by outcome",
        "Repetition",
        "Drift of entropy, foretold and measured",
        "Forecasts that were right",
        "Drift of the length",
        "What thinking takes off the entropy",
        "Similarity of hidden states",
        "Interference of gradients",
    ):
        assert page.count(f"<h3>{title}") == 1, title  # fmt: skip
    turns = page.split("<h3>Entropy by turn")[1].split("</figure>")[0]
    assert re.findall(r"</svg>([^<]+)</button>", turns) == ["turn 1", "turns 2 to 3", "turns 16 to 31"]
    lengths = page.split("<h3>Length of a response by outcome")[1].split("</figure>")[0]
    assert re.findall(r"</svg>([^<]+)</button>", lengths) == ["solved", "not solved"]
    for title in ("Surprisal", "Invented things", "What the judge finds", "Σ"):
        assert f"<h3>{title}" not in page


def test_a_forecast_stands_over_the_step_that_it_foretold(tmp_path: Path) -> None:
    """Foretold at 1 and 2 with 3 and -3: over the steps 2 and 3, divided by their root mean square, 3."""
    rows = [{"drift/predicted": 3.0}, {"drift/predicted": -3.0, "drift/measured": 0.5}, {"drift/measured": -0.5}]
    write_lines(tmp_path / METRICS, [record_of(step, row, "train") for step, row in enumerate(rows, start=1)])
    page = write_report(tmp_path).read_text()
    (panel,) = charts_of(page, "drift")[0]["panels"]
    measured, foretold = panel["lines"]
    assert (measured["name"], foretold["name"]) == ("measured", "foretold by the update before")
    assert panel["steps"] == [[2, 3]]
    assert measured["y"] == foretold["y"] == [1.0, -1.0]
