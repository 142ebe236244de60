"""The same games in another process: what depends on the order of sets, on a process's number or on the clock differs.

Worker processes play the members of a group on the same instance, so this has to hold.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from isentrope.tasks.conformance_play import Broken, Sample, need
from isentrope.tasks.conformance_repeat import digests

GAMES = 2  # of each split
SECONDS = 300.0
_MARK = "isentrope-digests:"  # packages may print whatever they like before it


def check_other_process(sample: Sample, name: str, options: Mapping[str, Any]) -> str:
    few = replace(sample, games=min(sample.games, GAMES))
    here = dict(digests(few))
    question = {"name": name, "options": dict(options), "games": few.games, "turns": few.max_turns, "seed": few.seed}
    seed = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    paths = os.pathsep.join(path for path in sys.path if path)
    done = subprocess.run(
        [sys.executable, "-m", "isentrope.tasks.conformance_process"],
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
    from isentrope.tasks.registry import make_world

    asked = json.load(sys.stdin)
    world = make_world(asked["name"], asked["options"])
    found = dict(digests(Sample(world, asked["games"], asked["turns"], asked["seed"])))
    print(f"\n{_MARK}{json.dumps(found)}", flush=True)
    close = getattr(world, "close", None)
    if close is not None:
        close()


if __name__ == "__main__":
    main()
