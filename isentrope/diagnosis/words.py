"""Explains a technical word where a diagnosis first uses it."""

from __future__ import annotations

import re

EXPLAINED = (
    (r"\b[Ee]ntropy\b(?! bonus)", "how open the choice of the next token is"),
    (r"(?<!imitated )\btokens?\b", "a piece of a word"),
    (r"\bnats\b", "the unit of entropy: a fair coin has 0.69"),
    (r"\bKL\b", "a distance between the choices of two policies"),
    (r"\bpolicy\b", "the model that learns"),
    (r"\bepisodes?\b", "one play of one game"),
    (r"\bgroups?\b", "the episodes of one game, which are compared with each other"),
    (r"\breturns?\b(?! to)", "the sum of an episode's rewards"),
    (r"\b[Aa]dvantages?\b", "how much better an episode did than its group"),
    (r"\bclip\b", "the limit to how far one update may change a token's probability"),
    (r"\bgradient\b", "the direction in which the weights are moved"),
    (r"\btemperature\b(?! \d)", "1 samples as the model has it, less is surer"),
    (r"\b[Ii]nterfere[ds]?\b", "learning from one episode changes how likely others are"),
)


def explained(text: str) -> str:
    """`text` with each technical word explained in brackets at its first use.

    One that stands in brackets, in quotes or in the name of a setting waits for its next use.
    """
    for pattern, meaning in EXPLAINED:
        for match in re.finditer(pattern, text):
            if not _free(text, match.start(), match.end()):
                continue
            text = f"{text[: match.end()]} ({meaning}){text[match.end() :]}"
            break
    return text


def _free(text: str, start: int, end: int) -> bool:
    before, after = text[:start], text[end:]
    inside = before.count("(") > before.count(")") or before.count('"') % 2 == 1
    part = before[-1:] in (".", "/", "_", "=", "-") or bool(re.match(r"[./_=]\w|'|-", after))
    return not inside and not part and not after.startswith(" (")
