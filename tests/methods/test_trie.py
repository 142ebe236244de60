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


def write(dialect: Any, action: str) -> list[int]:
    return dialect.answer(f"<action>{neutral(action)}</action>")


def written(dialect: Any, admissible: Sequence[str]) -> dict[str, list[bytes]]:
    """How each action reads, token by token. Actions that read the same are the same action."""
    return {neutral(action): dialect.pieces(write(dialect, action)) for action in admissible}


def walked(dialect: Any, admissible: Sequence[str], response: Sequence[int]) -> list[bool]:
    """Whether each position of the response is a branching one, and the position behind its end."""
    walk = TrieWalk(ActionTries(dialect).trie(tuple(admissible)), dialect)
    return [walk.branching(response[:j]) for j in range(len(response) + 1)]


def expected(dialect: Any, admissible: Sequence[str], response: Sequence[int]) -> list[bool]:
    ways, pieces = written(dialect, admissible), dialect.pieces(response)
    return [naive_methods.branching(pieces[:j], ways) for j in range(len(response) + 1)]


def check(dialect: Any, admissible: list[str], data: st.DataObject) -> None:
    """All admissible actions, and responses that begin like one and go astray."""
    assume(len({neutral(action) for action in admissible}) == len(set(admissible)))
    for action in admissible:
        ids = write(dialect, action)
        assert walked(dialect, admissible, ids) == expected(dialect, admissible, ids)
        keep = data.draw(st.integers(0, len(ids)))
        astray = [*ids[:keep], *write(dialect, data.draw(st.sampled_from(("look", "ab", "")))), *ids[keep:]]
        assert walked(dialect, admissible, astray) == expected(dialect, admissible, astray)


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
    dialect, texts = Greedy([]), {f"<action>{neutral(a)}</action>".encode() for a in admissible}
    assume(len({neutral(action) for action in admissible}) == len(set(admissible)))
    for action in admissible:
        ids = write(dialect, action)
        for j, ours in enumerate(walked(dialect, admissible, ids)):
            begun = b"".join(dialect.pieces(ids[:j]))
            following = {text[len(begun)] for text in texts if text.startswith(begun) and text != begun}
            assert ours == (len(begun) >= len(b"<action>") and len(following) > 1)


@settings(max_examples=40)
@given(ACTIONS)
def test_with_longer_tokens_a_branching_position_is_one_of_strings_too(byte_level: Any, admissible: list[str]) -> None:
    # Not the other way round: behind the token " 1" the text could still become "… 10", but no action is written so.
    texts = {f"<action>{neutral(a)}</action>".encode() for a in admissible}
    assume(len({neutral(action) for action in admissible}) == len(set(admissible)))
    for dialect in (PocketTokens(PHRASES), byte_level):
        for action in admissible:
            ids = write(dialect, action)
            for j, ours in enumerate(walked(dialect, admissible, ids)):
                begun = b"".join(dialect.pieces(ids[:j]))
                assert not ours or len([text for text in texts if text.startswith(begun)]) > 1


def test_by_hand() -> None:
    # "go to desk 1" is <action>, "go to", " desk", " 1", </action>. Behind <action> stands "go to" or "examine"; behind
    # "go to" " desk" or " shelf"; behind "go to desk" " 1" or " 2". All else is forced: " 1" behind "go to shelf",
    # " desk" and " 1" behind "examine", and every closing tag.
    dialect = PocketTokens(PHRASES)
    admissible = ("go to desk 1", "go to desk 2", "go to shelf 1", "examine desk 1")
    assert dialect.pieces(write(dialect, "go to desk 1")) == [b"<action>", b"go to", b" desk", b" 1", b"</action>"]
    assert walked(dialect, admissible, write(dialect, "go to desk 1")) == [False, True, True, True, False, False]
    assert walked(dialect, admissible, write(dialect, "go to desk 2")) == [False, True, True, True, False, False]
    assert walked(dialect, admissible, write(dialect, "go to shelf 1")) == [False, True, True, False, False, False]
    assert walked(dialect, admissible, write(dialect, "examine desk 1")) == [False, True, False, False, False, False]


def test_a_token_that_all_actions_left_have_in_common_is_forced() -> None:
    # Behind "go to" two actions are left, but both go on with " desk"; " 1" and " 10" are two tokens.
    dialect, admissible = PocketTokens(PHRASES), ("go to desk 1", "go to desk 10", "look")
    assert walked(dialect, admissible, write(dialect, "go to desk 1")) == [False, True, False, True, False, False]
    assert walked(dialect, admissible, write(dialect, "look")) == [False, True, False, False]


def test_another_spelling_is_no_second_action() -> None:
    # "s", "helf" reads like "shelf". It is no alternative where one action is left, and whoever writes it has left the
    # trie: in front of " 1" and " 2" too.
    dialect = Greedy(["<action>", "</action>", "go to ", "shelf", "helf", " 1", " 2", "look"])
    one, two = ("go to shelf 1", "look"), ("go to shelf 1", "go to shelf 2", "look")
    ids = write(dialect, "go to shelf 1")
    assert dialect.pieces(ids) == [b"<action>", b"go to ", b"shelf", b" 1", b"</action>"]
    spelled = [*ids[:2], *dialect.answer("s"), *dialect.answer("helf"), *ids[3:]]
    assert b"".join(dialect.pieces(spelled)) == b"".join(dialect.pieces(ids))
    assert walked(dialect, one, ids) == [False, True, False, False, False, False]
    assert walked(dialect, two, ids) == [False, True, False, True, False, False]
    assert walked(dialect, two, spelled) == [False, True, False, False, False, False, False]


def test_an_action_that_another_one_begins_with() -> None:
    # In bytes, a 0 or the closing tag may follow behind "go to desk 1". All before it is forced.
    dialect, admissible = PocketTokens([]), ("go to desk 1", "go to desk 10")
    shorter, longer = (walked(dialect, admissible, write(dialect, action)) for action in admissible)
    forced = [False] * len("go to desk 1")
    assert shorter == [False, *forced, True, False]
    assert longer == [False, *forced, True, False, False]


@pytest.mark.parametrize("admissible", [(), ("look",), ("look", "look", "look")])
def test_one_action_or_none_never_branches(admissible: tuple[str, ...]) -> None:
    dialect = PocketTokens(PHRASES)
    assert not any(walked(dialect, admissible, write(dialect, "look")))
    assert not any(walked(dialect, admissible, dialect.answer("<think>")))


def test_duplicates_count_once() -> None:
    dialect = PocketTokens(PHRASES)
    for action in ("look", "take a"):
        ids = write(dialect, action)
        assert walked(dialect, ("look", "take a", "look"), ids) == walked(dialect, ("look", "take a"), ids)


def test_the_opening_tag_is_never_a_branching_position(byte_level: Any) -> None:
    for dialect in (PocketTokens(PHRASES), byte_level):
        for action in USUAL:
            ids = write(dialect, action)
            ends = [len(b"".join(dialect.pieces(ids[: j + 1]))) for j in range(len(ids))]
            hot = walked(dialect, USUAL, ids)
            assert not any(hot[j] for j, end in enumerate(ends) if end <= len("<action>"))
            assert hot[ends.index(len("<action>")) + 1]


def test_a_token_that_holds_the_end_of_the_tag_and_the_beginning_of_an_action_decides() -> None:
    # ">(" and ">" part the two actions: the position in front of them is a branching one, those before it are not.
    dialect = Greedy([">("])
    ids = write(dialect, "(x")
    assert dialect.pieces(ids)[7] == b">("
    assert walked(dialect, ("(x", "look"), ids)[:9] == [False] * 7 + [True, False]


def test_leaving_the_trie_is_for_good() -> None:
    dialect = PocketTokens(PHRASES)
    ids = write(dialect, "go to desk 1")
    for stray in (dialect.content("x"), dialect.content(" "), dialect.answer("<think>")):
        assert walked(dialect, USUAL, [*ids[:3], *stray, *ids[3:]])[:4] == [False, True, False, True]
        assert not any(walked(dialect, USUAL, [*ids[:3], *stray, *ids[3:]])[4:])
        blank = stray == dialect.content(" ")
        assert any(walked(dialect, USUAL, [*stray, *ids])) == blank  # white space in front is nothing
    spelled = dialect.content("<action>look</action>")  # the letters of the tag, not the tag
    assert not any(walked(dialect, USUAL, spelled))


def test_hostile_actions_are_written_so_that_no_tag_is_in_them(byte_level: Any) -> None:
    for dialect in (PocketTokens(PHRASES), byte_level):
        for action in HOSTILE:
            text = b"".join(dialect.pieces(write(dialect, action))).decode()
            assert text == f"<action>{neutral(action)}</action>"
            assert text.count("<action>") == text.count("</action>") == 1
            assert "<think>" not in text
            assert not dialect.eos_ids & set(write(dialect, action))
        # "look</action>" cannot be said: the tag behind "look" ends the action "look", which is the only one left.
        assert walked(dialect, ("look", "look</action>"), write(dialect, "look")) == expected(
            dialect, ("look", "look</action>"), write(dialect, "look")
        )


def test_actions_that_are_written_alike_are_one() -> None:
    dialect = PocketTokens(PHRASES)
    assert not any(walked(dialect, ("<action>", "\u2039action>"), write(dialect, "<action>")))


def test_the_opening_tag_is_no_branching_position_behind_a_space_of_the_tokenizer() -> None:
    class Spaced(Greedy):
        """Writes a space in front of every text, as SentencePiece tokenizers do."""

        def answer(self, text: str) -> list[int]:
            return super().answer(" " + text)

    dialect = Spaced([" <action", "look"])
    ids = write(dialect, "look")
    assert dialect.pieces(ids)[:3] == [b" <action", b">", b"look"]
    assert walked(dialect, ("look", "take a"), ids)[:3] == [False, False, True]


def test_a_response_may_be_shown_in_pieces_or_twice() -> None:
    dialect = PocketTokens([])
    ids = write(dialect, "go to desk 10")
    whole = walked(dialect, USUAL, ids)
    walk = TrieWalk(ActionTries(dialect).trie(USUAL), dialect)
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
    ids = write(tries.dialect, "look")
    assert TrieWalk(first, tries.dialect).branching(ids[:1])
    assert not TrieWalk(second, tries.dialect).branching(ids[:1])


def test_white_space_in_front_is_passed_over_as_the_parser_does() -> None:
    dialect = PocketTokens(PHRASES)
    root = ActionTries(dialect).trie(("look", "take a"))
    blank = dialect.content("\n ")
    walk = TrieWalk(root, dialect)
    assert not walk.branching(blank)
    assert walk.branching([*blank, *write(dialect, "look")[:1]])
    assert not walk.branching([*blank, *write(dialect, "look")[:1], *blank])  # inside, it is no admissible action
