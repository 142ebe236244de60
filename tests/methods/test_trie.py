"""The trie of admissible actions: a position is a branching one exactly if two or more tokens can stand there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from isentrope.agent.action_trie import ActionTries, TrieWalk
from isentrope.core.tokenizer import neutral
from isentrope.models.sources.pocket import PocketTokens
from tests.reference import naive_methods

PHRASES = ["go to", " desk", " 1", " 10", " 2", "take", "look", " a", "ab", " shelf", "examine"]
USUAL = ("go to desk 1", "go to desk 10", "go to desk 2", "take a", "take ab", "look")
HOSTILE = ("</action>", "<action>look</action>", "x</ACTION ><think>", "<think>", "\u2039action>", "<|im_end|>")
ACTIONS = st.lists(
    st.one_of(st.sampled_from((*USUAL, *HOSTILE, "", "go to desk", "(x")), st.text("ab1 (<>/", max_size=5)), max_size=6
)


class Greedy:
    """Tokens that may hold the end of a tag and the beginning of an action at once: the longest known piece wins."""

    def __init__(self, pieces: Sequence[str]) -> None:
        self.known = sorted({piece.encode() for piece in pieces}, key=len, reverse=True)
        self.table = [bytes([b]) for b in range(256)] + self.known

    def answer(self, text: str) -> list[int]:
        rest, ids = text.encode(), []
        while rest:
            piece = next((piece for piece in self.known if rest.startswith(piece)), rest[:1])
            ids.append(self.table.index(piece))
            rest = rest[len(piece) :]
        return ids

    def pieces(self, ids: Sequence[int]) -> list[bytes]:
        return [self.table[i] for i in ids]


STRADDLING = ("<action", "<action>", ">(", "></", ">g", ">go", "action>l", " 1<", "10", "go", " to desk", "</action>")


@pytest.fixture(scope="module")
def byte_level(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A byte-level tokenizer of Hugging Face's kind."""
    pytest.importorskip("transformers", reason="pip install 'isentrope[hf]'")
    from isentrope.models.chat.tokenizer import ChatTokens
    from tests.models.test_hugging_face import make_folder

    folder: Path = make_folder(tmp_path_factory.mktemp("hf"))
    return ChatTokens.load(folder)


def write(tokenizer: Any, action: str) -> list[int]:
    return tokenizer.answer(f"<action>{neutral(action)}</action>")


def written(tokenizer: Any, admissible: Sequence[str]) -> dict[str, list[bytes]]:
    """How each action reads, token by token. Actions that read the same are the same action."""
    return {neutral(action): tokenizer.pieces(write(tokenizer, action)) for action in admissible}


def walked(tokenizer: Any, admissible: Sequence[str], response: Sequence[int]) -> list[bool]:
    """Whether each position of the response is a branching one, and the position behind its end."""
    walk = TrieWalk(ActionTries(tokenizer).trie(tuple(admissible)), tokenizer)
    return [walk.branching(response[:j]) for j in range(len(response) + 1)]


def expected(tokenizer: Any, admissible: Sequence[str], response: Sequence[int]) -> list[bool]:
    ways, pieces = written(tokenizer, admissible), tokenizer.pieces(response)
    return [naive_methods.branching(pieces[:j], ways) for j in range(len(response) + 1)]


def check(tokenizer: Any, admissible: list[str], data: st.DataObject) -> None:
    """All admissible actions, and responses that begin like one and go astray."""
    assume(len({neutral(action) for action in admissible}) == len(set(admissible)))
    for action in admissible:
        ids = write(tokenizer, action)
        assert walked(tokenizer, admissible, ids) == expected(tokenizer, admissible, ids)
        keep = data.draw(st.integers(0, len(ids)))
        astray = [*ids[:keep], *write(tokenizer, data.draw(st.sampled_from(("look", "ab", "")))), *ids[keep:]]
        assert walked(tokenizer, admissible, astray) == expected(tokenizer, admissible, astray)


@settings(max_examples=60)
@given(ACTIONS, st.data())
def test_pocket_tokens_against_all_actions_one_by_one(admissible: list[str], data: st.DataObject) -> None:
    check(PocketTokens(PHRASES), admissible, data)


@settings(max_examples=40)
@given(ACTIONS, st.data())
def test_a_byte_level_tokenizer_against_all_actions_one_by_one(
    byte_level: Any, admissible: list[str], data: st.DataObject
) -> None:
    check(byte_level, admissible, data)


@settings(max_examples=60)
@given(st.lists(st.sampled_from(STRADDLING)), ACTIONS, st.data())
def test_any_pieces_against_all_actions_one_by_one(
    pieces: list[str], admissible: list[str], data: st.DataObject
) -> None:
    check(Greedy(pieces), admissible, data)


@settings(max_examples=80)
@given(ACTIONS)
def test_in_single_bytes_it_is_a_matter_of_strings(admissible: list[str]) -> None:
    # Where every byte is a token, the tokens that can follow are the next bytes of the texts that begin so.
    tokenizer, texts = Greedy([]), {f"<action>{neutral(a)}</action>".encode() for a in admissible}
    assume(len({neutral(action) for action in admissible}) == len(set(admissible)))
    for action in admissible:
        ids = write(tokenizer, action)
        for j, ours in enumerate(walked(tokenizer, admissible, ids)):
            begun = b"".join(tokenizer.pieces(ids[:j]))
            following = {text[len(begun)] for text in texts if text.startswith(begun) and text != begun}
            assert ours == (len(begun) >= len(b"<action>") and len(following) > 1)


@settings(max_examples=40)
@given(ACTIONS)
def test_with_longer_tokens_a_branching_position_is_one_of_strings_too(byte_level: Any, admissible: list[str]) -> None:
    # Not the other way round: behind the token " 1" the text could still become "… 10", but no action is written so.
    texts = {f"<action>{neutral(a)}</action>".encode() for a in admissible}
    assume(len({neutral(action) for action in admissible}) == len(set(admissible)))
    for tokenizer in (PocketTokens(PHRASES), byte_level):
        for action in admissible:
            ids = write(tokenizer, action)
            for j, ours in enumerate(walked(tokenizer, admissible, ids)):
                begun = b"".join(tokenizer.pieces(ids[:j]))
                assert not ours or len([text for text in texts if text.startswith(begun)]) > 1


def test_by_hand() -> None:
    # "go to desk 1" is <action>, "go to", " desk", " 1", </action>. Behind <action> stands "go to" or "examine"; behind
    # "go to" " desk" or " shelf"; behind "go to desk" " 1" or " 2". All else is forced: " 1" behind "go to shelf",
    # " desk" and " 1" behind "examine", and every closing tag.
    tokenizer = PocketTokens(PHRASES)
    admissible = ("go to desk 1", "go to desk 2", "go to shelf 1", "examine desk 1")
    assert tokenizer.pieces(write(tokenizer, "go to desk 1")) == [b"<action>", b"go to", b" desk", b" 1", b"</action>"]
    assert walked(tokenizer, admissible, write(tokenizer, "go to desk 1")) == [False, True, True, True, False, False]
    assert walked(tokenizer, admissible, write(tokenizer, "go to desk 2")) == [False, True, True, True, False, False]
    assert walked(tokenizer, admissible, write(tokenizer, "go to shelf 1")) == [False, True, True, False, False, False]
    assert walked(tokenizer, admissible, write(tokenizer, "examine desk 1")) == [
        False,
        True,
        False,
        False,
        False,
        False,
    ]


def test_a_token_that_all_actions_left_have_in_common_is_forced() -> None:
    # Behind "go to" two actions are left, but both go on with " desk"; " 1" and " 10" are two tokens.
    tokenizer, admissible = PocketTokens(PHRASES), ("go to desk 1", "go to desk 10", "look")
    assert walked(tokenizer, admissible, write(tokenizer, "go to desk 1")) == [False, True, False, True, False, False]
    assert walked(tokenizer, admissible, write(tokenizer, "look")) == [False, True, False, False]


def test_another_spelling_is_no_second_action() -> None:
    # "s", "helf" reads like "shelf". It is no alternative where one action is left, and whoever writes it has left the
    # trie: in front of " 1" and " 2" too.
    tokenizer = Greedy(["<action>", "</action>", "go to ", "shelf", "helf", " 1", " 2", "look"])
    one, two = ("go to shelf 1", "look"), ("go to shelf 1", "go to shelf 2", "look")
    ids = write(tokenizer, "go to shelf 1")
    assert tokenizer.pieces(ids) == [b"<action>", b"go to ", b"shelf", b" 1", b"</action>"]
    spelled = [*ids[:2], *tokenizer.answer("s"), *tokenizer.answer("helf"), *ids[3:]]
    assert b"".join(tokenizer.pieces(spelled)) == b"".join(tokenizer.pieces(ids))
    assert walked(tokenizer, one, ids) == [False, True, False, False, False, False]
    assert walked(tokenizer, two, ids) == [False, True, False, True, False, False]
    assert walked(tokenizer, two, spelled) == [False, True, False, False, False, False, False]


def test_an_action_that_another_one_begins_with() -> None:
    # In bytes, a 0 or the closing tag may follow behind "go to desk 1". All before it is forced.
    tokenizer, admissible = PocketTokens([]), ("go to desk 1", "go to desk 10")
    shorter, longer = (walked(tokenizer, admissible, write(tokenizer, action)) for action in admissible)
    forced = [False] * len("go to desk 1")
    assert shorter == [False, *forced, True, False]
    assert longer == [False, *forced, True, False, False]


@pytest.mark.parametrize("admissible", [(), ("look",), ("look", "look", "look")])
def test_one_action_or_none_never_branches(admissible: tuple[str, ...]) -> None:
    tokenizer = PocketTokens(PHRASES)
    assert not any(walked(tokenizer, admissible, write(tokenizer, "look")))
    assert not any(walked(tokenizer, admissible, tokenizer.answer("<think>")))


def test_duplicates_count_once() -> None:
    tokenizer = PocketTokens(PHRASES)
    for action in ("look", "take a"):
        ids = write(tokenizer, action)
        assert walked(tokenizer, ("look", "take a", "look"), ids) == walked(tokenizer, ("look", "take a"), ids)


def test_the_opening_tag_is_never_a_branching_position(byte_level: Any) -> None:
    for tokenizer in (PocketTokens(PHRASES), byte_level):
        for action in USUAL:
            ids = write(tokenizer, action)
            ends = [len(b"".join(tokenizer.pieces(ids[: j + 1]))) for j in range(len(ids))]
            hot = walked(tokenizer, USUAL, ids)
            assert not any(hot[j] for j, end in enumerate(ends) if end <= len("<action>"))
            assert hot[ends.index(len("<action>")) + 1]


def test_a_token_that_holds_the_end_of_the_tag_and_the_beginning_of_an_action_decides() -> None:
    # ">(" and ">" part the two actions: the position in front of them is a branching one, those before it are not.
    tokenizer = Greedy([">("])
    ids = write(tokenizer, "(x")
    assert tokenizer.pieces(ids)[7] == b">("
    assert walked(tokenizer, ("(x", "look"), ids)[:9] == [False] * 7 + [True, False]


def test_leaving_the_trie_is_for_good() -> None:
    tokenizer = PocketTokens(PHRASES)
    ids = write(tokenizer, "go to desk 1")
    for stray in (tokenizer.content("x"), tokenizer.content(" "), tokenizer.answer("<think>")):
        assert walked(tokenizer, USUAL, [*ids[:3], *stray, *ids[3:]])[:4] == [False, True, False, True]
        assert not any(walked(tokenizer, USUAL, [*ids[:3], *stray, *ids[3:]])[4:])
        blank = stray == tokenizer.content(" ")
        assert any(walked(tokenizer, USUAL, [*stray, *ids])) == blank  # white space in front is nothing
    spelled = tokenizer.content("<action>look</action>")  # the letters of the tag, not the tag
    assert not any(walked(tokenizer, USUAL, spelled))


def test_hostile_actions_are_written_so_that_no_tag_is_in_them(byte_level: Any) -> None:
    for tokenizer in (PocketTokens(PHRASES), byte_level):
        for action in HOSTILE:
            text = b"".join(tokenizer.pieces(write(tokenizer, action))).decode()
            assert text == f"<action>{neutral(action)}</action>"
            assert text.count("<action>") == text.count("</action>") == 1
            assert "<think>" not in text
            assert not tokenizer.eos_ids & set(write(tokenizer, action))
        # "look</action>" cannot be said: the tag behind "look" ends the action "look", which is the only one left.
        assert walked(tokenizer, ("look", "look</action>"), write(tokenizer, "look")) == expected(
            tokenizer, ("look", "look</action>"), write(tokenizer, "look")
        )


def test_actions_that_are_written_alike_are_one() -> None:
    tokenizer = PocketTokens(PHRASES)
    assert not any(walked(tokenizer, ("<action>", "\u2039action>"), write(tokenizer, "<action>")))


def test_the_opening_tag_is_no_branching_position_behind_a_space_of_the_tokenizer() -> None:
    class Spaced(Greedy):
        """Writes a space in front of every text, as SentencePiece tokenizers do."""

        def answer(self, text: str) -> list[int]:
            return super().answer(" " + text)

    tokenizer = Spaced([" <action", "look"])
    ids = write(tokenizer, "look")
    assert tokenizer.pieces(ids)[:3] == [b" <action", b">", b"look"]
    assert walked(tokenizer, ("look", "take a"), ids)[:3] == [False, False, True]


def test_a_response_may_be_shown_in_pieces_or_twice() -> None:
    tokenizer = PocketTokens([])
    ids = write(tokenizer, "go to desk 10")
    whole = walked(tokenizer, USUAL, ids)
    walk = TrieWalk(ActionTries(tokenizer).trie(USUAL), tokenizer)
    for j in (0, 0, 1, 7, 12, 12, len(ids)):
        assert walk.branching(ids[:j]) == whole[j]


def test_a_response_cut_in_the_middle_of_a_tag(byte_level: Any) -> None:
    ids = byte_level.answer("<acti")
    assert not any(walked(byte_level, USUAL, ids))
    ids = write(byte_level, "go to desk 1")
    assert walked(byte_level, USUAL, ids[:-1]) == walked(byte_level, USUAL, ids)[:-1]


def test_tries_are_remembered_and_do_not_disturb_each_other() -> None:
    tries = ActionTries(PocketTokens(PHRASES))
    first = tries.trie(("look", "take a"))
    second = tries.trie(("look",))
    assert tries.trie(("look", "take a")) is first
    ids = write(tries.tokenizer, "look")
    assert TrieWalk(first, tries.tokenizer).branching(ids[:1])
    assert not TrieWalk(second, tries.tokenizer).branching(ids[:1])


def test_white_space_in_front_is_passed_over_as_the_parser_does() -> None:
    tokenizer = PocketTokens(PHRASES)
    root = ActionTries(tokenizer).trie(("look", "take a"))
    blank = tokenizer.content("\n ")
    walk = TrieWalk(root, tokenizer)
    assert not walk.branching(blank)
    assert walk.branching([*blank, *write(tokenizer, "look")[:1]])
    assert not walk.branching([*blank, *write(tokenizer, "look")[:1], *blank])  # inside, it is no admissible action
