"""The GPU's token head, run on the CPU by Triton's interpreter, against the plain one."""

from __future__ import annotations

import os

import pytest
import torch
from torch import Tensor

from isentrope.models.memory import learning_rows
from isentrope.models.token_head import token_head

pytest.importorskip("triton", reason="the fused head is written in Triton, which is not installed")
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # before the kernels are first imported

from isentrope.kernels import head

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def case(count: int, words: int, width: int, dtype: torch.dtype, scale: float = 1.0) -> tuple[Tensor, ...]:
    made = torch.Generator().manual_seed(count * 7 + words)
    hidden = (torch.randn(count, width, generator=made) * scale).to(DEVICE, dtype)
    weight = torch.randn(words, width, generator=made).to(DEVICE, dtype)
    target = torch.randint(0, words, (count,), generator=made).to(DEVICE)
    temperature = (torch.rand(count, generator=made) * 1.5 + 0.2).to(DEVICE)
    up = torch.randn(2, count, generator=made).to(DEVICE)
    return hidden, weight, target, temperature, up


def both(head, inputs: tuple[Tensor, ...], rows: int) -> list[Tensor]:
    hidden, weight, target, temperature, up = inputs
    hidden, weight = hidden.clone().requires_grad_(), weight.clone().requires_grad_()
    logp, entropy = head(hidden, weight, target, temperature, rows)
    (logp * up[0] + entropy * up[1]).sum().backward()
    assert hidden.grad is not None
    assert weight.grad is not None
    return [logp.detach(), entropy.detach(), hidden.grad, weight.grad]


def apart(a: Tensor, b: Tensor) -> float:
    return float((a.float() - b.float()).norm() / b.float().norm())


@pytest.mark.parametrize(("count", "words", "rows"), [(5, 11, 2), (7, 2048, 7), (3, 5000, 2)])
def test_fused_equals_plain_in_float32(count: int, words: int, rows: int) -> None:
    inputs = case(count, words, 16, torch.float32)
    for name, got, want in zip(
        ("logp", "entropy", "hidden", "weight"), both(head.fused_head, inputs, rows), both(token_head, inputs, rows),
        strict=True,
    ):  # fmt: skip
        torch.testing.assert_close(got, want, rtol=2e-5, atol=2e-5, msg=name)


def test_bfloat16_keeps_float32_logits_and_the_gradient_is_off_by_its_rounding_alone() -> None:
    inputs = case(6, 3000, 32, torch.bfloat16)
    got, want = both(head.fused_head, inputs, 4), both(token_head, inputs, 4)
    torch.testing.assert_close(got[0], want[0], rtol=1e-5, atol=2e-5)
    torch.testing.assert_close(got[1], want[1], rtol=1e-5, atol=2e-5)
    assert apart(got[2], want[2]) < 0.01
    assert apart(got[3], want[3]) < 0.01
    assert got[2].dtype == got[3].dtype == torch.bfloat16


def test_logits_far_apart_neither_overflow_nor_lose_the_entropy() -> None:
    """Three words at 0, 0 and -1000 and one temperature: entropy is ln 2, and all gradients are finite."""
    logits = torch.tensor([[0.0, 0.0, -1000.0], [500.0, 0.0, 0.0]], device=DEVICE)
    target, temperature = torch.tensor([0, 1], device=DEVICE), torch.ones(2, device=DEVICE)
    logp, norm, entropy = head.stats(logits, target, temperature)
    torch.testing.assert_close(entropy.cpu(), torch.tensor([0.6931472, 0.0]))
    torch.testing.assert_close(logp.cpu(), torch.tensor([-0.6931472, -500.0]))
    ones = torch.ones(2, device=DEVICE)
    g = head.gradient(logits, target, temperature, norm, entropy, (ones, ones), torch.float32)
    torch.testing.assert_close(g.cpu(), torch.tensor([[0.5, -0.5, 0.0], [-1.0, 1.0, 0.0]]))


def test_a_head_that_does_not_learn_gets_no_gradient() -> None:
    hidden, weight, target, temperature, _ = case(4, 50, 8, torch.float32)
    hidden.requires_grad_()
    head.fused_head(hidden, weight, target, temperature)[0].sum().backward()
    assert hidden.grad is not None
    assert weight.grad is None


def test_chunks_grow_with_the_card() -> None:
    """Of Qwen2.5's logits 448 MiB on a small card and 1.2 GiB on a large one; of SmolLM2's 512 MiB on any."""
    rows = {gib: learning_rows(151_936, gib * 2**30) for gib in (0, 16, 79, 139, 280)}
    assert rows == {0: 768, 16: 768, 79: 2048, 139: 2048, 280: 2048}
    assert [learning_rows(49_152, gib * 2**30) for gib in (0, 139)] == [2688, 2688]
    assert learning_rows(2**30, 0) == 1
    assert learning_rows(10, 0) > 10**7


def test_a_sum_of_products_is_kept_in_its_place() -> None:
    made = torch.Generator().manual_seed(3)
    a, b = (torch.randn(2, *shape, generator=made).to(DEVICE, torch.bfloat16) for shape in ((32, 16), (16, 24)))
    first = head.add_product(None, a[0], b[0])
    whole = head.add_product(first, a[1], b[1])
    assert whole.data_ptr() == first.data_ptr()
    torch.testing.assert_close(whole, (a.float() @ b.float()).sum(0), rtol=1e-4, atol=1e-4)
