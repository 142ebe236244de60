"""CUDA kernels and the native engine against float64: in float32 closely, in bfloat16 as closely as plain torch."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

pytest.importorskip("triton", reason="the kernels are written in Triton, which is not installed")

from tests.audit import engines, kernels
from tests.audit.cases import CASES, Line, check
from tests.audit.staged import new_llama

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs a CUDA GPU: Triton's interpreter cannot compute in bfloat16"
)
F32, HALF = torch.float32, torch.bfloat16
both = pytest.mark.parametrize("dtype", [F32, HALF])


def assert_all(lines: Sequence[Line]) -> None:
    wrong = [line for line in lines if not line.holds]
    assert not wrong, "\n".join(f"{line.name}: {line.measured:.3e} > {line.bar:.3e} ({line.note})" for line in wrong)


@both
def test_norms_and_swiglu_are_off_by_rounding_alone(dtype: torch.dtype) -> None:
    assert_all(kernels.small(dtype, "cuda"))


@both
@pytest.mark.parametrize("splits", [1, 5])
@pytest.mark.parametrize(("heads", "kv", "size"), [(6, 2, 64), (16, 1, 32), (4, 4, 128)])
def test_attention_over_pages_is_attention(heads: int, kv: int, size: int, splits: int, dtype: torch.dtype) -> None:
    assert_all(kernels.paged([1, 63, 64, 65, 700, 1300], heads, kv, size, splits, dtype, "cuda"))


@both
def test_the_head_and_its_gradients_are_those_of_a_softmax(dtype: torch.dtype) -> None:
    assert_all(kernels.head(50, 5000, 64, dtype, "cuda"))


@pytest.mark.parametrize("tree", kernels.TREES)
def test_training_attention_and_its_gradients_see_segment_and_parent(tree: str) -> None:
    assert_all(kernels.trained_attention(tree, 6, 2, 64, HALF, "cuda"))


@pytest.mark.parametrize("words", [97, 5000, 151936])
def test_every_token_is_the_one_its_uniform_number_asks_for(words: int) -> None:
    assert_all(kernels.draws(64, words, "cuda"))


def test_words_come_as_often_as_they_are_likely() -> None:
    assert_all(kernels.frequencies(100_000, 40, "cuda"))


@both
def test_log_probs_of_turns_with_kept_pages_are_those_of_one_forward_pass(dtype: torch.dtype) -> None:
    model, plan = engines.our_llama(9000, 256, 2, 4, 2, 512, 4.0), engines.Plan(20, 3, (3, 64, 200, 500), 16)
    assert_all(engines.check("engine", model, 9000, "cuda", dtype, dtype, plan, context=1024, reference="cuda"))


@pytest.mark.parametrize("name", CASES)
def test_an_update_on_the_gpu_is_the_equations_up_to_bfloat16(name: str) -> None:
    model = new_llama(width=64, layers=2, heads=4, kv=2, inner=96)
    assert_all(check(name, model, "cuda", HALF, HALF, "engine.memory=0.05", "rollout.batch=16"))
