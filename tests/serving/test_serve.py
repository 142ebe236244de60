"""The server: what it takes, what it refuses, and that what waits is sampled together."""

from __future__ import annotations

import json
import math
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from isentrope.config.schema import AgentSettings, PolicySettings, RolloutSettings, RunConfig, RunSettings
from isentrope.core.engine import Request, Sampled
from isentrope.core.errors import ConfigError
from isentrope.engines import torch
from isentrope.engines.torch import TorchEngine
from isentrope.net.server import Server
from isentrope.serving.chat import BadRequest, Chat
from isentrope.serving.server import LIMITS, running, serve
from isentrope.serving.speaker import Memory, Slots, Speaker
from tests.builders.toy_runs import make_model
from tests.models.helpers import small_policy
from tests.serving.helpers import KEY, address, served, served_speaker

CONFIG = RunConfig(
    agent=AgentSettings(prompt="brief", max_response=8, max_context=200), rollout=RolloutSettings(batch=8)
)
HELLO = [{"role": "user", "content": "look"}]


def post(server: Server, body: Any, path: str = "/chat/completions", **headers: str) -> tuple[int, dict[str, Any]]:
    data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    sent = {"Content-Type": "application/json", **{k.replace("_", "-"): v for k, v in headers.items()}}
    request = urllib.request.Request(address(server) + path, data, sent)
    try:
        with urllib.request.urlopen(request, timeout=20) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


@pytest.fixture(scope="module")
def server() -> Generator[Server]:
    with served(CONFIG, TorchEngine(small_policy())) as running_server:
        yield running_server


def test_a_completion(server: Server) -> None:
    body = {"model": "pocket", "messages": HELLO, "temperature": 0, "max_tokens": 5, "logprobs": True, "user": "me"}
    status, got = post(server, body)
    assert status == 200
    assert (got["object"], got["model"]) == ("chat.completion", "pocket")
    [choice] = got["choices"]
    assert choice["message"]["role"] == "assistant"
    assert choice["finish_reason"] in ("stop", "length")
    tokens = choice["logprobs"]["content"]
    assert got["usage"] == {"prompt_tokens": 4, "completion_tokens": len(tokens), "total_tokens": 4 + len(tokens)}
    assert all(token["logprob"] <= 0 and math.isfinite(token["logprob"]) for token in tokens)
    assert b"".join(bytes(t["bytes"]) for t in tokens).decode("utf-8", "replace") == choice["message"]["content"]
    assert post(server, body)[1]["choices"] == got["choices"]


def test_a_seed_gives_the_same_answer_again(server: Server) -> None:
    def text(seed: int) -> str:
        body = {"messages": HELLO, "seed": seed, "temperature": 2.0}
        return str(post(server, body)[1]["choices"][0]["message"]["content"])

    assert text(1) == text(1)
    assert len({text(seed) for seed in range(6)}) > 1


def test_the_models(server: Server) -> None:
    status, got = post(server, None, "/models")
    assert (status, [m["id"] for m in got["data"]]) == (200, ["pocket"])
    assert post(server, None, "/models/pocket")[1]["object"] == "model"


@pytest.mark.parametrize(("body", "status", "words"), [
    (b"{", 400, "not JSON"), (b"[]", 400, "a JSON object"), (b"\xff", 400, "not JSON"), (b"[" * 10**5, 400, "not JSON"),
    ({}, 400, "messages must be"), ({"messages": []}, 400, "messages must be"),
    ({"messages": ["hi"]}, 400, "an object"),
    ({"messages": [{"role": "assistant", "content": "hi"}]}, 400, "the roles are assistant"),
    ({"messages": [*HELLO, *HELLO]}, 400, "user and assistant in turn"),
    ({"messages": [*HELLO, {"role": "assistant", "content": "hi"}]}, 400, "the last one by the user"),
    ({"messages": [{"role": "system", "content": "hi"}]}, 400, "the last one by the user"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 400, "must be text"),
    ({"messages": [{"role": "user", "content": None}]}, 400, "must be text"),
    ({"messages": HELLO, "stream": True}, 400, "stream = True is not supported"),
    ({"messages": HELLO, "n": 2}, 400, "n = 2 is not supported"),
    ({"messages": HELLO, "top_p": 0.5}, 400, "top_p"), ({"messages": HELLO, "tools": [{}]}, 400, "tools"),
    ({"messages": HELLO, "temperature": -1}, 400, "temperature must be"),
    ({"messages": HELLO, "temperature": "hot"}, 400, "temperature must be"),
    ({"messages": HELLO, "temperature": float("nan")}, 400, "temperature must be"),
    ({"messages": HELLO, "temperature": 1e-40}, 400, "temperature must be 0 or"),
    ({"messages": HELLO, "max_tokens": 0}, 400, "max_tokens must be"),
    ({"messages": HELLO, "max_tokens": True}, 400, "max_tokens must be"),
    ({"messages": HELLO, "seed": 1.5}, 400, "seed must be"), ({"messages": HELLO, "stop": [1]}, 400, "stop must be"),
    ({"messages": HELLO, "stop": "x" * 65}, 400, "stop must be"),
    ({"messages": HELLO, "stop": [""]}, 400, "stop must be"),
    ({"messages": HELLO, "stop": "\ud800"}, 400, "stop must be"),
    ({"messages": HELLO, "max_tokens": 197}, 400, "more than agent.max_context = 200"),
    ({"messages": HELLO, "model": "other"}, 404, "is not here"), ({"messages": HELLO, "model": 3}, 404, "is not here"),
])  # fmt: skip
def test_bad_requests(server: Server, body: Any, status: int, words: str) -> None:
    got_status, got = post(server, body)
    assert (got_status, got.keys()) == (status, {"error"})
    assert words in got["error"]["message"]
    assert got["error"]["type"] == "invalid_request_error"
    assert post(server, {"messages": HELLO})[0] == 200  # it goes on


def test_requests_that_are_no_chat(server: Server) -> None:
    assert post(server, b"{}", Content_Type="text/plain")[0] == 415
    assert post(server, None)[0] == 405
    assert post(server, b"{}", "/models")[0] == 405
    assert post(server, b"{}", "/completions")[0] == 404
    assert post(server, b"{}", Content_Length=str(LIMITS.body + 1))[0] == 413
    assert post(server, b"{}", Content_Length="many")[0] == 400


def test_parts_of_text_and_developer_messages(server: Server) -> None:
    parts = [{"type": "text", "text": "lo"}, {"type": "text", "text": "ok"}]
    messages = [{"role": "developer", "content": ""}, {"role": "user", "content": parts}]
    base = {"temperature": 0, "max_tokens": 5}
    assert (
        post(server, {"messages": messages, **base})[1]["choices"]
        == post(server, {"messages": HELLO, **base})[1]["choices"]
    )


class Scripted(TorchEngine):
    """Says one thing, in the tokens it is given, and keeps what it was asked."""

    def __init__(self, ids: Sequence[int] = (), stop: str = "tag") -> None:
        super().__init__(small_policy())
        self.ids, self.stop_word, self.asked = np.array(ids, dtype=np.int32), stop, list[list[Request]]()
        self.hold, self.entered = threading.Event(), threading.Event()
        self.hold.set()

    def sample(self, requests: Sequence[Request]) -> list[Sampled]:
        self.asked.append(list(requests))
        self.entered.set()
        self.hold.wait(10)
        if not len(self.ids):
            raise RuntimeError("secret words")
        numbers = np.zeros(len(self.ids), dtype=np.float32)
        return [Sampled(self.ids, numbers, numbers, numbers, self.stop_word) for _ in requests]


def test_what_waits_is_sampled_together_and_no_more_than_fits() -> None:
    engine = Scripted(small_policy().tokenizer.content("look"))
    engine.hold.clear()
    with served_speaker(CONFIG, engine) as (server, speaker), ThreadPoolExecutor(16) as pool:
        first = pool.submit(post, server, {"messages": HELLO})
        assert engine.entered.wait(10)
        others = [pool.submit(post, server, {"messages": HELLO}) for _ in range(10)]
        while speaker._waiting.qsize() < 10:
            pass
        engine.hold.set()
        assert [f.result()[0] for f in [first, *others]] == [200] * 11
    assert [len(batch) for batch in engine.asked] == [1, 8, 2]
    assert all(len({r.slot for r in batch}) == len(batch) for batch in engine.asked)


def test_too_many_waiting_are_told_to_come_back() -> None:
    engine = Scripted(small_policy().tokenizer.content("look"))
    engine.hold.clear()
    config = replace(CONFIG, rollout=RolloutSettings(batch=1))
    with served_speaker(config, engine) as (server, speaker), ThreadPoolExecutor(8) as pool:
        first = pool.submit(post, server, {"messages": HELLO})
        assert engine.entered.wait(10)
        others = [pool.submit(post, server, {"messages": HELLO}) for _ in range(4)]
        while speaker._waiting.qsize() < 4:
            pass
        status, got = post(server, {"messages": HELLO})
        engine.hold.set()
        assert (status, got["error"]["code"]) == (429, "rate_limit_exceeded")
        assert [f.result()[0] for f in [first, *others]] == [200] * 5


def test_closing_answers_what_is_under_way_and_refuses_what_waits() -> None:
    engine = Scripted(small_policy().tokenizer.content("look"))
    engine.hold.clear()
    speaker = Speaker(engine, "act", 200, slots=1)
    chat = Chat("", ("look",), 1.0, 8, (), None, False)
    first = speaker.ask(chat)
    assert engine.entered.wait(10)
    second = speaker.ask(chat)
    closing = threading.Thread(target=speaker.close)
    closing.start()
    while not speaker._closing.is_set():
        pass
    engine.hold.set()
    closing.join()
    assert first.result(0).text == "look"
    with pytest.raises(BadRequest, match="stopping"):
        second.result(0)


def test_an_engine_that_breaks_is_a_500_without_its_words() -> None:
    with served(CONFIG, Scripted()) as server:
        status, got = post(server, {"messages": HELLO})
    assert status == 500
    assert "secret words" not in str(got)


def test_after_a_failure_the_next_answer_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine breaks in the middle of an answer, with half of it in its cache."""
    asked = {"messages": HELLO, "temperature": 0}
    config = replace(CONFIG, rollout=RolloutSettings(batch=1))
    with served(config, TorchEngine(small_policy())) as server:
        right = post(server, asked)[1]["choices"]
    calls, draw_next = list[int](), torch.draw_next

    def fails_once(*arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise RuntimeError("out of memory")
        return draw_next(*arguments)

    monkeypatch.setattr(torch, "draw_next", fails_once)
    with served(config, TorchEngine(small_policy())) as server:
        assert post(server, asked)[0] == 500
        assert post(server, asked)[1]["choices"] == right
        assert post(server, asked)[1]["choices"] == right


def test_an_engine_that_cannot_begin_anew_is_a_500_too() -> None:
    engine = Scripted()
    with served(CONFIG, engine) as server:
        assert post(server, {"messages": HELLO})[0] == 500
        engine.open = Recalcitrant(engine.open)  # type: ignore[method-assign]
        engine.ids = np.array(small_policy().tokenizer.content("look"), dtype=np.int32)
        assert [post(server, {"messages": HELLO})[0] for _ in range(3)] == [500, 200, 200]


class Recalcitrant:
    """Fails the first time."""

    def __init__(self, does: Callable[[Sequence[int]], None]) -> None:
        self.does, self.called = does, 0

    def __call__(self, slots: Sequence[int]) -> None:
        self.called += 1
        if self.called == 1:
            raise MemoryError
        self.does(slots)


def test_an_answer_goes_back_to_the_model_as_the_tokens_it_was_sampled_as() -> None:
    """The letters of a word that has a token of its own: its text alone would come back as that token."""
    tokens = small_policy().tokenizer
    spelled = [i for letter in " apple" for i in tokens.content(letter)]
    assert spelled != tokens.content(" apple")
    engine = Scripted([*spelled, *tokens.content("\n")])
    with served(CONFIG, engine) as server:
        text = post(server, {"messages": HELLO})[1]["choices"][0]["message"]["content"]
        assert text == " apple\n"
        for said in (text, text.rstrip(), " apples"):
            post(server, {"messages": [*HELLO, {"role": "assistant", "content": said}, *HELLO]})
    prompts = [batch[0].prompt for batch in engine.asked]
    begin, again = tokens.opening("", "look"), tokens.user("look")
    assert prompts[0] == begin
    assert prompts[1] == prompts[2] == [*begin, *spelled, *tokens.content("\n"), *again]
    assert prompts[3] == [*begin, *tokens.content(" apples"), *again]


def test_stop_texts_are_cut_off_and_the_end_is_not_shown() -> None:
    tokens = small_policy().tokenizer
    with served(CONFIG, Scripted(tokens.content("one STOP two"))) as server:
        [choice] = post(server, {"messages": HELLO, "stop": ["two", "STOP"]})[1]["choices"]
        assert (choice["message"]["content"], choice["finish_reason"]) == ("one ", "stop")
    end = min(tokens.eos_ids)
    with served(CONFIG, Scripted([*tokens.content("done"), end], "eos")) as server:
        [choice] = post(server, {"messages": HELLO})[1]["choices"]
        assert (choice["message"]["content"], choice["finish_reason"]) == ("done", "stop")
    with served(CONFIG, TorchEngine(small_policy())) as server:
        whole = post(server, {"messages": HELLO, "temperature": 0})[1]["choices"][0]["message"]["content"]
        mark = whole[2:4]
        got = post(server, {"messages": HELLO, "temperature": 0, "stop": mark})[1]
        assert got["choices"][0]["message"]["content"] == whole.partition(mark)[0]
        assert got["usage"]["completion_tokens"] < 8


def test_a_conversation_goes_on_in_the_slot_that_holds_it() -> None:
    slots = Slots(3)
    assert slots.assign([[1, 2], [5]]) == [0, 1]
    slots.hold(0, [1, 2, 3])
    slots.hold(1, [5, 6])
    assert slots.assign([[9], [5, 6, 7]]) == [2, 1]
    assert slots.assign([[1, 2, 3, 4], [1, 2, 3, 4], [8]]) == [0, 2, 1]
    slots.hold(2, [1])
    assert slots.assign([[1, 2, 3, 4]]) == [0]  # the one that holds the most


def test_the_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("isentrope.serving.speaker.REMEMBERED", 4)
    memory = Memory()
    for number in range(5):
        memory.remember([number], f"said {number}", [number])
    assert memory.recall([4], "said 4") == memory.recall([7], "said 4") == [4]
    assert memory.recall([0], "said 0") is None


def test_a_key() -> None:
    with served(CONFIG, TorchEngine(small_policy()), key=KEY) as server:
        for headers in ({}, {"Authorization": "Bearer no"}, {"Authorization": f"Basic {KEY}"}, {"Authorization": "ü"}):
            assert post(server, {"messages": HELLO}, **headers)[0] == 401
        assert post(server, {"messages": HELLO}, Authorization=f"Bearer {KEY}")[0] == 200


@pytest.mark.parametrize(("host", "status"), [
    ("127.0.0.1:8000", 200), ("localhost", 200), ("[::1]:80", 200), ("evil.example", 403), ("evil.example:8000", 403),
    ("127.0.0.1.evil.example", 403), ("localhost@evil.example", 400), ("[::1", 400), ("", 400), ("192.168.0.2", 403),
])  # fmt: skip
def test_a_web_page_cannot_reach_it_by_a_name_of_its_own(server: Server, host: str, status: int) -> None:
    assert post(server, {"messages": HELLO}, Host=host)[0] == status
    assert post(server, None, "/models", Host=host)[0] == status


def test_with_a_key_it_may_have_any_name() -> None:
    with served(CONFIG, TorchEngine(small_policy()), key=KEY) as server:
        assert post(server, None, "/models", Host="models.example", Authorization=f"Bearer {KEY}")[0] == 200
        assert post(server, None, "/models", Host="models.example")[0] == 401


def test_no_new_adapters_for_a_run_that_was_trained_with_some(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The settings of such a run ask for adapters, which are for learning: its model comes without."""
    asked: list[RunConfig] = []

    class Enough(Exception): ...

    def remember(config: RunConfig, policy: object) -> TorchEngine:
        asked.append(config)
        raise Enough

    monkeypatch.setattr("isentrope.serving.server.make_engine", remember)
    config = replace(CONFIG, policy=PolicySettings(lora_rank=4), run=RunSettings(device="cpu", threads=1))
    with pytest.raises(Enough):
        serve(config, str(make_model(tmp_path)), "127.0.0.1", 0, "", "")
    assert asked[0].policy.lora_rank == 0


def test_a_key_given_as_a_name_is_not_repeated() -> None:
    with pytest.raises(ConfigError, match="--key-env: expected the name") as caught:
        serve(CONFIG, "pocket", "127.0.0.1", 0, KEY, "")
    assert KEY not in str(caught.value)


def test_where_it_refuses_to_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_KEY_HERE", raising=False)
    for host, key_env, fault in (("0.0.0.0", "", "reached by others"), ("127.0.0.1", "NO_KEY_HERE", "it is empty")):
        with pytest.raises(ConfigError, match=fault):
            serve(CONFIG, "pocket", host, 0, key_env, "")
    with served(CONFIG, TorchEngine(small_policy())) as server:
        taken = ("127.0.0.1", server.port)
        with (
            pytest.raises(ConfigError, match="cannot serve at"),
            running(CONFIG, TorchEngine(small_policy()), taken, "x"),
        ):
            pass
