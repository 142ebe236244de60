"""The charts of one run, and what its clock says in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from isentrope.charts.chart import COLORS, SMOOTHED_FROM, Chart, Panel, Series
from isentrope.charts.text import percent
from isentrope.metrics.glossary import entry_of, sentence
from isentrope.report.plots import Plot, expand
from isentrope.report.story import Story
from isentrope.runs.folder import Run
from isentrope.runs.log import Record

# as they lie upon each other, which is the order of their colours
_STAGES = ("rollout", "update", "score", "store", "observe", "probe", "evaluate", "checkpoint", "shape")
_WHOLE = ("total", "step")  # stage names that hold the other stages
_MOST_BARS = 48
_BEYOND = 1e100  # a number that large is a fault, and would flatten everything else

LEARNING = ("score", "shape", "probe", "update")
KEEPING = ("store", "observe", "checkpoint")
REASONS = {
    "tasks": "it waited for tasks to answer: more task.workers, or quicker tasks, would shorten it",
    "host": "this machine wrote prompts, read responses and recorded turns",
    "learning": "the policy learnt, and the next episodes are played with the new weights: rollout.ahead = 1 would "
    "play them meanwhile, one update late",
    "longer": "the policy still learnt from one step when the episodes of the next were ready",
    "keeping": "episodes, metrics and checkpoints were written",
}


def measured(records: Sequence[Record]) -> set[str]:
    return set[str]().union(*records)


def draw(
    plot: Plot, records: Sequence[Record], story: Story | None = None, known: set[str] | None = None
) -> Chart | None:
    """The chart of a plot; None if nothing of it was measured. `known`: the keys of the records, for who has them."""
    names = expand(plot.keys, measured(records) if known is None else known)
    if plot.beside:  # a line from one step where the key was written to the next would tell of a slow change
        records = [dict.fromkeys(names, 0.0) | record if plot.beside in record else record for record in records]
    lines = [series_of(records, key, name, number % COLORS) for number, (key, name) in enumerate(names.items())]
    lines = [line for line in lines if not line.empty]
    if not lines:
        return None
    lines = [replace(line, smooth=plot.smooth, raw=len(lines) <= 3, markers=plot.markers) for line in lines]
    caption, unit = plot.caption or meaning(lines[0].key), unit_of(lines[0].key)
    panel = _over_training(lines, records, story or Story())
    return Chart(plot.title, [panel], plot.shares, plot.full, plot.zero, unit=unit, caption=caption)


def _over_training(lines: list[Series], records: Sequence[Record], story: Story, title: str = "") -> Panel:
    return Panel(lines, title=title, marks=stage_marks(records), shades=story.shades, flags=story.flags)


def stage_marks(records: Sequence[Record]) -> tuple[tuple[float, str], ...]:
    """The steps at which the schedule changes its stage."""
    stages = [(float(record["step"]), record["plan/stage"]) for record in records if "plan/stage" in record]
    return tuple((b[0], f"stage {b[1]:g}") for a, b in pairwise(stages) if a[1] != b[1])


def series_of(records: Sequence[Record], key: str, name: str, color: int) -> Series:
    rows = [(float(record["step"]), number(record.get(key))) for record in records if key in record]
    return Series(name, [x for x, _ in rows], [y for _, y in rows], color=color, key=key)


def eval_series(records: Sequence[Record], split: str, name: str, color: int) -> Series:
    """Success on a split, with its interval."""
    key = f"eval/{split}/success"
    rows = [record for record in records if key in record]
    low, high = ([number(record.get(f"eval/{split}/{end}")) for record in rows] for end in ("low", "high"))
    return replace(series_of(rows, key, name, color), low=low, high=high, markers=True)


def splits_of(run: Run) -> list[str]:
    """The evaluated splits, the unseen one first."""
    return sorted(run.splits, key=lambda split: (split != "unseen", split))


def _evaluated(run: Run) -> list[Series]:
    lines = [eval_series(run.records, split, f"{split} games", i) for i, split in enumerate(splits_of(run))]
    return [line for line in lines if not line.empty]


def success_chart(run: Run, warmup: Run | None, story: Story) -> Chart | None:
    """Success on held-out games and in training, with the warm-up's own curve to the left on its own axis."""
    panels: list[Panel] = []
    if warmup is not None and (before := _evaluated(warmup)):
        panels.append(Panel(before, "warm-up step", 0.45, "warm-up (imitation) steps"))
    training = run.of_kind("train")
    trained = replace(series_of(training, "success/all", "training games", 5), smooth=True)
    during = [*_evaluated(run), *([] if trained.empty else [trained])]
    if not during:
        return None
    title = "reinforcement learning steps" if training else "imitation steps"
    panels.append(_over_training(during, training, story, title))
    caption = "Share of the games solved. Bands: 95% intervals (Wilson) of the evaluations."
    if len(panels) == 2:
        caption += " Left, on its own axis: the warm-up that the policy started from."
    if len(training) >= SMOOTHED_FROM and during[-1].smooth:
        caption += " Thin line: each training step."
    return Chart("Success", panels, True, True, caption=caption)


def drift_chart(records: Sequence[Record], story: Story) -> Chart | None:
    """Forecast and measured drift over the step at which the drift was measured.

    The forecast has no scale of its own, so each of the two is divided by its root mean square.
    """
    foretold = series_of(records, "drift/predicted", "foretold by the update before", 1)
    measured = series_of(records, "drift/measured", "measured", 0)
    if foretold.empty or measured.empty:
        return None
    foretold = replace(foretold, x=[x + 1 for x in foretold.x])
    lines = [replace(line, y=_unit_size(line.y), smooth=True) for line in (measured, foretold)]
    caption = (
        "Change of the token entropy from the step before, and what A·(S - H) foretold of it. Each is divided by its "
        "root mean square: the signs can be compared, the sizes cannot."
    )
    panel = _over_training(lines, records, story)
    return Chart("Drift of entropy, foretold and measured", [panel], caption=caption)


def _unit_size(values: list[float | None]) -> list[float | None]:
    known = [value for value in values if value is not None]
    size = (sum(value * value for value in known) / len(known)) ** 0.5 or 1.0
    return [None if value is None else value / size for value in values]


def time_chart(run: Run) -> Chart | None:
    """Seconds by stage, in stacked bars; long runs have several steps to a bar."""
    records = [record for record in run.timings if record.get("kind", "train") != "eval"]
    stages = {key.removeprefix("seconds/") for key in run.keys("seconds/", records)} - set(_WHOLE)
    if not stages:
        return None
    together = -(-len(records) // _MOST_BARS)
    chunks = [records[i : i + together] for i in range(0, len(records), together)]
    steps = [float(chunk[0]["step"]) for chunk in chunks]
    layers: list[Series] = []
    for place, stage in enumerate([*_STAGES, *sorted(stages - set(_STAGES))]):  # known ones keep their colours
        if stage in stages:
            key = f"seconds/{stage}"
            means = [sum(number(record.get(key)) or 0.0 for record in chunk) / len(chunk) for chunk in chunks]
            layers.append(Series(stage, steps, [*means], color=place % COLORS, key=key))
    caption = "Mean time of a step by stage" + (f", {together} steps to a bar." if together > 1 else ".")
    caption = f"{caption} {idle_sentence(records)}".strip()
    return Chart("Time by stage", [Panel(layers)], bars=True, unit="seconds", caption=caption)


def seconds_of(run: Run) -> float:
    """How long the run took, as far as its clock says."""
    total = 0.0
    for record in run.timings:
        stages = {key: number(record[key]) or 0.0 for key in record if key.startswith("seconds/")}
        whole = [stages[f"seconds/{name}"] for name in _WHOLE if f"seconds/{name}" in stages]
        total += whole[0] if whole else sum(stages.values())
    return total


def idle_sentence(records: Sequence[Record]) -> str:
    """Of the steps' timings; nothing if they do not say what the engine did."""
    if not any("rollout_seconds/engine" in record for record in records):
        return ""
    stages = {name: _total(records, f"seconds/{name}") for name in ("rollout", *LEARNING, *KEEPING)}
    parts = {name: _total(records, f"rollout_seconds/{name}") for name in ("engine", "tasks", "host", "tasks_idle")}
    whole = sum(stages.values())
    playing = parts["engine"] + parts["tasks"] + parts["host"]
    beside = max(0.0, playing - stages["rollout"])  # played while something else was done
    ahead = beside > 0.01 * playing
    waits = {
        "tasks": parts["tasks"],
        "host": parts["host"],
        "longer" if ahead else "learning": max(0.0, sum(stages[name] for name in LEARNING) - beside),
        "keeping": sum(stages[name] for name in KEEPING),
    }
    if whole <= 0 or parts["engine"] <= 0:
        return ""
    name, longest = max(waits.items(), key=lambda wait: wait[1])
    told = f"The engine sampled {percent(min(1.0, parts['engine'] / whole))} of the time. "
    told += f"It was idle longest ({percent(min(1.0, longest / whole))}) while {REASONS[name]}."
    share = min(1.0, parts["tasks_idle"] / parts["engine"])
    return f"{told} For {percent(share)} of the sampling no task was being played: all waited for responses."


def _total(records: Sequence[Record], key: str) -> float:
    values = [record.get(key) for record in records]
    return sum(float(value) for value in values if isinstance(value, int | float) and 0 <= value < 1e100)


def meaning(key: str) -> str:
    try:
        return sentence(key)
    except KeyError:  # written by another version
        return key


def unit_of(key: str) -> str:
    """The unit of a key; shares are shown in percent, and a loss has none."""
    try:
        unit = entry_of(key).unit
    except KeyError:
        return ""
    return "" if unit in ("share", "loss", "norm", "per update") else unit


def number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and abs(value) < _BEYOND else None
