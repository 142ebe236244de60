"""What a tokenizer.json may do to text, and that no made-up one is loaded with more than that."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from isentrope.core.errors import EngineError
from isentrope.models.chat.tokenizer import ChatTokens
from isentrope.models.tokenizer_rules import GROWTH, check_growth, check_pattern, check_tokenizer_file
from tests.builders import hostile_models
from tests.builders.hostile_models import TOKENIZERS, replace, sequence
from tests.builders.sizes import EXPLORE
from tests.models.families import FAMILIES, make_folder, make_tokenizer, vocabulary

# As published tokenizers have them: GPT-2, GPT-4, GPT-4o, Llama 3, Qwen2, DeepSeek-V3, digits in threes from the right
HONEST = (
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*""",
    r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))",
    r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}&&[^\p{Han}]]*[\p{Ll}\p{Lm}&&[^\p{Han}]]+(?i:'s|'t)?",
    r"(?:\r?\n)+|[0-9][0-9][0-9]|[](){}]+|[^]a]*", r"a{|b{x}|c}*",
)  # fmt: skip
HOSTILE = (
    r"(a+)+$", r"(a*)*b", r"((ab)+)*", r"(a|a)*", r"(?:x+y?)+z", r"(.*)*", r"((a{1,9}){1,9}){1,9}", r"(a+){2,}",
    r"([a-z]+)+",
    r"(?:(?=a|b)c)*", r"(\d+|\w)*?x", r"((a+))+", r"(a+b?)++", r"x(?i:a|b)*", "a" * 5000,
)  # fmt: skip


@pytest.mark.parametrize("pattern", HONEST)
def test_patterns_of_published_tokenizers(pattern: str) -> None:
    check_pattern(pattern)


@pytest.mark.parametrize("pattern", HOSTILE)
def test_patterns_that_may_take_for_ever(pattern: str) -> None:
    with pytest.raises(EngineError, match="pattern"):
        check_pattern(pattern)


@pytest.mark.parametrize("family", FAMILIES)
def test_tokenizers_of_families_keep_the_rules(family: str) -> None:
    check_tokenizer_file(vocabulary(FAMILIES[family][4]).encode())
    check_growth(make_tokenizer(family).backend_tokenizer.normalizer)


def test_growth_is_counted_over_all_steps() -> None:
    steps = [replace({"String": "a"}, "ab"), replace({"String": "b"}, "abcd"), replace({"String": "c"}, "abcd")]
    check_tokenizer_file(json.dumps({"normalizer": sequence("normalizers", steps)}).encode())  # 2 * 4 * 4 = GROWTH
    assert GROWTH == 32
    more = json.dumps({"normalizer": sequence("normalizers", [*steps, replace({"String": "d"}, "xx")])})
    with pytest.raises(EngineError, match="makes one character become 64; expected at most 32"):
        check_tokenizer_file(more.encode())


def test_a_table_that_cannot_be_read_is_tried_on_every_character() -> None:
    class Grows:
        def normalize_str(self, text: str) -> str:
            return "x" * 1000 if text == "\u16a0" else text

    with pytest.raises(EngineError, match=r"makes 1,000 characters of U\+16A0"):
        check_growth(Grows())


def test_dropout_and_long_tokens_are_refused() -> None:
    for table, message in (
        ({"model": {"dropout": 0.1}}, "dropout = 0.1; expected null"),
        ({"model": {"vocab": {"a" * 5000: 0}}}, "a token of 5,000 characters"),
        ({"model": {"vocab": [["a" * 5000, -1.0]]}}, "a token of 5,000 characters"),
        ({"added_tokens": [{"content": "a" * 5000}]}, "a token of 5,000 characters"),
        ([], "cannot be read"),
    ):
        with pytest.raises(EngineError, match=message):
            check_tokenizer_file(json.dumps(table).encode())


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("whole") / "model", "smollm2")


def spoil(whole: Path, place: Path) -> Path:
    place.mkdir()
    for file in whole.iterdir():
        (place / file.name).write_bytes(file.read_bytes())
    return place


# Those that only limits of time or memory stop, or whose harm is none here (decoders and post-processors are not used)
NEEDS_LIMITS = {"polynomial", "look-behind", "merges"}
HARMLESS = {"unigram", "wordpiece", "decoder", "post-processor", "one id for all", "truncation", "padding"}


@pytest.mark.parametrize("name", sorted(set(TOKENIZERS) - NEEDS_LIMITS))
def test_each_made_up_tokenizer_is_harmless_or_refused(whole: Path, tmp_path: Path, name: str) -> None:
    folder = spoil(whole, tmp_path / "model")
    hostile_models.named_tokenizer(folder, name)
    if name in HARMLESS:
        try:
            tokens = ChatTokens.load(folder)
        except EngineError:
            return
        assert len(tokens.opening("a", "b" * 1000)) < 5000
        return
    with pytest.raises(EngineError, match=r"tokenizer|chat template|token"):
        ChatTokens.load(folder)


@pytest.mark.parametrize("seed", range(300 if EXPLORE else 15))
def test_spoilt_files_load_or_are_refused(whole: Path, tmp_path: Path, seed: int) -> None:
    """Values and bytes at random in tokenizer, settings and template: an EngineError, or tokens as of any model."""
    folder, random = spoil(whole, tmp_path / "model"), Random(seed)
    families = (hostile_models.spoilt_tokenizer, hostile_models.bytes_of_a_tokenizer, hostile_models.spoilt_template)
    (folder / "config.json").write_text('{"model_type": "llama"}')
    families[seed % 3](random, folder)
    try:
        tokens: Any = ChatTokens.load(folder)
    except EngineError as refused:
        told = str(refused)
    else:
        told = ""
        assert len(tokens.opening("Be good.", "Hello " * 100)) < 20_000
    assert len(told) < 1500


def test_a_tokenizer_that_gives_up_on_a_text() -> None:
    """A search that takes too long ends in a panic of Rust's, which is no Exception."""

    class PanicException(BaseException): ...

    class Backend:
        def encode(self, text: str, add_special_tokens: bool) -> None:
            raise PanicException("retry-limit-in-match over")

    chat = ChatTokens(make_tokenizer("smollm2"))
    chat._backend = Backend()
    with pytest.raises(EngineError, match="gave up on a text of 9 characters that begins with 'some text'"):
        chat._raw("some text")
