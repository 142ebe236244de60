"""What all pages share: the document around them, sections, cards and figures.

Nothing that a model, a task or a file wrote is trusted: it is escaped wherever it stands, none of it enters a script,
and a page's security policy allows only the script and the style sheet that are named by their hash.
"""

from __future__ import annotations

import base64
import hashlib

from isentrope.report.figures import Figure
from isentrope.report.script import SCRIPT
from isentrope.report.story import Said
from isentrope.report.style import style_sheet
from isentrope.report.text import clipped, safe

_MARK = '<svg viewBox="0 0 30 20" aria-hidden="true"><path d="M2 6C9 6 9 14 15 14s6-8 13-8"/><path d="M2 10h26"/></svg>'
_MOST_ALARMS = 40
_MOST_TEXT = 600


def document(title: str, body: str, foot: str) -> str:
    style = style_sheet()
    policy = f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(SCRIPT)}; img-src data:; base-uri 'none'"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}; form-action \'none\'">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{safe(title)} · Isentrope</title><style>{style}</style></head>\n"
        f'<body>{body}<footer>{foot}</footer><div id="tip" hidden>'
        f"</div><script>{SCRIPT}</script></body></html>\n"
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def nav(titles: list[str]) -> str:
    links = "".join(f'<a href="#{anchor(title)}">{title}</a>' for title in titles)
    return f'<nav><span class="brand">{_MARK}Isentrope</span>{links}</nav>'


def anchor(title: str) -> str:
    return title.lower().replace(" ", "-")


def section(title: str, body: str) -> str:
    return f'<section id="{anchor(title)}"><h2>{title}</h2>{body}</section>'


def card(title: str, value: str, note: str) -> str:
    return f'<div class="card"><h3>{title}</h3><div class="big">{value}</div><p class="small">{note}</p></div>'


def figure(drawn: Figure) -> str:
    names = legend(drawn.legend, bars=drawn.bars) if len(drawn.legend) > 1 or drawn.band else ""
    names += f'<li class="band-key">{safe(drawn.band)}</li>' if drawn.band else ""
    styles = ("wide", "narrow") if len(drawn.pictures) == 2 else ("",)
    pictures = "".join(f'<div class="{s}">{picture}</div>' for s, picture in zip(styles, drawn.pictures, strict=True))
    unit = f"<small>{safe(drawn.unit)}</small>" if drawn.unit else ""
    style = f"card {drawn.size}" + (" two" if len(drawn.pictures) == 2 else "")
    return (
        f'<figure class="{style}"><h3>{safe(drawn.title)}{unit}</h3><ul class="legend">{names}</ul>'
        f'<div class="picture">{pictures}</div><figcaption>{safe(drawn.caption)}</figcaption></figure>'
    )


def legend(rows: list[tuple[str, int, str]], *, bars: bool = False) -> str:
    """Names with their colours; those of lines with their dashes too."""
    return "".join(
        f'<li class="c{color}" title="{safe(meaning)}">{safe(name)}</li>'
        if bars
        else f'<li class="stroke" title="{safe(meaning)}">{key(color)}{safe(name)}</li>'
        for name, color, meaning in rows
    )


def key(color: int) -> str:
    return f'<svg class="key" viewBox="0 0 34 8" aria-hidden="true"><path class="line c{color}" d="M2 4H32"/></svg>'


def alarm_list(alarms: tuple[Said, ...]) -> str:
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
    rows = [f'<li class="phase-key {name}">{name}</li>' for name in ("eruption", "subsidence") if name in names]
    return "".join(rows)
