"""HTML that all pages share: the document, sections, cards and figures.

Nothing that a model, a task or a file wrote is trusted: it is escaped wherever it stands, none of it enters a script,
and a page's security policy allows only the script and the style sheet that are named by their hash. Charts are data in
JSON, which the script draws with uPlot as the live page (`isentrope watch`) does.
"""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from pathlib import Path

from isentrope.charts.chart import Chart, Series
from isentrope.charts.data import as_json
from isentrope.charts.style import page_chart_style
from isentrope.charts.svg import brand, key
from isentrope.charts.text import clipped, safe
from isentrope.diagnosis.alarms import Alarm
from isentrope.report.figures import meaning

_STATIC = Path(__file__).parent / "static"
_LIVE = Path(__file__).parents[1] / "watch" / "static"  # the live page's files, of which these pages are made too
_MODULES = (_LIVE / "colours.js", _LIVE / "dom.js", _LIVE / "frame.js", _STATIC / "report.js")
_MOST_ALARMS = 40
_MOST_TEXT = 600


def document(title: str, body: str, foot: str) -> str:
    style, script = style_sheet(), page_script()
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy()}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{safe(title)} · Isentrope</title><style>{style}</style></head>\n"
        f'<body>{body}<footer>{foot}</footer><div id="tip" hidden>'
        f"</div><script>{script}</script></body></html>\n"
    )


def policy() -> str:
    """What a page may load and run: its own script and style, told by their hash, and nothing else."""
    hashes = f"style-src {_hash(style_sheet())}; script-src {_hash(page_script())}"
    return f"default-src 'none'; {hashes}; img-src data:; base-uri 'none'; form-action 'none'"


@cache
def style_sheet() -> str:
    ours = (_STATIC / "report.css").read_text(encoding="utf-8")
    return page_chart_style() + (_LIVE / "vendor" / "uPlot.min.css").read_text(encoding="utf-8") + ours


@cache
def page_script() -> str:
    """uPlot and the modules in one script: a page that is opened as a file may not load any."""
    modules = "".join(path.read_text(encoding="utf-8") for path in _MODULES)
    modules = re.sub(r"^export ", "", re.sub(r"^import .*;\n", "", modules, flags=re.MULTILINE), flags=re.MULTILINE)
    licence, uplot = ((_LIVE / "vendor" / name).read_text() for name in ("LICENSE.uPlot", "uPlot.iife.min.js"))
    return f'(() => {{\n"use strict";\n/* uPlot:\n{licence}*/\n{uplot}\n{modules}}})();\n'


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def nav(titles: list[str]) -> str:
    links = "".join(f'<a href="#{anchor(title)}">{title}</a>' for title in titles)
    return f'<nav><span class="brand">{brand()}Isentrope</span>{links}</nav>'


def anchor(title: str) -> str:
    return title.lower().replace(" ", "-")


def section(title: str, body: str) -> str:
    return f'<section id="{anchor(title)}"><h2>{title}</h2>{body}</section>'


def card(title: str, value: str, note: str) -> str:
    return f'<div class="card"><h3>{title}</h3><div class="big">{value}</div><p class="small">{note}</p></div>'


def figure(chart: Chart, size: str = "half", *, named: bool = True) -> str:
    """A chart as its data, in a card with its legend and caption. `named`: small charts have a legend too."""
    lines = chart.series if named or size == "whole" else []
    has_legend = len(lines) > 1 or bool(chart.note)
    names = "".join(_legend_entry(line, chart.bars) for line in lines) if has_legend else ""
    names += f'<li class="band-key">{safe(chart.note)}</li>' if chart.note else ""
    unit = f"<small>{safe(chart.unit)}</small>" if chart.unit else ""
    return (
        f'<figure class="card {size}"><h3>{safe(chart.title)}{unit}</h3><ul class="legend">{names}</ul>'
        f'<div class="plots" role="img" aria-label="{safe(chart.title)}">'
        f'<script type="application/json">{as_json(chart)}</script></div>'
        f"<figcaption>{safe(chart.caption)}</figcaption></figure>"
    )


def _legend_entry(line: Series, bars: bool) -> str:
    """A name with its colour, that of a line with its dash too; pressing it hides the curve."""
    mark = f'<i class="layer c{line.color}"></i>' if bars else key(line.color)
    told = f'aria-pressed="true" title="{safe(meaning(line.key))}"'
    return f'<li><button type="button" {told}>{mark}{safe(line.name)}</button></li>'


def alarm_list(alarms: tuple[Alarm, ...]) -> str:
    """Numbered as their flags in the charts are."""
    rows = "".join(
        f"<li><b>Step {one.step}, {safe(one.name.replace('_', ' '))}.</b> {safe(clipped(one.text, _MOST_TEXT))}"
        + (f' <span class="try">Try: {safe(clipped(one.remedy, _MOST_TEXT).rstrip("."))}.</span>' if one.remedy else "")
        + "</li>"
        for one in alarms[:_MOST_ALARMS]
    )
    missing = len(alarms) - _MOST_ALARMS
    more = f'<p class="note">{missing} more are in events.jsonl.</p>' if missing > 0 else ""
    return f'<ol class="alarms">{rows}</ol>{more}' if rows else ""


def phase_key(names: set[str]) -> str:
    """What the shading means, for the phases that occur."""
    told = [name for name in ("eruption", "subsidence") if name in names]
    return "".join(f'<li class="phase-key {name}">{name}</li>' for name in told)
