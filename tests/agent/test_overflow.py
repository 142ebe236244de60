"""Conversations that outgrow their limit: the oldest turns go, nothing else changes, nothing is cut in the middle."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isentrope.agent.context import KEPT, Context, split_prefix
from isentrope.agent.prompts import wording
from isentrope.config.schema import AgentSettings
from isentrope.models.sources.pocket import PocketTokens
from isentrope.worlds.contract import View

TOKENS = PocketTokens(["You", " see", " step", " left", " out", " earlier"])
SYSTEM = wording("brief").system("think_act", "")
GOAL = "Find the mug."


def text_of(ids: list[int]) -> str:
    return b"".join(TOKENS.pieces(ids)).decode("utf-8", "replace")


def make(limit: int | None, window: int | None = None) -> Context:
    return Context(TOKENS, wording("brief"), "think_act", window, show_admissible=False, limit=limit)


def play(context: Context, observations: list[str], answers: list[list[int]]) -> list[list[int]]:
    prompts: list[list[int]] = []
    for observation, answer in zip(observations, answers, strict=True):
        prompts.append(context.prompt(View(observation, None, GOAL)))
        context.answered(prompts[-1], answer, "look")
    return prompts


def answer_to(number: int) -> list[int]:
    return TOKENS.answer(f"<think>thought {number}</think><action>go {number}</action>")


def test_the_oldest_turns_are_left_out_and_the_first_message_says_so() -> None:
    context = make(limit=300)
    seen = [f"observation {i}." for i in range(12)]
    prompts = play(context, seen, [answer_to(i) for i in range(12)])
    assert all(len(prompt) <= 300 for prompt in prompts)
    text = text_of(prompts[-1])
    count = context.dropped
    assert count > 0
    first = f"<|start|>{SYSTEM}<|user|>{seen[0]} {GOAL} ({count} earlier steps left out) {seen[count]}<|agent|>"
    kept = "".join(
        f"<think>thought {i}</think><action>go {i}</action><|user|>{seen[i + 1]}<|agent|>" for i in range(count, 11)
    )
    assert text == first + kept


def test_room_for_several_turns_is_made_at_once() -> None:
    context, continued, dropped = make(limit=300), [], []
    for i in range(40):
        prompt = context.prompt(View(f"observation {i}.", None, GOAL))
        continued.append(split_prefix(context.tokens, prompt)[0])
        if not continued[-1] and i:
            assert len(prompt) <= KEPT * 300
        dropped.append(context.dropped)
        context.answered(prompt, answer_to(i), "go")
    begun_anew = continued.count(False) - 1
    assert 3 < begun_anew < 20
    assert [d for d, c in zip(dropped, continued, strict=True) if not c] == sorted(set(dropped))


def test_the_tokens_of_kept_turns_are_used_again_and_not_encoded() -> None:
    """The policy may write a text in other tokens than the tokenizer would: they must stay as they are."""
    context = make(limit=120)
    spelled = [TOKENS.content("Y")[0], *TOKENS.content("ou")]  # not the token of "You"
    assert spelled != TOKENS.content("You")
    prompts = play(context, ["x"] * 20, [spelled] * 20)
    assert context.dropped
    kept = 19 - context.dropped
    assert kept > 3
    together = [*spelled, *TOKENS.user("x")] * kept
    assert prompts[-1][-len(together) :] == together


def test_what_does_not_fit_without_any_past_turn_is_given_as_it_is() -> None:
    context = make(limit=100)
    prompts = play(context, ["short", "long " * 40], [answer_to(0), answer_to(1)])
    assert len(prompts[1]) > 100
    assert context.dropped == 0
    assert split_prefix([*prompts[0], *answer_to(0)], prompts[1])[0]


def test_a_long_observation_alone_may_take_the_place_of_all_past_turns() -> None:
    context = make(limit=170)
    prompts = play(context, ["short"] * 3 + ["long " * 20], [answer_to(0)] * 4)
    assert len(prompts[3]) <= 170
    assert context.dropped == 3
    assert (
        text_of(prompts[3])
        == f"<|start|>{SYSTEM}<|user|>short {GOAL} (3 earlier steps left out) {'long ' * 20}<|agent|>"
    )


def test_a_window_loses_its_oldest_turns_for_the_moment_only() -> None:
    context = make(limit=200, window=4)
    dropped = []
    for observation in ["a", "b", "c", "d", "e", "much " * 20, "f", "g", "h", "i", "j"]:
        prompt = context.prompt(View(observation, None, GOAL))
        assert len(prompt) <= 200
        dropped.append(context.dropped)
        context.answered(prompt, [], "look")
    assert dropped[:5] == [0] * 5
    assert dropped[5] > 0
    assert dropped[-1] == 0
    assert "You have taken 10 steps" in text_of(prompt)


def test_without_a_limit_nothing_is_left_out() -> None:
    context = make(limit=None)
    prompts = play(context, ["x" * 50] * 30, [answer_to(0)] * 30)
    assert context.dropped == 0
    assert all(split_prefix([*a, *answer_to(0)], b)[0] for a, b in pairwise(prompts))


@pytest.mark.parametrize(("overflow", "limit"), [("drop", 4096 - 512), ("end", None)])
def test_the_limit_follows_from_the_settings(overflow: str, limit: int | None) -> None:
    assert Context.of(TOKENS, AgentSettings(overflow=overflow), "act").limit == limit


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(st.text("ab ", max_size=30), st.integers(1, 25)), min_size=1, max_size=15), st.integers(60, 200)
)
def test_whatever_is_said_a_prompt_is_whole_messages(turns: list[tuple[str, int]], limit: int) -> None:
    """As many answers as messages but one, each as it was sampled, in their order, and the newest message last."""
    context = make(limit=limit)
    answers = [[TOKENS.content("z")[0]] * length for _, length in turns]
    for (observation, _), answer in zip(turns, answers, strict=True):
        prompt = context.prompt(View(observation, None, GOAL))
        start, user, agent = 1, 2, 3
        assert prompt[0] == start
        assert prompt.count(user) == prompt.count(agent) == len(context.past) - context.dropped + 1
        messages = text_of(prompt).split("<|user|>")[1:]
        assert messages[-1].endswith(f"{observation}<|agent|>" if len(context.past) else f"{GOAL}<|agent|>")
        told = [len(message.split("<|agent|>")[1]) for message in messages[:-1]]
        assert told == [len(a) for a in answers[context.dropped : len(context.past)]]
        context.answered(prompt, answer, "look")
