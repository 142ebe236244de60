"""The order of blocks and what stands around them, against a plain reading of the rule."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from isentrope.agent.response_format import ORDERS, parse_response

PARTS = ["<think>", "</think>", "<action>", "</action>", "a", " ", "look", "\n"]


def block(text: str, name: str) -> tuple[int, int]:
    """From the first tag that opens it to the first after that which closes it, whatever lies between."""
    start = text.index(f"<{name}>")
    return start, text.index(f"</{name}>", start) + len(f"</{name}>")


def expected(text: str, order: str) -> str:
    """Of a response with one action, and one think block if the form has one."""
    names = {"think_act": ["think", "action"], "act_think": ["action", "think"], "act": ["action"]}[order]
    spans = [block(text, name) for name in names]
    inside = {place for start, end in spans for place in range(start, end)}
    if spans != sorted(spans) or len(inside) < sum(end - start for start, end in spans):  # they share a part
        return "wrong_order"
    if any(not letter.isspace() for place, letter in enumerate(text) if place not in inside):
        return "stray_text"
    start, end = block(text, "action")
    return "ok" if text[start + len("<action>") : end - len("</action>")].strip() else "empty_action"


@example(["<action>", "<think>", "</action>", "<think>", "</think>"], "act_think")
@example(["<think>", "<action>", "</think>", "<action>", "a", "</action>"], "think_act")
@settings(max_examples=400)
@given(st.lists(st.sampled_from(PARTS), max_size=12), st.sampled_from(ORDERS))
def test_wrong_order_and_stray_text(parts: list[str], order: str) -> None:
    text = "".join(parts)
    found = parse_response([part.encode() for part in parts], order, "tag").verdict
    if found in ("wrong_order", "stray_text", "empty_action", "ok"):  # the others count blocks, and come first
        assert found == expected(text, order)


@given(st.permutations(["<think>x</think>", "<action>go</action>", "", " ", "y"]), st.sampled_from(ORDERS[:2]))
def test_whole_blocks_in_any_order(parts: list[str], order: str) -> None:
    found = parse_response([part.encode() for part in parts], order, "tag").verdict
    assert found == expected("".join(parts), order)
