"""The report says where earlier turns were left out of the policy's sight."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from isentrope.report.episodes import Chosen, render
from isentrope.runs.episodes import EpisodeFile
from isentrope.runs.token_texts import TokenTexts
from tests.builders.episodes import episode
from tests.builders.turns import turn


@pytest.mark.parametrize(("dropped", "times"), [(0, 0), (12, 1)])
def test_turns_left_out_are_marked(dropped: int, times: int) -> None:
    played = episode(turn([1.0]), replace(turn([1.0]), dropped=dropped))
    file = EpisodeFile(Path("step-000001.parquet"), 1, "train")
    page = render(Chosen(played, file), TokenTexts([]), is_open=True)
    assert page.count("Earlier turns that the model no longer saw here: 12.") == times
