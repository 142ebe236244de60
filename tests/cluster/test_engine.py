"""Several samplers give what one engine gives, whatever becomes of them: samplers in this process, faults made up."""

from __future__ import annotations

import copy
import logging
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from isentrope.cluster import engine as engine_module
from isentrope.cluster.engine import ClusterEngine
from isentrope.cluster.messages import Ask, Renew
from isentrope.cluster.weights import take_apart
from isentrope.core.engine import Request, Sampled
from isentrope.core.errors import EngineError
from isentrope.core.types import TokenTemperature
from isentrope.engines.torch import TorchEngine
from isentrope.models.policy import Policy
from tests.cluster.inline import Fault, Inline, InlineLink, inline_cluster
from tests.models.helpers import small_policy

SLOTS, TURNS = 7, 3


def never(tail: bytes) -> bool:
    return False


class ByEntropy:
    """A rule that keeps what it is told."""

    needs_entropy = True

    def __init__(self) -> None:
        self.heard: list[tuple[int, float]] = []

    def __call__(self, response: Sequence[int], entropy: float) -> float:
        self.heard.append((len(response), entropy))
        return 1.3 if entropy > 1.5 else 0.8


def play(engine: ClusterEngine | TorchEngine, rules: dict[int, TokenTemperature] | None = None) -> list[Sampled]:
    """Conversations of some turns, as a rollout has them; some leave, and one begins anew."""
    rng, said = np.random.default_rng(0), list[Sampled]()
    prompts = {slot: rng.integers(9, 200, 3 + slot).tolist() for slot in range(SLOTS)}
    engine.open(range(SLOTS))
    for turn in range(TURNS):
        if turn == 2:
            prompts = {slot: prompts[slot] for slot in (0, 1, 3, 5, 6)}
            prompts[3] = rng.integers(9, 200, 5).tolist()
            engine.keep(list(prompts))
        requests = [
            Request(slot, prompt, rng.random(6, dtype=np.float32), 0.9, never, (rules or {}).get(10 * turn + slot))
            for slot, prompt in prompts.items()
        ]
        for request, sampled in zip(requests, engine.sample(requests), strict=True):
            said.append(sampled)
            prompts[request.slot] = [*prompts[request.slot], *sampled.ids.tolist(), 9]
    engine.open(())
    return said


def check_same(ours: Sequence[Sampled], theirs: Sequence[Sampled]) -> None:
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(mine.ids, other.ids)
        np.testing.assert_allclose(mine.logprobs, other.logprobs, atol=1e-5)
        np.testing.assert_allclose(mine.entropies, other.entropies, atol=1e-5)
        np.testing.assert_array_equal(mine.temperatures, other.temperatures)
        assert mine.stop == other.stop


def once(kind: type, what: str, at: int = 1, number: int = 0) -> Fault:
    """A fault of the sampler `number`, the `at`-th time that it gets an order of this kind."""
    seen = 0

    def fault(link: InlineLink, order: object) -> str:
        nonlocal seen
        if not isinstance(order, kind) or link.number != number:
            return ""
        seen += 1
        return what if seen == at else ""

    return fault


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.mark.parametrize("engines", [1, 2, 3])
def test_any_number_of_samplers_gives_what_one_engine_gives(engines: int) -> None:
    policy = small_policy()
    check_same(play(inline_cluster(policy, engines)), play(TorchEngine(policy)))


def test_a_rule_for_temperatures_is_told_here_what_its_copy_was_told_there() -> None:
    policy = small_policy()
    local = {10 * turn + slot: ByEntropy() for turn in range(TURNS) for slot in range(SLOTS)}
    there = {key: ByEntropy() for key in local}
    check_same(play(inline_cluster(policy, 2), dict(there)), play(TorchEngine(policy), dict(local)))
    for key, rule in local.items():
        assert [length for length, _ in there[key].heard] == [length for length, _ in rule.heard]
        np.testing.assert_allclose(*([e for _, e in one.heard] for one in (there[key], rule)), atol=1e-5)


def test_new_weights_are_used_by_all() -> None:
    policy = small_policy()
    engine = inline_cluster(policy, 2)
    before = play(engine)
    with torch.no_grad():
        for parameter in policy.module.parameters():
            parameter.mul_(1.1)
    engine.refresh()
    after = play(engine)
    check_same(after, play(TorchEngine(policy)))
    assert any(a.ids.tolist() != b.ids.tolist() for a, b in zip(before, after, strict=True))


@pytest.mark.parametrize("what", ["dies", "hangs", "no reply at all"])
@pytest.mark.parametrize("at", [1, 2])
def test_what_a_lost_sampler_was_asked_is_answered_by_another(
    what: str, at: int, caplog: pytest.LogCaptureFixture
) -> None:
    policy = small_policy()
    transport = Inline(once(Ask, what, at))
    engine = inline_cluster(policy, 2, transport, "cluster.seconds=0.05")
    with caplog.at_level(logging.WARNING, "isentrope"):
        check_same(play(engine), play(TorchEngine(policy)))
    notes = engine.notes()
    assert (notes["samplers_lost"], notes["samplers"], notes["weights_refused"]) == (1, 2, 0)
    assert notes["requests_moved"] == 3  # the share of the first of two samplers
    assert "sampler 0" in caplog.text
    assert "its 3 requests go to others; a new one is started" in caplog.text
    assert engine.notes()["samplers_lost"] == 0  # told once


def test_one_sampler_alone_is_renewed() -> None:
    policy = small_policy()
    engine = inline_cluster(policy, 1, Inline(once(Ask, "dies", 2)))
    check_same(play(engine), play(TorchEngine(policy)))


def test_a_sampler_that_is_lost_during_a_sync_is_renewed() -> None:
    policy = small_policy()
    engine = inline_cluster(policy, 2, Inline(once(Renew, "dies")))
    engine.refresh()
    check_same(play(engine), play(TorchEngine(policy)))
    assert engine.notes()["samplers_lost"] == 1


def test_a_new_sampler_takes_over_conversations() -> None:
    """It has none when it comes; those that begin then go to it."""
    policy = small_policy()
    engine = inline_cluster(policy, 2, Inline(once(Ask, "dies")))
    engine.open(range(6))
    prompts = {slot: [20 + slot, 30, 40] for slot in range(6)}
    for turn in range(3):
        rng = np.random.default_rng(turn)
        prompts = {slot: [*range(50 + 10 * turn + slot, 70), 9] for slot in prompts}
        engine.sample([Request(s, p, rng.random(4, dtype=np.float32), 1.0, never) for s, p in prompts.items()])
    assert sorted(len(station.slots) for station in engine._stations) == [3, 3]


def test_a_conversation_stays_where_its_cache_is() -> None:
    policy = small_policy()
    homes: list[dict[int, int]] = []

    def watch(link: InlineLink, order: object) -> str:
        if isinstance(order, Ask):
            homes.append({request.slot: link.number for _, request in order.requests})
        return ""

    play(inline_cluster(policy, 3, Inline(watch)))
    seen: dict[int, set[int]] = {}
    for home in homes:
        for slot, number in home.items():
            seen.setdefault(slot, set()).add(number)
    assert all(len(seen[slot]) == 1 for slot in range(SLOTS) if slot != 3)
    assert {number for numbers in seen.values() for number in numbers} == {0, 1, 2}


def test_only_new_conversations_go_to_a_sampler_that_has_fewer() -> None:
    sent: list[dict[int, list[int]]] = []

    def watch(link: InlineLink, order: object) -> str:
        if isinstance(order, Ask):
            sent.append({link.number: sorted(request.slot for _, request in order.requests)})
        return ""

    engine = inline_cluster(small_policy(), 2, Inline(watch))
    rng = np.random.default_rng(0)

    def ask(prompts: dict[int, list[int]]) -> dict[int, list[int]]:
        sampled = engine.sample(
            [Request(slot, p, rng.random(3, dtype=np.float32), 1.0, never) for slot, p in prompts.items()]
        )
        return {slot: [*p, *one.ids.tolist(), 9] for (slot, p), one in zip(prompts.items(), sampled, strict=True)}

    engine.open(range(6))
    prompts = ask({slot: [30 + slot, 9] for slot in range(6)})
    engine.keep([0, 1, 2])  # all of the first sampler's
    prompts = ask({slot: prompts[slot] for slot in (0, 1, 2)})
    prompts[2] = [77, 9]
    prompts = ask(prompts)
    ask(prompts)
    assert sent == [{0: [0, 1, 2]}, {1: [3, 4, 5]}, {0: [0, 1, 2]}, {0: [0, 1]}, {1: [2]}, {0: [0, 1]}, {1: [2]}]


def test_a_sampler_that_never_works_is_given_up_and_the_others_go_on(caplog: pytest.LogCaptureFixture) -> None:
    policy = small_policy()

    def fault(link: InlineLink, order: object) -> str:
        bad = link.number == 0 or link.number >= 2  # the first of the two, and whatever comes in its place
        return "dies" if bad and isinstance(order, Ask) else ""

    engine = inline_cluster(policy, 2, Inline(fault))
    for _ in range(4):
        with caplog.at_level(logging.WARNING, "isentrope"):
            check_same(play(engine), play(TorchEngine(policy)))
    assert engine.notes()["samplers"] == 1
    assert "3 in a row: there is no new one" in caplog.text


def test_without_any_sampler_it_ends() -> None:
    engine = inline_cluster(small_policy(), 1, Inline(lambda link, order: "dies" if isinstance(order, Ask) else ""))
    with pytest.raises(EngineError, match=r"no sampler is left\. The last, sampler 2, was ended by a test"):
        play(engine)


def test_an_engine_that_cannot_be_made_is_said_and_samplers_are_ended() -> None:
    transport = Inline()
    with pytest.raises(EngineError, match=r"sampler 0: .*it needs a GPU with CUDA"):
        inline_cluster(small_policy(), 1, transport, "engine.kind=fast")
    assert transport.closed


def stale(numbers: Sequence[int], link_number: int) -> Fault:
    """A sampler whose tensors of these numbers do not change."""

    def fault(link: InlineLink, order: object) -> str:
        if isinstance(order, Renew) and link.number == link_number:
            sampler = link.sampler
            assert sampler is not None
            for number in numbers:
                old = sampler._tensors[number].detach().clone()
                with torch.no_grad():
                    old.mul_(0.5)
                sampler._tensors[number].data = old
                sampler._sources[number] = old
        return ""

    return fault


def change(policy: Policy) -> None:
    with torch.no_grad():
        for parameter in policy.module.parameters():
            parameter.add_(0.01)


def test_a_sampler_without_the_new_weights_is_renewed_and_it_is_told(caplog: pytest.LogCaptureFixture) -> None:
    policy = small_policy()
    name, parameter = list(policy.module.named_parameters())[5]
    tensors = take_apart(policy)[1]
    number = next(i for i, tensor in enumerate(tensors) if tensor is parameter)
    engine = inline_cluster(policy, 2, Inline(stale([number], 1)))
    change(policy)
    with caplog.at_level(logging.WARNING, "isentrope"):
        engine.refresh()
        check_same(play(engine), play(TorchEngine(policy)))
    notes = engine.notes()
    assert (notes["weights_refused"], notes["samplers_lost"], notes["samplers"]) == (1, 1, 2)
    assert "sampler 1 does not have the learner's weights" in caplog.text
    assert f"1 of {len(tensors)} tensors differ, the first is {name}" in caplog.text


class Joins(TorchEngine):
    """Gives parameters memory of its own, as the native engine does with those that it joins."""

    def __init__(self, policy: Policy, config: object, options: object) -> None:
        super().__init__(policy)
        for parameter in policy.module.parameters():
            parameter.data = parameter.data.clone()


def test_an_engine_with_memory_of_its_own_gets_new_weights() -> None:
    policy = small_policy()
    engine = inline_cluster(policy, 2, None, "engine.kind=tests.cluster.test_engine:Joins")
    change(policy)
    engine.refresh()
    check_same(play(engine), play(TorchEngine(policy)))
    assert engine.notes()["samplers_lost"] == 0


class KeepsOld(TorchEngine):
    """Its policy gets new weights, and it goes on with those that it had."""

    def __init__(self, policy: Policy, config: object, options: object) -> None:
        super().__init__(replace(policy, model=copy.deepcopy(policy.model)))


def test_the_probe_sees_an_engine_that_goes_on_with_old_weights(caplog: pytest.LogCaptureFixture) -> None:
    policy = small_policy()
    engine = inline_cluster(policy, 1, None, "engine.kind=tests.cluster.test_engine:KeepsOld")
    change(policy)
    engine.refresh()
    with caplog.at_level(logging.WARNING, "isentrope"):
        play(engine)
    assert "nats from the learner's" in caplog.text


def test_weights_that_change_while_a_sampler_starts_are_checked_as_they_are_then() -> None:
    policy = small_policy()
    engine = inline_cluster(policy, 2, Inline(once(Ask, "dies")))
    engine.open(range(2))
    rng = np.random.default_rng(0)
    engine.sample([Request(slot, [30, 40, 9], rng.random(4, dtype=np.float32), 1.0, never) for slot in range(2)])
    assert [station.version for station in engine._stations if station.version < 0] in ([-1], [])
    change(policy)
    engine.refresh()
    check_same(play(engine), play(TorchEngine(policy)))
    assert all(station.version == 1 for station in engine._stations)


def test_what_nobody_waits_for_any_more_is_not_taken_for_something_else() -> None:
    policy = small_policy()
    engine = inline_cluster(policy, 2)
    rng = np.random.default_rng(1)
    engine.open(range(4))
    engine.submit([Request(slot, [50, 60, 9], rng.random(5, dtype=np.float32), 1.0, never) for slot in range(4)])
    check_same(play(engine), play(TorchEngine(policy)))


def test_a_slot_answers_one_request_at_a_time() -> None:
    engine = inline_cluster(small_policy(), 1)
    engine.open([0])
    request = Request(0, [50, 9], np.zeros(2, dtype=np.float32), 1.0, never)
    with pytest.raises(EngineError, match="already being answered"):
        engine.submit([request, request])


def test_what_cannot_be_sent_is_said() -> None:
    engine = inline_cluster(small_policy(), 1)
    engine.open([0])
    with pytest.raises(EngineError, match="cannot be sent to a sampler process"):
        engine.submit([Request(0, [50, 9], np.zeros(2, dtype=np.float32), 1.0, lambda tail: True)])


def test_a_request_that_no_sampler_survives_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "MOST_LOST", 100)
    engine = inline_cluster(small_policy(), 2, Inline(lambda link, order: "dies" if isinstance(order, Ask) else ""))
    with pytest.raises(EngineError, match="5 samplers were lost with the same request"):
        play(engine)


def test_an_engine_at_work_is_seen_to_work() -> None:
    transport = Inline()
    engine = inline_cluster(small_policy(), 1, transport)
    play(engine)
    sampler = transport.links[0].sampler
    assert sampler is not None
    assert sampler.moved >= SLOTS * 6  # a draw each
