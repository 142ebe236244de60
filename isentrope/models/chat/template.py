"""Splits a chat template into the text around the messages.

A template is a program that writes a whole conversation. We need its words one message at a time, so it is run with
marks in place of the messages and its text is cut at the marks. A template may do more than put words around messages
(look at the date, count the messages, change what they say), so the parts are then put together again for
conversations of several lengths and compared with what the template writes. If they differ it is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from isentrope.core.errors import EngineError
from isentrope.core.limits import NOTE_BYTES, read_bounded

Message = dict[str, str]
Render = Callable[[list[Message]], str]

# Some templates write today's date. A run must say the same on every day, so it is always this one: it is also what
# Llama 3.1's template writes when it is told nothing.
TODAY = datetime(2024, 7, 26)

PLAIN = (
    "{% for m in messages %}"
    "{{ {'system': '', 'user': '\n\nUser: ', 'assistant': '\n\nAgent: '}[m['role']] + m['content'] }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '\n\nAgent:' }}{% endif %}"
)
"""Our own simple template, for models that come without one."""

_SYSTEM = "Mark system."
_ASKED = ("Mark one asks.", "Mark two asks on.", "Mark three asks much more.", "Mark four asks a last time.")
_ANSWERED = ("Mark one answers.", "Mark two answers on.", "Mark three answers much more.")


class _MisfitError(Exception):
    """The template does not work in the way we tried."""


@dataclass(frozen=True)
class ChatParts:
    """opening SYSTEM after_system MESSAGE to_agent [lead] ANSWER after_answer MESSAGE to_agent [lead] ANSWER …"""

    opening: str
    after_system: str
    to_agent: str
    lead: str  # written in front of past answers, but left to the model when it is to answer: mostly nothing
    after_answer: str
    joins_system: bool  # the template has no system role: the system text stands in front of the first message

    def text(self, system: str, asked: Sequence[str], answered: Sequence[str]) -> str:
        """A whole conversation that waits for an answer."""
        told = self.opening + system + self.after_system + asked[0] + self.to_agent
        for answer, message in zip(answered, asked[1:], strict=True):
            told += self.lead + answer + self.after_answer + message + self.to_agent
        return told


def read_template(template: str) -> str:
    """The text of the chat template that `policy.chat_template` names; "plain" and nothing stay as they are."""
    if template in ("", "plain"):
        return template
    try:
        return read_bounded(Path(template), NOTE_BYTES, found=False).decode()
    except (OSError, ValueError) as error:
        raise EngineError(
            f"policy.chat_template = {template!r}: cannot be read ({error}); "
            "expected a file with a chat template, or plain"
        ) from error


def give_template(tokenizer: Any, text: str) -> None:
    """Another template than its own, for a tokenizer: a text, or "plain"."""
    if text == "plain":
        bos = tokenizer.bos_token_id
        begins = bos is not None and list(tokenizer("a")["input_ids"])[:1] == [bos]
        text = "{{ bos_token }}" + PLAIN if begins else PLAIN
    if text:
        tokenizer.chat_template = text
    elif not getattr(tokenizer, "chat_template", None):
        raise EngineError(
            "it has no chat template; give one with policy.chat_template: a file, or plain for the words "
            "User: and Agent:, which suit a model that was never taught to chat"
        )


def renderer(tokenizer: Any) -> Render:
    today = {"date_string": TODAY.strftime("%d %b %Y"), "strftime_now": TODAY.strftime}

    def render(messages: list[Message]) -> str:
        try:
            return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, **today))
        except Exception as error:  # a template is a program of its own and may raise anything
            raise _MisfitError(" ".join(str(error).split())[:200] or type(error).__name__) from error

    return render


def take_apart(render: Render) -> ChatParts:
    """The parts of a template, with a system role if it has one that can be used."""
    reasons: list[str] = []
    for joins_system in (False, True):
        try:
            parts, ending = _cut(render, joins_system)
            _compare(render, parts, ending)
        except _MisfitError as misfit:
            reasons.append(f"{'without' if joins_system else 'with'} a system message: {misfit}")
        else:
            return parts
    raise EngineError(
        f"the chat template cannot be used ({'; '.join(reasons)}); "
        "give another one with policy.chat_template: a file, or plain"
    )


def _messages(system: str, asked: Sequence[str], answered: Sequence[str], joins_system: bool) -> list[Message]:
    found = [] if joins_system else [{"role": "system", "content": system}]
    for place, message in enumerate(asked):
        found.append({"role": "user", "content": message})
        if place < len(answered):
            found.append({"role": "assistant", "content": answered[place]})
    return found


def _cut(render: Render, joins_system: bool) -> tuple[ChatParts, str]:
    """The parts, and what the template writes behind the last message if an answer is to come."""
    messages = _messages(_SYSTEM, _ASKED[:2], _ANSWERED[:1], joins_system)
    text, between, at = render(messages), list[str](), 0
    for message in messages:
        mark = message["content"]
        if text.count(mark) != 1:
            raise _MisfitError(f"a message of the role {message['role']} is written {text.count(mark)} times")
        if text.index(mark) < at:
            raise _MisfitError(f"a message of the role {message['role']} is moved elsewhere")
        between.append(text[at : text.index(mark)])
        at = text.index(mark) + len(mark)
    if joins_system:
        between.insert(1, "\n\n")
    opening, after_system, before_past_answer, after_answer = between
    to_agent, lead = _before_answer(before_past_answer, text[at:])
    parts = ChatParts(opening, after_system, to_agent, lead, after_answer, joins_system)
    return parts, text[at:]


def _before_answer(past: str, next_one: str) -> tuple[str, str]:
    """What stands in front of an answer, and what of it is left to the model if one is to be written.

    A template may leave a space to the model that it writes in front of past answers. It may not open a new answer at
    all, or begin it with a tag that past answers do not have and that our forms of a response write themselves: then
    what stands in front of past answers is taken.
    """
    if past.startswith(next_one) and not past[len(next_one) :].strip():
        return next_one, past[len(next_one) :]
    if past.startswith(next_one) or next_one.startswith(past):
        return past, ""
    raise _MisfitError(f"it opens a new answer with {next_one[-60:]!r}, but past ones with {past[-60:]!r}")


def _compare(render: Render, parts: ChatParts, ending: str) -> None:
    """Put conversations of several lengths together and see whether the template writes the same."""
    for system, asked, answered in ((_SYSTEM, _ASKED, _ANSWERED), ("Be good.", _ASKED[::-1], _ANSWERED[::-1])):
        for count in (1, 2, 4):
            told = (system, asked[:count], answered[: count - 1])
            written = render(_messages(*told, parts.joins_system))
            expected = parts.text(*told).removesuffix(parts.to_agent) + ending
            if parts.joins_system:
                expected = expected.replace(system + parts.after_system, "", 1)
            if written != expected:
                raise _MisfitError(_difference(expected, written, count))


def _difference(expected: str, written: str, count: int) -> str:
    place = next((i for i, (a, b) in enumerate(zip(expected, written, strict=False)) if a != b), len(written))
    around = slice(max(0, place - 10), place + 40)
    messages = "one message" if count == 1 else f"{count} messages"
    return f"asked {messages}, it writes {written[around]!r} where {expected[around]!r} was expected"
