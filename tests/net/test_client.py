"""The client under all clients: one deadline, limits, what is asked again and what is not, and proxies."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time

import pytest

from isentrope.net.client import Client, Line, TooLarge, TooLate, Unreachable
from tests.net.faulty import answer, continue_on_and_on, cut_short, drip, drip_headers, faulty, hang, refuse, reset


@pytest.mark.parametrize("slow", [hang, drip, drip_headers, continue_on_and_on])
def test_one_deadline_for_all_of_it(slow: object) -> None:
    with faulty(slow) as server:  # type: ignore[arg-type]
        began = time.monotonic()
        with pytest.raises(TooLate, match=r"no answer from http://127\.0\.0\.1:\d+/v1 within 0.3 s"):
            Client(server.url, 1000).ask("/x", b"{}", 0.3, attempts=3)
        assert time.monotonic() - began < 3
        assert len(server.bodies) == 1


def test_answers_of_any_status_and_size() -> None:
    with faulty(
        answer({"a": 1}), refuse(404), refuse(302, Location="http://127.0.0.1:1/"), answer(b"x" * 2000)
    ) as server:
        client = Client(server.url, 1000, {"X-Mine": "yes"})
        assert client.ask("/x", b"{}", 5).body == b'{"a": 1}'
        assert server.headers[0]["x-mine"] == "yes"
        assert [client.ask("/x", None, 5).status for _ in range(2)] == [404, 302]
        with pytest.raises(TooLarge, match="more than 0 MiB"):
            client.ask("/x", None, 5)


@pytest.mark.parametrize("fault", [reset, cut_short])
def test_broken_connections_are_tried_again_only_if_asked(fault: object) -> None:
    with faulty(fault, fault, answer({})) as server:  # type: ignore[arg-type]
        with pytest.raises(Unreachable) as caught:
            Client(server.url, 1000).ask("/x", b"{}", 5)
        assert caught.value.reason is not None
        assert Client(server.url, 1000).ask("/x", b"{}", 5, attempts=2).status == 200
        assert len(server.bodies) == 3
    with pytest.raises(Unreachable, match="ConnectionRefusedError"):
        Client("http://127.0.0.1:9", 1000).ask("/x", None, 5, attempts=3)


def test_a_kept_connection_is_used_again_and_may_have_been_closed() -> None:
    accepted: list[socket.socket] = []
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        for _ in range(2):
            connection, _ = listener.accept()
            accepted.append(connection)
            for _ in range(2):
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
            connection.close()

    threading.Thread(target=serve, daemon=True).start()
    with listener:
        client = Client(f"http://127.0.0.1:{listener.getsockname()[1]}", 1000, keep=True)
        for count in (1, 1, 2, 2):
            assert client.ask("/x", None, 5).body == b"{}"
            assert len(accepted) == count
        client.close()


def test_another_thread_may_cut_the_line() -> None:
    with faulty(hang) as server:
        line = Line()
        threading.Timer(0.3, line.cut).start()
        began = time.monotonic()
        with pytest.raises(TooLate):
            Client(server.url, 1000).ask("/x", None, 30, line)
        assert time.monotonic() - began < 10


def test_a_proxy_is_used_but_not_for_this_machine_nor_for_kept_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    with faulty(answer({"proxy": 1})) as proxy, faulty(answer({})) as server:
        monkeypatch.setenv("http_proxy", proxy.url.replace("://", "://me:pass@").removesuffix("/v1"))
        monkeypatch.delenv("no_proxy", raising=False)
        assert Client("http://models.invalid/v1", 1000).ask("/x", b"{}", 5).body == b'{"proxy": 1}'
        assert proxy.headers[0]["host"] == "models.invalid"
        assert proxy.headers[0]["proxy-authorization"] == "Basic bWU6cGFzcw=="
        assert Client(server.url, 1000).ask("/x", None, 5).body == b"{}"
        with pytest.raises(Unreachable):
            Client("http://models.invalid/v1", 1000, keep=True).ask("/x", None, 5)
        monkeypatch.setenv("https_proxy", proxy.url.removesuffix("/v1"))
        with pytest.raises(Unreachable):  # it knows no tunnels
            Client("https://models.invalid/v1", 1000).ask("/x", None, 5)


def test_what_trains_imports_no_server() -> None:
    """So that it runs where starlette and uvicorn are not installed."""
    modules = (
        "isentrope.loop.train, isentrope.cli.main, isentrope.net.keys, isentrope.worlds.pool.remote, "
        "isentrope.worlds.search_qa.world, isentrope.worlds.adapters.openenv, isentrope.engines.openai.engine"
    )
    code = f"import sys; sys.modules['starlette'] = sys.modules['uvicorn'] = None; import {modules}"
    subprocess.run([sys.executable, "-c", code], check=True)
