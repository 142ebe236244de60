"""Golden runs: what they computed when they were recorded, they compute now.

On the machine that recorded them (the same processor's instructions and build of torch) bit for bit, elsewhere to six
digits, probes to four. `record.py` has the rule for recording them again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from isentrope.config.algorithms import ALGORITHMS
from isentrope.methods.registry import METHODS
from tests.golden.cases import CASES, alike, config_of, machine, play
from tests.golden.record import read

GOLDEN = read()
ROUNDING = ("mismatch/",)  # differences of the same numbers by two ways: rounding and nothing else
ROUGH = ("probe/", "drift/", "surprisal/relative", "loss/")  # sums that nearly cancel
DIGITS, ROUGH_DIGITS = 6, 4


def test_every_algorithm_and_method_has_a_run() -> None:
    used = {config_of(name).learn.algorithm for name in CASES}
    assert set(ALGORITHMS) <= used
    assert set(METHODS) <= {method for name in CASES for method in config_of(name).methods}
    assert set(CASES) == set(GOLDEN["cases"])


def test_recordings_say_why() -> None:
    assert GOLDEN["log"]
    assert all(len(entry["why"].split()) >= 3 and len(entry["date"]) == 20 for entry in GOLDEN["log"])


@pytest.mark.slow(2)
@pytest.mark.parametrize("name", CASES)
def test_as_it_was(name: str, tmp_path: Path) -> None:
    kept, found = GOLDEN["cases"][name], play(name, tmp_path / "run")
    if kept["machine"] == machine():
        assert found["rows"] == kept["rows"]
        assert found["weights"] == kept["weights"]
        return
    assert len(found["rows"]) == len(kept["rows"])
    for ours, theirs in zip(found["rows"], kept["rows"], strict=True):
        assert ours.keys() == theirs.keys()
        assert not [key for key in ours if not _alike(key, ours[key], theirs[key])]


def _alike(key: str, ours: Any, theirs: Any) -> bool:
    if not isinstance(ours, str) or key == "kind":
        return ours == theirs
    if key.startswith(ROUNDING):
        return abs(float(ours)) < 1e-3 or alike(ours, theirs, 3)
    return alike(ours, theirs, ROUGH_DIGITS if key.startswith(ROUGH) else DIGITS)


def test_six_digits() -> None:
    assert alike("1.234567", "1.234569", 6)
    assert not alike("1.234567", "1.234597", 6)
    assert alike("0.0", "1e-9", 6)  # what is nearly nothing is told by its size
    assert not alike("nan", "1.0", 6)
