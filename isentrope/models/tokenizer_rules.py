"""What a tokenizer.json may do to text: rules that hold for every text, and texts to try it with.

A tokenizer works in the process that trains, on whatever a task says. So that no text can make it take minutes or
gigabytes, what it replaces may not grow without a bound, its patterns may not repeat what repeats itself, and no token
stands for more than some thousand characters.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any, cast

from isentrope.core.errors import EngineError
from isentrope.core.limits import check_depth

GROWTH = 32  # characters that one may become: NFKC makes 18 of the longest, known tokenizers 3
PREPENDED = 64
PATTERN_CHARS = 4000  # the longest of known tokenizers has 700
TOKEN_CHARS = 4096  # runs of 128 spaces are the longest tokens of known vocabularies
PARTS = 200  # steps of a normaliser, a pre-tokenizer or a decoder together
CHECK = "take the tokenizer from the model's first maker"
_COUNTED = "{"


def check_tokenizer_file(data: bytes) -> None:
    """EngineError for a tokenizer.json that could do more than tokenize."""
    try:
        table: Any = json.loads(data)
        check_depth({k: v for k, v in table.items() if k != "model"})
    except (ValueError, RecursionError, AttributeError) as error:
        raise EngineError(f"tokenizer.json cannot be read ({str(error)[:200]}); copy it again") from error
    model: Any = table.get("model")
    dropout = cast("dict[str, Any]", model).get("dropout") if isinstance(model, dict) else None
    if dropout:
        raise EngineError(f"tokenizer.json has dropout = {str(dropout)[:40]}; expected null: {CHECK}")
    _check_words(table, cast("object", model))
    steps = list(_tables([table.get(key) for key in ("normalizer", "pre_tokenizer")]))
    if len(steps) > PARTS:
        raise EngineError(f"tokenizer.json changes text in {len(steps):,} steps; expected at most {PARTS}: {CHECK}")
    _check_replaced(steps)
    for step in steps:
        if pattern := _regex(step):
            check_pattern(pattern)


def _check_words(table: dict[str, Any], model: object) -> None:
    added = [entry.get("content") for entry in _tables([table.get("added_tokens")])]
    vocabulary: Any = cast("dict[str, Any]", model).get("vocab") if isinstance(model, dict) else None
    pairs = cast("list[Any]", vocabulary) if isinstance(vocabulary, list) else []
    words = list(cast("dict[str, Any]", vocabulary)) if isinstance(vocabulary, dict) else [p[0] for p in pairs if p]
    longest = max((len(word) for word in [*added, *words] if isinstance(word, str)), default=0)
    if longest > TOKEN_CHARS:
        raise EngineError(
            f"tokenizer.json has a token of {longest:,} characters; expected at most {TOKEN_CHARS:,}: {CHECK}"
        )


def _tables(value: Any) -> Iterator[dict[str, Any]]:
    """All tables inside, at any depth that `check_depth` allows."""
    if isinstance(value, dict):
        table = cast("dict[str, Any]", value)
        yield table
        for inner in table.values():
            yield from _tables(inner)
    elif isinstance(value, list):
        for inner in cast("list[Any]", value):
            yield from _tables(inner)


def _regex(step: dict[str, Any]) -> str:
    pattern = step.get("Regex")
    return pattern if isinstance(pattern, str) else ""


def _check_replaced(steps: list[dict[str, Any]]) -> None:
    replaced = [step for step in steps if step.get("type") == "Replace" and isinstance(step.get("content"), str)]
    growth = math.prod(max(1, len(step["content"]) + _matches_nothing(step.get("pattern"))) for step in replaced)
    prepended = sum(len(str(step.get("prepend", ""))) for step in steps if step.get("type") == "Prepend")
    if growth > GROWTH or prepended > PREPENDED:
        found = f"one character become {growth:.3g}" if growth > GROWTH else f"{prepended:,} characters stand in front"
        raise EngineError(f"tokenizer.json makes {found}; expected at most {GROWTH} and {PREPENDED}: {CHECK}")


def _matches_nothing(pattern: object) -> int:
    """1 for a pattern that may be found between two characters, where its content comes on top."""
    return int(not (isinstance(pattern, dict) and cast("dict[str, Any]", pattern).get("String")))


def check_growth(normalizer: Any) -> None:
    """Every character by itself through the normaliser, which may have a table of replacements that cannot be read."""
    if normalizer is None:
        return
    most = GROWTH + PREPENDED
    for number in range(0x20000):
        if 0xD800 <= number < 0xE000:
            continue
        made = len(normalizer.normalize_str(chr(number)))
        if made > most:
            raise EngineError(
                f"tokenizer.json makes {made:,} characters of U+{number:04X}; expected at most {most}: {CHECK}"
            )


def check_pattern(pattern: str) -> None:
    """Refuse what can take time that doubles with each character: a repeated group in which something repeats or which
    has alternatives. Patterns that tokenizers are published with have none."""
    if len(pattern) > PATTERN_CHARS:
        raise EngineError(
            f"tokenizer.json has a pattern of {len(pattern):,} characters; expected at most {PATTERN_CHARS:,}: {CHECK}"
        )
    groups, varies = [False], False  # for each open group: whether something inside may match in several ways
    at = 0
    while at < len(pattern):
        letter, varies, closed = pattern[at], False, False
        if letter == "\\":
            at += 1
        elif letter == "[":
            at = _end_of_class(pattern, at)
        elif letter == "(":
            groups.append(False)
        elif letter == "|":
            groups[-1] = True
        elif letter == ")" and len(groups) > 1:
            varies, closed = groups.pop(), True
        at += 1
        many, at = _repeats(pattern, at)
        if many and closed and varies:
            raise EngineError(
                f"tokenizer.json has a pattern that repeats what repeats itself: {pattern[:80]!r}; it could take hours "
                f"for one text: {CHECK}"
            )
        groups[-1] = groups[-1] or varies or many


def _end_of_class(pattern: str, at: int) -> int:
    """The place of the bracket that closes this one; classes may stand within each other."""
    depth, at = 1, at + 1
    if pattern[at : at + 1] == "^":
        at += 1
    if pattern[at : at + 1] == "]":
        at += 1
    while at < len(pattern):
        if pattern[at] == "\\":
            at += 1
        elif pattern[at] == "[":
            depth += 1
        elif pattern[at] == "]":
            depth -= 1
            if not depth:
                break
        at += 1
    return at


def _repeats(pattern: str, at: int) -> tuple[bool, int]:
    """Whether what stands before is repeated a varying number of times, and the place behind that."""
    many = False
    while at < len(pattern) and pattern[at] in "*+?{":
        if pattern[at] == _COUNTED:
            end = pattern.find("}", at)
            count = pattern[at + 1 : end] if end > 0 else ""
            if not count or not count.replace(",", "").isdigit():
                break  # a bracket that stands for itself
            many, at = many or "," in count, end
        else:
            many = many or pattern[at] in "*+"
        at += 1
    return many, at


LONG = 16_384  # characters of a text: as long as observations are


def probes() -> Iterator[str]:
    """Texts of the kinds that trip tokenizers: runs of one character, of pairs, of words, of every character."""
    letters = "ae0 \n\t.-_=<|'/\\#\u00e9\u4f60\u0301\U0001f600\u16a0\u2581"
    for letter in letters:
        yield letter * LONG + "!"
    for pair in ("ab", "a ", " \n", "\r\n", "a1", "'s", ".a", "<|", "x.", "aA"):
        yield (pair * LONG)[:LONG] + "Q"
    yield ("You arrive at desk 1. On the desk 1, you see a mug 1 and 2 pens.\n\n" * LONG)[:LONG]
    yield "".join(chr(n) for n in range(1, 0x20000) if not 0xD800 <= n < 0xE000 and chr(n).isprintable())
