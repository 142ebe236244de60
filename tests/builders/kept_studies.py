"""The studies under docs/runs, each read once for all tests of a process: the large one takes four seconds."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from isentrope.study.read import COMPACT, StudyData, read_study

RUNS = Path(__file__).parents[2] / "docs" / "runs"


@cache
def kept_study(name: str) -> StudyData:
    return read_study(RUNS / name / COMPACT)
