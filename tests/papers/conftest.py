"""What takes long is done once for all tests of the folder: reading the studies under docs/runs and judging them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest

from isentrope.diagnosis.phases import PhaseDetector, find_phases
from isentrope.papers import measures as eruptions
from isentrope.papers.first.judge import find as find_first
from isentrope.papers.first.judge import first_edition
from isentrope.papers.record import Finding
from isentrope.study import measures
from isentrope.study.read import StudyData, read_study
from tests.builders.kept_studies import kept_study
from tools import claims_docs

RUNS = claims_docs.DOCS / "runs"


def read_once(paths: Sequence[Path]) -> list[StudyData]:
    """As `read_studies`; what lies under docs/runs is read a first time only."""
    return [kept_study(path.name) if path.parent == RUNS else read_study(path) for path in paths]


@cache
def _phases(steps: tuple[int, ...], values: tuple[float, ...]) -> PhaseDetector:
    return find_phases(steps, values)


def phases_once(steps: Sequence[int], values: Sequence[float]) -> PhaseDetector:
    """Eruptions of a curve, which take a tenth of a second to find, and which tables and rules both ask for."""
    return _phases(tuple(steps), tuple(values))


@pytest.fixture(scope="session", autouse=True)
def _once() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(claims_docs, "read_studies", read_once)
        patch.setattr(measures, "find_phases", phases_once)
        patch.setattr(eruptions, "find_phases", phases_once)
        yield


@pytest.fixture(scope="session")
def first_studies() -> list[StudyData]:
    """Those that the first edition was applied to."""
    return [kept_study(name) for name in claims_docs.FIRST_STUDIES]


@pytest.fixture(scope="session")
def first_findings(first_studies: list[StudyData]) -> dict[str, Finding]:
    return {claim.id: find_first(claim, first_studies) for claim in first_edition()}
