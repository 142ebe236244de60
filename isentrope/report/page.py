"""The report of a run: one HTML file that needs nothing else, neither a server nor the network.

Nothing that a model or a task wrote is trusted: it is escaped wherever it stands, none of it enters a script,
and the page's security policy allows only the script and the style sheet that are named by their hash.
"""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import cast

from isentrope.report.episodes import choose, legend, render
from isentrope.report.figures import (
    IMITATION,
    SECTIONS,
    Figure,
    draw,
    seconds_of,
    splits_of,
    success_figure,
    time_figure,
)
from isentrope.report.read import Run, read_run, read_warmup
from isentrope.report.style import SCRIPT, style_sheet
from isentrope.report.text import duration, percent, safe
from isentrope.report.tokens import read_tokens
from isentrope.rollout.files import write_atomically

_MARK = '<svg viewBox="0 0 30 20" aria-hidden="true"><path d="M2 6C9 6 9 14 15 14s6-8 13-8"/><path d="M2 10h26"/></svg>'


def write_report(run: Path | str) -> Path:
    """Write RUN/report.html and return its path."""
    found = read_run(run)
    target = found.path / "report.html"
    write_atomically(target, page(found, read_warmup(found)).encode("utf-8", "replace"))
    return target


def page(run: Run, warmup: Run | None) -> str:
    sections: dict[str, str] = {}
    first = success_figure(run, warmup)
    for title, plots in SECTIONS.items():
        records = run.of_kind("sft" if title == IMITATION else "train")
        figures = [draw(plot, records) for plot in plots]
        if title == "Learning":
            figures.insert(0, first)
        sections[title] = "".join(_figure(figure) for figure in figures if figure is not None)
    time = time_figure(run)
    sections["Time"] = _figure(time) if time else ""
    parts = [_section(title, f'<div class="grid">{body}</div>') for title, body in sections.items() if body]
    if not parts:
        parts.append('<p class="note">Nothing has been measured yet. Write the report again in a while.</p>')
    episodes = _episodes(run)
    parts += [_section("Episodes", episodes)] if episodes else []
    parts += [_section("Settings", _settings(run))] if run.config_text else []
    titles = [title for title, body in sections.items() if body] + (["Episodes"] if episodes else [])
    return _document(run, _nav(titles) + _header(run) + _numbers(run, warmup) + "".join(parts))


def _document(run: Run, body: str) -> str:
    style = style_sheet()
    policy = f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(SCRIPT)}; img-src data:; base-uri 'none'"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}; form-action \'none\'">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{safe(run.name)} · Isentrope</title><style>{style}</style></head>\n"
        f'<body>{body}<footer>Written by Isentrope from the files in this run\'s folder.</footer><div id="tip" hidden>'
        f"</div><script>{SCRIPT}</script></body></html>\n"
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _nav(titles: list[str]) -> str:
    links = "".join(f'<a href="#{title.lower()}">{title}</a>' for title in titles)
    return f'<nav><span class="brand">{_MARK}Isentrope</span>{links}</nav>'


_FORMS = {"no_think": "act", "actre": "act_think, then think_act"}  # methods that choose it themselves
_IMITATIONS = {"sft": "an expert's games (sft)", "rft": "its own successes (rft)"}


def _header(run: Run) -> str:
    facts: dict[str, object] = {
        "task": run.setting("task", "world"),
        "model": run.setting("policy", "model"),
        **(_imitation_facts(run) if run.kind in _IMITATIONS else _training_facts(run)),
        "seed": run.setting("run", "seed"),
    }
    rows = [f"<div><dt>{name}</dt><dd>{safe(value)}</dd></div>" for name, value in facts.items() if value is not None]
    return f'<header><h1>{safe(run.name)}</h1><dl class="facts-row">{"".join(rows)}</dl></header>'


def _training_facts(run: Run) -> dict[str, object]:
    methods = run.config.get("methods")
    names = ", ".join(str(name) for name in cast("list[object]", methods)) if isinstance(methods, list) else ""
    form = next((_FORMS[n] for n in names.split(", ") if n in _FORMS), run.setting("agent", "order"))
    return {
        "algorithm": run.setting("learn", "algorithm"),
        "entropy methods": (names or "none") if run.config else None,
        "response form": form,
    }


def _imitation_facts(run: Run) -> dict[str, object]:
    """Neither an algorithm nor an entropy method has a part in imitation."""
    orders = run.setting("sft", "orders")
    forms = ", ".join(str(order) for order in cast("list[object]", orders)) if isinstance(orders, list) else ""
    return {"imitates": _IMITATIONS[run.kind], "response form": forms or run.setting("agent", "order")}


def _numbers(run: Run, warmup: Run | None) -> str:
    training = run.of_kind("train") or run.of_kind("sft")
    cards = [_success_card(run, warmup)]
    valid = [record["valid_ratio"] for record in training if isinstance(record.get("valid_ratio"), float)]
    if valid:
        cards.append(_card("Valid actions", percent(valid[-1], 1), f"from {percent(valid[0], 1)}"))
    solved = [record["rft/solved"] for record in training if isinstance(record.get("rft/solved"), float)]
    if solved:
        cards.append(_card("Own games solved", percent(solved[0], 1), "before the first update; these are imitated"))
    if training:
        planned = run.setting("run", "steps") if run.of_kind("train") else None
        done = len({record["step"] for record in training})
        cards.append(_card("Steps" if planned else "Updates", f"{done:,}", f"of {safe(planned)}" if planned else ""))
    seconds = seconds_of(run)
    if seconds:
        cards.append(_card("Time", duration(seconds), f"{duration(seconds / max(len(training), 1))} a step"))
    return f'<div class="numbers">{"".join(cards)}</div>' if any(cards) else ""


def _success_card(run: Run, warmup: Run | None) -> str:
    """Success before and after, on games the policy never trained on if there are any."""
    for split in splits_of(run):
        key = f"eval/{split}/success"
        measured = [record for record in run.records if isinstance(record.get(key), float)]
        earlier = [record for record in (warmup.records if warmup else []) if isinstance(record.get(key), float)]
        after = measured[-1]
        before = earlier[-1] if earlier and measured[0]["step"] > 0 else measured[0]
        intervals = [_interval(record, split) for record in (before, after)]
        games = after.get(f"eval/{split}/games")
        played = f", {games:.0f} games" if isinstance(games, float) else ""
        note = f"95% interval {intervals[1]}{played}"
        trend = " down" if after[key] < before[key] else ""
        value = f'<span class="to{trend}">{percent(after[key], 1)}</span>'
        title = f"Success on {safe(split)} games"
        if before is not after:
            from_the_start = bool(earlier) or before["step"] == 0
            title += ", before and after" if from_the_start else f", at steps {before['step']} and {after['step']}"
            value = f'<span class="from">{percent(before[key], 1)}</span> <span class="arrow">→</span> {value}'
            note = f"95% interval {intervals[0]} → {intervals[1]}{played}"
        return _card(title, value, note)
    return ""


def _interval(record: dict[str, object], split: str) -> str:
    low, high = record.get(f"eval/{split}/low"), record.get(f"eval/{split}/high")
    return f"{100 * low:.0f}–{percent(high)}" if isinstance(low, float) and isinstance(high, float) else "unknown"


def _card(title: str, value: str, note: str) -> str:
    return f'<div class="card"><h3>{title}</h3><div class="big">{value}</div><p class="small">{note}</p></div>'


def _section(title: str, body: str) -> str:
    return f'<section id="{title.lower()}"><h2>{title}</h2>{body}</section>'


def _figure(figure: Figure) -> str:
    rows = [f'<li class="c{color}" title="{safe(meaning)}">{safe(name)}</li>' for name, color, meaning in figure.legend]
    names = "".join(rows) if len(rows) > 1 else ""
    styles = ("wide", "narrow") if len(figure.pictures) == 2 else ("",)
    pictures = "".join(f'<div class="{s}">{picture}</div>' for s, picture in zip(styles, figure.pictures, strict=True))
    unit = f"<small>{safe(figure.unit)}</small>" if figure.unit else ""
    style = f"card {figure.size}" + (" two" if len(figure.pictures) == 2 else "")
    return (
        f'<figure class="{style}"><h3>{figure.title}{unit}</h3><ul class="legend">{names}</ul>'
        f'<div class="picture">{pictures}</div><figcaption>{safe(figure.caption)}</figcaption></figure>'
    )


def _episodes(run: Run) -> str:
    chosen, problems = choose(run)
    tokens = read_tokens(run.path)
    solved = [number for number, one in enumerate(chosen) if one.episode.success]
    opened = solved[-1] if solved else len(chosen) - 1
    parts = [render(one, tokens, is_open=number == opened) for number, one in enumerate(chosen)]
    parts += [f'<p class="note">{safe(problem)}</p>' for problem in problems]
    return legend() + "".join(parts) if parts else ""


def _settings(run: Run) -> str:
    return f'<details class="card settings"><summary>config.toml</summary><pre>{safe(run.config_text)}</pre></details>'
