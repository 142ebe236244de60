"""5,000 steps of a toy with everything going wrong: do memory, descriptors, files and time a step stay flat?

    python bench/soak.py [--steps 5000] [--json docs/soak.json] [--plot docs/images/soak.svg]
    python bench/soak.py --from docs/soak.json --plot docs/images/soak.svg       # draw and judge a result again

Two runs with the same seeds, at the same time: one is disturbed from outside (tests/loop/soak.py says how), one is
calm: a single process from the first step to the last. Both have task workers, games that break
(tests/worlds/pool/faulty_toys.py), alarms that write checkpoints, evaluations, and `isentrope watch` with a client that
asks what the page asks. They must end with the same numbers, bit for bit. About a quarter of an hour of a core; who may
mount a file system has a disk that is really full at times.

The rule, written before the first run: the second half of the steps is cut into ten parts, a line goes through their
medians, and the upper end of its slope's 95 % interval (Student, 8 degrees of freedom) is below 1 % of the level or
below `ALLOWED` per 1,000 steps. Of the trainer's samples those of a process younger than 100 steps do not count.
A folder may grow, but no faster (5 %) in the second half than in the first; checkpoints have a largest number of files.
"""

from __future__ import annotations

import argparse
import json
import math
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from isentrope.bench.results import machine
from isentrope.charts.chart import Chart, Panel, Series
from isentrope.charts.svg import picture
from isentrope.config.text import config_to_toml
from isentrope.core.stats import student
from tests.builders.toy_runs import WARM_MODEL, toy_config
from tests.loop.soak import Fault, Sample, Soak, numbers_of, plan_of
from tests.worlds.pool.faulty_toys import NAME

YOUNG = 100  # steps of a process of the trainer, before it has loaded what it needs
PARTS = 10
RELATIVE = 0.01  # growth in 1,000 steps
ALLOWED: dict[str, float] = {  # likewise, in the unit of the quantity
    "trainer_memory": 1.0,  # MB
    "trainer_descriptors": 0.5,
    "trainer_milliseconds": 1.0,  # of processor time, a step
    "workers_memory": 1.0,
    "workers_descriptors": 0.5,
    "watch_memory": 8.0,  # it keeps the numbers of each step and an index of episodes: half of what the folder grows by
    "watch_descriptors": 0.5,
    "processes": 0.5,
    "checkpoint_kilobytes": 1.0,
    "temporary_files": 0.5,
    "shared_memory_files": 0.5,
}
GROWING = ("run_files", "run_megabytes")
KEPT = 8
MOST_FILES = 8 * (2 * KEPT + 4) + 1  # of checkpoints: the last, those of alarms, the best, two set aside, one half made
FASTER = 1.05  # growth of the second half over that of the first
SETTINGS = (
    f"task.world={NAME}", "task.where=processes", "task.workers=2", "task.max_turns=2", "task.step_seconds=10",
    "rollout.group_size=2", "agent.max_response=6", "learn.mini_batches=1", "learn.lr=1e-4",
    f"run.keep_last={KEPT}", "run.store_episodes=5", "instruments.on_alarm=checkpoint",
    "instruments.alarms=['eruption', 'collapse', 'likelihood_fall', 'duplication', 'mismatch', 'gradient_spike', "
    "'no_signal', 'not_finite']",
)  # fmt: skip


@dataclass(frozen=True)
class Verdict:
    level: float
    slope: float  # of 1,000 steps
    low: float
    high: float
    flat: bool


def recipe_of(steps: int, checkpoint_every: int, *more: str) -> str:
    every = (f"run.steps={steps}", f"run.checkpoint_every={checkpoint_every}", f"run.eval_every={5 * checkpoint_every}")
    return config_to_toml(
        toy_config(WARM_MODEL, *SETTINGS, *every, f"instruments.probe_every={checkpoint_every}", *more)
    )


# -- the rule


Columns = Mapping[str, Sequence[float]]


def columns_of(samples: Sequence[Sample]) -> dict[str, list[float]]:
    """The samples by quantity, with the processor time of a step since the sample before."""
    columns: dict[str, list[float]] = {
        name: [float(getattr(sample, name)) for sample in samples] for name in Sample.__dataclass_fields__
    }
    return columns | {"trainer_milliseconds": milliseconds_of(columns)}


def milliseconds_of(columns: Columns) -> list[float]:
    """Below 0 where a process of the trainer took its place between two samples: it is not known."""
    cpu, steps, lives = columns["trainer_cpu"], columns["step"], columns["life"]
    return [
        1000 * (cpu[i] - cpu[i - 1]) / (steps[i] - steps[i - 1]) if i and lives[i] == lives[i - 1] else -1.0
        for i in range(len(steps))
    ]


def verdict_of(name: str, columns: Columns) -> Verdict | None:
    """None for fewer than four of the ten parts."""
    steps = columns["step"][-1]
    points = [
        (step, value)
        for step, value, age in zip(columns["step"], columns[name], columns["age"], strict=True)
        if step > steps / 2 and value >= 0 and (age >= YOUNG or not name.startswith("trainer"))
    ]
    medians: list[tuple[float, float]] = []
    for part in range(PARTS):
        low, high = (steps / 2 * (1 + (part + more) / PARTS) for more in (0, 1))
        inside = [value for step, value in points if low < step <= high]
        if inside:
            medians.append(((low + high) / 2000, statistics.median(inside)))
    if len(medians) < 4:
        return None
    xs, ys = [x for x, _ in medians], [y for _, y in medians]
    line, level = statistics.linear_regression(xs, ys), statistics.fmean(ys)
    rest = math.fsum((y - line.intercept - line.slope * x) ** 2 for x, y in medians)
    spread = math.fsum((x - statistics.fmean(xs)) ** 2 for x in xs)
    error = math.sqrt(rest / (len(medians) - 2) / spread)
    interval = student(line.slope, error, len(medians) - 2)
    return Verdict(level, line.slope, interval.low, interval.high, interval.high < max(RELATIVE * level, ALLOWED[name]))


def growth_of(name: str, columns: Columns) -> tuple[float, float]:
    """Of 1,000 steps, in the first and in the second half."""
    steps, values = columns["step"], columns[name]
    middle = len(steps) // 2

    def rate(first: int, last: int) -> float:
        return 1000 * (values[last] - values[first]) / (steps[last] - steps[first])

    return rate(0, middle), rate(middle, -1)


def judged(result: Mapping[str, Any]) -> tuple[list[str], bool]:
    """The table, a line each, and whether all is as it must be."""
    lines, good = [f"{'':10} {'':22} {'level':>9} {'in 1,000 steps':>15} {'95 % interval':>20}"], True
    for run, told in result["runs"].items():
        columns = told["samples"]
        for name in ALLOWED:
            one = verdict_of(name, columns)
            if one is None:
                lines.append(f"{run:10} {name:22} too few samples")
                continue
            good &= one.flat
            said = f"{one.low:9.3f} to {one.high:7.3f}   {'flat' if one.flat else 'NOT FLAT'}"
            lines.append(f"{run:10} {name:22} {one.level:9.2f} {one.slope:15.4f} {said}")
        for name in GROWING:
            first, second = growth_of(name, columns)
            steady = second <= FASTER * first
            good &= steady
            lines.append(f"{run:10} {name:22} grows by {first:.1f}, then {second:.1f}   {'' if steady else 'FASTER'}")
        files = max(columns["checkpoint_files"])
        good &= files <= MOST_FILES and not told["problems"]
        lines.append(f"{run:10} {'checkpoint_files':22} at most {files:.0f}, allowed {MOST_FILES}")
        lines += [f"{run}: {problem}" for problem in told["problems"]]
        lines.append(
            f"{run}: {told['happened']}, {told['looks']} looks at the page, slowest answer {told['slowest']} s"
        )
    differing = result["differing"]
    compared = f"up to step {result['compared_to_step']}, {result['compared']} files"
    lines.append(f"{compared}: {len(differing)} differ between the two runs {differing[:5] or ''}")
    return lines, good and not differing


# -- the runs


def soaked(soak: Soak) -> dict[str, Any]:
    """What is kept of a run."""
    began = time.monotonic()
    with soak:
        soak.run()
    return {
        "samples": {name: [round(value, 3) for value in column] for name, column in columns_of(soak.samples).items()},
        "happened": dict(soak.happened), "problems": soak.problems, "lives": soak.life,
        "looks": soak.visitor.looks, "slowest": round(soak.visitor.slowest, 1),
        "seconds": round(time.monotonic() - began),
    }  # fmt: skip


def both(place: Path, steps: int, cycle: int, checkpoint_every: int, every: int, seed: int) -> dict[str, Any]:
    recipe, end = recipe_of(steps, checkpoint_every, f"run.seed={seed}"), threading.Event()
    plans = {"disturbed": plan_of(steps, cycle, checkpoint_every, seed), "calm": list[Fault]()}

    def break_off(number: int, frame: FrameType | None) -> None:
        end.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, break_off)
    for name in plans:
        (place / name).mkdir()
    soaks = {name: Soak(place / name, recipe, plan, every, end=end) for name, plan in plans.items()}
    try:
        with ThreadPoolExecutor(2) as threads:
            found = dict(zip(soaks, threads.map(soaked, soaks.values()), strict=True))
        last = min(soak.step() for soak in soaks.values())
        until = None if last == steps else last // cycle * cycle  # what a crash was still to undo is not compared
        ours, theirs = (numbers_of(soak.run_folder, until) for soak in soaks.values())
    finally:
        for soak in soaks.values():
            soak.close()
    return {
        "machine": machine(), "date": time.strftime("%Y-%m-%d"), "steps": steps, "seed": seed,
        "compared_to_step": last if until is None else until, "compared": len({*ours, *theirs}),
        "differing": sorted(name for name in {*ours, *theirs} if ours.get(name) != theirs.get(name)), "runs": found,
    }  # fmt: skip


# -- the picture


def drawn(result: Mapping[str, Any]) -> str:
    def line(name: str, run: str, key: str, color: int) -> Series:
        columns = result["runs"][run]["samples"]
        values = [None if value < 0 else value for value in columns[key]]
        return Series(name, columns["step"], values, color=color)

    memory = [
        line("trainer, disturbed", "disturbed", "trainer_memory", 0),
        line("trainer, calm", "calm", "trainer_memory", 1),
        line("watch", "disturbed", "watch_memory", 2),
        line("two workers", "disturbed", "workers_memory", 3),
    ]
    held = [
        line("trainer, disturbed", "disturbed", "trainer_descriptors", 0),
        line("watch", "disturbed", "watch_descriptors", 2),
        line("two workers", "disturbed", "workers_descriptors", 3),
        line("processes", "disturbed", "processes", 4),
    ]
    spent = [
        line("trainer, disturbed", "disturbed", "trainer_milliseconds", 0),
        line("trainer, calm", "calm", "trainer_milliseconds", 1),
    ]
    charts = [
        Chart("Memory, MB", [Panel(memory)]), Chart("Open descriptors; processes", [Panel(held)]),
        Chart("Processor time of a step, ms", [Panel(spent)]),
    ]  # fmt: skip
    title = "Left: memory in MB; middle: open descriptors, and processes; right: ms of processor time a step"
    return picture(*charts, title=title, width=330, height=240, inches=10)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--cycle", type=int, default=500, help="steps from one crash to the next")
    parser.add_argument("--checkpoint-every", type=int, default=50)
    parser.add_argument("--every", type=int, default=25, help="steps between two samples")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--place", type=Path, default=None, help="where temporary folders are made")
    parser.add_argument("--from", dest="source", type=Path, default=None, help="a result, instead of new runs")
    parser.add_argument("--json", type=Path, default=None, help="write the result there")
    parser.add_argument("--plot", type=Path, default=None, help="write a picture there (SVG)")
    told = parser.parse_args()
    if told.source:
        result = json.loads(told.source.read_text())
    else:
        with tempfile.TemporaryDirectory(dir=told.place) as place:
            result = both(Path(place), told.steps, told.cycle, told.checkpoint_every, told.every, told.seed)
    if told.json:
        told.json.write_text(json.dumps(result, separators=(",", ":")) + "\n")
    if told.plot:
        told.plot.write_text(drawn(result))
    lines, good = judged(result)
    print("\n".join(lines))
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
