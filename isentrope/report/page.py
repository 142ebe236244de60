"""The report of a run: one HTML file that needs nothing else, neither a server nor the network."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from isentrope.charts.text import clipped, duration, percent, safe, unbroken
from isentrope.diagnosis.doctor import diagnose
from isentrope.metrics.glossary import declare, declared_in
from isentrope.report.episodes import choose, legend, render
from isentrope.report.figures import draw, drift_chart, measured, seconds_of, splits_of, success_chart, time_chart
from isentrope.report.plots import DRIFT, IMITATION, SECTIONS
from isentrope.report.shell import alarm_list, card, document, figure, nav, phase_key, section
from isentrope.report.started import STARTED, started
from isentrope.report.story import Story, open_run, story_of
from isentrope.runs.atomic import write_atomically
from isentrope.runs.folder import Run
from isentrope.runs.layout import REPORT
from isentrope.runs.token_texts import shown_token_texts

_FOOT = "Written by Isentrope from the files in this run's folder."
_MOST_WORDS = 4000


def write_report(run: Path | str, out: Path | None = None) -> Path:
    """Write RUN/report.html, or `out`, and return its path."""
    found = open_run(Path(run))
    declare(declared_in(found.about))
    target = out or found.path / REPORT
    write_atomically(target, page(found, found.warmup(thin=True)).encode("utf-8", "replace"))
    return target


def page(run: Run, warmup: Run | None) -> str:
    sections: dict[str, str] = {}
    story = story_of(run)
    trained, imitated = (measured(run.of_kind(kind)) for kind in ("train", "sft"))
    for title, plots in SECTIONS.items():
        records = run.of_kind("sft" if title == IMITATION else "train")
        known = imitated if title == IMITATION else trained
        charts = [(draw(plot, records, story, known), plot.size) for plot in plots]
        if title == "Learning":
            charts.insert(0, (success_chart(run, warmup, story), "whole"))
        elif title == DRIFT:
            charts.insert(0, (drift_chart(records, story), "whole"))
        sections[title] = "".join(figure(chart, size) for chart, size in charts if chart is not None)
    time = time_chart(run)
    sections["Time"] = figure(time, "whole") if time else ""
    parts = [section(title, f'<div class="grid">{body}</div>') for title, body in sections.items() if body]
    if not parts:
        parts.append('<p class="note">Nothing has been measured yet. Write the report again in a while.</p>')
    episodes = _episodes(run)
    parts += [section("Episodes", episodes)] if episodes else []
    begin = started(run.about)
    parts += [section(STARTED, begin)] if begin else []
    settings = f"<summary>config.toml</summary><pre>{safe(run.config_text)}</pre>"
    parts += [section("Settings", f'<details class="card settings">{settings}</details>')] if run.config_text else []
    titles = [title for title, body in sections.items() if body] + (["Episodes"] if episodes else [])
    titles += [STARTED] if begin else []
    top = nav(titles) + _header(run) + _numbers(run, warmup) + _what_happened(run, story)
    return document(run.name, top + "".join(parts), _FOOT)


def _what_happened(run: Run, story: Story) -> str:
    """What the doctor says, the alarms by their numbers in the charts, and what the shading means."""
    words = diagnose(run).words() if run.records else ""
    body = f"<p>{unbroken(safe(clipped(words, _MOST_WORDS)))}</p>" if words else ""
    body += alarm_list(story.alarms)
    shading = phase_key({shade.name for shade in story.shades})
    body += f'<ul class="legend">{shading}</ul>' if shading else ""
    return f'<div class="card said"><h3>What happened</h3>{body}</div>' if body else ""


_FORMS = {"no_think": "act", "actre": "act_think, then think_act"}  # methods that choose it themselves
_IMITATIONS = {"sft": "an expert's games (sft)", "rft": "its own successes (rft)"}


def _header(run: Run) -> str:
    facts: dict[str, object] = {
        "task": run.setting("task.world"),
        "model": run.setting("policy.model"),
        **(_imitation_facts(run) if run.kind in _IMITATIONS else _training_facts(run)),
        "seed": run.setting("run.seed"),
    }
    rows = [f"<div><dt>{name}</dt><dd>{safe(value)}</dd></div>" for name, value in facts.items() if value is not None]
    return f'<header><h1>{safe(run.name)}</h1><dl class="facts-row">{"".join(rows)}</dl></header>'


def _training_facts(run: Run) -> dict[str, object]:
    methods = run.config.get("methods")
    names = ", ".join(str(name) for name in cast("list[object]", methods)) if isinstance(methods, list) else ""
    form = next((_FORMS[n] for n in names.split(", ") if n in _FORMS), run.setting("agent.order"))
    methods = (names or "none") if run.config else None
    return {"algorithm": run.setting("learn.algorithm"), "entropy methods": methods, "response form": form}


def _imitation_facts(run: Run) -> dict[str, object]:
    """Neither an algorithm nor an entropy method has a part in imitation."""
    orders = run.setting("sft.orders")
    forms = ", ".join(str(order) for order in cast("list[object]", orders)) if isinstance(orders, list) else ""
    return {"imitates": _IMITATIONS[run.kind], "response form": forms or run.setting("agent.order")}


def _numbers(run: Run, warmup: Run | None) -> str:
    training = run.of_kind("train") or run.of_kind("sft")
    cards = [_success_card(run, warmup)]
    if valid := [record["valid_ratio"] for record in training if isinstance(record.get("valid_ratio"), float)]:
        cards.append(card("Valid actions", percent(valid[-1], 1), f"from {percent(valid[0], 1)}"))
    if solved := [record["rft/solved"] for record in training if isinstance(record.get("rft/solved"), float)]:
        cards.append(card("Own games solved", percent(solved[0], 1), "before the first update; these are imitated"))
    if training:
        planned = run.setting("run.steps") if run.of_kind("train") else None
        done = len({record["step"] for record in training})
        cards.append(card("Steps" if planned else "Updates", f"{done:,}", f"of {safe(planned)}" if planned else ""))
    if seconds := seconds_of(run):
        cards.append(card("Time", duration(seconds), f"{duration(seconds / max(len(training), 1))} a step"))
    if memory := _most_memory(run):
        cards.append(card("Memory", f"{memory[0]:.{1 if memory[0] < 100 else 0}f} GiB", memory[1]))
    return f'<div class="numbers">{"".join(cards)}</div>' if any(cards) else ""


def _most_memory(run: Run) -> tuple[float, str] | None:
    """The most that was held, and where: on the GPU if one was used."""
    for key, words in (("memory/gpu", "of the GPU, at most"), ("memory/peak", "main memory, at most")):
        if held := [value for record in run.timings if isinstance(value := record.get(key), float) and 0 < value < 1e6]:
            return max(held), words
    return None


def _success_card(run: Run, warmup: Run | None) -> str:
    """Success before and after, on games the policy never trained on if there are any."""
    for split in splits_of(run):
        key = f"eval/{split}/success"
        measured = [record for record in run.records if isinstance(record.get(key), float)]
        if not measured:
            continue
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
        return card(title, value, note)
    return ""


def _interval(record: dict[str, object], split: str) -> str:
    low, high = record.get(f"eval/{split}/low"), record.get(f"eval/{split}/high")
    return f"{100 * low:.0f}–{percent(high)}" if isinstance(low, float) and isinstance(high, float) else "unknown"


def _episodes(run: Run) -> str:
    chosen, problems = choose(run)
    tokens = shown_token_texts(run.path)
    solved = [number for number, one in enumerate(chosen) if one.episode.success]
    opened = solved[-1] if solved else len(chosen) - 1
    parts = [render(one, tokens, is_open=number == opened) for number, one in enumerate(chosen)]
    parts += [f'<p class="note">{safe(problem)}</p>' for problem in problems]
    return legend() + "".join(parts) if parts else ""
