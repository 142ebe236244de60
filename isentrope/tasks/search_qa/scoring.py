"""Is the answer right? Exact match and token F1 after the usual normalisation of question answering."""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Sequence

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_WHOLE = ("yes", "no", "noanswer")  # these words share nothing with a longer answer that holds them


def normalise(text: str) -> str:
    """Lower case, without punctuation and articles, words one blank apart.

    Composed and decomposed accents are the same letter (NFC). Other letters stay: naïve is not naive.
    """
    text = unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).lower())
    text = _ARTICLES.sub(" ", text.translate(_PUNCTUATION))
    return unicodedata.normalize("NFC", " ".join(text.split()))


def exact_match(answer: str, golden: str) -> bool:
    """Equal after normalisation. A golden answer of which nothing would be left (The The) is compared as it stands."""
    wanted = normalise(golden)
    if wanted:
        return normalise(answer) == wanted
    return bool(golden.strip()) and answer.strip().lower() == golden.strip().lower()


def f1(answer: str, golden: str) -> float:
    """Harmonic mean of precision and recall over the words, each counted as often as it stands there."""
    if exact_match(answer, golden):
        return 1.0
    given, wanted = normalise(answer), normalise(golden)
    if given in _WHOLE or wanted in _WHOLE:
        return 0.0
    left, right = given.split(), wanted.split()
    shared = sum((Counter(left) & Counter(right)).values())
    return 2 * shared / (len(left) + len(right)) if shared else 0.0


def best_exact_match(answer: str, golden: Sequence[str]) -> bool:
    return any(exact_match(answer, one) for one in golden)


def best_f1(answer: str, golden: Sequence[str]) -> float:
    return max((f1(answer, one) for one in golden), default=0.0)
