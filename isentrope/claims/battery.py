"""Made-up runs that rules are tried on, always the same: what a rule computes on them is part of its fingerprint."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

from isentrope.study.cells import Cell
from isentrope.study.plan import Plan, Study
from isentrope.study.read import DONE, StudyData, StudyRun

CELLS = (
    {"algorithm": "grpo"},
    {"algorithm": "grpo", "method": "actre", "variant": "no_stage1"},
    {"algorithm": "grpo", "method": "epo"},
    {"algorithm": "grpo", "method": "seal", "alpha": "0.1"},
    {"algorithm": "grpo", "method": "aem"},
    {"algorithm": "grpo", "method": "ea"},
    {"algorithm": "grpo", "method": "entropy_bonus"},
    {"algorithm": "gigpo"},
)
SEEDS = (0, 1, 2, 3, 4, 5)
STEPS = (60, 360)
_HEIGHTS = (0.9, 0.17, 0.9, 0.0, 0.2, 0.12)  # by seed: from hardly an eruption to a high one, and none
_KINDS = {"pick": 24, "heat": 18, "look": 9}
_PROBES = ("probe/delta_h", *(f"probe/interference/{sign}{per}" for sign in ("negative", "positive")
                              for per in ("", "_per_token")))  # fmt: skip


@cache
def battery() -> tuple[StudyData, ...]:
    """Two studies: short runs from one start, long ones from two."""
    return tuple(_study(steps) for steps in STEPS)


def _study(steps: int) -> StudyData:
    cells = [("-".join(tags.values()), tags) for tags in CELLS]
    runs = tuple(_run(name, tags, seed, steps) for name, tags in cells for seed in SEEDS)
    plan = tuple(Cell(name, tags, (), SEEDS) for name, tags in cells)
    return StudyData(Study(Plan(name=f"battery-{steps}"), plan), runs)


def _run(name: str, tags: dict[str, str], seed: int, steps: int) -> StudyRun:
    chance = random.Random(f"{name} {seed} {steps}")
    common = 0.12 * random.Random(f"{seed} {steps}").random()  # what the runs of a seed share
    lift = 0.06 * chance.random() + common + (0.05 if "method" in tags else 0.0)
    return StudyRun(
        name, tags, seed, DONE, config={"run.steps": steps, "policy.model": "toy"}, parameters=1000,
        start=f"start {seed % 2 if steps > 100 else 0}",
        train=tuple(_row(chance, step, steps, lift, seed) for step in range(1, steps + 1)),
        evals=tuple(_eval(chance, step, steps, lift) for step in range(0, steps + 1, 10)),
        timings=tuple(_timing(chance, step) for step in range(1, steps + 1)),
        begun="2030-01-01T00:00:00Z",
    )  # fmt: skip


def _row(chance: random.Random, step: int, steps: int, lift: float, seed: int) -> dict[str, Any]:
    done = step / steps
    height = _HEIGHTS[seed] + lift * (seed % 2 == 0)
    last = 240 if seed == 2 else steps  # two eruptions instead of three
    hill = max(0.0, 1 - abs(step % 120 - 60) / 15) * height * (steps > 100 and step <= last)
    entropy = 0.3 + 0.5 * max(0.0, 1 - 6 * done) + hill + 0.02 * chance.random()
    row: dict[str, Any] = {"step": step, "kind": "train", "entropy/token": entropy}
    row |= {"entropy/action": entropy / 2, "likelihood/valid": -entropy, "likelihood/solved": -entropy / 3}
    row |= {"valid_ratio": min(1.0, 0.5 + lift + 3 * done), "degeneracy/duplication": 0.02 + 0.1 * hill + 0.05 * done}
    row |= {"success/all": 0.2 + 0.6 * min(1.0, 2 * done) + 0.05 * chance.random(), "response/tokens": 50 + 20 * hill}
    if step == 1 or step % 5 == 0:
        row |= {key: 0.2 + lift + 0.1 * chance.random() - 0.3 * (step % 20 == 0) for key in _PROBES}
    return row


def _eval(chance: random.Random, step: int, steps: int, lift: float) -> dict[str, Any]:
    level = 0.3 + 0.4 * min(1.0, 2 * step / steps) + lift
    told: dict[str, Any] = {"step": step, "kind": "eval"}
    for kind, games in _KINDS.items():
        told |= {f"eval/unseen/success/{kind}": level + (lift if kind == "heat" else 0.0) + 0.02 * chance.random()}
        told |= {f"eval/unseen/games/{kind}": games}
    solved = sum(told[f"eval/unseen/success/{kind}"] * games for kind, games in _KINDS.items())
    return told | {"eval/unseen/success": solved / sum(_KINDS.values())}


def _timing(chance: random.Random, step: int) -> dict[str, Any]:
    told: dict[str, Any] = {"step": step, "kind": "train", "tokens_per_second/update": 900 + 200 * chance.random()}
    return told | {"seconds/rollout": 1.0, "seconds/update": 0.5, "seconds/shape": 0.01 * chance.random()}
