"""How a step's time grows with episodes, turns and context: ours, on the machine at hand.

    python bench/growth.py [--device cuda] [--plot growth.svg] [--json growth.json]
    python bench/growth.py --tiny                  # a small model and small sizes, for a CPU

Forced lengths, a model of SmolLM2-135M's shape with random weights. One size is changed at a time; a step of each size
is played and learnt from once to warm up and then measured. The ratio is linear growth from the smallest size over the
measured time at the largest: 1 is linear, more is better than linear, because small steps leave the machine idle.
Attention grows with the square of a conversation's length, so turns and context cannot stay linear for ever.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from isentrope.bench.driven import WORDS, DrivenWorld
from isentrope.bench.results import Row, finish
from isentrope.bench.work import Ours, Spent, Work, device_named, typical
from isentrope.charts.chart import Chart, Panel, Series
from isentrope.charts.svg import picture
from isentrope.config.schema import RunConfig
from isentrope.models.load import load_policy
from isentrope.models.policy import Policy

SIZES = {
    "episodes": (32, 64, 128, 256, 512, 1024),
    "turns": (5, 10, 20, 35, 50),
    "context": (512, 1024, 2048, 4096, 8192),
}
TINY = {"episodes": (4, 8, 16), "turns": (2, 4, 8), "context": (512, 1024)}
BARS = {"episodes": 0.8, "turns": 0.5, "context": 0.5}
OBSERVED = 40  # tokens of an observation, about; the rest of a turn is the response


class Point(NamedTuple):
    size: int
    spent: Spent


def growth_svg(sizes: Mapping[str, Sequence[Point]]) -> str:
    """Seconds over size, one chart for each kind: the step, its two parts, and linear growth from the smallest size."""
    charts = [_chart(axis, points) for axis, points in sizes.items()]
    title = "Seconds of a training step as it grows"
    return picture(*charts, title=title, width=330, height=260, inches=3.4 * max(1, len(charts)))


def _chart(axis: str, points: Sequence[Point]) -> Chart:
    sizes = [float(size) for size, _ in points]
    first = points[0].spent.step / sizes[0] if points else 0.0
    series = [
        Series("whole step", sizes, [spent.step for _, spent in points], color=0),
        Series("rollout", sizes, [spent.rollout for _, spent in points], color=1),
        Series("update", sizes, [spent.update for _, spent in points], color=2),
        Series("linear", sizes, [first * size for size in sizes], color=7),
    ]
    return Chart(f"Seconds of a step over {axis}", [Panel(series, axis)])


def slope(points: Sequence[Point]) -> float:
    """Of log time over log size, by least squares: 1 is linear growth."""
    sizes, seconds = [math.log(p.size) for p in points], [math.log(p.spent.step) for p in points]
    return statistics.linear_regression(sizes, seconds).slope


def against_linear(points: Sequence[Point]) -> float:
    """The time at the largest size if growth were linear from the smallest, over the measured one."""
    first, last = points[0], points[-1]
    return first.spent.step * last.size / first.size / last.spent.step


def work_for(axis: str, size: int, base: Work, policy: Policy) -> Work:
    """The base with one size changed. For context, words are added to the first observation."""
    if axis == "episodes":
        return replace(base, groups=max(1, size // base.group_size), context=_room(base))
    if axis == "turns":
        return replace(base, turns=size, context=_room(replace(base, turns=size)))
    few = replace(base, turns=min(base.turns, 5), response=min(base.response, 16))
    missing = size - few.turns * (few.response + OBSERVED) - _prompt(few, policy)
    per_word = len(policy.tokenizer.content(" ".join(WORDS))) / len(WORDS)
    return replace(few, words=max(0, round(missing / per_word)), context=max(size * 2, _room(few)))


def _room(work: Work) -> int:
    """Tokens that a conversation may take: more than it will."""
    return 1024 + work.turns * (work.response + 4 * OBSERVED)


def _prompt(work: Work, policy: Policy) -> int:
    """Tokens of a first prompt."""
    from isentrope.agent.context import Context

    agent, world = work.config().agent, DrivenWorld()
    view = world.open().start(world.instance("train", 0))
    return len(Context.of(policy.tokenizer, agent, agent.order).prompt(view))


def measure(
    axes: Mapping[str, Sequence[int]], base: Work, extra: Sequence[str], steps: int, seconds: float
) -> dict[str, list[Point]]:
    """Every size of every axis; larger sizes of an axis are left out once one took longer than `seconds`."""
    found: dict[str, list[Point]] = {axis: [] for axis in axes}
    policy: Policy | None = None
    for axis, sizes in axes.items():
        for size in sizes:
            policy = policy or load_policy(base.config(extra).policy, base.config(extra).run)
            work = work_for(axis, size, base, policy)
            spent = measure_one(work, work.config(extra), policy, steps)
            found[axis].append(Point(size, spent))
            print(f"{axis} {size}: {spent.step:.2f} s, {spent.whole:,} tokens", file=sys.stderr, flush=True)
            if spent.step > seconds:
                break
    return found


def measure_one(work: Work, config: RunConfig, policy: Policy, steps: int) -> Spent:
    ours = Ours(work, config, policy)
    try:
        ours.step(0)
        return typical([ours.step(number + 1) for number in range(steps)])
    finally:
        ours.close()


def rows_of(found: Mapping[str, Sequence[Point]], bars: Mapping[str, float]) -> list[Row]:
    rows: list[Row] = []
    for axis, points in found.items():
        for size, spent in points:
            note = f"rollout {spent.rollout:.3g} s, update {spent.update:.3g} s, {spent.whole:,} tokens"
            rows.append(Row(f"{axis} = {size}", spent.step, "s", note=note))
        if len(points) > 1:
            (first, _), (last, spent), ratio = points[0], points[-1], against_linear(points)
            exponent = f"{first} to {last}: time grows as size to the power {slope(points):.2f}"
            rows.append(Row(axis, spent.step, "s", ratio, "linear", bars.get(axis), exponent))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for axis in SIZES:
        parser.add_argument(f"--{axis}", default="", help="sizes with commas between them; 0: leave this out")
    parser.add_argument("--model", default="", help="pocket, a shape (smollm2, small, tiny) or a model folder")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--steps", type=int, default=1, help="measured steps of each size")
    parser.add_argument("--seconds", type=float, default=60.0, help="go no further once a step took as long")
    parser.add_argument("--tiny", action="store_true", help="a small model and small sizes")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="our settings")
    parser.add_argument("--plot", type=Path, default=None, help="write a picture there (SVG)")
    parser.add_argument("--json", type=Path, default=None, help="write the result there")
    given = parser.parse_args()
    standard = TINY if given.tiny else SIZES
    asked = {axis: _sizes(getattr(given, axis), standard[axis]) for axis in standard}
    axes = {axis: sizes for axis, sizes in asked.items() if sizes}
    model, device = given.model or ("tiny" if given.tiny else "smollm2"), device_named(given.device)
    base = Work(model, device, groups=8, group_size=8, turns=10, response=32)
    if given.tiny:
        base = replace(base, groups=1, group_size=4, turns=3, response=8)
    with tempfile.TemporaryDirectory() as folder:
        settled = replace(base, context=16384).with_model_in(Path(folder))
        found = measure(axes, replace(settled, context=4096), given.set, given.steps, given.seconds)
    if given.plot:
        given.plot.write_text(growth_svg(found))
    result = finish("growth", rows_of(found, {} if given.tiny else BARS), given.json)
    if not result.met:
        raise SystemExit(1)


def _sizes(text: str, standard: Sequence[int]) -> tuple[int, ...]:
    if not text:
        return tuple(standard)
    return tuple(sorted(int(part) for part in text.split(",") if int(part) > 0))


if __name__ == "__main__":
    main()
