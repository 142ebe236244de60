"""The parser: one verdict per response, exact token spans, whatever a model may write."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isentrope.agent.response_format import ORDERS, PLAIN, VERDICTS, is_complete, parse_response, write_response


def parse(text: str, order: str = "think_act", stop: str = "tag", size: int = 3):
    data = text.encode()
    return parse_response([data[i : i + size] for i in range(0, len(data), size)], order, stop)


@pytest.mark.parametrize(
    ("text", "order", "stop", "verdict"),
    [
        ("<think>a</think><action>look</action>", "think_act", "tag", "ok"),
        (" <think>a</think>\n<action> look </action>\n", "think_act", "eos", "ok"),
        ("<action>look</action><think>a</think>", "act_think", "tag", "ok"),
        ("<action>look</action>", "act", "tag", "ok"),
        ("<think></think><action>look</action>", "think_act", "tag", "ok"),
        ("<action>look</action>", "think_act", "tag", "no_think"),
        ("<think>a<action>look</action>", "think_act", "tag", "unclosed_think"),
        ("<think>a</think>", "think_act", "eos", "no_action"),
        ("<think>a</think><action>look", "think_act", "eos", "unclosed_action"),
        ("<think>a</think><action>look", "think_act", "length", "too_long"),
        ("<think>a</think><action> </action>", "think_act", "tag", "empty_action"),
        ("<think>a</think><action>a</action><action>b</action>", "think_act", "tag", "many_actions"),
        ("<think>a</think><think>a</think><action>b</action>", "think_act", "tag", "many_thinks"),
        ("<action>look</action><think>a</think>", "think_act", "tag", "wrong_order"),
        ("<think>a</think><action>look</action>", "act_think", "tag", "wrong_order"),
        ("<think>a<action>look</action></think>", "think_act", "tag", "wrong_order"),
        ("<think>a</think><action>look</action>", "act", "tag", "unasked_think"),
        ("sure! <think>a</think><action>look</action>", "think_act", "tag", "stray_text"),
        ("<think>a</think>so<action>look</action>", "think_act", "tag", "stray_text"),
        ("<think>a</think><action>" + "x" * 1001 + "</action>", "think_act", "tag", "huge_action"),
        ("", "think_act", "eos", "no_action"),
    ],
)
def test_verdicts(text: str, order: str, stop: str, verdict: str) -> None:
    parsed = parse(text, order, stop)
    assert parsed.verdict == verdict
    assert verdict in VERDICTS
    assert (parsed.action is not None) == (verdict == "ok")


def test_spans_are_the_tokens_between_the_tags() -> None:
    pieces = [b"<think>", b"I", b" see", b"</think>", b"<action>", b"go", b" to", b" x", b"</action>"]
    parsed = parse_response(pieces, "think_act", "tag")
    assert (parsed.think_span, parsed.action_span, parsed.action) == ((1, 3), (5, 8), "go to x")


def test_spans_when_tokens_straddle_the_tags() -> None:
    pieces = [b"<thi", b"nk>I se", b"e</thi", b"nk><action>look</act", b"ion>"]
    parsed = parse_response(pieces, "think_act", "tag")
    assert (parsed.think_span, parsed.action_span, parsed.action) == ((1, 3), (3, 4), "look")


@given(st.text(max_size=60), st.sampled_from(ORDERS), st.sampled_from(["tag", "eos", "length"]), st.integers(1, 9))
def test_anything_gets_a_known_verdict_and_spans_inside(text: str, order: str, stop: str, size: int) -> None:
    data = text.encode("utf-8", "replace")
    pieces = [data[i : i + size] for i in range(0, len(data), size)]
    parsed = parse_response(pieces, order, stop)
    assert parsed.verdict in VERDICTS
    for span in (parsed.think_span, parsed.action_span):
        assert span is None or 0 <= span[0] <= span[1] <= len(pieces)


Words = st.text(alphabet=st.characters(blacklist_characters="<>", blacklist_categories=("Cs",)), max_size=20)


@given(Words, Words.filter(lambda t: t.strip()), st.sampled_from(ORDERS), st.integers(1, 9))
def test_what_is_written_is_read_back(thought: str, action: str, order: str, size: int) -> None:
    text = write_response(order, thought, action)
    assert is_complete(order, text.encode())
    assert parse(text, order, size=size).action == action.strip()


def test_completion_needs_the_last_tag_of_the_form() -> None:
    assert not is_complete("act_think", b"<action>look</action>")
    assert is_complete("act_think", b"<action>look</action><think>x</think>\n")


@pytest.mark.parametrize(
    ("text", "stop", "verdict", "action"),
    [
        ("42", "eos", "ok", "42"),
        (" so 6 * 7\n#### 42 \n", "eos", "ok", "so 6 * 7\n#### 42"),
        ("<think>six sevens</think>\n42", "eos", "ok", "42"),
        ("six sevens</think>42", "eos", "ok", "42"),  # the prompt opened the thought
        ("<action>42</action>", "eos", "ok", "<action>42</action>"),
        ("42", "length", "too_long", None),
        ("<think>six sev", "length", "too_long", None),
        ("<think>six sevens", "eos", "unclosed_think", None),
        ("<think>a</think>b<think>c</think>", "eos", "many_thinks", None),
        ("a</think>b</think>c", "eos", "many_thinks", None),
        ("well <think>a</think>42", "eos", "stray_text", None),
        ("", "eos", "empty_action", None),
        ("<think>a</think> ", "eos", "empty_action", None),
        ("x" * 1001, "eos", "huge_action", None),
    ],
)
def test_plain_responses(text: str, stop: str, verdict: str, action: str | None) -> None:
    parsed = parse(text, PLAIN, stop)
    assert (parsed.verdict, parsed.action) == (verdict, action)


def test_spans_of_a_plain_response() -> None:
    pieces = [b"<think>", b"I", b" see", b"</think>", b"\n", b"go", b" to", b" x", b"\n"]
    parsed = parse_response(pieces, PLAIN, "eos")
    assert (parsed.think_span, parsed.action_span, parsed.action) == ((1, 3), (5, 8), "go to x")
    opened = parse_response(pieces[1:], PLAIN, "eos")
    assert (opened.think_span, opened.action_span) == ((0, 2), (4, 7))


@given(st.text(max_size=60), st.sampled_from(["eos", "length"]), st.integers(1, 9))
def test_any_plain_response_gets_a_known_verdict_and_spans_inside(text: str, stop: str, size: int) -> None:
    data = text.encode("utf-8", "replace")
    pieces = [data[i : i + size] for i in range(0, len(data), size)]
    parsed = parse_response(pieces, PLAIN, stop)
    assert parsed.verdict in VERDICTS
    for span in (parsed.think_span, parsed.action_span):
        assert span is None or 0 <= span[0] <= span[1] <= len(pieces)


@given(Words, Words.filter(lambda t: t.strip()), st.integers(1, 9))
def test_what_is_written_plainly_is_read_back(thought: str, action: str, size: int) -> None:
    text = write_response(PLAIN, thought, action)
    assert not is_complete(PLAIN, text.encode())  # the model says when it is over
    assert parse(text, PLAIN, "eos", size).action == action.strip()
