"""Whole updates in bfloat16 against float64: no further off than plain torch in bfloat16 is."""

from __future__ import annotations

import pytest
import torch

from tests.audit.cases import CASES, check
from tests.audit.staged import new_llama

HALF = torch.bfloat16


def assert_holds(name: str, compute: torch.dtype, held: torch.dtype) -> None:
    lines = check(name, new_llama(layers=2), "cpu", compute, held, "learn.micro_tokens=256")
    wrong = [line for line in lines if not line.holds]
    assert not wrong, "\n".join(f"{line.name}: {line.measured:.3e} > {line.bar:.3e} ({line.note})" for line in wrong)


@pytest.mark.parametrize("name", CASES)
def test_an_update_of_bfloat16_weights_is_the_equations_up_to_bfloat16(name: str) -> None:
    assert_holds(name, HALF, HALF)


@pytest.mark.parametrize("name", ["grpo kl", "all of them"])
def test_an_update_of_float32_weights_is_the_equations(name: str) -> None:
    assert_holds(name, torch.float32, torch.float32)


def test_float32_weights_computed_with_in_bfloat16_are_the_equations_up_to_bfloat16() -> None:
    assert_holds("grpo", HALF, torch.float32)
