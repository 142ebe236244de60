"""For each claim a study in which it holds, one in which it does not, and one that cannot tell."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from isentrope.study.read import StudyData, StudyRun
from tests.claims.made import SEEDS, hills, made_run, made_study, probed, shaken

HOLDS, FAILS, OPEN = "holds", "does not hold", "undecided"
Cell = tuple[str, str, str]  # algorithm, method, variant
ONSETS = (100, 200, 300)
LONG = 400


def contrasts(*pairs: tuple[Cell, Cell]) -> Callable[[str], StudyData]:
    """The first of each pair is better, no better, or better by less than its spread."""

    def make(kind: str) -> StudyData:
        gain, spread = {HOLDS: (0.15, 0.01), FAILS: (-0.05, 0.01), OPEN: (0.04, 0.08)}[kind]
        levels: dict[Cell, float] = {}
        for better, worse in pairs:
            levels.setdefault(worse, 0.4)
            levels[better] = 0.4 + gain
        ordered = sorted(levels, key=lambda cell: levels[cell] != 0.4)  # controls first
        runs = [
            made_run(seed, *cell, success=shaken(levels[cell], spread if levels[cell] != 0.4 else 0.0, seed))
            for cell in ordered
            for seed in SEEDS
        ]
        return made_study(runs)

    return make


def grpo(method: str = "none", variant: str = "full") -> Cell:
    return ("grpo", method, variant)


def a1(kind: str) -> StudyData:
    level, spread = {HOLDS: (0.1, 0.02), FAILS: (-0.05, 0.01), OPEN: (0.03, 0.06)}[kind]
    return made_study(made_run(s, train={"probe/delta_h": probed(shaken(level, spread, s), 100)}) for s in SEEDS)


def of_levels(key: str, cell: Cell, gains: Mapping[str, float], split: float) -> Callable[[str], StudyData]:
    """A metric that is 0.5 in bare GRPO and 0.5 · (1 + gain) in the cell, up to a share of the steps."""

    def make(kind: str) -> StudyData:
        spread = 0.15 if kind == OPEN else 0.01
        runs = [made_run(s, train={key: 0.5}) for s in SEEDS]
        for s in SEEDS:
            value = 0.5 * (1 + shaken(gains[kind], spread, s))
            early = [value if step <= split * 100 else 0.5 for step in range(1, 101)]
            runs.append(made_run(s, *cell, train={key: early}))
        return made_study(runs)

    return make


def a5(kind: str) -> StudyData:
    loss, spread = {HOLDS: (0.0, 0.005), FAILS: (0.1, 0.01), OPEN: (0.02, 0.05)}[kind]
    runs = [made_run(s, success=0.5) for s in SEEDS]
    return made_study([*runs, *(made_run(s, *grpo("no_think"), success=shaken(0.5 - loss, spread, s)) for s in SEEDS)])


def e2(kind: str) -> StudyData:
    factor, spread = {HOLDS: (0.5, 0.02), FAILS: (1.5, 0.02), OPEN: (0.85, 0.3)}[kind]
    runs: list[StudyRun] = []
    for algorithm in ("grpo", "ppo"):
        for s in SEEDS:
            size = {"none": 0.1, "epo": 0.1 * shaken(factor, spread, s)}
            runs += [
                made_run(s, algorithm, method, train={"entropy/token": [0.5 + wave * (-1) ** t for t in range(100)]})
                for method, wave in size.items()
            ]
    return made_study(runs)


def e7(kind: str) -> StudyData:
    cost, spread = {HOLDS: (0.005, 0.005), FAILS: (0.2, 0.01), OPEN: (0.04, 0.06)}[kind]
    key = "tokens_per_second/update"
    runs = [made_run(s, timings={key: 1000.0}) for s in SEEDS]
    slower = (made_run(s, *grpo("epo"), timings={key: 1000.0 / (1 + shaken(cost, spread, s))}) for s in SEEDS)
    return made_study([*runs, *slower])


def s1(kind: str) -> StudyData:
    rise, spread = {HOLDS: (0.4, 0.03), FAILS: (0.0, 0.01), OPEN: (0.12, 0.15)}[kind]
    runs: list[StudyRun] = []
    for s in SEEDS:
        gain = shaken(rise, spread, s)
        ramp = [min(1.0, step / 15) for step in range(100)]
        valid, entropy = [0.4 + gain * part for part in ramp], [1 - gain * part for part in ramp]
        runs.append(made_run(s, train={"valid_ratio": valid, "entropy/token": entropy}))
    return made_study(runs)


def long_runs(extra: Callable[[int], Mapping[str, Sequence[float | None]]]) -> StudyData:
    return made_study(
        made_run(s, steps=LONG, train={"entropy/token": hills(LONG, ONSETS, 0.8), **extra(s)}) for s in SEEDS
    )


def s2(kind: str) -> StudyData:
    erupting = {HOLDS: 5, FAILS: 0, OPEN: 3}[kind]
    return made_study(
        made_run(s, steps=LONG, train={"entropy/token": hills(LONG, ONSETS if s < erupting else (), 0.8)})
        for s in SEEDS
    )


def s3(kind: str) -> StudyData:
    gap, spread = {HOLDS: (0.4, 0.05), FAILS: (-0.2, 0.02), OPEN: (0.1, 0.25)}[kind]

    def probes(s: int) -> dict[str, list[float | None]]:
        before = [any(onset - 15 <= step < onset for onset in ONSETS) for step in range(1, LONG + 1)]
        here = shaken(gap, spread, s)
        every = [step % 5 == 0 for step in range(1, LONG + 1)]
        negative = [(1 + here if soon else 1.0) if due else None for soon, due in zip(before, every, strict=True)]
        positive = [(1 - here if soon else 1.0) if due else None for soon, due in zip(before, every, strict=True)]
        return {"probe/interference/negative": negative, "probe/interference/positive": positive}

    return long_runs(probes)


def during(level: float, inside: float, after: float) -> list[float | None]:
    """A level before the first onset, another in eruptions, a third between and after them."""
    values: list[float | None] = []
    for step in range(1, LONG + 1):
        erupting = any(onset <= step < onset + 20 for onset in ONSETS)
        values.append(inside if erupting else level if step < ONSETS[0] else after)
    return values


def s4(kind: str) -> StudyData:
    fall, spread = {HOLDS: (0.5, 0.05), FAILS: (-0.1, 0.02), OPEN: (0.05, 0.2)}[kind]
    return long_runs(lambda s: {"likelihood/valid": during(-0.4, -0.4 - shaken(fall, spread, s), -0.4)})


def s5(kind: str) -> StudyData:
    rise, spread = {HOLDS: (0.2, 0.01), FAILS: (0.0, 0.002), OPEN: (0.03, 0.08)}[kind]

    def climbs(s: int) -> dict[str, list[float | None]]:
        step_up = shaken(rise, spread, s)
        count = [sum(onset <= step for onset in ONSETS) for step in range(1, LONG + 1)]
        return {"degeneracy/duplication": [0.05 + step_up * many for many in count], "response/tokens": [80.0] * LONG}

    return long_runs(climbs)


def s6(kind: str) -> StudyData:
    share, spread = {HOLDS: (0.3, 0.02), FAILS: (1.2, 0.02), OPEN: (0.7, 0.6)}[kind]
    runs: list[StudyRun] = []
    for s in SEEDS:
        lower = max(0.0, 0.8 * shaken(share, spread, s))
        runs += [
            made_run(s, steps=LONG, train={"entropy/token": hills(LONG, ONSETS, 0.8)}),
            made_run(s, *grpo("seal"), steps=LONG, train={"entropy/token": hills(LONG, ONSETS, lower)}, alpha="0.1"),
        ]
    return made_study(runs)


def with_alpha(make: Callable[[str], StudyData], alphas: Sequence[str]) -> Callable[[str], StudyData]:
    """Every SEAL cell once for each α."""

    def again(kind: str) -> StudyData:
        runs: list[StudyRun] = []
        for run in make(kind).runs:
            if run.tags["method"] != "seal":
                runs.append(run)
                continue
            for alpha in alphas:
                told = {**run.tags, "alpha": alpha}
                runs.append(replace(run, cell="-".join(told.values()), tags=told))
        return made_study(runs)

    return again


def m1(kind: str) -> StudyData:
    drift, spread = {HOLDS: (0.3, 0.03), FAILS: (-0.2, 0.02), OPEN: (0.1, 0.3)}[kind]
    runs: list[StudyRun] = []
    for s in SEEDS:
        moved = shaken(drift, spread, s)
        for cell, change in ((grpo(), 0.0), (grpo("aem", "falling"), moved), (grpo("aem", "rising"), -moved)):
            curve = [0.5 * (1 + change * min(1.0, step / 40)) for step in range(100)]
            runs.append(made_run(s, *cell, train={"entropy/token": curve}))
    return made_study(runs)


def m2(kind: str) -> StudyData:
    early, spread = {HOLDS: (0.2, 0.02), FAILS: (-0.2, 0.02), OPEN: (0.06, 0.2)}[kind]
    runs = [made_run(s, train={"entropy/token": 0.5}) for s in SEEDS]
    for s in SEEDS:
        tilt = shaken(early, spread, s)
        curve = [0.5 * (1 + tilt * (1 - step / 50)) for step in range(100)]
        runs.append(made_run(s, *grpo("aem"), train={"entropy/token": curve}))
    return made_study(runs)


def m4(kind: str) -> StudyData:
    share, spread = {HOLDS: (0.01, 0.001), FAILS: (0.1, 0.005), OPEN: (0.019, 0.01)}[kind]
    runs: list[StudyRun] = []
    for s in SEEDS:
        part = shaken(share, spread, s)
        stages = {"seconds/rollout": 1 - part, "seconds/shape": part, "seconds/evaluate": 9.0}
        runs.append(made_run(s, *grpo("aem"), timings=stages))
    return made_study(runs)


_GAINS = {HOLDS: 0.3, FAILS: -0.1, OPEN: 0.08}
_EPO, _SEAL = (("grpo", "epo", "full"), ("ppo", "epo", "full")), (("grpo", "seal", "full"), ("gigpo", "seal", "full"))
_FULL, _COLD = grpo("actre"), grpo("actre", "no_high_temperature")

SCENARIOS: dict[str, Callable[[str], StudyData]] = {
    "A1": a1,
    "A2": of_levels("entropy/action", _COLD, _GAINS, 0.5),
    "A3": contrasts((_FULL, grpo()), (_FULL, grpo("higher_temperature")), (_FULL, grpo("entropy_bonus"))),
    "A4": contrasts((_FULL, grpo()), (_FULL, grpo("actre", "no_stage2")), (_FULL, _COLD)),
    "A5": a5,
    "E1": contrasts((_EPO[0], grpo()), (_EPO[1], ("ppo", "none", "full"))),
    "E2": e2,
    "E3": contrasts((_EPO[0], grpo("epo", "base"))),
    "E4": lambda kind: _e4(kind),
    "E5": contrasts((grpo("epo", "base"), grpo("epo", "decay"))),
    "E6": contrasts((_EPO[0], grpo("ea"))),
    "E7": e7,
    "S1": s1,
    "S2": s2,
    "S3": s3,
    "S4": s4,
    "S5": s5,
    "S6": s6,
    "S7": with_alpha(contrasts((_SEAL[0], grpo()), (_SEAL[1], ("gigpo", "none", "full"))), ["0.1"]),
    "S8": with_alpha(contrasts((_SEAL[0], grpo())), ["0.03", "0.1", "0.30"]),
    "M1": m1,
    "M2": m2,
    "M3": contrasts(*(((name, "aem", "full"), (name, "none", "full")) for name in ("grpo", "gspo", "dapo"))),
    "M4": m4,
}


def _e4(kind: str) -> StudyData:
    gain, spread = {HOLDS: (0.1, 0.01), FAILS: (-0.05, 0.01), OPEN: (0.02, 0.06)}[kind]
    runs = [made_run(s, *grpo("epo", "no_dw"), train={"success/all": 0.4}) for s in SEEDS]
    for s in SEEDS:
        early = [shaken(0.4 + gain, spread, s) if step <= 40 else 0.4 for step in range(1, 101)]
        runs.append(made_run(s, *grpo("epo"), train={"success/all": early}))
    return made_study(runs)
