"""The texts of tokens, shades of entropy, and what a plot makes of gaps."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from isentrope.report.episodes import LEVELS, MOST_NATS, level_of
from isentrope.report.figures import draw
from isentrope.report.plots import SECTIONS
from isentrope.runs.log import Record
from isentrope.runs.token_texts import PARTIAL, TokenTexts, shown_token_texts


def test_texts_of_tokens() -> None:
    duck = "🦆".encode()
    tokens = TokenTexts([b"go", duck[:2], duck[2:], b"\xff", None, b"!"])
    assert tokens.texts([0, 1, 2, 3, 4, 9, -1]) == ["go", PARTIAL, "🦆", "�", "[4]", "[9]", "[-1]"]


@pytest.mark.parametrize("content", [None, "{", "{}", "3", '[[256], [-1], ["a"], 7, null]', "\udc80"])
def test_a_bad_table_of_tokens_shows_ids(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "tokens.json").write_bytes(content.encode("utf-8", "surrogateescape"))
    assert shown_token_texts(tmp_path).texts([0, 4]) == ["[0]", "[4]"]


def test_a_table_holds_bytes_or_texts(tmp_path: Path) -> None:
    (tmp_path / "tokens.json").write_text(json.dumps([[104, 105], " you"]))
    assert shown_token_texts(tmp_path).texts([0, 1, 2]) == ["hi", " you", "[2]"]


def test_shades_of_entropy() -> None:
    assert [level_of(value) for value in (0.0, -1.0, math.nan, MOST_NATS, 99.0)] == [0, 0, 0, LEVELS - 1, LEVELS - 1]
    levels = [level_of(value / 100) for value in range(400)]
    assert levels == sorted(levels)
    assert set(levels) == set(range(LEVELS))


def test_a_reason_that_did_not_occur_is_zero_and_not_a_gap() -> None:
    (plot,) = [one for one in SECTIONS["Behaviour"] if "verdict/" in one.keys]
    records: list[Record] = [{"step": step, "valid_ratio": 1.0} for step in range(4)] + [{"step": 4}]
    records[0] |= {"valid_ratio": 0.5, "verdict/too_long": 0.5}
    records[3] |= {"valid_ratio": 0.5, "verdict/too_long": 0.5}
    chart = draw(plot, records)
    assert chart is not None
    assert [line.y for line in chart.series] == [[0.5, 0.0, 0.0, 0.5]]
