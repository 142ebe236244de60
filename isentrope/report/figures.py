"""The charts of one run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from isentrope.metrics.glossary import entry_of, sentence
from isentrope.report.axes import COLORS, Chart, Panel, Series
from isentrope.report.plots import Plot, expand
from isentrope.report.stages import idle_sentence
from isentrope.report.story import Story
from isentrope.report.svg import line_chart, stacked_bars
from isentrope.runs.folder import Run
from isentrope.runs.log import Record

# as they lie upon each other, which is the order of their colours
_STAGES = ("rollout", "update", "score", "store", "observe", "probe", "evaluate", "checkpoint", "shape")
_WHOLE = ("total", "step")  # stage names that hold the other stages
_MOST_BARS = 48
_BEYOND = 1e100  # a number that large is a fault, and would flatten everything else


@dataclass(frozen=True)
class Figure:
    title: str
    caption: str
    pictures: list[str]  # SVG; a second one is for narrow screens
    legend: list[tuple[str, int, str]]  # name, colour, explanation
    size: str = "half"
    unit: str = ""
    bars: bool = False
    band: str = ""  # what the bands around lines are


def draw(plot: Plot, records: Sequence[Record], story: Story | None = None) -> Figure | None:
    story = story or Story()
    names = expand(plot.keys, {key for record in records for key in record})
    if plot.beside:  # a line from one step where the key was written to the next would tell of a slow change
        records = [dict.fromkeys(names, 0.0) | record if plot.beside in record else record for record in records]
    found = [series_of(records, key, name, number % COLORS) for number, (key, name) in enumerate(names.items())]
    series = [one for one in found if not one.empty]
    if not series:
        return None
    series = [replace(one, smooth=plot.smooth, raw=len(series) <= 3, markers=plot.markers) for one in series]
    width = 340 if plot.size == "third" else 460
    height = 210 if plot.size == "third" else 240
    panel = Panel(series, marks=stage_marks(records), shades=story.shades, flags=story.flags)
    chart = Chart([panel], plot.title, plot.shares, plot.full, plot.zero, width, height)
    caption = plot.caption or meaning(series[0].key)
    return Figure(plot.title, caption, [line_chart(chart)], legend_of(series), plot.size, unit_of(series[0].key))


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
    return Series(
        name,
        [float(record["step"]) for record in rows],
        [number(record[key]) for record in rows],
        [number(record.get(f"eval/{split}/low")) for record in rows],
        [number(record.get(f"eval/{split}/high")) for record in rows],
        color,
        markers=True,
        key=key,
    )


def splits_of(run: Run) -> list[str]:
    """The evaluated splits, the unseen one first."""
    keys = [key.split("/") for key in run.keys("eval/")]
    splits = {parts[1] for parts in keys if len(parts) == 3 and parts[2] == "success"}
    return sorted(splits, key=lambda split: (split != "unseen", split))


def success_figure(run: Run, warmup: Run | None, story: Story) -> Figure | None:
    """Success on held-out games and in training, with the warm-up's own curve to the left on its own axis."""
    panels: list[Panel] = []
    if warmup is not None:
        before = [eval_series(warmup.records, split, f"{split} games", i) for i, split in enumerate(splits_of(warmup))]
        before = [series for series in before if not series.empty]
        panels += [Panel(before, "warm-up step", 0.45, "warm-up (imitation) steps")] if before else []
    during = [eval_series(run.records, split, f"{split} games", i) for i, split in enumerate(splits_of(run))]
    training = run.of_kind("train")
    during.append(replace(series_of(training, "success/all", "training games", 5), smooth=True))
    during = [series for series in during if not series.empty]
    if not during:
        return None
    title = "reinforcement learning steps" if training else "imitation steps"
    panels.append(Panel(during, "step", 1.0, title, stage_marks(training), story.shades, story.flags))
    label = "Share of the games solved over the steps of the run"
    wide = line_chart(Chart(panels, label, True, True, width=1060, height=320))
    narrow = line_chart(Chart(panels, label, True, True, width=420, height=300))
    caption = "Share of the games solved. Bands: 95% intervals (Wilson) of the evaluations."
    if len(panels) == 2:
        caption += " Left, on its own axis: the warm-up that the policy started from."
    if len(training) >= 25 and during[-1].smooth:
        caption += " Thin line: each training step."
    return Figure("Success", caption, [wide, narrow], legend_of(during), "whole")


def drift_figure(records: Sequence[Record], story: Story) -> Figure | None:
    """Forecast and measured drift over the step at which the drift was measured.

    The forecast has no scale of its own, so each of the two is divided by its root mean square.
    """
    told = series_of(records, "drift/predicted", "foretold by the update before", 1)
    measured = series_of(records, "drift/measured", "measured", 0)
    if told.empty or measured.empty:
        return None
    told = replace(told, x=[x + 1 for x in told.x])
    series = [replace(one, y=_unit_size(one.y), smooth=True) for one in (measured, told)]
    panel = Panel(series, marks=stage_marks(records), shades=story.shades, flags=story.flags)
    title = "Drift of entropy, foretold and measured"
    wide = line_chart(Chart([panel], title, width=1060, height=250))
    narrow = line_chart(Chart([panel], title, width=420, height=240))
    caption = (
        "Change of the token entropy from the step before, and what A·(S - H) foretold of it. Each is divided by its "
        "root mean square: the signs can be compared, the sizes cannot."
    )
    return Figure(title, caption, [wide, narrow], legend_of(series), "whole")


def _unit_size(values: list[float | None]) -> list[float | None]:
    known = [value for value in values if value is not None]
    size = (sum(value * value for value in known) / len(known)) ** 0.5 or 1.0
    return [None if value is None else value / size for value in values]


def time_figure(run: Run) -> Figure | None:
    """Seconds by stage, in stacked bars; long runs have several steps to a bar."""
    records = [record for record in run.timings if record.get("kind", "train") != "eval"]
    keys = [key for key in run.keys("seconds/", records) if key.removeprefix("seconds/") not in _WHOLE]
    if not keys:
        return None
    stages = sorted((key.removeprefix("seconds/") for key in keys), key=_stage_rank)
    together = -(-len(records) // _MOST_BARS)
    chunks = [records[i : i + together] for i in range(0, len(records), together)]
    layers = [
        Series(
            stage,
            [float(chunk[0]["step"]) for chunk in chunks],
            [sum(number(record.get(f"seconds/{stage}")) or 0.0 for record in chunk) / len(chunk) for chunk in chunks],
            color=color,
            key=f"seconds/{stage}",
        )
        for stage, color in _stage_colors(stages).items()
    ]
    chart = Chart([Panel(layers)], "Seconds of a step by stage", width=1060, height=250)
    narrow = Chart([Panel(layers)], chart.label, width=420, height=240)
    caption = "Mean time of a step by stage" + (f", {together} steps to a bar." if together > 1 else ".")
    caption = f"{caption} {idle_sentence(records)}".strip()
    pictures = [stacked_bars(chart, "s"), stacked_bars(narrow, "s")]
    return Figure("Time by stage", caption, pictures, legend_of(layers), "whole", "seconds", bars=True)


def _stage_rank(stage: str) -> tuple[int, str]:
    return (_STAGES.index(stage) if stage in _STAGES else len(_STAGES), stage)


def _stage_colors(stages: Sequence[str]) -> dict[str, int]:
    """A stage has the same colour in every report, whichever took longer."""
    others = [stage for stage in stages if stage not in _STAGES]
    return {
        stage: (_STAGES.index(stage) if stage in _STAGES else len(_STAGES) + others.index(stage)) % COLORS
        for stage in stages
    }


def seconds_of(run: Run) -> float:
    """How long the run took, as far as its clock says."""
    total = 0.0
    for record in run.timings:
        stages = {key: number(record[key]) or 0.0 for key in record if key.startswith("seconds/")}
        whole = [stages[f"seconds/{name}"] for name in _WHOLE if f"seconds/{name}" in stages]
        total += whole[0] if whole else sum(stages.values())
    return total


def legend_of(series: Sequence[Series]) -> list[tuple[str, int, str]]:
    return [(one.name, one.color, meaning(one.key)) for one in series]


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
