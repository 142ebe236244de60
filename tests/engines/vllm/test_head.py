"""Logits in float32 from a vLLM that would round them; with a stand-in for its parts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from isentrope.engines.vllm import wide_logits, widen_head


class Method:
    """How vLLM computes with a head's weights: in their own precision."""

    def apply(self, layer: Any, hidden: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        return torch.nn.functional.linear(hidden, layer.weight, bias)


def worker_of(head_dtype: torch.dtype) -> tuple[Any, Any]:
    torch.manual_seed(0)
    head = SimpleNamespace(weight=torch.randn(7, 64).bfloat16(), quant_method=Method())
    config, model = SimpleNamespace(head_dtype=head_dtype), SimpleNamespace(lm_head=head)
    return SimpleNamespace(get_model=lambda: model, model_config=config), head


@pytest.mark.parametrize("bias", [None, torch.arange(7.0).bfloat16()])
def test_without_vllm_a_rounding_head_is_widened(bias: torch.Tensor | None) -> None:
    worker, head = worker_of(torch.bfloat16)
    hidden = torch.randn(5, 64).bfloat16()
    true = hidden.double() @ head.weight.double().T + (0 if bias is None else bias.double())
    assert (head.quant_method.apply(head, hidden, bias).double() - true).abs().max() > 1e-3
    widen_head(worker)
    logits = head.quant_method.apply(head, hidden, bias)
    assert logits.dtype == torch.float32
    torch.testing.assert_close(logits.double(), true, atol=1e-4, rtol=1e-5)


def test_without_vllm_a_head_that_is_wide_by_itself_is_left_alone() -> None:
    worker, head = worker_of(torch.float32)
    widen_head(worker)
    assert head.quant_method.apply.__func__ is Method.apply


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_without_vllm_the_same_on_a_gpu() -> None:
    _, head = worker_of(torch.bfloat16)
    hidden, weight = torch.randn(5, 64).bfloat16(), head.weight
    wide = wide_logits(SimpleNamespace(weight=weight.cuda()), hidden.cuda()).cpu()
    torch.testing.assert_close(wide.double(), hidden.double() @ weight.double().T, atol=1e-4, rtol=1e-4)
