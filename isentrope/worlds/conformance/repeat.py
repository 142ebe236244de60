"""Checks that the same actions give the same results, whatever else goes on."""

from __future__ import annotations

import hashlib
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from itertools import islice, pairwise, zip_longest
from typing import Any

import numpy

from isentrope.worlds.adapters.seeded import Luck
from isentrope.worlds.conformance.play import Broken, Sample, need, random_play
from isentrope.worlds.contract import Instance, Step, View
from isentrope.worlds.pool.guarded import close_world
from isentrope.worlds.registry import make_world

FEW = 6
Played = list[tuple[str, View | Step]]


def check_play(sample: Sample) -> str:
    """Two tasks side by side, then the first one over again: nothing may leak from one play into another."""
    turns = ended = cut = 0
    with closing(sample.world.open()) as left, closing(sample.world.open()) as right:
        for instance in sample.repeatable():
            pairs = zip_longest(random_play(left, instance, sample), random_play(right, instance, sample))
            first, second = zip(*pairs, strict=True)
            _need_same(first, second, f"{instance}, in two tasks")
            _need_same(first, random_play(left, instance, sample), f"{instance}, played again")
            turns += len(first) - 1
            last = first[-1][1]
            ended += isinstance(last, Step) and last.terminated
            cut += isinstance(last, Step) and last.truncated
    return f"{turns} turns, each played three times; {ended} episodes came to their end, {cut} were cut off"


def check_order(sample: Sample) -> str:
    """Instances asked for and played in the opposite order, and two different ones in turn."""
    instances = sample.repeatable()
    instances = instances[:: max(1, len(instances) // FEW)][:FEW]  # from all parts: each is played several times
    pairs = list(pairwise(instances))
    with closing(sample.world.open()) as task, closing(sample.world.open()) as other:
        forwards = {instance: list(random_play(task, instance, sample)) for instance in instances}
        for instance in reversed(instances):
            again = sample.world.instance(instance.split, instance.index)
            need(again == instance, f"asked for in another order, {instance} is {again}")
            _need_same(forwards[instance], random_play(task, again, sample), f"{instance}, in another order")
        for one, two in pairs:
            mixed = list(zip_longest(random_play(task, one, sample), random_play(other, two, sample)))
            _need_same(forwards[one], [a for a, _ in mixed if a is not None], f"{one}, while {two} was played")
            _need_same(forwards[two], [b for _, b in mixed if b is not None], f"{two}, while {one} was played")
    return f"{len(instances)} backwards, {len(pairs)} pairs in turn"


def check_global_random(sample: Sample) -> str:
    """Played twice, with the global generators in different states: neither are they drawn from nor seeded."""
    instances = [sample.repeatable()[0], sample.repeatable()[-1]]
    with closing(sample.world.open()) as task:
        for instance in instances:
            plays: list[Played] = []
            afterwards: list[tuple[object, object]] = []
            for seed in (1, 2):
                with Luck(seed).drawn_from():
                    plays.append(list(random_play(task, instance, sample)))
                    afterwards.append((random.getstate(), repr(numpy.random.get_state(legacy=False))))
            _need_same(plays[0], plays[1], f"{instance}, with other global random numbers")
            seeded = any(one == other for one, other in zip(*afterwards, strict=True))  # they began in different states
            need(not seeded, f"{instance} seeds the global random numbers, which others draw from too")
    return "neither drawn from nor seeded"


def check_start_anew(sample: Sample) -> str:
    """A start after an abandoned, a finished, a refused or a closed episode is as good as the first."""
    world, instances = sample.world, sample.repeatable()
    wanted, other = instances[0], instances[-1]
    task = world.open()
    clean = list(random_play(task, wanted, sample))
    task.start(other)
    _need_same(clean, random_play(task, wanted, sample), f"{wanted}, after a start that was not played")
    list(islice(random_play(task, other, sample), 2))
    _need_same(clean, random_play(task, wanted, sample), f"{wanted}, after an abandoned episode")
    nonsense = Instance(wanted.world, "no such split", 10**12, wanted.kind)
    try:
        task.start(nonsense)
    except Exception:  # refused, as it should be; a task is thrown away after it raised
        task.close()
        task = world.open()
    _need_same(clean, random_play(task, wanted, sample), f"{wanted}, after a start that failed")
    task.close()
    task = world.open()
    _need_same(clean, random_play(task, wanted, sample), f"{wanted}, after close and open")
    task.close()
    return "after abandoned, failed and closed episodes"


def _need_same(left: Iterable[object], right: Iterable[object], where: str) -> None:
    for number, (one, other) in enumerate(list(zip_longest(left, right))):  # all is played before anything is said
        if one != other:
            raise Broken(f"{where}, turn {number} differs: {_difference(one, other)}")


def _difference(one: object, other: object) -> str:
    """Both, from a little before the first character in which they differ."""
    texts = repr(one), repr(other)
    same = next((i for i, (a, b) in enumerate(zip(*texts, strict=False)) if a != b), min(len(texts[0]), len(texts[1])))
    start = max(0, same - 40)
    return " and ".join(f"{'…' if start else ''}{text[start : start + 160]}" for text in texts)


def digests(sample: Sample) -> Iterator[tuple[str, str]]:
    """(instance, what a random play of it comes to), for a comparison with another process."""
    with closing(sample.world.open()) as task:
        for instance in sample.repeatable():
            played = [
                (action, replace(seen, info={}) if isinstance(seen, Step) else seen)  # info may tell a time or a pid
                for action, seen in random_play(task, instance, sample)
            ]
            digest = hashlib.sha256(repr(played).encode("utf-8", "replace"))
            yield f"{instance.split} {instance.index}", digest.hexdigest()


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
    asked = json.load(sys.stdin)
    world = make_world(asked["name"], asked["options"])
    found = dict(digests(Sample(world, asked["games"], asked["turns"], asked["seed"])))
    print(f"\n{_MARK}{json.dumps(found)}", flush=True)
    close_world(world)


if __name__ == "__main__":
    main()
