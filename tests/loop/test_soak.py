"""What a run holds stays the same while everything goes wrong around it: the soak of bench/soak.py in small."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from bench.soak import growth_of, recipe_of, verdict_of
from isentrope.core.seeding import stream
from isentrope.runs.layout import CHECKPOINTS, EPISODES, METRICS, checkpoint_name
from tests.loop.soak import Soak, plan_of

STEPS, EVERY, KEPT = 60, 5, 2
MORE = (
    "run.seed=1", "run.keep_last=2",
    "task.options.cheap=0.5", "task.options.exits=0.1", "task.options.hangs=0.06", "task.step_seconds=2",
    "task.workers=1", "agent.max_response=12", "instruments.probe_every=30",
)  # fmt: skip


@pytest.fixture(scope="module")
def soak(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Soak]:
    faults = plan_of(STEPS, STEPS // 2, EVERY, seed=1, stops=1, kills=1)
    recipe = recipe_of(STEPS, EVERY, *MORE)
    soak = Soak(tmp_path_factory.mktemp("soak"), recipe, faults, EVERY, pause=1.0, mount=False)
    with soak:
        soak.run()
    yield soak
    soak.close()


@pytest.mark.slow(10)
def test_every_fault_came_and_nothing_is_left_behind(soak: Soak) -> None:
    assert soak.problems == []
    came = {kind: soak.happened[kind] for kind in ("stop", "kill", "term", "full", "crash")}
    assert came == {"stop": 2, "kill": 2, "term": 1, "full": 1, "crash": 2}
    assert soak.life == 5
    assert soak.visitor.looks > 5
    assert soak.step() == STEPS
    keys = {key for line in (soak.run_folder / METRICS).open() for key in json.loads(line)}
    assert {f"failures/{kind}" for kind in ("task_error", "garbage", "worker_died", "time_limit")} <= keys


def test_descriptors_and_processes_do_not_grow(soak: Soak) -> None:
    samples = soak.samples
    assert len(samples) >= STEPS / EVERY / 2
    for name in ("trainer_descriptors", "watch_descriptors"):
        held = [getattr(sample, name) for sample in samples]
        assert max(held) <= min(held) + 4, f"{name}: {held}"
    each = [sample.workers_descriptors / sample.workers for sample in samples if sample.workers]
    assert max(each) <= min(each) + 4, each
    assert max(sample.workers for sample in samples) == 1
    # a trainer and what forked it, a worker and what tracks workers, the page; one that is on its way out
    assert max(sample.processes for sample in samples) <= 6, [sample.processes for sample in samples]


def test_files_are_those_that_a_run_has(soak: Soak) -> None:
    checkpoints = {path.name for path in (soak.run_folder / CHECKPOINTS).iterdir() if path.is_dir()}
    assert {checkpoint_name(STEPS - EVERY), checkpoint_name(STEPS)} <= checkpoints
    assert len(checkpoints) <= 2 * KEPT + 3, checkpoints  # the last, those of alarms, the best, two set aside
    stored = [f"{kind}-{step:06d}.parquet" for kind in ("step", "scores") for step in range(EVERY, STEPS + 1, EVERY)]
    evaluated = [f"eval-{step:06d}-seen.parquet" for step in (0, STEPS)]
    assert {path.name for path in (soak.run_folder / EPISODES).iterdir()} == {*stored, *evaluated}
    assert {sample.temporary_files for sample in soak.samples} == {0}


def made(slope: float, life: int = 500) -> dict[str, list[float]]:
    """Samples of 5,000 steps: 400 MB, some noise, a process that begins with more every `life` steps, and growth."""
    steps = [float(step) for step in range(25, 5001, 25)]
    noise = stream(0, "noise").normal(size=len(steps)).tolist()
    ages = [step % life for step in steps]
    values = [
        400 + slope * step / 1000 + more + 50 * (age < 100) for step, more, age in zip(steps, noise, ages, strict=True)
    ]
    return {
        "step": steps,
        "age": ages,
        "trainer_memory": values,
        "run_files": [step + slope * step**2 for step in steps],
    }


@pytest.mark.parametrize(("slope", "flat"), [(0.0, True), (1.0, True), (-8.0, True), (8.0, False)])
def test_the_rule_allows_one_percent_in_a_thousand_steps(slope: float, flat: bool) -> None:
    verdict = verdict_of("trainer_memory", made(slope))
    assert verdict is not None
    assert verdict.flat == flat
    assert verdict.low < slope < verdict.high
    assert verdict.level == pytest.approx(400 + 3.75 * slope, abs=1)  # in the middle of the second half


def test_a_folder_may_grow_but_no_faster() -> None:
    first, second = growth_of("run_files", made(0.0))
    assert first == second == pytest.approx(1000)
    first, second = growth_of("run_files", made(1e-4))
    assert second > 1.3 * first
