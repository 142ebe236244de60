"""Actions in tags of their own: <search>Q</search> instead of <action>search[Q]</action>."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isentrope.agent.context import Context
from isentrope.agent.prompts import wording
from isentrope.agent.response_format import is_complete, parse_response, write_response, written_action
from isentrope.config.schema import AgentSettings, RunConfig
from isentrope.config.validate import impossible
from isentrope.core.tokenizer import neutral
from isentrope.models.sources.pocket import PocketTokens
from isentrope.worlds.contract import View

TAGS = ("search", "answer")


def parse(text: str, order: str = "think_act", stop: str = "tag", most: int = 1000) -> tuple[str | None, str]:
    parsed = parse_response([byte.to_bytes() for byte in text.encode()], order, stop, TAGS, most)
    return parsed.action, parsed.verdict


@pytest.mark.parametrize(
    ("text", "action", "verdict"),
    [
        ("<think>a</think><search>who was it</search>", "search[who was it]", "ok"),
        ("<think>a</think> <answer> Ada </answer>\n", "answer[Ada]", "ok"),
        ("<think>a</think><action>look</action>", None, "no_action"),
        ("<think>a</think><search>x</answer>", None, "unclosed_action"),
        ("<think>a</think><search>x</search><answer>y</answer>", None, "many_actions"),
        ("<answer>y</answer><think>a</think>", None, "wrong_order"),
        ("<think>a</think><answer> </answer>", None, "empty_action"),
        ("<think>a</think><answer>" + "é" * 11 + "</answer>", None, "huge_action"),
    ],
)
def test_verdicts(text: str, action: str | None, verdict: str) -> None:
    assert parse(text, most=20) == (action, verdict)


def test_an_action_tag_beside_others_gives_its_plain_text() -> None:
    parsed = parse_response([b"<action>open</action>"], "act", "tag", ("answer", "action"))
    assert parsed.action == "open"


@pytest.mark.parametrize("order", ["think_act", "act_think", "act"])
@given(text=st.text(st.characters(codec="utf-8", exclude_characters="<>"), min_size=1).map(str.strip).filter(bool))
def test_what_is_written_is_read_back(order: str, text: str) -> None:
    for tag in TAGS:
        response = write_response(order, "why", f"{tag}[{text}]", TAGS)
        assert parse(response, order, most=10**6) == (f"{tag}[{text}]", "ok")
        assert is_complete(order, response.encode(), TAGS)
        assert not is_complete(order, response[:-1].encode(), TAGS)


def test_an_action_without_a_tag_of_its_own_takes_the_first() -> None:
    assert written_action("look", TAGS) == "<search>look</search>"
    assert written_action("click[x]", TAGS) == "<search>click[x]</search>"
    assert written_action("search[x]") == "<action>search[x]</action>"
    assert written_action("answer[a]b", TAGS) == "<search>answer[a]b</search>"


def test_the_span_covers_what_is_between_the_tags() -> None:
    pieces = [b"<think>", b"hm", b"</think>", b"<search>", b"wh", b"o", b"</search>"]
    parsed = parse_response(pieces, "think_act", "tag", TAGS)
    assert parsed.think_span == (1, 2)
    assert parsed.action_span == (4, 6)


def test_the_prompt_names_the_tags_and_task_text_holds_none() -> None:
    agent = AgentSettings(action_tags=TAGS)
    tokens = PocketTokens([])
    context = Context.of(tokens, agent, "think_act")
    text = b"".join(tokens.pieces(context.prompt(View("< / SEARCH >x<Answer>", None, "go", "Rules.")))).decode()
    assert "<search>…</search> or <answer>…</answer>" in text
    assert "\u2039 / SEARCH >x\u2039Answer>" in text
    assert "<action>" not in text.replace("<NAME>", "")
    assert neutral("<search>") == "<search>"
    assert "<action>the action</action>" in wording("full").system("act", "", ("action",))


@pytest.mark.parametrize("tags", [(), ("think",), ("Search",), ("a", "a"), ("a b",), ("a>",)])
def test_tags_that_cannot_be_are_refused(tags: tuple[str, ...]) -> None:
    problems = impossible(RunConfig(agent=AgentSettings(action_tags=tags)))
    assert any("agent.action_tags" in problem for problem in problems)
    assert not impossible(RunConfig(agent=AgentSettings(action_tags=TAGS)))
