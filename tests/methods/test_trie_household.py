"""The trie on real household observations, in whole words and in byte pairs: exactly the choices are hot.

What is compared with is no trie. Two actions are told apart by the first token in which they differ, so the branching
positions of an action are the places where it first differs from some other action of the same observation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import takewhile
from typing import Any

import pytest

from isentrope.agent.action_trie import ActionTries, TrieWalk
from isentrope.models.sources.find import POCKET
from isentrope.models.sources.pocket import PocketTokens
from isentrope.models.sources.smollm2 import converted
from isentrope.worlds.household.players import RandomPlayer
from isentrope.worlds.household.world import HouseholdOptions, HouseholdWorld

SMOLLM2 = converted()
GAMES = ((0, "small"), (1, "medium"), (18, "full"), (22, "full"))  # in the last two, words of the pocket are forced too
NO_SMOLLM2 = pytest.mark.skipif(SMOLLM2 is None, reason="needs SmolLM2: isentrope models smollm2 --get")


@cache
def observations() -> list[tuple[str, tuple[str, ...]]]:
    """(text, admissible actions) of the turns of some games in rooms of all sizes."""
    found: list[tuple[str, tuple[str, ...]]] = []
    for seed, rooms in GAMES:
        world, player = HouseholdWorld(HouseholdOptions(rooms=rooms)), RandomPlayer(seed)
        instance, task = world.instance("train", seed), world.open()
        view = task.start(instance)
        player.start(view, instance)
        for _ in range(10):
            assert view.admissible is not None
            found.append((view.text, view.admissible))
            view = task.step(player.act(view).action).view
    return found


def trained(digits: bool) -> Any:
    """Byte pairs counted in household texts; digits one by one, as many models have them, or joined like letters."""
    transformers: Any = pytest.importorskip("transformers", reason="pip install 'isentrope[hf]'")
    from tokenizers import Tokenizer, decoders, pre_tokenizers, trainers
    from tokenizers.models import BPE

    from isentrope.models.chat.tokenizer import ChatTokens
    from tests.models.test_hugging_face import CHATML

    raw: Any = Tokenizer(BPE())
    level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    apart = pre_tokenizers.Digits(individual_digits=True)
    raw.pre_tokenizer = pre_tokenizers.Sequence([apart, level]) if digits else level
    raw.decoder = decoders.ByteLevel()
    specials = ["<|pad|>", "<|im_start|>", "<|im_end|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=500, special_tokens=specials, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    raw.train_from_iterator([f"{text} {action}" for text, actions in observations() for action in actions], trainer)
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="<|im_end|>", pad_token="<|pad|>")
    fast.chat_template = CHATML
    return ChatTokens(fast)


def make(kind: str) -> Any:
    if kind == "pocket":
        return PocketTokens.load(POCKET)
    if kind == "smollm2":
        from isentrope.models.chat.tokenizer import ChatTokens

        assert SMOLLM2 is not None
        return ChatTokens.load(SMOLLM2)
    return trained(digits=kind == "pairs, single digits")


@pytest.fixture(
    scope="module", params=["pocket", "pairs", "pairs, single digits", pytest.param("smollm2", marks=NO_SMOLLM2)]
)
def tries(request: pytest.FixtureRequest) -> ActionTries:
    return ActionTries(make(request.param))


def hot(tries: ActionTries, admissible: tuple[str, ...], response: Sequence[int]) -> list[int]:
    walk = TrieWalk(tries.trie(admissible), tries.tokenizer)
    return [j for j in range(len(response) + 1) if walk.branching(response[:j])]


def parting(one: Sequence[int], other: Sequence[int]) -> int:
    """Where they first differ."""
    return len(list(takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))))


def each(tries: ActionTries) -> Iterator[tuple[tuple[str, ...], dict[str, list[int]]]]:
    """The admissible actions of each observation, and how the tokenizer writes them."""
    for _, admissible in observations():
        yield admissible, {action: tries.tokenizer.answer(f"<action>{action}</action>") for action in admissible}


def test_an_action_branches_exactly_where_it_parts_from_another(tries: ActionTries) -> None:
    for admissible, ids in each(tries):
        for action in admissible:
            parted = {parting(ids[action], ids[other]) for other in admissible if other != action}
            assert hot(tries, admissible, ids[action]) == sorted(parted)


def test_forced_tokens_are_never_hot_though_several_actions_are_left(tries: ActionTries) -> None:
    forced = 0
    for admissible, ids in each(tries):
        for action in admissible:
            found = hot(tries, admissible, ids[action])
            for j in range(len(ids[action])):
                left = [other for other in ids.values() if other[:j] == ids[action][:j]]
                if len({other[j] for other in left}) == 1:
                    assert j not in found
                    forced += len(left) > 1 and b">" in b"".join(tries.tokenizer.pieces(ids[action][:j]))
    assert forced > 40  # inside of an action


def test_one_action_alone_has_no_hot_position(tries: ActionTries) -> None:
    for admissible, ids in each(tries):
        for action in admissible[::5]:
            assert hot(tries, (action,), ids[action]) == []


def test_behind_a_sign_that_no_action_has_nothing_is_hot(tries: ActionTries) -> None:
    stray = tries.tokenizer.content("#")
    for admissible, ids in each(tries):
        for action in admissible[::5]:
            usual = hot(tries, admissible, ids[action])
            for j in range(len(ids[action])):
                astray = [*ids[action][:j], *stray, *ids[action][j:]]
                assert hot(tries, admissible, astray) == [place for place in usual if place <= j]


def test_an_end_is_a_choice_where_digits_are_tokens() -> None:
    # go to drawer 1 and go to drawer 10: "1" is common to both, and "0" or the closing tag follows.
    tries = ActionTries(make("pairs, single digits"))
    admissible = ("go to drawer 1", "go to drawer 10")
    for action in admissible:
        ids = tries.tokenizer.answer(f"<action>{action}</action>")
        [place] = hot(tries, admissible, ids)
        assert b"".join(tries.tokenizer.pieces(ids[:place])) == b"<action>go to drawer 1"
