"""Replies are data: what was said comes back as it was, and nothing else is taken for a reply."""

from __future__ import annotations

import pickle
import random
from functools import partial

import numpy as np
import pytest

from isentrope.agent.response_format import is_complete
from isentrope.cluster.messages import (
    Answer,
    Ask,
    BadReply,
    Checked,
    Failed,
    Reply,
    Told,
    Working,
    order_from_bytes,
    order_to_bytes,
    reply_from_bytes,
    reply_to_bytes,
)  # fmt: skip
from isentrope.core.engine import Request, Sampled
from isentrope.core.errors import EngineError
from isentrope.core.types import RolloutPlan
from isentrope.methods.actre import ActRe
from isentrope.models.sources.pocket import PocketTokens

SAMPLED = Sampled(
    np.array([3, 7], dtype=np.int32),
    np.array([-0.1, np.nan], dtype=np.float32),
    np.array([1e-30, 2.5], dtype=np.float32),
    np.array([0.0, 1.0], dtype=np.float32),
    "tag",
)
REPLIES: list[Reply] = [
    Answer(12, SAMPLED, np.array([0.1, 1 / 3])),
    Checked(3, True, [(1, -(2**63)), (2**63 - 1, 0)], SAMPLED),
    Checked(0, False, [], None),
    Told(4, {"steps": 3.0, "held": 0.25}),
    Failed("no memory"),
    Working(),
]


@pytest.mark.parametrize("reply", REPLIES, ids=lambda reply: type(reply).__name__)
def test_a_reply_comes_back_as_it_was(reply: Reply) -> None:
    back = reply_from_bytes(reply_to_bytes(reply))
    assert type(back) is type(reply)
    for name, value in vars(reply).items():
        there = getattr(back, name)
        if isinstance(value, Sampled):
            for part, of_it in vars(value).items():
                np.testing.assert_array_equal(getattr(there, part), of_it)
        else:
            np.testing.assert_array_equal(there, value)


@pytest.mark.parametrize("reply", REPLIES, ids=lambda reply: type(reply).__name__)
def test_a_reply_that_was_cut_or_changed_is_refused_or_another_reply(reply: Reply) -> None:
    data, chance = reply_to_bytes(reply), random.Random(0)
    for length in range(len(data)):
        with pytest.raises(BadReply):
            reply_from_bytes(data[:length])
    with pytest.raises(BadReply):
        reply_from_bytes(data + b"\0")
    for _ in range(300):
        changed = bytearray(data)
        changed[chance.randrange(len(data))] = chance.randrange(256)
        try:
            reply_from_bytes(bytes(changed))
        except BadReply:
            pass  # and no other error


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"[]",
        b"{}",
        b"[" * 100_000,
        b'{"is":"Answer","arrays":[]}',
        b'{"is":"Answer","number":1,"sampled":["tag",""],"arrays":[["i4",99999999999]]}',
        b'{"is":"Answer","number":1,"sampled":["tag",""],"arrays":[["O",1]]}',
        b'{"is":"Answer","number":1,"sampled":["tag",""],"arrays":[["i4",-1]]}',
        b'{"is":"Answer","number":1e400,"sampled":["tag",""],"arrays":[["i4",0],["f4",0],["f4",0],["f4",0],["f8",0]]}',
        b'{"is":"Answer","number":1,"sampled":["no",""],"arrays":[["i4",0],["f4",0],["f4",0],["f4",0],["f8",0]]}',
        b'{"is":"Checked","version":0,"whole":true,"sums":[[1]],"probe":null,"arrays":[]}',
        b'{"is":"Told","number":1,"notes":{"a":"b"},"arrays":[]}',
        b'{"is":"Reply","arrays":[]}',
    ],
    ids=range(13),
)
def test_what_is_no_reply_is_refused(line: bytes) -> None:
    with pytest.raises(BadReply):
        reply_from_bytes(len(line).to_bytes(4, "little") + line)


def test_a_pickle_is_not_opened() -> None:
    with pytest.raises(BadReply):
        reply_from_bytes(pickle.dumps(Failed("no")))


class Rule:
    needs_entropy = False

    def __init__(self, tokenizer: PocketTokens) -> None:
        self.tokenizer = tokenizer

    def __call__(self, response: object, entropy: float) -> float:
        return 1.0


def test_orders_leave_the_tokenizer_where_it_is() -> None:
    """A sampler has one; that of a large model has megabytes."""
    here, there = PocketTokens(["a phrase"] * 10_000), PocketTokens(["another"])
    stop = partial(is_complete, "act", tags=("action",))
    request = Request(0, [1, 2], np.zeros(3, dtype=np.float32), 1.0, stop, Rule(here), (b"</action>",))
    data = order_to_bytes(Ask(((1, request),), (0,)), here)
    assert len(data) < 2000
    order = order_from_bytes(data, there)
    assert isinstance(order, Ask)
    back = order.requests[0][1]
    assert isinstance(back.temperature_of, Rule)
    assert back.temperature_of.tokenizer is there
    assert back.stop(b"</action>")
    assert not back.stop(b"</think>")


def test_what_has_no_name_cannot_be_sent() -> None:
    with pytest.raises(EngineError, match="must stand at the top of a module"):
        order_to_bytes(lambda: 0, None)


def test_a_rule_of_actre_does_not_carry_what_all_others_were_told() -> None:
    tokenizer = PocketTokens([])
    plan = ActRe().plan(1, RolloutPlan())
    assert plan.temperature_rule is not None
    rule = plan.temperature_rule(tokenizer, None, 1.0, ("action",))
    empty = len(order_to_bytes(rule, tokenizer))
    rule.heat.entropies += [0.5] * 10_000  # type: ignore[union-attr]
    assert len(order_to_bytes(rule, tokenizer)) == empty


def test_an_order_without_a_tokenizer_is_a_plain_pickle() -> None:
    assert pickle.loads(order_to_bytes((None, [None, 1]), None)) == (None, [None, 1])
