"""The order of blocks and what stands around them, against a plain reading of the rule."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from isentrope.agent.format import ORDERS, parse_response

PARTS = ["<think>", "</think>", "<action>", "</action>", "a", " ", "look", "\n"]


def expected(text: str, order: str) -> str:
    """Of a response with one action, and one think block if the form has one."""
    blocks = [(m.start(), m.end(), m[1]) for m in re.finditer(r"<(think|action)>.*?</\1>", text, re.DOTALL)]
    wanted = {"think_act": ["think", "action"], "act_think": ["action", "think"], "act": ["action"]}[order]
    if [name for _, _, name in blocks] != wanted:  # a block within another is passed over here
        return "wrong_order"
    outside = re.sub(r"<(think|action)>.*?</\1>", "", text, flags=re.DOTALL)
    if outside.strip():
        return "stray_text"
    inside = re.findall(r"<action>(.*?)</action>", text, re.DOTALL)[0]
    return "ok" if inside.strip() else "empty_action"


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
