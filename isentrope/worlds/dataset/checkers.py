"""Reward functions that compare an answer with the right one: exact, numeric, choice, regex.

What is compared is first taken out of the response (`extract`): `auto` is each checker's own way, which looks behind
####, into \\boxed{...}, and behind "answer is" or "Answer:", in this order, the last of each.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from isentrope.core.errors import TaskError
from isentrope.worlds.dataset.numbers import numbers_in, only_number
from isentrope.worlds.dataset.question import Choices, Question

LONGEST = 100_000  # characters of a response that are looked at: its end
_HASHES = "####"
_BOXED = re.compile(r"\\(?:boxed|fbox)\s*\{")
_BOXES = 20  # of a response that are looked at: its last ones
_SAID = re.compile(r"\banswer\s*(?:is\s*:?|:|=)\s*", re.IGNORECASE)
_MARKS = " \t\r\n*_`$"


def after_hashes(text: str) -> str | None:
    """What follows the last ####, to the end of its line: the form of GSM8K."""
    _, found, rest = text.rpartition(_HASHES)
    line = rest.strip().partition("\n")[0].strip()
    return line if found and line else None


def boxed(text: str) -> str | None:
    """What the last \\boxed{...} holds."""
    for match in reversed(list(_BOXED.finditer(text))[-_BOXES:]):
        depth = 1
        for at in range(match.end(), len(text)):
            depth += {"{": 1, "}": -1}.get(text[at], 0)
            if depth == 0:
                return text[match.end() : at].strip()
        text = text[: match.start()]  # never closed
    return None


def after_said(text: str) -> str | None:
    """What follows the last "the answer is" or "Answer:", to the end of its line."""
    matches = list(_SAID.finditer(text))
    line = text[matches[-1].end() :].partition("\n")[0].strip(_MARKS) if matches else ""
    return line or None


def last_line(text: str) -> str | None:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else None


def marked(text: str) -> str | None:
    """What is marked as the answer in any of the usual ways."""
    return after_hashes(text) or boxed(text) or after_said(text)


EXTRACTORS: dict[str, Callable[[str], str | None]] = {
    "auto": lambda text: text,
    "all": lambda text: text.strip(),
    "hashes": after_hashes,
    "boxed": boxed,
    "said": after_said,
    "last_line": last_line,
}


@dataclass(frozen=True)
class Extract:
    """How the answer is taken out of a response: one of the names above, or a pattern, whose first group it is."""

    name: str = "auto"
    pattern: str = ""

    def __call__(self, response: str) -> str | None:
        text = response[-LONGEST:]
        if self.pattern:
            matches = list(re.finditer(self.pattern, text, re.DOTALL))
            return (matches[-1][1] if matches[-1].re.groups else matches[-1][0]) if matches else None
        return EXTRACTORS[self.name](text)

    @property
    def own(self) -> bool:
        return self.name == "auto" and not self.pattern


def compiled(pattern: str, setting: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern, re.DOTALL)
    except (re.error, RecursionError, OverflowError) as error:
        raise TaskError(f"{setting} = {pattern!r:.80} is no regular expression: {error}") from None


class Exact:
    """1 if the answer is one of the right ones, letter case, white space and a full stop aside."""

    name = "exact"
    hint = "Answer with the answer alone: no sentence around it."

    def __init__(self, extract: Extract) -> None:
        self._extract = extract

    def problem(self, question: Question) -> str:
        return "" if any(map(folded, question.answers)) else f"the answer {question.answers!r:.60} is empty"

    def score(self, question: Question, response: str) -> float:
        found = self._extract(response)
        if found is None:
            return 0.0
        places = [found, marked(found), last_line(found)] if self._extract.own else [found]
        candidates = {folded(place) for place in places if place is not None}
        return float(any(folded(right) in candidates for right in question.answers if folded(right)))


def folded(text: str) -> str:
    """The same for texts that differ in case, white space, quotes around them and a full stop alone."""
    text = " ".join(unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold()).split())
    text = text.strip(_MARKS).removesuffix(".").strip(_MARKS)
    return text[1:-1] if len(text) > 2 and text[0] == text[-1] and text[0] in "\"'" else text


class Numeric:
    """1 if the answer is the right number. Of a right answer with a way to it (GSM8K) what follows #### counts."""

    name = "numeric"
    hint = "Work it out step by step if you need to, and end with the number."

    def __init__(self, extract: Extract, tolerance: float = 0.0) -> None:
        self._extract, self._tolerance = extract, Fraction(tolerance)

    def problem(self, question: Question) -> str:
        wrong = [right for right in question.answers if self.right(right) is None]
        return f"the answer {wrong[0]!r:.60} is not a number" if wrong else ""

    @staticmethod
    def right(answer: str) -> Fraction | None:
        return only_number(after_hashes(answer) or boxed(answer) or answer)

    def said(self, response: str) -> Fraction | None:
        found = self._extract(response)
        if found is None:
            return None
        if self._extract.own:
            for place in (after_hashes(found), boxed(found), after_said(found)):
                if place is not None and (numbers := numbers_in(place)):
                    return numbers[0]
        numbers = numbers_in(found)
        return numbers[-1] if numbers else None

    def score(self, question: Question, response: str) -> float:
        said = self.said(response)
        if said is None:
            return 0.0
        rights = (self.right(answer) for answer in question.answers)
        return float(any(right is not None and abs(said - right) <= self._tolerance * abs(right) for right in rights))


class Choice:
    """1 if the answer is the label of the right choice, or its text. The right answer may be a label, the text, or (a
    number in the data) the place counted from 0."""

    name = "choice"
    hint = "Answer with the letter of the right choice."

    def __init__(self, extract: Extract, column: str) -> None:
        self._extract, self._column = extract, column

    def problem(self, question: Question) -> str:
        if question.choices is None:
            return "it has no choices: name their column with task.options.choices"
        if self.right(question) is None:
            labels = ", ".join(question.choices.labels)
            return f"the answer {question.answers!r:.60} is none of the choices {labels}"
        return ""

    def right(self, question: Question) -> str | None:
        """The label of the right choice."""
        choices, value = question.choices, question.row.get(self._column)
        if choices is None or len(question.answers) != 1:
            return None
        if type(value) is int and str(value) not in choices.labels:
            return choices.labels[value] if 0 <= value < len(choices.labels) else None
        return _label(question.answers[0], choices)

    def score(self, question: Question, response: str) -> float:
        found = self._extract(response)
        if found is None or question.choices is None:
            return 0.0
        places = [marked(found), found, last_line(found)] if self._extract.own else [found]
        labels = [_label(place, question.choices) for place in places if place is not None]
        said = next((label for label in labels if label is not None), None)
        return float(said is not None and said == self.right(question))


def _label(text: str, choices: Choices) -> str | None:
    """The choice that a text names: by its label, alone or in front (B, (B), B. the text), or by its text."""
    plain = text.strip(_MARKS)
    for label in choices.labels:
        name = re.escape(label)
        if re.fullmatch(rf"\(?{name}\s*[).:]*|\(?{name}\s*[).:]+\s.*", plain, re.DOTALL):
            return label
    matching = [label for label, one in zip(choices.labels, choices.texts, strict=True) if folded(one) == folded(plain)]
    return matching[0] if len(matching) == 1 else None


class Regex:
    """1 if the answer matches the row's own pattern (its right answer is one), or `pattern` for all, in full."""

    name = "regex"
    hint = ""

    def __init__(self, extract: Extract, pattern: str = "") -> None:
        self._extract, self._pattern = extract, pattern

    def problem(self, question: Question) -> str:
        if not self._pattern and not question.answers:
            return "it has no answer to take as a pattern; set task.options.pattern, or name the column of answers"
        try:
            for pattern in [self._pattern] if self._pattern else question.answers:
                compiled(pattern, "the pattern")
        except TaskError as error:
            return str(error)
        return ""

    def score(self, question: Question, response: str) -> float:
        found = self._extract(response)
        patterns = (self._pattern,) if self._pattern else question.answers
        return float(found is not None and any(re.fullmatch(one, found.strip(), re.DOTALL) for one in patterns))
