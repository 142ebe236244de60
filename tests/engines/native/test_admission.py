"""Rows given to new conversations and taken from those that have ended: by the kernel, and by plain assignment."""

from __future__ import annotations

from dataclasses import dataclass, fields
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from isentrope.core.engine import Request
from isentrope.engines.drafts import GAP, REACH
from isentrope.engines.native import device as native_device
from isentrope.engines.native.attention import NEW_TOKENS
from isentrope.engines.native.device import FEW, Device, admit
from isentrope.engines.native.draw import Rows
from isentrope.engines.native.prefill import Layout, Piece, PrefillPacket, fill, prefill_blocks
from isentrope.engines.native.sizes import MOST_RECORDED, bucket, most_recorded, padded
from isentrope.engines.native.weights import Weights
from isentrope.models.model_adapter import adapt_model
from tests.engines.native.small import DEVICE
from tests.engines.native.test_engine import never, policy

ROWS, PAGES = 8, 5


def known_rows(answer: int) -> Rows:
    """In which every number tells where it stands."""

    def count(first: int, *shape: int) -> torch.Tensor:
        return (torch.arange(int(np.prod(shape)), dtype=torch.int32, device=DEVICE) + first).reshape(shape)

    return Rows(
        ids=count(100, ROWS),
        positions=count(200, ROWS),
        counts=count(300, ROWS),
        limits=count(450, ROWS),
        temperatures=count(400, ROWS).float(),
        tail=count(9000, ROWS, REACH),
        uniforms=count(500, ROWS, answer).float(),
        table=count(5000, ROWS, PAGES),
    )


def numbers(rows: Rows) -> dict[str, NDArray[np.generic]]:
    return {field.name: getattr(rows, field.name).cpu().numpy().copy() for field in fields(rows)}


@dataclass(frozen=True)
class Case:
    row: int
    start: int
    prompt: int
    pages: int
    uniforms: int
    temperature: float


def piece(case: Case, first: int = 1000) -> Piece:
    prompt = list(range(first, first + case.prompt))
    uniforms = np.linspace(0.1, 0.9, case.uniforms, dtype=np.float32)
    return Piece(case.row, case.start, Request(0, prompt, uniforms, 1.0, never), [7 * i + 1 for i in range(case.pages)])


def filled(cases: list[Case], left: list[int], answer: int) -> PrefillPacket:
    layout = Layout(padded(sum(case.prompt - case.start for case in cases)), ROWS, PAGES, answer)
    memory = torch.full((layout.size(len(cases)),), 77, dtype=torch.int32)  # whatever it held before
    packet = PrefillPacket(layout, len(cases), memory)
    warmth = np.full(ROWS, 9.0, dtype=np.float32)
    for case in cases:
        warmth[case.row] = case.temperature
    fill(packet, [piece(case) for case in cases], warmth, left)
    return packet


def test_a_case_worked_out_by_hand() -> None:
    """The second conversation needs three blocks; the third has one token left to read."""
    cases = [Case(4, 1, 3, 1, 2, 0.5), Case(0, 2, 2 * NEW_TOKENS + 3, 5, 4, 0.0), Case(5, 8, 9, 2, 1, 1.25)]
    packet = filled(cases, [6, 2], answer=4)
    new = 2 * NEW_TOKENS + 1
    assert packet.ids[: 2 + new + 1].tolist() == [1001, 1002, *range(1002, 1002 + new), 1008]
    assert packet.positions[: 2 + new + 1].tolist() == [1, 2, *range(2, 2 + new), 8]
    assert packet.row_of[: 2 + new + 2].tolist() == [4] * 2 + [0] * new + [5, -1]
    assert packet.block_row[:6].tolist() == [4, 0, 0, 0, 5, -1]
    assert packet.block_first[:6].tolist() == [0, 2, 2 + NEW_TOKENS, 2 + 2 * NEW_TOKENS, 2 + new, 0]
    assert packet.block_count[:6].tolist() == [2, NEW_TOKENS, NEW_TOKENS, 1, 1, 0]
    assert packet.last.tolist() == [1, 1 + new, 2 + new, 0, 0, 0, 0, 0]
    assert packet.last_row.tolist() == [4, 0, 5, -1, -1, -1, -1, -1]
    assert packet.left.tolist() == [6, 2, -1, -1, -1, -1, -1, -1]
    rows = known_rows(answer=4)
    admit(*packet.layout.parts(packet.memory.to(DEVICE)), rows)
    assert rows.positions.tolist() == [2 * NEW_TOKENS + 3, 201, -1, 203, 3, 9, -1, 207]
    assert rows.counts.tolist() == [0, 301, 302, 303, 0, 0, 306, 307]
    assert rows.temperatures.tolist() == [0.0, 401, 402, 403, 0.5, 1.25, 406, 407]
    assert rows.limits.tolist() == [4, 451, 452, 453, 2, 1, 456, 457]
    assert rows.tail[4].tolist() == [1000, 1001, 1002, GAP, GAP, GAP, GAP, GAP]
    assert rows.tail[5].tolist() == [1008, *range(1001, 1008)]
    assert rows.tail[6].tolist() == list(range(9048, 9056))
    assert rows.table[0].tolist() == [1, 8, 15, 22, 29]
    assert rows.table[4].tolist() == [1, 0, 0, 0, 0]
    assert rows.table[7].tolist() == [5035, 5036, 5037, 5038, 5039]
    np.testing.assert_allclose(rows.uniforms[0].tolist(), [0.1, 0.1 + 0.8 / 3, 0.1 + 1.6 / 3, 0.9], rtol=1e-6)
    np.testing.assert_allclose(rows.uniforms[4].tolist(), [0.1, 0.9, 0, 0], rtol=1e-6)
    assert rows.uniforms[3].tolist() == [512, 513, 514, 515]
    assert rows.ids.tolist() == list(range(100, 108))


def test_more_pages_than_a_block_of_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_device, "BLOCK", 4)
    test_a_case_worked_out_by_hand()


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[Case], list[int], int]:
    answer = draw(st.sampled_from([1, 4, 256, 257, 600]))  # less than a block of the kernel, one, and more
    order, count = draw(st.permutations(range(ROWS))), draw(st.integers(1, ROWS))
    gone = draw(st.integers(0, ROWS - count))
    found: list[Case] = []
    for row in order[:count]:
        prompt = draw(st.integers(1, 70))
        found.append(
            Case(
                row,
                draw(st.integers(0, prompt - 1)),
                prompt,
                draw(st.integers(1, PAGES)),
                draw(st.integers(1, answer)),
                draw(st.sampled_from([0.0, 0.4, 1.0])),
            )
        )
    return found, order[count : count + gone], answer


@settings(max_examples=40)
@given(cases())
def test_the_kernel_does_what_plain_assignment_does(drawn: tuple[list[Case], list[int], int]) -> None:
    found, left, answer = drawn
    rows = known_rows(answer)
    expected = numbers(rows)
    for case in found:
        one = piece(case)
        for name, value in (("positions", case.prompt), ("counts", 0), ("temperatures", case.temperature)):
            expected[name][case.row] = value
        for name, values in (("table", one.pages), ("uniforms", one.request.uniforms)):
            expected[name][case.row] = 0
            expected[name][case.row, : len(values)] = values
        expected["limits"][case.row] = len(one.request.uniforms)
        for at in range(case.prompt - REACH, case.prompt):  # the end of the prompt, each token where its position says
            expected["tail"][case.row, at % REACH] = one.request.prompt[at] if at >= 0 else GAP
    expected["positions"][left] = -1
    packet = filled(found, left, answer)
    admit(*packet.layout.parts(packet.memory.to(DEVICE)), rows)
    for name, values in numbers(rows).items():
        np.testing.assert_array_equal(values, expected[name], err_msg=name)


@settings(max_examples=40)
@given(cases())
def test_every_new_token_is_in_one_block_of_its_row(drawn: tuple[list[Case], list[int], int]) -> None:
    found, left, answer = drawn
    packet = filled(found, left, answer)
    total = sum(case.prompt - case.start for case in found)
    covered = list[int]()
    for row, first, count in zip(packet.block_row, packet.block_first, packet.block_count, strict=True):
        if row >= 0:
            assert 0 < count <= NEW_TOKENS
            assert set(packet.row_of[first : first + count].tolist()) == {row}
            covered += range(first, first + count)
    assert covered == list(range(total))
    told = [(case.row, at) for case in found for at in range(case.start, case.prompt)]
    assert list(zip(packet.row_of[:total].tolist(), packet.positions[:total].tolist(), strict=True)) == told
    assert (packet.row_of[total:] == -1).all()
    assert not packet.ids[total:].any()


@pytest.mark.parametrize(("weights", "most"), [(500_000, MOST_RECORDED), (1_300_000_000, 3072), (10**12, 64)])
def test_large_passes_are_hardly_padded(weights: int, most: int) -> None:
    """1.3 billion weights keep a GPU busy with 2,308 tokens, which the size for 3,072 holds."""
    assert most_recorded(weights) == most
    for tokens in (1, most - 1, most, most + 1, 10_368, 16_385, 40_000):
        size = padded(tokens, most)
        assert size >= tokens
        assert size % 64 == 0
        assert size == bucket(size) if tokens <= most else size <= max(tokens + 63, 17 / 16 * tokens)


@pytest.mark.parametrize("tokens", [1, 64, 65, 100, 4097, MOST_RECORDED, MOST_RECORDED + 1])
def test_everything_that_travels_begins_where_kernels_like_it(tokens: int) -> None:
    layout = Layout(padded(tokens), ROWS, PAGES, 7)
    assert layout.tokens >= tokens
    assert layout.tokens == bucket(layout.tokens) or tokens > MOST_RECORDED
    assert layout.blocks == prefill_blocks(layout.tokens, ROWS)
    cuts = layout.cuts
    assert all(cut.start % 4 == 0 for cut in cuts)  # 16 bytes
    assert all(before.stop == after.start for before, after in pairwise(cuts))
    assert cuts[-1].stop == layout.size(0)
    assert layout.size(3) - layout.size(0) == 3 * (2 + REACH + PAGES + 7)


@pytest.mark.parametrize("count", [1, FEW, FEW + 1, 16])
def test_rows_are_left_one_by_one_or_all_at_once(count: int) -> None:
    parts = adapt_model(policy().model)
    assert parts is not None
    device = Device(Weights(parts, torch.float32), 16, 32, 128, 8, DEVICE)
    device.rows.positions.copy_(torch.arange(50, 66))
    gone = [(5 * i + 3) % 16 for i in range(count)]
    device.leave(gone)
    assert device.rows.positions.tolist() == [-1 if row in gone else 50 + row for row in range(16)]
