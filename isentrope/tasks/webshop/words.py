"""Text to search terms, as Lucene's English analyzer makes them.

Word breaks follow Unicode's annex 29, which is what Lucene's StandardTokenizer implements; then possessive 's goes,
words are lower-cased, 33 stop words are left out and the rest is stemmed by Porter's algorithm.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any

from isentrope.tasks.needs import require

_STOP_WORDS = """
a an and are as at be but by for if in into is it no not of on or such that the their then there these they this to was
will with
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())
LONGEST = 255  # characters; Lucene cuts longer words into pieces of this length

# Word_Break classes of annex 29. A class may be followed by marks and joiners, which belong to the character before.
_MARKS = r"[\p{WB=Extend}\p{WB=Format}\p{WB=ZWJ}]*"
_LETTER = rf"(?:[\p{{WB=ALetter}}\p{{WB=Hebrew_Letter}}]{_MARKS})"
_DIGIT = rf"(?:[\p{{WB=Numeric}}\uFF10-\uFF19]{_MARKS})"
_JOIN = rf"(?:\p{{WB=ExtendNumLet}}{_MARKS})"
_KATAKANA = rf"(?:\p{{WB=Katakana}}{_MARKS})"
_IN_WORD = rf"(?:[:\p{{WB=MidLetter}}\p{{WB=MidNumLet}}\p{{WB=Single_Quote}}]{_MARKS})"
_IN_NUMBER = rf"(?:[\p{{WB=MidNum}}\p{{WB=MidNumLet}}\p{{WB=Single_Quote}}]{_MARKS})"
# Symbols and emoji are words too. Unicode no longer counts those in the ranges as pictures; Lucene still does.
_PICTURE = r"[\p{ExtPict}\u2388\u2605\u2607-\u2612\u2614-\u2685\u2690-\u2705\u2765-\u2767]"
_LETTERS = rf"{_LETTER}+(?:{_IN_WORD}{_LETTER}+)*"
_DIGITS = rf"{_DIGIT}+(?:{_IN_NUMBER}{_DIGIT}+)*"
_PIECE = rf"(?:{_LETTERS}|{_DIGITS})"
_WORD = (
    rf"{_JOIN}*(?:(?:{_PIECE})+|{_KATAKANA}+)(?:{_JOIN}+(?:(?:{_PIECE})+|{_KATAKANA}+))*{_JOIN}*"
    rf"|[\p{{Script=Han}}\p{{Script=Hiragana}}]{_MARKS}"
    rf"|\p{{LB=Complex_Context}}+"
    r"|\p{RI}{2}"
    rf"|{_PICTURE}(?:{_MARKS}\u200D{_PICTURE})*{_MARKS}"
)
# A vowel with a consonant after it: what must come before an ending for Porter to take it off.
_MEASURE = re.compile(r"(?:[aeiou]|(?<=[^aeiou])y)(?:[^aeiouy]|(?<=[aeiou])y)")


@cache
def _pattern() -> Any:
    return require("regex", "webshop", "the search of the webshop").compile(_WORD)


@cache
def _porter() -> Callable[[str], str]:
    stemmer = require("Stemmer", "webshop", "the search of the webshop").Stemmer("porter", 0)
    return stemmer.stemWord


def words(text: str) -> list[str]:
    """The words of a text, cut as Lucene cuts them, case as it stands."""
    found: list[str] = _pattern().findall(text)
    if max(map(len, found), default=0) > LONGEST:
        return [word[i : i + LONGEST] for word in found for i in range(0, len(word), LONGEST)]
    return found


def terms(text: str) -> list[str]:
    """The search terms of a text, in order."""
    return [term for word in words(text) if (term := _term(word))]


@lru_cache(maxsize=200_000)
def _term(word: str) -> str:
    """A word's term; empty for a stop word."""
    if word[-2:] in ("'s", "'S", "’s", "’S", "＇s", "＇S"):
        word = word[:-2]
    word = word.lower()
    return "" if word in STOP_WORDS else stem(word)


def stem(word: str) -> str:
    """Porter's stem. Lucene has the two rules that he added to his program later, -bli to -ble and -logi to -log, and
    leaves words of one or two letters alone."""
    if len(word) <= 2:
        return word
    found = _porter()(word)
    if found.endswith("logi") and _MEASURE.search(found[:-4]):
        return found[:-1]
    if found.endswith("bli") and _MEASURE.search(found[:-3]):
        return _porter()(found[:-1] + "e")
    return found
