"""The forms of a response, and their parser.

    think_act   <think>…</think><action>…</action>
    act_think   <action>…</action><think>…</think>
    act         <action>…</action>
    plain       the whole response is the action; a <think>…</think> in front of it is no part of it

An action may have other tags (agent.action_tags): with `search` and `answer` it is `<search>Q</search>` or
`<answer>A</answer>`, and the task is given `search[Q]` or `answer[A]`.

Responses are parsed from the bytes of their tokens, so spans are exact and nothing is tokenised again.
A response is valid only if it is exactly its form: one block of each kind, in order, closed, the action not
empty, nothing but white space around them. What the world thinks of the action comes later ("inadmissible").
A plain response ends where the model ends it: one that was cut off is not valid.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate

from isentrope.core.tokenizer import ACTION
from isentrope.core.types import Span

ORDERS = ("think_act", "act_think", "act")  # the forms with tags around the action
PLAIN = "plain"
MAX_ACTION_BYTES = 1000  # unless agent.max_action says otherwise

VERDICTS: dict[str, str] = {
    "ok": "a valid action, accepted by the task",
    "inadmissible": "well formed, but the task does not know the action or cannot do it now",
    "too_long": "cut off at the length limit before it was complete",
    "no_action": "no tag of an action",
    "unclosed_action": "the tag of an action, not closed",
    "empty_action": "nothing between the action tags",
    "many_actions": "more than one action block",
    "huge_action": "an action of more bytes than agent.max_action",
    "no_think": "no <think> tag where the form asks for one",
    "unclosed_think": "<think> without </think>",
    "many_thinks": "more than one think block",
    "unasked_think": "a think block where the form has none",
    "wrong_order": "the blocks stand in the wrong order or inside each other",
    "stray_text": "text outside the blocks",
}

Blocks = list[re.Match[bytes]]
_NEVER = b"\xff"  # no text has this byte
_THINK = re.compile(rb"<think>(.*?)</think>", re.DOTALL)


@dataclass(frozen=True)
class Parsed:
    action: str | None  # None unless the verdict is "ok"
    verdict: str
    think_span: Span | None
    action_span: Span | None


def write_response(order: str, thought: str, action: str, tags: tuple[str, ...] = ACTION) -> str:
    """A response of the given form, for imitation."""
    if order == PLAIN:
        return f"<think>{thought}</think>{action}" if thought else action
    think, act = f"<think>{thought}</think>", written_action(action, tags)
    return {"think_act": think + act, "act_think": act + think, "act": act}[order]


def written_action(action: str, tags: tuple[str, ...] = ACTION) -> str:
    """The block of an action: `look` as <action>look</action>; `search[x]` as <search>x</search> if that is a tag."""
    name, bracket, inside = action.partition("[")
    if bracket and inside.endswith("]") and name != "action" and name in tags:
        return f"<{name}>{inside[:-1]}</{name}>"
    return f"<{tags[0]}>{action}</{tags[0]}>"


def is_complete(order: str, tail: bytes, tags: tuple[str, ...] = ACTION) -> bool:
    """Whether the last block of the form has just been closed, so that sampling may stop."""
    return tail.rstrip().endswith(closing_tags(order, tags))


@cache
def closing_tags(order: str, tags: tuple[str, ...] = ACTION) -> tuple[bytes, ...]:
    """Those that the last block of the form may be closed by."""
    if order == PLAIN:
        return (_NEVER,)
    return tuple(f"</{tag}>".encode() for tag in (("think",) if order == "act_think" else tags))


def parse_response(
    pieces: Sequence[bytes], order: str, stop: str, tags: tuple[str, ...] = ACTION, max_action: int = MAX_ACTION_BYTES
) -> Parsed:
    """What the response with these token bytes says. `stop` is why sampling ended."""
    text = b"".join(pieces)
    if order == PLAIN:
        return _parse_plain(text, list(accumulate(map(len, pieces))), stop, max_action)
    thinks, actions = list(_THINK.finditer(text)), list(_action_block(tags).finditer(text))
    verdict = _verdict(text, thinks, actions, order, stop, tags)
    if verdict == "ok" and len(actions[0]["inside"]) > max_action:
        verdict = "huge_action"
    ends = list(accumulate(map(len, pieces)))
    think_span = _span(thinks[0].span(1), ends) if thinks else None
    action_span = _span(actions[0].span("inside"), ends) if actions else None
    return Parsed(_action(actions[0]) if verdict == "ok" else None, verdict, think_span, action_span)


def _parse_plain(text: bytes, ends: list[int], stop: str, max_action: int) -> Parsed:
    """A thought may have been opened by the prompt, as some chat templates do: then only its end is in the text."""
    opened, closed = text.find(b"<think>"), text.find(b"</think>")
    unclosed = closed < 0 <= opened
    before = text[:opened] if 0 <= opened < closed else b""
    thought = (opened + len(b"<think>") if 0 <= opened < closed else 0, closed) if closed >= 0 else None
    rest = len(text) if unclosed else closed + len(b"</think>") if closed >= 0 else 0
    inside = text[rest:].strip()
    start = text.index(inside, rest)
    if stop == "length":
        verdict = "too_long"
    elif unclosed:
        verdict = "unclosed_think"
    elif b"<think>" in inside or b"</think>" in inside:
        verdict = "many_thinks"
    elif before.strip():
        verdict = "stray_text"
    else:
        verdict = "empty_action" if not inside else "huge_action" if len(inside) > max_action else "ok"
    action = inside.decode("utf-8", "replace").strip() if verdict == "ok" else None
    spans = [
        _span(part, ends) if part else None for part in (thought, (start, start + len(inside)) if inside else None)
    ]
    return Parsed(action, verdict, *spans)


@cache
def _action_block(tags: tuple[str, ...]) -> re.Pattern[bytes]:
    names = b"|".join(re.escape(tag.encode()) for tag in tags)
    return re.compile(rb"<(?P<name>%s)>(?P<inside>.*?)</(?P=name)>" % names, re.DOTALL)


def _action(block: re.Match[bytes]) -> str:
    name, inside = block["name"].decode(), block["inside"].decode("utf-8", "replace").strip()
    return inside if name == "action" else f"{name}[{inside}]"


def _verdict(text: bytes, thinks: Blocks, actions: Blocks, order: str, stop: str, tags: tuple[str, ...]) -> str:
    wants_think = order != "act"
    if not actions or (wants_think and not thinks):
        if stop == "length":
            return "too_long"
        if not actions:
            return "unclosed_action" if any(f"<{tag}>".encode() in text for tag in tags) else "no_action"
        return "unclosed_think" if b"<think>" in text else "no_think"
    if len(actions) > 1:
        return "many_actions"
    if wants_think and len(thinks) > 1:
        return "many_thinks"
    if thinks and not wants_think:
        return "unasked_think"
    first, last = actions[0], actions[0]
    if wants_think:
        first, last = (thinks[0], actions[0]) if order == "think_act" else (actions[0], thinks[0])
        if first.end() > last.start():
            return "wrong_order"
    if (text[: first.start()] + text[first.end() : last.start()] + text[last.end() :]).strip():
        return "stray_text"
    return "ok" if actions[0]["inside"].strip() else "empty_action"


def _span(inside: tuple[int, int], ends: list[int]) -> Span:
    """The tokens that hold any byte of the block's inside."""
    start, end = inside
    first = bisect_right(ends, start)
    last = min(bisect_left(ends, end), len(ends) - 1)
    return (first, first) if start == end else (first, last + 1)
