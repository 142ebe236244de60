"""What is said of learning rates: to runs that need it, and not to healthy ones."""

from __future__ import annotations

import json
import lzma
import math
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import torch

from isentrope.config.load import load_config
from isentrope.loop.rate import RateWatch
from isentrope.models.llama import Llama, Shape
from isentrope.models.policy import Policy
from isentrope.models.sources.find import POCKET
from isentrope.models.sources.pocket import PocketTokens

KEPT = Path(__file__).parents[2] / "docs" / "runs"
KEYS = ("kl/k3", "kl/old", "valid_ratio", "success/all", "lr", "update/count", "advantage/zero_groups")


def policy() -> Policy:
    model = Llama(Shape(vocabulary=300, width=16, layers=1, heads=2, kv_heads=1, inner=32))
    return Policy(model, PocketTokens.load(POCKET), torch.device("cpu"), torch.float32)


def told(steps: list[Mapping[str, float]], *changes: str) -> list[str]:
    watch = RateWatch(load_config(None, ["run.steps=100", "learn.warmup=0.05", *changes]), policy())
    return [one.line(step) for step, metrics in enumerate(steps, start=1) if (one := watch.look(step, metrics))]


def still(count: int = 12, **changes: float) -> list[Mapping[str, float]]:
    step = {"kl/k3": 2e-7, "kl/old": 1e-9, "valid_ratio": 0.9, "success/all": 0.3, "update/count": 2, "lr": 1e-6}
    return [step | {key.replace("__", "/"): value for key, value in changes.items()}] * count


def test_a_rate_that_moves_nothing() -> None:
    (text,) = told(still(30), "learn.lr=1e-6")
    assert text.startswith("step 10: the policy hardly moves")
    assert "2e-07 nats" in text
    assert "learn.lr = 1e-06 is low for 0.00" in text  # thousands of weights
    assert text.endswith("--set learn.lr=0.0001")
    assert told(still(30), "learn.lr=1e-3")[0].endswith("--set learn.lr=0.01")  # faster than the rule already


@pytest.mark.parametrize(
    ("steps", "changes"),
    [
        (still(9), []),
        (still(14), ["learn.warmup=0.1"]),  # five steps past the warm-up are not there yet
        (still(kl__k3=1e-3), []),
        (still(advantage__zero_groups=0.9), []),  # nothing to learn from: not the rate
        (still(update__count=0), []),
        (still(kl__k3=math.nan), []),
        (still(), ["learn.kl=1"]),
        (still(11), ["learn.algorithm=ppo", "critic.warmup=2", "learn.kl=0.01"]),
    ],
)
def test_what_is_not_the_rate(steps: list[Mapping[str, float]], changes: list[str]) -> None:
    assert told(steps, "learn.lr=1e-6", *changes) == []


def falling(kl: float, valid: list[float]) -> list[Mapping[str, float]]:
    return [
        {"kl/k3": kl, "kl/old": 0.0, "valid_ratio": value, "success/all": 0.0, "update/count": 1} for value in valid
    ]


def test_a_rate_that_ruins() -> None:
    course = [0.88, 0.78, 0.38, 0.15, 0.27, 0.25]
    (text,) = told(falling(5.0, course), "learn.lr=2e-3")
    assert text.startswith("step 4: the policy is being ruined: valid actions fell from 88 to 38 %")
    assert "5 nats a token" in text
    assert text.endswith("--set learn.lr=0.0001")
    assert told(falling(5.0, course), "learn.lr=1e-4")[0].endswith("--set learn.lr=2e-05")
    assert told(falling(0.05, course), "learn.lr=2e-3") == []  # a fall, but the policy is where it was
    assert told(falling(5.0, [0.88] * 6), "learn.lr=2e-3") == []
    assert told(falling(0.14, [0.8] * 12 + [0.1] * 8), "learn.lr=2e-3") == []  # later falls are the alarms'


def kept_runs() -> Iterator[tuple[str, list[Mapping[str, float]], list[str]]]:
    for study in ("alfworld", "setting", "quick"):
        with lzma.open(KEPT / study / "runs.jsonl.xz", "rt") as lines:
            for line in lines:
                run = json.loads(line)
                series = {key: run["train"][key] for key in KEYS if key in run.get("train", {})}
                if series:
                    numbers = zip(*series.values(), strict=True)
                    steps = [
                        {key: v for key, v in zip(series, step, strict=True) if isinstance(v, int | float)}
                        for step in numbers
                    ]
                    names = ("learn.lr", "learn.kl", "learn.warmup", "run.steps")
                    yield f"{study}/{run['cell']}", steps, [f"{name}={run['config'][name]}" for name in names]


def test_no_kept_run_that_learnt_is_told_anything() -> None:
    runs = list(kept_runs())
    assert len(runs) > 40
    assert {name: said for name, steps, changes in runs if (said := told(steps, *changes))} == {}


@pytest.mark.parametrize(("name", "step"), [("grpo-lr1e-5", 4), ("grpo-lr1e-5-no-kl", 4), ("grpo", None)])
def test_the_run_whose_rate_was_too_high(name: str, step: int | None) -> None:
    path = KEPT / "alfworld-smollm2" / "qwen" / name / "metrics.jsonl"
    steps = [json.loads(line) for line in path.read_text().splitlines()]
    said = told([one for one in steps if one.get("kind", "train") == "train"], "learn.lr=1e-5", "run.steps=8")
    assert [text.split(":")[0] for text in said] == ([] if step is None else [f"step {step}"])


def test_it_does_not_keep_a_whole_run() -> None:
    watch = RateWatch(load_config(None, ["learn.lr=1e-3"]), policy())
    for step in range(1, 101):
        watch.look(step, {"kl/k3": 1e-3, "valid_ratio": 0.9, "loss/total": 1.0})
    kept = watch.state_dict()["seen"]
    assert len(kept) <= 15
    assert not any("loss/total" in one for one in kept)


def test_a_resumed_run_is_told_the_same() -> None:
    """Its watch remembers what it saw and whether it spoke, in JSON."""
    config = load_config(None, ["run.steps=100", "learn.warmup=0.05", "learn.lr=2e-3"])
    course = falling(5.0, [0.88, 0.78, 0.38, 0.15, 0.27, 0.25])
    whole = told(course, "learn.lr=2e-3")
    assert len(whole) == 1
    for stop in range(1, 6):
        first, then = RateWatch(config, policy()), RateWatch(config, policy())
        said = [first.look(step, metrics) for step, metrics in enumerate(course[:stop], start=1)]
        then.load_state_dict(json.loads(json.dumps(first.state_dict())))
        said += [then.look(step, metrics) for step, metrics in enumerate(course[stop:], start=stop + 1)]
        assert [one.line(4) for one in said if one is not None] == whole
