"""One world for all tests of a run: starting java takes a second or two."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from isentrope.worlds.scienceworld.world import ScienceWorld, ScienceWorldOptions

pytest.importorskip("scienceworld", reason="needs pip install 'isentrope[science]'")
if shutil.which("java") is None:
    pytest.skip("needs java: apt-get install openjdk-17-jre-headless", allow_module_level=True)

# short to solve, and of different kinds: circuits, mixing, living things, measuring
QUICK = (
    "use-thermometer", "power-component", "find-living-thing", "find-animal", "chemistry-mix",
    "chemistry-mix-paint-secondary-color", "lifespan-longest-lived", "identify-life-stages-2",
)  # fmt: skip


@pytest.fixture(scope="session")
def world() -> Iterator[ScienceWorld]:
    # a busy machine is not a failure: a call may take long
    made = ScienceWorld(ScienceWorldOptions(tasks=QUICK, jvms=1, moves=200, call_seconds=120))
    yield made
    made.close()
