"""Reads numbers as people and models write them: 1,234.50, $3, 12 km, 3/4, 1 1/2, \\frac{1}{2}, −7, 1.5e3, 50%.

Values are exact fractions, so 0.1 is 1/10. A comma separates thousands; a decimal comma is not read. Units, currencies
and the percent sign are left out: 50% is 50.
"""

from __future__ import annotations

import re
from fractions import Fraction

LONGEST = 400  # characters of a number, and digits that its exponent may stand for: 1e308 has 309
_WHOLE = r"(?:\d{1,3}(?:,\d{3})+|\d+)"
_DECIMAL = rf"(?:{_WHOLE}(?:\.\d+)?|\.\d+)(?:[eE][+-]?\d{{1,3}}(?!\d))?"
_FRAC = r"\\[dt]?frac\s*\{\s*(?P<top>-?\d{1,100})\s*\}\s*\{\s*(?P<bottom>\d{1,100})\s*\}"
_NUMBER = re.compile(
    rf"(?P<sign>(?<![\w.)}}])-|)(?:\$\s?)?(?:{_FRAC}"
    rf"|(?P<mixed>\d{{1,9}})\s+(?P<over>\d{{1,9}})\s?/\s?(?P<under>\d{{1,9}})"
    rf"|(?P<number>{_DECIMAL})(?:\s?/\s?(?P<divisor>\d{{1,100}}(?:\.\d+)?))?)"
)
_SPACED = re.compile(r"(?<=\d)[\u00a0\u202f\u2009](?=\d{3}(?!\d))|\\,|\\!|(?<=\d)\{,\}(?=\d{3})")


def plain(text: str) -> str:
    """With ordinary minus signs, without marks that only set thousands apart or lay text out."""
    text = text.replace("\u2212", "-").replace("\u2013", "-").replace("\\$", "$").replace("\\%", "%")
    return _SPACED.sub("", text)


def numbers_in(text: str) -> list[Fraction]:
    """All numbers of a text, in their order."""
    found = (_value(match) for match in _NUMBER.finditer(plain(text)))
    return [value for value in found if value is not None]


def only_number(text: str) -> Fraction | None:
    """The number that a text consists of, a sign of currency, a unit or a full stop aside; None: there is none, or more
    than one."""
    found = numbers_in(text)
    return found[0] if len(found) == 1 else None


def _value(match: re.Match[str]) -> Fraction | None:
    if len(match[0]) > LONGEST:
        return None
    sign = -1 if match["sign"].strip() else 1
    if match["top"] is not None:
        return _divided(Fraction(int(match["top"])), match["bottom"], sign)
    if match["mixed"] is not None:
        part = _divided(Fraction(int(match["over"])), match["under"], 1)
        return None if part is None else sign * (int(match["mixed"]) + part)
    number = match["number"].replace(",", "")
    _, _, exponent = number.lower().partition("e")
    if exponent and abs(int(exponent)) > LONGEST:
        return None
    return _divided(Fraction(number), match["divisor"], sign)


def _divided(top: Fraction, bottom: str | None, sign: int) -> Fraction | None:
    if bottom is None:
        return sign * top
    divisor = Fraction(bottom)
    return None if divisor == 0 else sign * top / divisor
