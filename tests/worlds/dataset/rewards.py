"""Reward functions for the tests: good ones, and one of each fault."""

from __future__ import annotations

from typing import Any

import numpy as np


def short(response: str, answer: str) -> float:
    return 1.0 if len(response) <= len(answer) else 0.0


def by_row(row: dict[str, Any], prompt: str, response: str) -> bool:
    return row["answer"] == response and row["question"] == prompt


def as_trl(prompts: list[str], completions: list[str], answer: list[str], **kwargs: Any) -> list[float]:
    assert kwargs["level"] == ["easy"]
    return [float(said == right) for said, right in zip(completions, answer, strict=True)]


def of_messages(prompts: list[Any], completions: list[Any], **kwargs: Any) -> Any:
    assert prompts[0][-1]["role"] == "user"
    return np.array([float(one[0]["content"] == "4") for one in completions])


def says_nothing(completions: list[str], **kwargs: Any) -> list[float | None]:
    return [None for _ in completions]


def raises(response: str) -> float:
    raise RuntimeError("no idea")


def nan(response: str) -> float:
    return float("nan")


def text(response: str) -> Any:
    return "1.0"


def nothing(response: str) -> None:
    return None


def huge(response: str) -> float:
    return 1e308


def two(completions: list[str], **kwargs: Any) -> list[float]:
    return [1.0, 2.0]


def hangs_on_bad(response: str) -> float:
    while response == "bad":
        pass
    return float(response == "4")


def raises_if_wrong(response: str, answer: str) -> float:
    if response != answer:
        raise RuntimeError("not that")
    return 1.0


async def later(response: str) -> float:
    return 1.0


def asks_too_much(response: str, colour: str) -> float:
    return 1.0


def by_place(response: str, /) -> float:
    return 1.0


not_a_function = 3
