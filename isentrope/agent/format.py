"""The three forms of a response, and the parser that says exactly what a response was.

    think_act   <think>…</think><action>…</action>
    act_think   <action>…</action><think>…</think>
    act         <action>…</action>

Responses are parsed from the bytes of their tokens, so spans are exact and nothing is tokenised again.
A response is valid only if it is exactly its form: one block of each kind, in order, closed, the action not
empty, nothing but white space around them. What the world thinks of the action comes later ("inadmissible").
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from isentrope.types import Span

ORDERS = ("think_act", "act_think", "act")
LAST_TAG = {"think_act": b"</action>", "act_think": b"</think>", "act": b"</action>"}
MAX_ACTION_BYTES = 1000

VERDICTS: dict[str, str] = {
    "ok": "a valid action, accepted by the task",
    "inadmissible": "well formed, but the task does not know the action or cannot do it now",
    "too_long": "cut off at the length limit before it was complete",
    "no_action": "no <action> tag",
    "unclosed_action": "<action> without </action>",
    "empty_action": "nothing between the action tags",
    "many_actions": "more than one action block",
    "huge_action": f"an action of more than {MAX_ACTION_BYTES} bytes",
    "no_think": "no <think> tag where the form asks for one",
    "unclosed_think": "<think> without </think>",
    "many_thinks": "more than one think block",
    "unasked_think": "a think block where the form has none",
    "wrong_order": "the blocks stand in the wrong order or inside each other",
    "stray_text": "text outside the blocks",
}

_BLOCK = {kind: re.compile(rb"<%s>(.*?)</%s>" % (kind, kind), re.DOTALL) for kind in (b"think", b"action")}


@dataclass(frozen=True)
class Parsed:
    action: str | None  # None unless the verdict is "ok"
    verdict: str
    think_span: Span | None
    action_span: Span | None


def write_response(order: str, thought: str, action: str) -> str:
    """A response of the given form, for imitation."""
    think, act = f"<think>{thought}</think>", f"<action>{action}</action>"
    return {"think_act": think + act, "act_think": act + think, "act": act}[order]


def is_complete(order: str, tail: bytes) -> bool:
    """Whether the last block of the form has just been closed, so that sampling may stop."""
    return tail.rstrip().endswith(LAST_TAG[order])


def parse_response(pieces: Sequence[bytes], order: str, stop: str) -> Parsed:
    """What the response with these token bytes says. `stop` is why sampling ended."""
    text = b"".join(pieces)
    thinks, actions = list(_BLOCK[b"think"].finditer(text)), list(_BLOCK[b"action"].finditer(text))
    verdict = _verdict(text, thinks, actions, order, stop)
    ends = list(accumulate(len(piece) for piece in pieces))
    action = actions[0].group(1).decode("utf-8", "replace").strip() if verdict == "ok" else None
    return Parsed(
        action=action,
        verdict=verdict,
        think_span=_span(thinks[0], ends) if thinks else None,
        action_span=_span(actions[0], ends) if actions else None,
    )


def _verdict(text: bytes, thinks: list[re.Match[bytes]], actions: list[re.Match[bytes]], order: str, stop: str) -> str:
    wants_think = order != "act"
    if not actions or (wants_think and not thinks):
        if stop == "length":
            return "too_long"
        if not actions:
            return "unclosed_action" if b"<action>" in text else "no_action"
        return "unclosed_think" if b"<think>" in text else "no_think"
    if len(actions) > 1:
        return "many_actions"
    if wants_think and len(thinks) > 1:
        return "many_thinks"
    if thinks and not wants_think:
        return "unasked_think"
    blocks = sorted([*thinks, *actions], key=lambda match: match.start())
    first_is_think = bool(thinks) and blocks[0] is thinks[0]
    if any(a.end() > b.start() for a, b in pairwise(blocks)) or (
        wants_think and first_is_think != (order == "think_act")
    ):
        return "wrong_order"
    outside = text[: blocks[0].start()] + b"".join(text[a.end() : b.start()] for a, b in pairwise(blocks))
    if (outside + text[blocks[-1].end() :]).strip():
        return "stray_text"
    if not actions[0].group(1).strip():
        return "empty_action"
    return "huge_action" if len(actions[0].group(1)) > MAX_ACTION_BYTES else "ok"


def _span(match: re.Match[bytes], ends: list[int]) -> Span:
    """The tokens that hold any byte of the block's inside."""
    start, end = match.span(1)
    first = next((i for i, stop in enumerate(ends) if stop > start), len(ends))
    last = next((i for i, stop in enumerate(ends) if stop >= end), len(ends) - 1)
    return (first, first) if start == end else (first, last + 1)
