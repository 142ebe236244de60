"""The table of docs/plan.md: what `isentrope plan` says of work that was measured, beside the measurement.

    python -m tools.plan_docs          # write the table
    python -m tools.plan_docs --fit    # the rates of an H200, fitted anew to the figures of docs/plan.toml

Each prediction is computed from rates that were fitted to other work: docs/plan.toml has both kinds, docs/plan-cpu.json
a run on a CPU.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from isentrope.analysis.tables import markdown_table
from isentrope.cluster.plan.cards import CARDS, this_machine
from isentrope.cluster.plan.costs import Costs, Model
from isentrope.cluster.plan.layouts import Layout, Task, learn_seconds, setup_of
from isentrope.cluster.plan.lengths import Lengths, fixed, resampled
from isentrope.cluster.plan.rates import H200, Rates, from_data, lengths_from
from isentrope.cluster.plan.simulate import simulate
from isentrope.config.load import load_config
from isentrope.config.schema import RunConfig
from isentrope.models.auto import follow_model
from isentrope.models.sources.find import find_facts
from isentrope.models.sources.shapes import SHAPES

DOCS = Path(__file__).parents[1] / "docs"
FIGURES, CPU, PAGE = DOCS / "plan.toml", DOCS / "plan-cpu.json", DOCS / "plan.md"
FITTED = ("bandwidth", "products", "layer", "row", "response", "traffic", "learning", "moved", "laid")
ONE = Layout(1, 1, 1)
AT_ONCE = 256  # conversations


@dataclass(frozen=True)
class Row:
    work: str
    part: str
    predicted: float
    measured: float
    unit: str
    source: str

    @property
    def off(self) -> float:
        """Of the seconds: positive if the prediction takes longer."""
        ratio = self.predicted / self.measured
        return (1 / ratio if self.unit == "tokens/s" else ratio) - 1


@cache
def figures() -> dict[str, Any]:
    return tomllib.loads(FIGURES.read_text(encoding="utf-8"))


def costs(shape: str, rates: Rates) -> Costs:
    return Costs(Model.of(SHAPES[shape].facts()), rates)


def sampled(costs: Costs, lengths: Lengths, slots: int = AT_ONCE) -> tuple[float, dict[str, float]]:
    """Seconds of a rollout without tasks, and those of its parts."""
    setup = setup_of(_task("smollm2-135m", [], costs.rates, 0.0), ONE, slots, slots)

    def nothing(lengths: Lengths) -> tuple[float, float]:
        return 0.0, 0.0

    happened = simulate(replace(setup, costs=costs, learn=nothing), [lengths])
    parts = dict[str, float]()
    for start, end, kind in happened.samplers[0]:
        parts[kind] = parts.get(kind, 0.0) + end - start
    return happened.played[0], parts


def _task(shape: str, sets: Sequence[str], rates: Rates, seconds: float) -> Task:
    return Task(_config(tuple(sets)), SHAPES[shape].facts(), CARDS["h200"], rates, seconds)


@cache
def _config(sets: tuple[str, ...]) -> RunConfig:
    return load_config("alfworld", sets)


def of_update() -> Lengths:
    """The conversations of bench/update.py: 64 in groups of 8, of 5 to 30 turns."""
    rng, read, new = np.random.default_rng(1), *np.zeros((2, 64, 30), dtype=np.int64)
    for row in range(64):
        read[row, 0] = int(rng.integers(313, 513)) if row % 8 == 0 else read[row - 1, 0]
        turns = int(rng.integers(4, 30))
        read[row, 1 : turns + 1], new[row, : turns + 1] = rng.integers(15, 60, turns), 64
        new[row, 1 : turns + 1] = rng.integers(20, 70, turns)
    return Lengths(read, new, 8)


PROMPTS, TALK = fixed(256, 1, 64, 0, 412), fixed(128, 12, 32, 80, 300)


def errors(rates: Rates) -> Iterator[float]:
    """The logarithms by which the rates miss each figure that they are fitted to."""
    padded = replace(rates, padding="all")  # as the engine padded its passes then
    for given in figures()["fitted"]:
        shapes = given["shape"] if isinstance(given["shape"], list) else [given["shape"]]
        if given["kind"] == "token":
            one = costs(shapes[0], rates)
            for rows, held, seconds in zip(given["conversations"], given["held"], given["seconds"], strict=True):
                yield math.log(one.draw(rows, rows * held) / seconds)
        elif given["kind"] == "apart":
            parts = sampled(costs(shapes[0], replace(padded, response=0.0)), PROMPTS)[1]
            yield math.log(parts["prompts"] / given["read"])
            yield math.log(parts["tokens"] / given["drawn"])
            yield math.log(rates.response * PROMPTS.episodes / given["rest"])
        elif given["kind"] == "loop":
            task = _task(shapes[0], [], rates, 0.0)
            lengths = fixed(given["episodes"], given["turns"], given["new"], given["read"], given["prompt"], 8)
            yield math.log(learn_seconds(task, ONE, lengths)[1] / given["update"])
        elif given["kind"] == "prompts":
            for shape, rate in zip(shapes, given["rate"], strict=True):
                yield math.log(sampled(costs(shape, padded), PROMPTS)[0] * rate / PROMPTS.written)
        else:
            work = of_update()
            for shape, rate in zip(shapes, given["rate"], strict=True):
                sets = ["learn.kl=0", "learn.micro_tokens=32768", "learn.mini_batches=1"]
                task = _task(shape, sets, replace(rates, laid=0.0), 0.0)  # the update alone, all laid out before
                yield math.log(learn_seconds(task, ONE, work, 0.0)[1] * rate / work.whole)


def fit(rates: Rates) -> Rates:
    """Least squares of those logarithms, one rate after the other, by smaller and smaller steps."""

    def loss(some: Rates) -> float:
        return sum(error**2 for error in errors(some))

    best, step = loss(rates), 0.2
    while step > 0.002:
        tried = [replace(rates, **{name: getattr(rates, name) * factor}) for name in FITTED
                 for factor in (1 + step, 1 / (1 + step))]  # fmt: skip
        tried = [replace(one, drawing=one.products) for one in tried]  # both are products of the same card
        found = min(tried, key=loss)
        if loss(found) < best - 1e-9:
            rates, best = found, loss(found)
        else:
            step /= 2
    return replace(rates, **{name: float(f"{getattr(rates, name):.3g}") for name in FITTED})


def rows() -> list[Row]:
    return [*_on_the_card(), *_on_a_cpu()]


def _on_the_card() -> Iterator[Row]:
    for given in figures()["measured"]:
        shape, source = given["shape"], given["source"]
        work = f"{given['work']}; {shape}"
        if given["kind"] == "talk":
            seconds = sampled(costs(shape, replace(H200, padding="all")), TALK)[0]
            yield Row(work, "sampling", TALK.written / seconds, given["rate"][0], "tokens/s", source)
            continue
        lengths = fixed(given["episodes"], given["turns"], given["new"], given["read"], given["prompt"], 8)
        task = _task(shape, given["sets"], H200, H200.turn)
        score, update = learn_seconds(task, ONE, lengths, given["passes"])
        rollout = simulate(setup_of(task, ONE, AT_ONCE, AT_ONCE), [lengths]).played[0]
        told = {"rollout": rollout, "score": score, "update": update}
        known = {part: sum(given[part]) / len(given[part]) for part in told if part in given}
        for part, seconds in known.items():
            yield Row(work, part, told[part], seconds, "s", source)
        yield Row(work, "**step**", sum(told[part] for part in known), sum(known.values()), "s", source)


def _on_a_cpu() -> Iterator[Row]:
    config = follow_model(load_config("demo", ["run.device=cpu"]))
    for run in json.loads(CPU.read_text(encoding="utf-8"))["runs"]:
        rates = from_data(run["rates"], CPU.name, "as it was kept")
        small = [lengths_from(step) for step in run["rates"]["steps"]]
        task = Task(config, find_facts("pocket", False)[1], this_machine(0), rates, rates.turn, False)
        for step in run["steps"]:
            lengths, source = lengths_from(step), f"{run['command']}, {run['date']}"
            groups, size = lengths.episodes // lengths.group_size, lengths.group_size
            work = f"the demo, {groups} × {size} episodes; pocket, {run['machine']}"
            own, drawn = parts_of(task, lengths), parts_of(task, resampled(small, groups, size, 0))
            for part, seconds in own.items():
                yield Row(work, part, seconds, step[part], "s", source)
            whole = sum(step[part] for part in own)
            yield Row(work, "**step**", sum(own.values()), whole, "s", source)
            yield Row(f"{work}; lengths of the small steps", "**step**", sum(drawn.values()), whole, "s", source)


def parts_of(task: Task, lengths: Lengths) -> dict[str, float]:
    score, update = learn_seconds(task, ONE, lengths)
    return {"rollout": simulate(setup_of(task, ONE, AT_ONCE, AT_ONCE), [lengths]).played[0], "score": score,
            "update": update}  # fmt: skip


def table() -> str:
    head = ("work", "part", "predicted", "measured", "off", "measured by")
    return markdown_table(head, [_cells(row) for row in rows()])


def _cells(row: Row) -> list[str]:
    form = "{:,.0f} tokens/s" if row.unit == "tokens/s" else "{:.2f} s"
    off = f"{row.off:+.0%}".replace("%", " %")
    return [row.work, row.part, form.format(row.predicted), form.format(row.measured), off, row.source]


def rendered() -> str:
    text = PAGE.read_text(encoding="utf-8")
    return re.sub(r"(?s)(<!-- plan -->\n).*?(<!-- /plan -->)", lambda found: f"{found[1]}{table()}\n{found[2]}", text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fit", action="store_true")
    if parser.parse_args().fit:
        found = fit(H200)
        print({name: getattr(found, name) for name in FITTED})
        print("misses, in percent:", [round(100 * math.expm1(error), 1) for error in errors(found)])
        return
    PAGE.write_text(rendered(), encoding="utf-8")


if __name__ == "__main__":
    main()
