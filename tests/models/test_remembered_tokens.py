"""Texts whose tokens are remembered, and the short way to a Hugging Face tokenizer: the same tokens as before."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isentrope.models.chat import tokenizer as chat_tokens
from isentrope.models.chat.tokenizer import ChatTokens
from isentrope.models.sources import pocket
from isentrope.models.sources.pocket import PocketTokens
from tests.models.families import FAMILIES, make_tokenizer
from tests.models.helpers import PHRASES

TEXTS = st.text(max_size=40) | st.sampled_from(
    ["You see a desk 1.\n\n", " go  to ", "<|im_end|>", "a<s>b", "é\u0301ﬁ", ""]
)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_short_way_gives_what_the_tokenizer_gives(family: str) -> None:
    chat = ChatTokens(make_tokenizer(family))

    @settings(max_examples=40, deadline=None)
    @given(TEXTS)
    def check(text: str) -> None:
        told = text.encode("utf-8", "replace").decode()
        assert chat._raw(told) == list(chat.tokenizer(told, add_special_tokens=False)["input_ids"])

    check()


def test_padding_and_truncation_that_a_tokenizer_was_saved_with_do_not_count() -> None:
    tokenizer = make_tokenizer("smollm2")
    tokenizer.backend_tokenizer.enable_padding(length=64)
    tokenizer.backend_tokenizer.enable_truncation(2)
    text = "You see a desk 1 and a lamp 2."
    assert ChatTokens(tokenizer).content(text) == ChatTokens(make_tokenizer("smollm2")).content(text)


@pytest.mark.parametrize(
    ("make", "module"),
    [(lambda: PocketTokens(PHRASES), pocket), (lambda: ChatTokens(make_tokenizer("smollm2")), chat_tokens)],
)
def test_what_is_remembered_is_not_changed_by_those_who_asked(
    make: Callable[[], PocketTokens | ChatTokens], module: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_KNOWN", 3)
    chat, fresh = make(), make()
    for text in ["look", "go to desk 1", "look", "You arrive at", "desk", "apple", "look"]:
        first = chat.content(text)
        assert first == fresh._encoded(text)
        first.append(-1)
        assert chat.content(text) == fresh._encoded(text)
        assert chat._known.cache_info().currsize <= 3
