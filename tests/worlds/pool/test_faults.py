"""Hundreds of household games of which many break: all are in the record under the right name, the others unharmed.

bench/faults.py does the same with 10,000 games.
"""

from __future__ import annotations

import pytest

from isentrope.worlds.pool.open import LocalTasks
from isentrope.worlds.pool.processes import WorkerTasks
from tests.worlds.pool.faulty import FAULTS, NAME, FaultyHousehold, FaultyOptions, account, fault_of, play

SHARE = 0.05
HANGING = [index for index in range(600) if fault_of(index, SHARE) == "hang"]
GAMES = sorted(set(range(600)) - set(HANGING[2:]))  # each that hangs takes its whole time
STEP_SECONDS = 3.0  # of which a step takes a thousandth, unless the machine is busy with something else


@pytest.mark.slow(6)
def test_every_fault_is_in_the_record_and_nobody_else_is_harmed() -> None:
    options = {"share": SHARE, "hang": 60.0}
    world = FaultyHousehold(FaultyOptions(**options))
    clean = play(LocalTasks(FaultyHousehold(FaultyOptions(share=0.0)), 32), world, GAMES, 32)
    with WorkerTasks(NAME, options, 32, workers=2, step_seconds=STEP_SECONDS) as pool:
        broken = play(pool, world, GAMES, 32)
        notes = pool.notes()
    result = account(broken, clean, SHARE)
    assert set(broken) == set(GAMES)
    assert not result.wrong
    assert not result.harmed
    assert result.found == result.reached
    assert set(result.reached) == set(FAULTS)  # each kind was met at least once
    assert result.reached.total() > 0.8 * result.injected.total() > 20
    fallen = result.reached["hang"] + result.reached["kill"]
    assert notes["workers_replaced"] == fallen
    assert notes["replayed"] > fallen
