"""One question of a data set: its row, and what the agent is told of it."""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from isentrope.core.errors import TaskError

Row = Mapping[str, Any]
LETTERS = string.ascii_uppercase


@dataclass(frozen=True)
class Choices:
    """What a question may be answered with."""

    labels: tuple[str, ...]
    texts: tuple[str, ...]

    def shown(self) -> str:
        return "\n".join(f"{label}. {text}" for label, text in zip(self.labels, self.texts, strict=True))


@dataclass(frozen=True)
class Question:
    row: Row
    id: str
    kind: str
    prompt: str  # what the agent is asked
    system: str  # what it is told before
    answers: tuple[str, ...]  # the right ones, as text; () if the data have none
    choices: Choices | None = None
    messages: tuple[Mapping[str, str], ...] = field(default=())  # the prompt, where the data have it as messages


def texts_of(value: object, what: str) -> tuple[str, ...]:
    """The texts in a value of a column: it is one, or a list of them. TaskError for anything else."""
    values = cast("list[object]", value) if isinstance(value, list | tuple) else [value]
    if not values or not all(isinstance(one, str | int | float) for one in values):
        raise TaskError(f"{what} is {value!r:.80}; expected text, a number, or a list of them")
    if any(isinstance(one, float) and not abs(one) < float("inf") for one in values):
        raise TaskError(f"{what} is {value!r:.80}; expected a finite number")
    return tuple(_text(one) for one in values)


def _text(value: object) -> str:
    whole = isinstance(value, float) and value.is_integer() and abs(value) < 1e15
    return str(int(cast(float, value))) if whole else str(value)


def choices_of(value: object, what: str) -> Choices:
    """A list of texts; a table of texts by label; or the columns `text` and `label`, as many data sets have them."""
    table = cast("dict[str, Any]", value) if isinstance(value, dict) else None
    if table is not None and set(table) == {"text", "label"}:
        labels, texts = texts_of(table["label"], what), texts_of(table["text"], what)
    elif table:
        labels, texts = tuple(map(str, table)), tuple(texts_of(one, what)[0] for one in table.values())
    elif isinstance(value, list | tuple):
        texts = texts_of(cast("object", value), what)
        labels = tuple(LETTERS[: len(texts)])
    else:
        raise TaskError(f"{what} is {value!r:.80}; expected a list of choices, or a table of them by label")
    if not 2 <= len(texts) <= len(LETTERS) or len(labels) != len(texts) or len(set(labels)) < len(labels):
        told = f"the labels {labels!r:.80} for {len(texts)} choices"
        raise TaskError(f"{what} has {told}; expected 2 to 26, with a label each")
    return Choices(labels, texts)


def messages_of(messages: Sequence[Any], what: str) -> tuple[str, str]:
    """System message and question of a conversation that has no other turns."""
    said: list[tuple[str, str]] = []
    for message in messages:
        told = cast("dict[str, Any]", message) if isinstance(message, dict) else {}
        role, content = told.get("role"), told.get("content")
        if not isinstance(role, str) or not isinstance(content, str):
            raise TaskError(f"{what} has the message {message!r:.80}; expected a role and a content, both text")
        said.append((role, content))
    roles = [role for role, _ in said]
    if roles not in (["user"], ["system", "user"]):
        told = ", ".join(roles)[:100] or "nobody"
        raise TaskError(f"{what} has messages of {told}; expected one of the user, at most one of the system before it")
    return ("" if len(said) == 1 else said[0][1]), said[-1][1]


class Template:
    """Text with columns in braces: `{question}`. Two braces stand for one."""

    def __init__(self, text: str, setting: str) -> None:
        self.text, self.setting = text, setting
        try:
            self._parts = [
                (literal, name, bool(form or conversion))
                for literal, name, form, conversion in string.Formatter().parse(text)
            ]
        except ValueError as error:
            raise TaskError(f"{setting} = {text!r:.80}: {error}; a brace itself is written twice, {{{{") from None
        for _, name, more in self._parts:
            if name is not None and (more or not name):
                raise TaskError(f"{setting} = {text!r:.80}: expected the names of columns alone in braces")

    def columns(self) -> set[str]:
        return {name for _, name, _ in self._parts if name is not None}

    def filled(self, values: Mapping[str, str]) -> str:
        """One pass: what a value says is not looked at again."""
        return "".join(literal + (values[name] if name is not None else "") for literal, name, _ in self._parts)
