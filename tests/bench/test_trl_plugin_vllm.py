"""The plug-in with vLLM in TRL's process: what becomes of two kinds of steps in turn, and of what they recorded."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from bench.trl_plugin_vllm import Seen, maker, rows_of
from isentrope.bench.trl_peer import TrlPeer
from isentrope.bench.work import Spent, Work

WORK = Work("pocket", groups=2, group_size=2, turns=2, response=6, rooms="small", prompt="brief")
LOSS = "loss of a micro-batch"


def seen(*steps: dict[str, list[float]]) -> Seen:
    found = Seen(SimpleNamespace(_metrics={"train": {}}))
    for step in steps:
        found.trainer._metrics["train"].update(step)
        found.step()
    return found


def test_rows_by_hand() -> None:
    spent = [Spent(1, 2, 9, 9), Spent(2, 2, 9, 9), Spent(1, 4, 9, 9), Spent(2, 6, 9, 9)]
    acting = {LOSS: [1.0, 3.0], "epo/history": [2.5], "reward": [0.0]}
    found = seen(acting, {LOSS: [7.0]}, acting, {LOSS: [7.0]}, acting)
    rows = rows_of(spent, found, 60.0, ["epo", "aem"])
    values = {row.what: row.value for row in rows}
    assert values == {
        "until counted": 60,
        "plain GRPOTrainer: a step": 4,
        "epo + aem: a step": 6,
        LOSS: 2,
        "epo/history": 2.5,
        "metrics that are not finite": 0,
    }
    assert [row.ratio for row in rows if row.ratio is not None] == [pytest.approx(4 / 6)]
    assert "of 14 values" in rows[-1].note


def test_a_value_that_is_not_finite_is_named_whichever_step_it_was_in() -> None:
    found = seen({LOSS: [1.0]}, {LOSS: [1.0, float("nan")], "entropy": [float("inf")]}, {LOSS: [1.0]})
    assert found.not_finite() == ["entropy", LOSS]
    last = rows_of([Spent(1, 2, 9, 9)], found, 1.0, ["epo"])[-1]
    assert (last.value, last.note) == (2, f"entropy, {LOSS}")


def test_two_steps_in_turn_inside_trl() -> None:
    pytest.importorskip("trl")
    found = Seen()
    peer = TrlPeer(WORK, WORK.config(), 2, 1, make=maker(["epo", "aem"], found))
    assert len(peer.run(2, 1, lambda step: found.step())) == 2
    assert ["aem/weight_max" in step for step in found.metrics] == [True, False, True]
    assert all(len(step[LOSS]) == 2 for step in found.metrics)
    assert found.not_finite() == []
