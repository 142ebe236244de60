"""For each claim a study in which it holds, one in which it does not, and one that cannot tell; with premises met."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache

from isentrope.study.read import StudyData, StudyRun
from tests.papers.made import SEEDS, SIX, hills, learnt, made_run, made_study, probed, shaken

HOLDS, FAILS, OPEN = "holds", "does not hold", "undecided"
Cell = tuple[str, str, str]  # algorithm, method, variant
Course = Mapping[str, Sequence[float | None] | float]  # of metrics in training
ONSETS = (100, 200, 300)
LONG = 400
STEPS = 100
ONCE = hills(STEPS, (50,), 0.8)  # one eruption


def shaken_alike(level: float, spread: float, seed: int) -> float:
    """Of runs that are compared with: they differ from seed to seed in another way."""
    return shaken(level, spread, seed, own=False)


def contrasts(
    *pairs: tuple[Cell, Cell], beside: Sequence[Cell] = (), train: Callable[[Cell, int], Course] | None = None
) -> Callable[[str], StudyData]:
    """The first of each pair is better, no better, or better by less than its spread. `beside`: cells of premises."""

    def make(kind: str) -> StudyData:
        gain, spread = {HOLDS: (0.15, 0.01), FAILS: (-0.05, 0.01), OPEN: (0.04, 0.08)}[kind]
        better = {cell for cell, _ in pairs}
        runs: list[StudyRun] = []
        for cell in dict.fromkeys([*(worse for _, worse in pairs), *beside, *(cell for cell, _ in pairs)]):
            for seed in SEEDS:
                success = shaken(0.4 + gain, spread, seed) if cell in better else shaken_alike(0.4, 0.01, seed)
                more = train(cell, seed) if train else {}
                runs.append(made_run(seed, *cell, success=success, train={"success/all": learnt(STEPS), **more}))
        return made_study(runs)

    return make


def grpo(method: str = "none", variant: str = "full") -> Cell:
    return ("grpo", method, variant)


def a1(kind: str) -> StudyData:
    level, spread = {HOLDS: (0.1, 0.02), FAILS: (-0.05, 0.01), OPEN: (0.03, 0.06)}[kind]
    return made_study(made_run(s, train={"probe/delta_h": probed(shaken(level, spread, s), 100)}) for s in SEEDS)


def a2(kind: str) -> StudyData:
    """Acting first has a higher action entropy in stage 1, and no other afterwards."""
    gain, spread = {HOLDS: (0.3, 0.01), FAILS: (-0.1, 0.01), OPEN: (0.08, 0.15)}[kind]
    runs = [made_run(s, train={"entropy/action": shaken_alike(0.5, 0.005, s)}) for s in SEEDS]
    for cell in (grpo("actre", "no_high_temperature"), grpo("actre")):
        for s in SEEDS:
            value = 0.5 * (1 + shaken(gain, spread, s))
            runs.append(made_run(s, *cell, train={"entropy/action": [value] * 50 + [0.5] * 50}))
    return made_study(runs)


def a5(kind: str) -> StudyData:
    loss, spread = {HOLDS: (0.0, 0.005), FAILS: (0.1, 0.01), OPEN: (0.02, 0.05)}[kind]
    train = {"success/all": learnt(STEPS)}
    runs = [made_run(s, success=shaken_alike(0.5, 0.005, s), first=0.3, train=train) for s in SEEDS]
    silent = [
        made_run(s, *grpo("no_think"), success=shaken(0.5 - loss, spread, s), first=0.2, train=train) for s in SEEDS
    ]
    return made_study([*runs, *silent])


def e2(kind: str) -> StudyData:
    factor, spread = {HOLDS: (0.5, 0.02), FAILS: (1.5, 0.02), OPEN: (0.85, 0.3)}[kind]
    runs: list[StudyRun] = []
    for algorithm in ("grpo", "ppo"):
        for s in SEEDS:
            size = {"none": 0.1 * shaken_alike(1.0, 0.02, s), "epo": 0.1 * shaken(factor, spread, s)}
            runs += [
                made_run(s, algorithm, method, train={"entropy/token": [0.5 + wave * (-1) ** t for t in range(100)]})
                for method, wave in size.items()
            ]
    return made_study(runs)


def moved(cell: Cell, seed: int) -> Course:
    """A bonus keeps the entropy up."""
    return {"entropy/token": shaken(0.6, 0.01, seed) if cell[1] == "epo" else shaken_alike(0.5, 0.01, seed)}


def e4(kind: str) -> StudyData:
    gain, spread = {HOLDS: (0.1, 0.01), FAILS: (-0.05, 0.01), OPEN: (0.02, 0.06)}[kind]
    runs: list[StudyRun] = []
    for algorithm in ("grpo", "ppo"):
        for s in SEEDS:
            early = [shaken(0.4 + gain, spread, s) if step <= 40 else 0.4 for step in range(1, 101)]
            for cell, course in (("none", "full"), 0.4), (("epo", "no_dw"), shaken_alike(0.4, 0.01, s)):
                full = (algorithm, *cell)
                runs.append(made_run(s, *full, train={"success/all": course, **moved(full, s)}))
            full = (algorithm, "epo", "full")
            runs.append(made_run(s, *full, train={"success/all": early, **moved(full, s)}))
    return made_study(runs)


def e7(kind: str) -> StudyData:
    cost, spread = {HOLDS: (-0.02, 0.005), FAILS: (0.2, 0.01), OPEN: (0.04, 0.06)}[kind]
    key = "tokens_per_second/update"
    runs = [made_run(s, timings={key: 1000.0 / shaken_alike(1.0, 0.005, s)}) for s in SEEDS]
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
    """Six seeds: with five no share is decided."""
    erupting = {HOLDS: 6, FAILS: 0, OPEN: 3}[kind]
    return made_study(
        made_run(s, steps=LONG, train={"entropy/token": hills(LONG, ONSETS if s < erupting else (), 0.8)}) for s in SIX
    )


def s3(kind: str) -> StudyData:
    gap, spread = {HOLDS: (0.4, 0.05), FAILS: (-0.2, 0.02), OPEN: (0.1, 0.25)}[kind]

    def probes(s: int) -> dict[str, list[float | None]]:
        before = [any(onset - 15 <= step < onset for onset in ONSETS) for step in range(1, LONG + 1)]
        here = shaken(gap, spread, s)
        every = [step % 5 == 0 for step in range(1, LONG + 1)]
        negative = [(1 + here if soon else 1.0) if due else None for soon, due in zip(before, every, strict=True)]
        positive = [(1 - here if soon else 1.0) if due else None for soon, due in zip(before, every, strict=True)]
        told = {"probe/interference/negative": negative, "probe/interference/positive": positive}
        return told | {f"{key}_per_token": values for key, values in told.items()}

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

    def likely(s: int) -> dict[str, list[float | None]]:
        told = during(-0.4, -0.4 - shaken(fall, spread, s), -0.4)
        return {"likelihood/valid": told, "likelihood/solved": told}

    return long_runs(likely)


def s5(kind: str) -> StudyData:
    rise, spread = {HOLDS: (0.2, 0.01), FAILS: (-0.1, 0.002), OPEN: (0.03, 0.08)}[kind]
    first = 0.5 if kind == FAILS else 0.05

    def climbs(s: int) -> dict[str, list[float | None]]:
        step_up = shaken(rise, spread, s)
        count = [sum(onset <= step for onset in ONSETS) for step in range(1, LONG + 1)]
        return {"degeneracy/duplication": [first + step_up * many for many in count], "response/tokens": [80.0] * LONG}

    return long_runs(climbs)


def s6(kind: str) -> StudyData:
    share, spread = {HOLDS: (0.3, 0.02), FAILS: (1.2, 0.02), OPEN: (0.7, 0.6)}[kind]
    runs: list[StudyRun] = []
    for algorithm in ("grpo", "gigpo"):
        for s in SEEDS:
            bare, lower = 0.8 * shaken_alike(1.0, 0.02, s), max(0.0, 0.8 * shaken(share, spread, s))
            for method, height in (("none", bare), ("seal", lower)):
                curve = {"entropy/token": hills(LONG, ONSETS, height)}
                runs.append(made_run(s, algorithm, method, steps=LONG, train=curve, alpha="0.1"))
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
        moved_by, still = shaken(drift, spread, s), shaken_alike(0.0, 0.02, s)
        for cell, change in ((grpo(), still), (grpo("aem", "falling"), moved_by), (grpo("aem", "rising"), -moved_by)):
            curve = [0.5 * (1 + change * min(1.0, step / 40)) for step in range(100)]
            runs.append(made_run(s, *cell, train={"entropy/token": curve}))
    return made_study(runs)


def m2(kind: str) -> StudyData:
    early, spread = {HOLDS: (0.2, 0.02), FAILS: (-0.2, 0.02), OPEN: (0.06, 0.2)}[kind]
    runs = [made_run(s, train={"entropy/token": shaken_alike(0.5, 0.005, s)}) for s in SEEDS]
    for s in SEEDS:
        tilt = shaken(early, spread, s)
        curve = [0.5 * (1 + tilt * (1 - step / 50)) for step in range(100)]
        runs.append(made_run(s, *grpo("aem"), train={"entropy/token": curve}))
    return made_study(runs)


def shaped(seed: int, share: float) -> StudyRun:
    """A run of AEM in which shaping takes this share of the time."""
    stages = {"seconds/rollout": 1 - share, "seconds/shape": share, "seconds/evaluate": 9.0}
    return made_run(seed, *grpo("aem"), timings=stages)


def m4(kind: str) -> StudyData:
    share, spread = {HOLDS: (0.01, 0.001), FAILS: (0.1, 0.005), OPEN: (0.019, 0.01)}[kind]
    return made_study(shaped(s, shaken(share, spread, s)) for s in SEEDS)


def on(algorithms: Sequence[str], ours: tuple[str, str], theirs: tuple[str, str]) -> list[tuple[Cell, Cell]]:
    """The same two cells on several algorithms."""
    return [((name, *ours), (name, *theirs)) for name in algorithms]


_FULL, _COLD = grpo("actre"), grpo("actre", "no_high_temperature")
_EPO, _BASE, _BARE = ("epo", "full"), ("epo", "base"), ("none", "full")
_PLAIN = (grpo(), ("ppo", *_BARE))
_GROUPS = ("grpo", "ppo")


def _erupting(cell: Cell, seed: int) -> Course:
    return {"entropy/token": ONCE}


_MAKE: dict[str, Callable[[str], StudyData]] = {
    "A1": a1,
    "A2": a2,
    "A3": contrasts((_FULL, grpo()), (_FULL, grpo("higher_temperature")), (_FULL, grpo("entropy_bonus"))),
    "A4": contrasts((_FULL, grpo()), (_FULL, grpo("actre", "no_stage2")), (_FULL, _COLD)),
    "A5": a5,
    "E1": contrasts(*on(_GROUPS, _EPO, _BARE)),
    "E2": e2,
    "E3": contrasts(*on(_GROUPS, _EPO, _BASE), beside=_PLAIN, train=moved),
    "E4": e4,
    "E5": contrasts(*on(_GROUPS, _BASE, ("epo", "decay")), beside=_PLAIN, train=moved),
    "E6": contrasts(*on(_GROUPS, _EPO, ("ea", "full"))),
    "E7": e7,
    "S1": s1,
    "S2": s2,
    "S3": s3,
    "S4": s4,
    "S5": s5,
    "S6": s6,
    "S7": with_alpha(contrasts(*on(("grpo", "gigpo"), ("seal", "full"), _BARE), train=_erupting), ["0.1"]),
    "S8": with_alpha(contrasts(*on(("grpo",), ("seal", "full"), _BARE), train=_erupting), ["0.03", "0.1", "0.30"]),
    "M1": m1,
    "M2": m2,
    "M3": contrasts(*on(("grpo", "gspo", "dapo"), ("aem", "full"), _BARE)),
    "M4": m4,
}
SCENARIOS = {name: cache(make) for name, make in _MAKE.items()}  # studies are frozen: one is made once
