"""Requests that two programs could read differently are refused before any application sees them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from isentrope.net.head import is_host
from isentrope.net.server import Server
from tests.net.test_net_server import PATIENT, raw, serving, status_of

HOST = b"Host: 127.0.0.1\r\n"
CLOSE = b"Connection: close\r\n"
LENGTHS = (
    b"2\r\nContent-Length: 2", b"2\r\nContent-Length: 3", b"2, 2", b"+2", b"-2", b"", b"0x2", b"1 2", b"2.0", b"1e1",
    b"\xb2", b"2\r\nTransfer-Encoding: chunked", b"2\r\n 2",
)  # fmt: skip
CODINGS = (b"gzip", b"gzip, chunked", b"chunked, chunked", b"chunked\r\nTransfer-Encoding: chunked", b"identity",
           b"xchunked", b"chunked;a=b", b"\x0bchunked")  # fmt: skip
CHUNKS = (b"zz\r\n{}\r\n", b"-2\r\n{}\r\n", b"+2\r\n{}\r\n", b"f" * 21 + b"\r\n{}\r\n", b"3\r\n{}xxx\r\n", b"2\n{}\n")
HOSTS = (b"", b"a b", b"a@127.0.0.1", b"127.0.0.1/x", b"127.0.0.1, evil", b"127.0.0.1:99999", b"127.0.0.1:x", b"[::1",
         b"::1", b"\xff", b"-a", b"a" * 301, b"127.0.0.1\r\nHost: 127.0.0.1", b"127.0.0.1\r\nhost: evil")  # fmt: skip
TARGETS = (b"http://evil.example/x", b"http://127.0.0.1:1/x", b"http://127.0.0.1@evil/x", b"https://127.0.0.1/x", b"*",
           b"file:///x", b"x", b"/x#y", b"/x%00", b"/x\0", b"/\xc3\xa9", b"/x?\xff", b"/x y", b"")  # fmt: skip
HEADERS = (b"A: b\r\n c", b"A: b\r\n\tc", b"A: b\0c", b"A\0: b", b"A : b", b": b", b"A", b"A: b\rc", b"A: b\x0bc",
           b"\xff: b")  # fmt: skip
LINES = (b"GET /x HTTP/2.0", b"GET /x HTTP/3.0", b"GET /x HTTP/1.1 x", b"get /x HTTP/1.1",
         b"CONNECT a:1 HTTP/1.1", b"GET /x http/1.1", b"GET /x")  # fmt: skip


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(PATIENT) as made:
        yield made


def post(header: bytes, body: bytes = b"{}", version: bytes = b"1.1") -> bytes:
    return b"POST /raw HTTP/" + version + b"\r\n" + HOST + CLOSE + header + b"\r\n\r\n" + body


@pytest.mark.parametrize("length", LENGTHS)
def test_exactly_one_length(server: Server, length: bytes) -> None:
    assert status_of(raw(server, post(b"Content-Length: " + length))) == 400


@pytest.mark.parametrize("coding", CODINGS)
def test_chunked_once_and_nothing_else(server: Server, coding: bytes) -> None:
    assert status_of(raw(server, post(b"Transfer-Encoding: " + coding, b"2\r\n{}\r\n0\r\n\r\n"))) == 400


@pytest.mark.parametrize("chunk", CHUNKS)
def test_chunks(server: Server, chunk: bytes) -> None:
    assert status_of(raw(server, post(b"Transfer-Encoding: chunked", chunk + b"0\r\n\r\n"))) == 400


@pytest.mark.parametrize("host", HOSTS)
def test_exactly_one_host(server: Server, host: bytes) -> None:
    assert status_of(raw(server, b"GET /x HTTP/1.1\r\nHost: " + host + b"\r\n" + CLOSE + b"\r\n")) == 400


@pytest.mark.parametrize("version", [b"1.1", b"1.0"])
def test_no_host(server: Server, version: bytes) -> None:
    assert status_of(raw(server, b"GET /x HTTP/" + version + b"\r\n" + CLOSE + b"\r\n")) == 400


@pytest.mark.parametrize("target", TARGETS)
def test_targets_are_paths(server: Server, target: bytes) -> None:
    assert status_of(raw(server, b"GET " + target + b" HTTP/1.1\r\n" + HOST + CLOSE + b"\r\n")) == 400


@pytest.mark.parametrize("header", HEADERS)
def test_headers(server: Server, header: bytes) -> None:
    assert status_of(raw(server, b"GET /x HTTP/1.1\r\n" + HOST + CLOSE + header + b"\r\n\r\n")) == 400


@pytest.mark.parametrize("line", LINES)
def test_request_lines(server: Server, line: bytes) -> None:
    assert status_of(raw(server, line + b"\r\n" + HOST + CLOSE + b"\r\n")) == 400


def test_chunks_are_of_the_newer_protocol(server: Server) -> None:
    chunked = b"2\r\n{}\r\n0\r\n\r\n"
    assert status_of(raw(server, post(b"Transfer-Encoding: chunked", chunked, b"1.0"))) == 400


def test_what_is_right_passes(server: Server) -> None:
    for target in (b"/x", b"http://127.0.0.1/x", b"/%ff?a=%00".replace(b"%00", b"b"), b"//x/y"):
        assert status_of(raw(server, b"GET " + target + b" HTTP/1.1\r\n" + HOST + CLOSE + b"\r\n")) == 200
    assert status_of(raw(server, post(b"Content-Length: 2"))) == 200
    assert raw(server, post(b"Transfer-Encoding: Chunked", b"2\r\n{}\r\n0\r\n\r\n")).endswith(b'{"bytes": 2}')
    assert all(map(is_host, (b"localhost", b"[::1]:8400", b"a.example:80", b"a_b", b"10.0.0.1", b"a.example.")))


def test_what_follows_the_last_chunk_are_no_headers(server: Server) -> None:
    end = b"2\r\n{}\r\n0\r\nHost: evil.example\r\nAuthorization: Bearer x\r\n\r\n"
    assert status_of(raw(server, post(b"Transfer-Encoding: chunked", end))) == 200
