"""Conversations in tokens: families of templates, stops, templates of one's own, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from isentrope.agent.context import Context
from isentrope.agent.prompts import Wording
from isentrope.core.errors import EngineError
from isentrope.models.chat.template import TODAY
from isentrope.models.chat.tokenizer import ChatTokens
from isentrope.worlds.contract import View
from tests.models.families import CHATML, FAMILIES, QWEN3, make_folder, make_tokenizer

SYSTEM = "You look after a house.\nAnswer in this form:\nthink, then act."
ASKED = [f"You arrive at desk {i}. On the desk {i}, you see a mug {i}, and it's big.\n\nGo on?" for i in range(31)]
ANSWERED = [f"<think>I am at step {i}.</think><action>go to desk {i + 1}</action>" for i in range(30)]
FOLDED = ("gemma", "mistral-last")  # the system text goes in front of the first message


class OwnSystem(Wording):
    def system(self, order: str, rules: str, tags: tuple[str, ...] = ("action",)) -> str:
        return SYSTEM


WORDING = OwnSystem()


def text_of(chat: ChatTokens, ids: list[int]) -> str:
    return b"".join(chat.pieces(ids)).decode()


def by_template(tokenizer: Any, system: str, asked: list[str], answered: list[str], folded: bool) -> list[int]:
    """What the template itself gives for a conversation that waits for its next answer."""
    told = [f"{system}\n\n{asked[0]}", *asked[1:]] if folded else asked
    messages = [] if folded else [{"role": "system", "content": system}]
    for place, message in enumerate(told):
        messages.append({"role": "user", "content": message})
        messages += [{"role": "assistant", "content": answered[place]}] if place < len(answered) else []
    date = TODAY.strftime("%d %b %Y")
    return tokenizer.apply_chat_template(
        messages, tokenize=True, add_generation_prompt=True, return_dict=False, date_string=date
    )


def by_parts(chat: ChatTokens, system: str, asked: list[str], answered: list[str]) -> list[int]:
    ids = chat.opening(system, asked[0])
    for answer, message in zip(answered, asked[1:], strict=True):
        ids += chat.answer(answer) + chat.end_of_answer() + chat.user(message)
    return ids


@pytest.mark.parametrize("family", FAMILIES)
def test_the_parts_of_thirty_turns_are_the_tokens_of_the_template(family: str) -> None:
    tokenizer = make_tokenizer(family)
    chat = ChatTokens(tokenizer)
    # A template that takes thoughts out of past turns is compared on answers without any.
    answered = [a.split("</think>")[1] for a in ANSWERED] if family == "qwen3" else ANSWERED
    for count in (1, 2, 31):
        told = (SYSTEM, ASKED[:count], answered[: count - 1])
        assert by_parts(chat, *told) == by_template(tokenizer, *told, family in FOLDED)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_conversation_grows_by_exactly_what_is_new(family: str) -> None:
    """Through the context: the same tokens again, whether the policy closed its answer itself or not."""
    tokenizer = make_tokenizer(family)
    chat = ChatTokens(tokenizer)
    context = Context(chat, WORDING, "think_act", None, show_admissible=False)
    prompt: list[int] = []
    answered = [a.split("</think>")[1] for a in ANSWERED] if family == "qwen3" else ANSWERED
    for place, message in enumerate(ASKED):
        prompt = context.prompt(View(message, None, "Begin."))
        if place < len(answered):
            closed = chat.end_of_answer() if place % 2 else []
            context.answered(prompt, chat.answer(answered[place]) + closed, "go")
    first = WORDING.first("Begin.", ASKED[0], None)
    assert prompt == by_template(tokenizer, SYSTEM, [first, *ASKED[1:]], answered, family in FOLDED)


@pytest.mark.parametrize("family", ["llama3", "gemma"])
def test_white_space_around_a_message_is_taken_off_for_every_template(family: str) -> None:
    chat = ChatTokens(make_tokenizer(family))
    assert chat.opening(" be good\n", "\n hello \n\n") == chat.opening("be good", "hello")
    assert chat.user("hello\n") == chat.user("hello")


def test_the_answer_stays_what_was_sampled_where_the_template_would_change_it() -> None:
    """Pinned: past thoughts stay in the conversation, and white space around an answer does."""
    chat = ChatTokens(make_tokenizer("qwen3"))
    ours = text_of(chat, by_parts(chat, "s", ["one", "two"], ANSWERED[:1]))
    assert ANSWERED[0] in ours
    assert "<think>" not in make_tokenizer("qwen3").decode(
        by_template(make_tokenizer("qwen3"), "s", ["one", "two"], ANSWERED[:1], folded=False)
    )
    llama = ChatTokens(make_tokenizer("llama3"))
    assert text_of(llama, llama.answer("\n look ")) == "\n look "


def test_the_date_is_always_the_same() -> None:
    chat = ChatTokens(make_tokenizer("llama3"))
    assert "Today Date: 26 Jul 2024\n\nbe good" in text_of(chat, chat.opening("be good", "x"))


def test_a_system_text_without_a_role_stands_in_front_of_the_first_message() -> None:
    chat = ChatTokens(make_tokenizer("gemma"))
    expected = "<bos><start_of_turn>user\nbe good\n\nhello<end_of_turn>\n<start_of_turn>model\n"
    assert text_of(chat, chat.opening("be good", "hello")) == expected
    assert "user\nhello" in text_of(chat, chat.opening("", "hello"))


@pytest.mark.parametrize(
    ("family", "end", "rest"),
    [
        ("smollm2", "<|im_end|>", "\n<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n"),
        ("llama3", "<|eot_id|>", None),
        ("mistral", "</s>", " [INST] x [/INST]"),
        ("gemma", "<end_of_turn>", "\n<start_of_turn>user\nx<end_of_turn>\n<start_of_turn>model\n"),
        ("phi", "<|end|>", "<|user|>x<|end|><|assistant|>"),  # its tokens swallow the line ends behind them
    ],
)
def test_what_ends_an_answer(family: str, end: str, rest: str | None) -> None:
    tokenizer = make_tokenizer(family)
    chat = ChatTokens(tokenizer)
    assert text_of(chat, chat.end_of_answer()) == end
    assert chat.eos_ids == {tokenizer.eos_token_id, tokenizer.convert_tokens_to_ids(end)}
    if rest is not None:
        assert text_of(chat, chat.user("x")) == rest


def test_another_end_than_the_template_s_is_kept_and_the_answer_closed() -> None:
    tokenizer = make_tokenizer("llama3")
    chat = ChatTokens(tokenizer)
    context = Context(chat, WORDING, "think_act", None, show_admissible=False)
    prompt = context.prompt(View("a", None, "b"))
    context.answered(prompt, [*chat.answer("hm"), tokenizer.eos_token_id], None)
    text = text_of(chat, context.prompt(View("c", None, "b")))
    assert "hm<|end_of_text|><|eot_id|><|start_header_id|>user" in text


@pytest.mark.parametrize(("declared", "found"), [([3, 1], {3, 1}), (1, {1}), ([99999, "x", None], set()), ("x", set())])
def test_stops_that_the_folder_declares(tmp_path: Path, declared: Any, found: set[int]) -> None:
    folder = make_folder(tmp_path, "smollm2")
    plain = ChatTokens.load(folder).eos_ids
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": declared}))
    assert ChatTokens.load(folder).eos_ids == plain | found


def test_a_missing_template_has_to_be_given(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "m", "smollm2", template="")
    with pytest.raises(EngineError, match=r"no chat template; give one with policy\.chat_template"):
        ChatTokens.load(folder)
    plain = ChatTokens.load(folder, "plain")
    told = by_parts(plain, "be good", ["hello", "more"], ["<action>look</action>"])
    assert text_of(plain, told) == ("be good\n\nUser: hello\n\nAgent: <action>look</action>\n\nUser: more\n\nAgent:")
    own = tmp_path / "own.jinja"
    own.write_text(CHATML)
    assert ChatTokens.load(folder, str(own)).opening("s", "m") == ChatTokens(make_tokenizer("smollm2")).opening(
        "s", "m"
    )
    with pytest.raises(EngineError, match=r"policy\.chat_template = 'nowhere'"):
        ChatTokens.load(folder, "nowhere")


def test_a_given_template_is_saved_with_the_tokenizer(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "m", "mistral", template="")
    plain = ChatTokens.load(folder, "plain")
    plain.save(tmp_path / "saved")
    again = ChatTokens.load(tmp_path / "saved")
    assert again.opening("s", "m") == plain.opening("s", "m")


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        (
            "{{ messages | length }} said:{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}",
            "asked one message, it writes '2 said:",
        ),
        ("{% for m in messages %}[{{ m.role }}]{{ m.content | upper }}{% endfor %}", "is written 0 times"),
        ("{% for m in messages | reverse %}[{{ m.role }}]{{ m.content }}{% endfor %}", "is moved elsewhere"),
        ("{% for m in messages %}{{ m.content }}{{ m.content }}{% endfor %}", "is written 2 times"),
        ("{{ raise_exception('not today') }}", "not today"),
        ("{% for m in messages %}{{ m.content }", "unexpected"),
        (
            "{% for m in messages %}({{ m.role }}){{ m.content }}{% endfor %}"
            "{% if add_generation_prompt %}{{ '[new]' }}{% endif %}",
            r"opens a new answer with '\[new\]'",
        ),
    ],
)
def test_templates_that_cannot_be_taken_apart_are_refused(template: str, reason: str) -> None:
    with pytest.raises(EngineError, match=reason) as caught:
        ChatTokens(make_tokenizer("smollm2", template))
    assert "policy.chat_template" in str(caught.value)


def test_an_answer_that_the_template_begins_is_left_to_the_model() -> None:
    opens = QWEN3.replace("assistant\n' }}{%- endif %}", "assistant\n<think>\n' }}{%- endif %}")
    assert opens != QWEN3
    chat = ChatTokens(make_tokenizer("qwen3", opens))
    assert text_of(chat, chat.user("x")).endswith("<|im_start|>assistant\n")


def test_a_template_that_never_opens_an_answer_is_opened_as_past_answers_are() -> None:
    never = CHATML.replace("{% if add_generation_prompt %}", "{% if false %}")
    assert ChatTokens(make_tokenizer("smollm2", never)).user("x") == ChatTokens(make_tokenizer("smollm2")).user("x")


def test_tags_that_are_words_of_the_vocabulary_are_written_as_such_by_us_alone() -> None:
    tokenizer = make_tokenizer("qwen3", plain=("<think>", "</think>"))
    chat = ChatTokens(tokenizer)
    tag = tokenizer.convert_tokens_to_ids("<think>")
    assert chat.answer("<think>a</think><action>b</action>").count(tag) == 1
    assert chat.opening("Answer <think>so</think>.", "x <think>").count(tag) == 1
    assert tag not in chat.user("<think>")
