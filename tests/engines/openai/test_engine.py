"""What the engine makes of a server's answers, and of servers that misbehave."""

from __future__ import annotations

import signal
import threading
import time
from typing import Any

import numpy as np
import pytest

from isentrope.core.errors import EngineError
from isentrope.engines.openai import client as api_client
from tests.net.faulty import (
    Act,
    answer,
    completion,
    continue_on_and_on,
    cut_short,
    drip,
    drip_headers,
    faulty,
    hang,
    refuse,
    reset,
    say,
)
from tests.serving.helpers import GOOD, KEY, ask, engine_at


def said(ids: np.ndarray) -> str:
    return bytes(ids.tolist()).decode()


def test_a_request_as_the_server_gets_it_and_the_response_it_becomes() -> None:
    with faulty(say(GOOD + " and then some")) as server:
        [got] = engine_at(server.url).sample([ask("where am I?")])
    assert server.bodies == [{
        "model": "m", "temperature": 0.5, "max_tokens": 32, "seed": 2**29,
        "messages": [{"role": "system", "content": "be good"}, {"role": "user", "content": "where am I?"}],
    }]  # fmt: skip
    assert (said(got.ids), got.stop) == (GOOD, "tag")  # cut behind the tag
    assert np.isnan(got.logprobs).all()
    assert np.isnan(got.entropies).all()
    assert set(got.temperatures.tolist()) == {0.5}
    assert len(got.logprobs) == len(got.ids) == len(got.temperatures) > 32  # bytes, not the server's tokens
    assert "authorization" not in server.headers[0]


@pytest.mark.parametrize(("body", "text", "stop"), [
    (completion("<think>on and on", "length"), "<think>on and on", "length"),
    (completion("I will not."), "I will not.", "eos"),
    (completion("", "length"), "", "length"),
    (completion(None), "", "eos"),
    (completion(GOOD, "length"), GOOD, "tag"),
    (completion("a > b </action > </action>x</action>"), "a > b </action > </action>", "tag"),
    (completion("half a pair: \ud800"), "half a pair: ?", "eos"),
])  # fmt: skip
def test_answers(body: dict[str, object], text: str, stop: str) -> None:
    with faulty(answer(body)) as server:
        [got] = engine_at(server.url).sample([ask()])
    assert (said(got.ids), got.stop) == (text, stop)


FAULTS: dict[str, Act] = {
    "500": refuse(500), "503": refuse(503), "429": refuse(429), "408": refuse(408), "reset": reset,
    "cut short": cut_short,
    "not JSON": answer(b"<html>busy</html>", kind="text/html"), "a list": answer([1]), "no choices": answer({}),
    "empty choices": answer({"choices": []}), "no message": answer({"choices": [{}]}), "null": answer(b"null"),
    "content of another type": answer(completion(17)), "nothing": answer(b""),  # type: ignore[arg-type]
    "deep JSON": answer(b"[" * 100_000),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_a_fault_that_passes_is_tried_again(fault: Act) -> None:
    with faulty(fault, fault, say(GOOD)) as server:
        engine = engine_at(server.url, retries=2)
        [got] = engine.sample([ask()])
        assert (said(got.ids), engine.notes()["retries"], len(server.bodies)) == (GOOD, 2, 3)


@pytest.mark.parametrize("slow", [hang, drip, drip_headers, continue_on_and_on])
def test_an_answer_that_takes_too_long(slow: Act) -> None:
    with faulty(slow, say(GOOD)) as server:
        assert said(engine_at(server.url, timeout=0.3).sample([ask()])[0].ids) == GOOD
        assert not server.outwaited
    with faulty(slow) as server, pytest.raises(EngineError, match=r"no answer within engine.timeout = 0.2 seconds"):
        engine_at(server.url, timeout=0.2, retries=1).sample([ask()])


def test_the_server_says_how_long_to_wait() -> None:
    with faulty(refuse(429, Retry_After="0.4"), say(GOOD)) as server:
        engine_at(server.url).sample([ask()])
    assert server.times[1] - server.times[0] >= 0.4
    with faulty(refuse(429, Retry_After="86400"), say(GOOD)) as server, pytest.raises(EngineError, match="429"):
        engine_at(server.url).sample([ask()])


@pytest.mark.parametrize(("header", "seconds"), [
    ("7", 7.0), ("-3", 0.0), ("soon", None), (None, None), ("nan", 0.0), ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0),
])  # fmt: skip
def test_retry_after(header: str | None, seconds: float | None) -> None:
    assert api_client._retry_after(header) == seconds


def test_pauses_grow_and_never_undercut_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_client, "FIRST_PAUSE", 1.0)
    for attempt in range(12):
        longest = min(60.0, 2.0**attempt)
        assert longest / 2 <= (api_client._pause(attempt, None) or 0) <= longest
        assert (api_client._pause(attempt, 100.0)) == 100.0
    assert api_client._pause(0, 601.0) is None


@pytest.mark.parametrize(("status", "advice"), [
    (400, "agent.max_response"), (401, r"\$OPENAI_API_KEY"), (403, r"\$OPENAI_API_KEY"), (404, "engine.model"),
    (307, "redirects to https://evil.example"), (418, "short and stout"),
])  # fmt: skip
def test_a_refusal_is_not_tried_again(status: int, advice: str) -> None:
    words = "I am\x1b[31m short and stout\u202e " + "x" * 5000
    with faulty(refuse(status, words, Location="https://evil.example")) as server:
        with pytest.raises(EngineError, match=advice) as caught:
            engine_at(server.url).sample([ask()])
        assert len(server.bodies) == 1
    text = str(caught.value)
    assert server.url in text
    assert str(status) in text
    assert len(text) < 700
    assert text.isprintable()


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_does_not_carry_the_key_away(monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    with faulty(answer({"data": [{"id": "big"}]})) as elsewhere:
        away = refuse(status, "moved", Location=elsewhere.url + "/models")
        with faulty(away) as server, pytest.raises(EngineError, match="redirects are not followed"):
            engine_at(server.url, key_env="MY_KEY", model="")
        with faulty(away) as server, pytest.raises(EngineError, match="redirects are not followed"):
            engine_at(server.url, key_env="MY_KEY").sample([ask()])
        assert elsewhere.headers == []


@pytest.mark.parametrize("place", ["http://[nowhere", "http://x:port/", "gopher://x", "", "//[::1", "\udcff"])
def test_a_redirect_to_no_address_is_an_answer_too(place: str) -> None:
    def away(handler: Any) -> None:
        handler.wfile.write(
            b"HTTP/1.1 302 Found\r\nLocation: " + place.encode("utf-8", "surrogateescape") + b"\r\n\r\n"
        )

    with faulty(away) as server:
        with pytest.raises(EngineError, match="redirects are not followed"):
            engine_at(server.url).sample([ask()])
        assert len(server.bodies) == 1


@pytest.mark.parametrize("host", ["a" * 64 + ".example", "a..example"])
def test_a_name_that_cannot_be_asked_for(host: str) -> None:
    with pytest.raises(EngineError, match="see whether the server runs"):
        engine_at(f"http://{host}/v1").sample([ask()])


def test_the_words_of_a_server_are_made_fit_to_be_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    client = engine_at("http://127.0.0.1:9/v1", key_env="MY_KEY")._client
    assert client.clean(f"a\x1b[31m\n b\u202e {KEY}\t") == "a [31m b [key]"
    assert len(client.clean("x" * 250 + KEY * 10)) <= 302
    assert KEY[:6] not in client.clean("x" * 290 + KEY)  # not half of it either


def test_a_server_that_is_not_there() -> None:
    with pytest.raises(EngineError, match=r"127.0.0.1:9/v1: ConnectionRefusedError.*see whether the server runs"):
        engine_at("http://127.0.0.1:9/v1", retries=1).sample([ask()])


def test_an_answer_that_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_client, "MAX_BODY", 2**20)
    with faulty(answer(b"x" * 2**22)) as server, pytest.raises(EngineError, match="more than 1 MiB"):
        engine_at(server.url).sample([ask()])


def test_one_failure_ends_its_own_conversation_only() -> None:
    with faulty(say(GOOD), refuse(400, "this prompt is too long"), say(GOOD)) as server:
        engine = engine_at(server.url, concurrency=1)
        first, second, third = engine.sample([ask(str(i), i) for i in range(3)])
    assert [first.stop, second.stop, third.stop] == ["tag", "error", "tag"]
    assert "this prompt is too long" in second.detail
    assert len(second.ids) == 0
    assert engine.notes()["failed"] == 1


def test_it_stops_at_once_when_nothing_works() -> None:
    """The first requests fail together: the others are not even tried."""
    with faulty(refuse(503, "overloaded")) as server:
        with pytest.raises(EngineError, match="503, 'overloaded'"):
            engine_at(server.url, concurrency=4, retries=1).sample([ask(str(i), i) for i in range(100)])
        assert len(server.bodies) <= 12


def test_it_stops_when_nothing_works_any_more() -> None:
    with faulty(say(GOOD), refuse(400, "down")) as server:
        engine = engine_at(server.url, concurrency=2)
        engine.sample([ask()])
        assert [s.stop for s in engine.sample([ask(slot=i) for i in range(3)])] == ["error"] * 3
        with pytest.raises(EngineError, match="down"):
            engine.sample([ask()])


def test_failures_with_successes_between_them_are_not_the_end() -> None:
    no = refuse(400, "not this one")
    with faulty(say(GOOD), no, no, no, say(GOOD), no, no, no, say(GOOD)) as server:
        got = engine_at(server.url, concurrency=1).sample([ask(slot=i) for i in range(9)])
    assert [g.stop for g in got] == ["tag", *["error"] * 3, "tag", *["error"] * 3, "tag"]


def test_no_more_requests_at_a_time_than_allowed() -> None:
    met, lock, busy, busiest = threading.Event(), threading.Lock(), 0, 0

    def slowly(handler: Any) -> None:
        nonlocal busy, busiest
        with lock:
            busy += 1
            busiest = max(busiest, busy)
            if busiest >= 2:
                met.set()
        met.wait(30)  # the first one is answered when a second has come, however busy the machine is
        time.sleep(0.02)
        with lock:  # before the answer, behind which the client may ask the next thing at once
            busy -= 1
        say(GOOD)(handler)

    with faulty(slowly) as server:
        got = engine_at(server.url, concurrency=3, timeout=60.0).sample([ask(str(i), i) for i in range(12)])
    assert 2 <= busiest <= 3
    assert [g.stop for g in got] == ["tag"] * 12


def test_answers_are_given_in_the_order_of_the_requests() -> None:
    def echo(handler: Any) -> None:
        message = handler.asked["messages"][-1]["content"]
        time.sleep(0.02 * (6 - int(message)))  # the last one is answered first
        say(message)(handler)

    with faulty(echo) as server:
        got = engine_at(server.url, concurrency=6).sample([ask(str(i), i) for i in range(6)])
    assert [said(g.ids) for g in got] == [str(i) for i in range(6)]


def test_tokens_and_cost_are_counted_from_asking_to_asking() -> None:
    with faulty(say(GOOD), say(GOOD), answer(completion(GOOD) | {"usage": None})) as server:
        engine = engine_at(server.url, price_in=2.0, price_out=30.0, concurrency=1)
        engine.sample([ask(slot=i) for i in range(3)])
    # Two answers of 100 + 10 tokens, one that was not counted.
    assert engine.notes() == {
        "requests": 3, "failed": 0, "retries": 0, "prompt_tokens": 200, "sampled_tokens": 20, "uncounted": 1,
        "cost": pytest.approx((200 * 2 + 20 * 30) / 1e6),
    }  # fmt: skip
    assert set(engine.notes().values()) == {0}
    assert "cost" not in engine_at(server.url).notes()  # without prices there is nothing to say


@pytest.mark.parametrize("count", [True, -1, 2**53, 10**400, 1.5, "12", None])
def test_a_number_of_tokens_that_is_none(count: Any) -> None:
    with faulty(answer(completion(GOOD) | {"usage": {"prompt_tokens": count, "completion_tokens": 10}})) as server:
        engine = engine_at(server.url, price_in=2.0)
        engine.sample([ask()])
    notes = engine.notes()
    assert (notes["prompt_tokens"], notes["sampled_tokens"], notes["uncounted"], notes["cost"]) == (0, 10, 1, 0)


def test_answers_that_came_before_the_end_are_counted() -> None:
    """The first one that is looked at breaks the engine, while two others are there."""
    with faulty(say(GOOD)) as server:
        engine = engine_at(server.url, concurrency=3)
        engine.sample([ask()])
        work, answers = engine._work, list[Any]()

        def working(requests: Any, waiting: Any, done: Any) -> None:
            answers.append(done)
            work(requests, waiting, done)

        def broken(*arguments: Any) -> Any:
            while answers[0].qsize() < 2:
                time.sleep(0.01)
            raise ValueError("a bug")

        engine._work, engine._taken = working, broken  # type: ignore[method-assign]
        with pytest.raises(ValueError, match="a bug"):
            engine.sample([ask(slot=i) for i in range(3)])
    assert engine.notes()["sampled_tokens"] == 30


@pytest.mark.parametrize("status", [401, 404])
def test_a_refusal_between_answers_is_not_the_end(status: int) -> None:
    """A balancer with one bad machine behind it: the key and the address have proved right before."""
    with faulty(say(GOOD), refuse(status), say(GOOD)) as server:
        got = engine_at(server.url, concurrency=1).sample([ask(slot=i) for i in range(3)])
    assert [g.stop for g in got] == ["tag", "error", "tag"]


def test_servers_that_name_the_limit_otherwise_or_take_no_seed() -> None:
    refusals = (refuse(400, "use 'max_completion_tokens' instead"), refuse(422, "extra field not permitted: seed"))
    with faulty(*refusals, say(GOOD)) as server:
        engine = engine_at(server.url)
        assert engine.sample([ask()])[0].stop == engine.sample([ask()])[0].stop == "tag"
    assert server.bodies[-1].keys() == {"model", "messages", "temperature", "max_completion_tokens"}
    assert len(server.bodies) == 4  # it is found out once


def test_the_model_is_the_first_one_listed_if_none_is_named() -> None:
    with faulty(answer({"data": [{"id": "big"}, {"id": "small"}]}), say(GOOD)) as server:
        engine = engine_at(server.url, model="")
        engine.sample([ask()])
    assert (engine.model, server.bodies[1]["model"]) == ("big", "big")
    with faulty(answer({"data": []})) as server, pytest.raises(EngineError, match="it lists no model"):
        engine_at(server.url, model="")


def test_a_temperature_for_each_token_is_refused() -> None:
    with pytest.raises(EngineError, match="temperature of each token"):
        engine_at("http://127.0.0.1:9/v1").sample([ask(temperature_of=lambda ids, entropy: 1.0)])


def test_an_interrupt_does_not_wait_for_the_server() -> None:
    with faulty(hang) as server:
        engine = engine_at(server.url, timeout=20.0)
        main = threading.main_thread().ident
        assert main is not None

        def interrupt() -> None:
            while not server.bodies:
                time.sleep(0.01)
            signal.pthread_kill(main, signal.SIGINT)

        threading.Thread(target=interrupt, daemon=True).start()
        with pytest.raises(KeyboardInterrupt):
            engine.sample([ask(str(i), i) for i in range(40)])
        assert engine._client.stopped
        assert len(server.bodies) <= 16  # those under way; no other was begun


def test_the_key_is_sent_and_seen_nowhere_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", f" {KEY}\n")
    told = refuse(400, f"bad key {KEY}")
    with faulty(say(f"your key is {KEY}"), told, answer({"oops": KEY}), told) as server:
        engine = engine_at(server.url, key_env="MY_KEY", concurrency=1, retries=0)
        first, *others = engine.sample([ask(slot=i) for i in range(3)])
        assert server.headers[0]["authorization"] == f"Bearer {KEY}"
        seen = [said(first.ids), *(other.detail for other in others), repr(engine), repr(vars(engine))]
        seen += [repr(vars(engine._client)), repr(engine._client.key)]
    assert "your key is [key]" in seen
    assert "bad key [key]" in " ".join(seen)
    assert not any(KEY in text for text in seen)


@pytest.mark.parametrize("key", [f"{KEY} with\nbreaks", "schlüssel", "a\x00b"])
def test_a_key_that_cannot_be_sent_is_not_shown(monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    monkeypatch.setattr("os.environ", {"MY_KEY": key})
    with pytest.raises(EngineError, match=r"\$MY_KEY has characters") as caught:
        engine_at("http://127.0.0.1:9/v1", key_env="MY_KEY")
    assert key[:6] not in str(caught.value)


@pytest.mark.parametrize(("url", "fault"), [
    ("http://models.example/v1", "for all to read"), ("http://10.0.0.3:8000/v1", "for all to read"),
    ("http://localhost.evil.example/v1", "for all to read"), ("ftp://127.0.0.1/v1", "expected an address"),
    ("http://127.0.0.1/vé", "expected an address"),
    ("127.0.0.1:8000", "expected an address"), ("http://127.0.0.1:port/v1", "expected an address"),
    ("https://me:secret@models.example/v1", "user name"), ("https://models.example/v1?key=secret", "user name"),
])  # fmt: skip
def test_addresses_that_are_refused(monkeypatch: pytest.MonkeyPatch, url: str, fault: str) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    with pytest.raises(EngineError, match=fault) as caught:
        engine_at(url, key_env="MY_KEY")
    assert "secret" not in str(caught.value)


def test_no_key_over_plain_http_is_fine_and_https_takes_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    engine_at("http://models.example/v1", key_env="")
    monkeypatch.setenv("MY_KEY", KEY)
    engine_at("https://models.example/v1", key_env="MY_KEY")
    engine_at("http://[::1]:8000/v1", key_env="MY_KEY")


def test_no_proxy_sees_a_local_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    with faulty(refuse(403, "the proxy")) as proxy, faulty(say(GOOD)) as server:
        monkeypatch.setenv("http_proxy", proxy.url.removesuffix("/v1"))
        assert engine_at(server.url, key_env="MY_KEY").sample([ask()])[0].stop == "tag"
        assert proxy.bodies == []
