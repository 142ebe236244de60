"""The household world played by chance: every response counts its tokens, has a valid form and takes a real action."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isentrope.agent.response_format import is_complete, parse_response
from isentrope.bench.driven import DrivenOptions, DrivenTokenizer, DrivenWorld, action_number
from isentrope.bench.work import Ours, Spent, Work, typical
from isentrope.models.sources.find import POCKET
from isentrope.models.sources.pocket import PocketTokens
from isentrope.worlds.household.engine import NOTHING_HAPPENS


def tokenizer(length: int) -> DrivenTokenizer:
    return DrivenTokenizer(PocketTokens.load(POCKET), length)


@given(st.integers(4, 40).flatmap(lambda n: st.lists(st.integers(0, 554), min_size=n, max_size=n)))
def test_every_response_is_a_valid_action(ids: list[int]) -> None:
    pieces = tokenizer(len(ids)).pieces(ids)
    assert len(pieces) == len(ids)
    parsed = parse_response(pieces, "think_act", "length")
    assert (parsed.verdict, parsed.action) == ("ok", str(action_number(ids)))


def test_no_token_ends_a_response() -> None:
    tokens = tokenizer(8)
    assert not tokens.eos_ids
    for word in range(tokens.size):
        assert not is_complete("think_act", tokens.pieces([word])[0])


def test_actions_are_chosen_among_the_admissible_ones() -> None:
    world = DrivenWorld()
    task = world.open()
    view = task.start(world.instance("train", 5))
    for number in range(60):
        step = task.step(str(number * 7919))
        assert NOTHING_HAPPENS not in step.view.text
        assert not step.terminated
        assert (step.view.goal, step.view.rules) == (view.goal, view.rules)


def test_words_lengthen_the_first_observation_alone() -> None:
    plain, longer = (DrivenWorld(DrivenOptions(words=words)) for words in (0, 50))
    texts = [world.open().start(world.instance("train", 1)).text for world in (plain, longer)]
    assert texts[1].startswith(texts[0])
    assert len(texts[1].split()) == len(texts[0].split()) + 50


WORK = Work("pocket", groups=2, group_size=2, turns=3, response=6, rooms="small", prompt="brief")


def test_a_step_samples_exactly_what_was_asked_for() -> None:
    ours = Ours(WORK, WORK.config(["run.threads=1"]))
    before = [p.detach().clone() for p in ours.learner.policy.module.parameters()]
    spent = ours.step(1)
    ours.close()
    assert spent.sampled == 2 * 2 * 3 * 6
    assert spent.whole > spent.sampled + 2 * 2 * 30
    assert spent.rollout > 0
    assert spent.update > 0
    moved = [bool((a != b).any()) for a, b in zip(before, ours.learner.policy.module.parameters(), strict=True)]
    assert all(moved), "rewards within a group must differ, or there is nothing to learn"


def test_free_play_ends_by_itself() -> None:
    free = replace(WORK, driven=False, response=48)
    ours = Ours(free, free.config(["run.threads=1"]))
    spent = ours.step(1)
    ours.close()
    assert 0 < spent.sampled < 2 * 2 * 3 * 48


def test_typical_is_the_median() -> None:
    assert typical([Spent(1, 5, 10, 9), Spent(3, 4, 30, 9), Spent(2, 9, 20, 9)]) == Spent(2, 5, 20, 9)
    assert Spent(1.5, 2.0, 1, 1).step == pytest.approx(3.5)
