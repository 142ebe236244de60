"""Household games of which one in twenty breaks, in worker processes: is every fault in the record, is anyone harmed?

    python bench/faults.py [--games 10000] [--share 0.05] [--workers 2] [--slots 64] [--seconds 1]

A game breaks by raising, hanging, killing its process, a reward that is no number, bytes for text, characters that do
not exist, or an observation of 10 MB. The same games are played without faults in this process, to compare with.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from isentrope.worlds.pool.open import LocalTasks
from isentrope.worlds.pool.processes import WorkerTasks
from tests.worlds.pool.faulty import FAULTS, NAME, FaultyHousehold, FaultyOptions, account, play


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", type=int, default=10_000)
    parser.add_argument("--share", type=float, default=0.05, help="share of the games that break")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--slots", type=int, default=64, help="games played at the same time")
    parser.add_argument("--seconds", type=float, default=1.0, help="time limit of a step")
    told = parser.parse_args()
    world, indices = FaultyHousehold(FaultyOptions(share=told.share)), range(told.games)
    began = time.monotonic()
    clean = play(LocalTasks(FaultyHousehold(FaultyOptions(share=0.0)), told.slots), world, indices, told.slots)
    between = time.monotonic()
    with WorkerTasks(NAME, {"share": told.share}, told.slots, told.workers, told.seconds) as pool:
        broken = play(pool, world, indices, told.slots)
        notes = pool.notes()
    ended = time.monotonic()
    result = account(broken, clean, told.share)
    print(f"{told.games} games, {result.injected.total()} with a fault, {result.reached.total()} of which met it")
    print("fault        to be found as   met   found")
    for fault, kind in FAULTS.items():
        print(f"{fault:<12} {kind:<15} {result.reached[fault]:>5} {result.found[fault]:>7}")
    endless = sum(not game.ending for game in broken.values())
    print(f"games missing: {told.games - len(broken)}; without an ending: {endless}")
    print(f"faults under a wrong name: {len(result.wrong)}; other games harmed: {len(result.harmed)}")
    for name, value in notes.items():
        print(f"{name.replace('_', ' ')}: {value:.0f}")
    print(f"{ended - between:.0f} s with faults, in {told.workers} workers")
    print(f"{between - began:.0f} s without, in this process")
    for index, fault, ending, detail in result.wrong[:10]:
        print(f"  game {index}: {fault}, but ended as {ending}: {detail}")


if __name__ == "__main__":
    main()
