"""Which words and phrases the pocket tokenizer knows, found by counting in the text of a world.

Every word that is common enough becomes a token. Then neighbouring tokens are joined, the most frequent pair first,
into set phrases ("You arrive at", ", you see a"). Names of things and numbers are never joined with anything: a thing
looks the same wherever it is mentioned, which is what a small model has to learn to see.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable

_CUT = re.compile(r" ?[A-Za-z]+| ?[0-9]+|.", re.DOTALL)
_NUMBER = re.compile(r" ?[0-9]+")


def build_phrases(texts: Iterable[str], least: int = 5, joins: int = 80) -> list[str]:
    """The phrase list, in a fixed order: words by name, then numbers, then joined phrases in the order found."""
    counted = Counter(texts)
    lines = [(list(_CUT.findall(text)), count) for text, count in sorted(counted.items())]
    words: Counter[str] = Counter()
    names: set[str] = set()
    for line, count in lines:
        for word, following in zip(line, [*line[1:], ""], strict=True):
            words[word] += count
            if _NUMBER.fullmatch(following):
                names |= {word, " " + word.strip(), word.strip()}
    known = sorted(word for word, count in words.items() if count >= least and (len(word) > 1 or not word.isascii()))
    numbers = [f" {n}" for n in range(1, 31)]
    loose = {word for word in words if word not in names and not _NUMBER.fullmatch(word)}
    joined = _join(lines, loose, joins)
    singles = [word for word in known if word not in numbers and not _NUMBER.fullmatch(word)]
    ordered = [*singles, *numbers, *joined]
    return list(dict.fromkeys(ordered))


def _join(lines: list[tuple[list[str], int]], loose: set[str], joins: int) -> list[str]:
    found: list[str] = []
    loose = set(loose)
    for _ in range(joins):
        pairs: Counter[tuple[str, str]] = Counter()
        for line, count in lines:
            for pair in itertools.pairwise(line):
                if pair[0] in loose and pair[1] in loose:
                    pairs[pair] += count
        if not pairs:
            break
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        phrase = best[0] + best[1]
        found.append(phrase)
        loose.add(phrase)
        lines = [(_merge(line, best, phrase), count) for line, count in lines]
    return found


def _merge(line: list[str], pair: tuple[str, str], phrase: str) -> list[str]:
    merged: list[str] = []
    i = 0
    while i < len(line):
        if i + 1 < len(line) and (line[i], line[i + 1]) == pair:
            merged.append(phrase)
            i += 2
        else:
            merged.append(line[i])
            i += 1
    return merged
