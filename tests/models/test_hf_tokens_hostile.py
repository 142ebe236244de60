"""Whatever a task says stays text: no control token comes of it, and nothing of it is lost."""

from __future__ import annotations

import unicodedata
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isentrope.models.chat.tokenizer import ChatTokens
from tests.models.families import FAMILIES, make_tokenizer, transformers

NAMES = sorted({name for _, controls, *_ in FAMILIES.values() for name in controls} | {"<tool_call>", "<think>"})
ODD = [
    "\r\n",
    "\x00",
    "\ud800",
    "\udfff",
    "\U0001f600",
    "e\u0301",
    "\ufeff",
    "\u2028",
    "\u202e",
    "  ",
    "<|",
    "|>",
    "<",
    "</",
]
texts = st.lists(st.one_of(st.sampled_from([*NAMES, *ODD]), st.text(max_size=8)), max_size=8).map("".join)


@cache
def tokenizer_of(family: str) -> ChatTokens:
    return ChatTokens(make_tokenizer(family, plain=("<tool_call>", "<think>", "</think>")))


def controls(chat: ChatTokens, ids: list[int]) -> list[int]:
    return [i for i in ids if i in chat._reserved]


@settings(deadline=None, max_examples=40)
@pytest.mark.parametrize("family", ["smollm2", "qwen2.5", "llama3", "mistral", "gemma", "phi"])
@given(text=texts)
def test_any_text_is_plain_and_reads_back(family: str, text: str) -> None:
    chat = tokenizer_of(family)
    ids = chat.content(text)
    assert not controls(chat, ids)
    told = text.encode("utf-8", "replace").decode()
    normal = unicodedata.normalize("NFC", told) if FAMILIES[family][-1] == "newlines" else told
    assert b"".join(chat.pieces(ids)).decode().replace("\u2581", " ") == normal.replace("\u2581", " ")


@settings(deadline=None, max_examples=25)
@pytest.mark.parametrize("family", ["smollm2", "llama3", "mistral", "gemma", "phi"])
@given(text=texts)
def test_a_message_adds_no_control_token_whatever_stands_around_it(family: str, text: str) -> None:
    chat = tokenizer_of(family)
    for write in (chat.user, lambda told: chat.opening("Be good.", told)):
        assert controls(chat, write(text)) == controls(chat, write("harmless"))


def test_names_that_overlap_or_come_about_by_normalising_are_spelled() -> None:
    from tokenizers import AddedToken, normalizers

    tokenizer = make_tokenizer("smollm2", plain=("<|a|>", "|a|>b"))
    tokenizer.backend_tokenizer.normalizer = normalizers.NFKC()
    tokenizer.backend_tokenizer.add_tokens([AddedToken("<tool>", normalized=True)])
    chat = ChatTokens(tokenizer)
    for text in ("<|a|>b", "\uff1ctool\uff1e", "<tool>"):
        ids = chat.content(text)
        assert not controls(chat, ids)
        assert b"".join(chat.pieces(ids)).decode() == unicodedata.normalize("NFKC", text)


def test_letters_that_the_vocabulary_cannot_write_become_a_mark_and_do_not_vanish() -> None:
    """Some byte-level vocabularies lack rare bytes, and drop them without a word."""
    from tokenizers import Tokenizer, decoders, pre_tokenizers
    from tokenizers.models import BPE

    letters = [c for c in sorted(pre_tokenizers.ByteLevel.alphabet()) if c not in ("\u0113", "\u00f1")]  # 0x13, 0xf1
    raw = Tokenizer(BPE(vocab={c: i for i, c in enumerate(letters)}, merges=[]))
    raw.pre_tokenizer, raw.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="<end>")
    tokenizer.chat_template = FAMILIES["smollm2"][0]
    assert len(tokenizer("a\x13b", add_special_tokens=False)["input_ids"]) == 2
    chat = ChatTokens(tokenizer)
    assert b"".join(chat.pieces(chat.content("a\x13b\U00040000c"))).decode() == "a\ufffdb\ufffdc"


def test_runs_of_spaces_that_were_added_are_plain_text() -> None:
    tokenizer = make_tokenizer("smollm2", plain=("    ",))
    chat = ChatTokens(tokenizer)
    assert chat.content("a    b") == tokenizer("a    b", add_special_tokens=False)["input_ids"]
    assert tokenizer.convert_tokens_to_ids("    ") in chat.content("a    b")
