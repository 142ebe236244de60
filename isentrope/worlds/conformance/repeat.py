"""Checks that the same actions give the same results, whatever else goes on."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, zip_longest
from typing import Any

import numpy

from isentrope.worlds.conformance.play import Broken, Sample, need, random_play
from isentrope.worlds.contract import Instance, Step, Task, View

FEW = 6
Played = list[tuple[str, View | Step]]


def check_play(sample: Sample) -> str:
    """Two tasks side by side, then the first one over again: nothing may leak from one play into another."""
    turns = ended = cut = 0
    left, right = sample.world.open(), sample.world.open()
    for instance in sample.repeatable():
        pairs = list(zip_longest(random_play(left, instance, sample), random_play(right, instance, sample)))
        _need_equal(pairs, f"{instance}, in two tasks")
        first = [one for one, _ in pairs]
        _need_equal(list(zip_longest(first, random_play(left, instance, sample))), f"{instance}, played again")
        turns += len(first) - 1
        last = first[-1][1]
        ended += isinstance(last, Step) and last.terminated
        cut += isinstance(last, Step) and last.truncated
    left.close()
    right.close()
    return f"{turns} turns, each played three times; {ended} episodes came to their end, {cut} were cut off"


def check_order(sample: Sample) -> str:
    """Instances asked for and played in the opposite order, and two different ones in turn."""
    instances = _spread(sample.repeatable())
    task = sample.world.open()
    forwards = {instance: list(random_play(task, instance, sample)) for instance in instances}
    for instance in reversed(instances):
        again = sample.world.instance(instance.split, instance.index)
        need(again == instance, f"asked for in another order, {instance} is {again}")
        _need_same(forwards[instance], list(random_play(task, again, sample)), f"{instance}, in another order")
    other = sample.world.open()
    pairs = list(pairwise(instances))
    for one, two in pairs:
        mixed = list(zip_longest(random_play(task, one, sample), random_play(other, two, sample)))
        _need_same(forwards[one], [a for a, _ in mixed if a is not None], f"{one}, while {two} was played")
        _need_same(forwards[two], [b for _, b in mixed if b is not None], f"{two}, while {one} was played")
    task.close()
    other.close()
    return f"{len(instances)} backwards, {len(pairs)} pairs in turn"


def _spread(instances: list[Instance]) -> list[Instance]:
    """At most a few of them, from all parts: each is played several times."""
    step = max(1, len(instances) // FEW)
    return instances[::step][:FEW]


def check_global_random(sample: Sample) -> str:
    """Played twice, with the global generators in different states: neither are they drawn from nor seeded."""
    instances = [sample.repeatable()[0], sample.repeatable()[-1]]
    task = sample.world.open()
    for instance in instances:
        plays: list[Played] = []
        afterwards: list[tuple[object, object]] = []
        for seed in (1, 2):
            with _Seeded(seed):
                plays.append(list(random_play(task, instance, sample)))
                afterwards.append((random.getstate(), repr(numpy.random.get_state(legacy=False))))
        _need_same(plays[0], plays[1], f"{instance}, with other global random numbers")
        seeded = any(one == other for one, other in zip(*afterwards, strict=True))  # they began in different states
        need(not seeded, f"{instance} seeds the global random numbers, which others draw from too")
    task.close()
    return "neither drawn from nor seeded"


def check_start_anew(sample: Sample) -> str:
    """A start after an abandoned, a finished, a refused or a closed episode is as good as the first."""
    world, instances = sample.world, sample.repeatable()
    wanted, other = instances[0], instances[-1]
    task = world.open()
    clean = list(random_play(task, wanted, sample))
    task.start(other)
    _need_same(clean, list(random_play(task, wanted, sample)), f"{wanted}, after a start that was not played")
    _abandon(task, other, sample)
    _need_same(clean, list(random_play(task, wanted, sample)), f"{wanted}, after an abandoned episode")
    nonsense = Instance(wanted.world, "no such split", 10**12, wanted.kind)
    try:
        task.start(nonsense)
    except Exception:  # refused, as it should be; a task is thrown away after it raised
        task.close()
        task = world.open()
    _need_same(clean, list(random_play(task, wanted, sample)), f"{wanted}, after a start that failed")
    task.close()
    task = world.open()
    _need_same(clean, list(random_play(task, wanted, sample)), f"{wanted}, after close and open")
    task.close()
    return "after abandoned, failed and closed episodes"


def _abandon(task: Task, instance: Instance, sample: Sample) -> None:
    play = random_play(task, instance, sample)
    next(play)
    next(play, None)


class _Seeded:
    """The global generators seeded, and afterwards as they were."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def __enter__(self) -> None:
        self._kept = random.getstate(), numpy.random.get_state()
        random.seed(self._seed)
        numpy.random.seed(self._seed)

    def __exit__(self, *_: object) -> None:
        random.setstate(self._kept[0])
        numpy.random.set_state(self._kept[1])


def _need_same(one: Played, other: Played, where: str) -> None:
    _need_equal(list(zip_longest(one, other)), where)


def _need_equal(pairs: Sequence[tuple[object, object]], where: str) -> None:
    for number, (one, other) in enumerate(pairs):
        need(one == other, f"{where}, turn {number} differs: {_difference(one, other)}")


def _difference(one: object, other: object) -> str:
    """Both, from a little before the first character in which they differ."""
    texts = repr(one), repr(other)
    same = next((i for i, (a, b) in enumerate(zip(*texts, strict=False)) if a != b), min(len(texts[0]), len(texts[1])))
    start = max(0, same - 40)
    return " and ".join(f"{'…' if start else ''}{text[start : start + 160]}" for text in texts)


def _without_info(seen: View | Step) -> View | Step:
    """Further figures may tell a time or a process's number."""
    return replace(seen, info={}) if isinstance(seen, Step) else seen


def digests(sample: Sample) -> Iterator[tuple[str, str]]:
    """(instance, what a random play of it comes to), for a comparison with another process."""
    import hashlib

    task = sample.world.open()
    for instance in sample.repeatable():
        played = repr([(action, _without_info(seen)) for action, seen in random_play(task, instance, sample)])
        yield f"{instance.split} {instance.index}", hashlib.sha256(played.encode("utf-8", "replace")).hexdigest()
    task.close()


GAMES = 2  # of each split
SECONDS = 300.0
_MARK = "isentrope-digests:"  # packages may print whatever they like before it


def check_other_process(sample: Sample, name: str, options: Mapping[str, Any]) -> str:
    """The same games in another process: what depends on the order of sets, on a process id or on the clock differs.
    It has to hold, as worker processes play the members of a group on the same instance."""
    few = replace(sample, games=min(sample.games, GAMES))
    here = dict(digests(few))
    question = {"name": name, "options": dict(options), "games": few.games, "turns": few.max_turns, "seed": few.seed}
    seed = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    paths = os.pathsep.join(path for path in sys.path if path)
    done = subprocess.run(
        [sys.executable, "-m", "isentrope.worlds.conformance.repeat"],
        input=json.dumps(question),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": paths},
    )
    answers = [line for line in done.stdout.splitlines() if line.startswith(_MARK)]
    if not answers:
        raise Broken(f"the world could not be played in another process: {done.stderr.strip()[-300:]}")
    there = json.loads(answers[-1].removeprefix(_MARK))
    different = [instance for instance, digest in here.items() if there.get(instance) != digest]
    need(not different, f"other results in another process: {', '.join(different[:5])}")
    return f"{len(here)} games"


def main() -> None:
    """In the other process: play, and print what it comes to."""
    from isentrope.worlds.registry import make_world

    asked = json.load(sys.stdin)
    world = make_world(asked["name"], asked["options"])
    found = dict(digests(Sample(world, asked["games"], asked["turns"], asked["seed"])))
    print(f"\n{_MARK}{json.dumps(found)}", flush=True)
    close = getattr(world, "close", None)
    if close is not None:
        close()


if __name__ == "__main__":
    main()
