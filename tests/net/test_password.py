"""The password of a page: who gets in, how often one may guess, and that none is served to others without."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from isentrope.core.errors import ConfigError
from isentrope.net.password import GUESSES, PAUSE, SHORTEST, Password, page_password
from isentrope.watch.server import make_app, open_server
from tests.net.test_net_server import ask

SECRET = "correct horse ü"


def basic(password: str, user: str = "me") -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def scope(*authorization: str, address: str = "10.0.0.1") -> dict[str, Any]:
    sent = [(b"authorization", value.encode()) for value in authorization]
    return {"type": "http", "headers": sent, "client": (address, 1)}


def status(door: Password, *authorization: str, address: str = "10.0.0.1") -> int:
    refusal = door(scope(*authorization, address=address))
    return 200 if refusal is None else refusal.status


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "192.168.0.2", "machine.example", "2001:db8::1", "127.0.0.1.example"]
)
def test_other_addresses_have_a_password(host: str, tmp_path: Path) -> None:
    password, made = page_password(host, "")
    assert made
    assert len(password) >= 20
    assert page_password(host, "")[0] != password
    with pytest.raises(ConfigError, match="no password"):
        open_server([tmp_path], host, 0)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "::1", "localhost"])
def test_this_machine_needs_none(host: str) -> None:
    assert page_password(host, "") == ("", False)


def test_a_password_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINE", SECRET)
    assert page_password("0.0.0.0", "MINE") == (SECRET, False)
    assert page_password("127.0.0.1", "MINE") == (SECRET, False)
    for short in ("", "x" * (SHORTEST - 1), " " * 20):
        monkeypatch.setenv("MINE", short)
        with pytest.raises(ConfigError, match=f"at least {SHORTEST}") as error:
            page_password("0.0.0.0", "MINE")
        assert not short.strip() or short not in str(error.value)
    with pytest.raises(ConfigError, match="none of the name"):
        page_password("0.0.0.0", "NONE_OF_THAT_NAME")


def test_who_gets_in() -> None:
    door = Password(SECRET)
    assert SECRET not in repr(door)
    assert status(door, basic(SECRET)) == status(door, basic(SECRET, user="")) == 200
    assert status(door, basic(SECRET).replace("Basic", "bASIC")) == 200
    wrong = (
        "", "Basic", "Basic !", "Basic " + "=" * 9, f"Bearer {SECRET}", basic(""), basic(SECRET + "x"),
        basic(SECRET[:-1]), basic(SECRET).replace("Basic ", ""), "Basic " + base64.b64encode(SECRET.encode()).decode(),
    )  # fmt: skip
    for number, header in enumerate(wrong):
        assert status(door, header, address=f"10.0.1.{number}") == 401, header
    assert status(door, basic(SECRET), basic(SECRET)) == 401
    assert status(door) == 401


def test_guesses_have_a_limit() -> None:
    now = [100.0]
    door = Password(SECRET, clock=lambda: now[0])
    for _ in range(50):
        assert status(door) == 401  # no guess
    for _ in range(GUESSES):
        assert status(door, basic("wrong")) == 401
    refusal = door(scope(basic(SECRET)))
    assert refusal is not None
    assert (refusal.status, refusal.headers["Retry-After"]) == (429, "60")
    assert status(door, basic(SECRET), address="10.0.0.2") == 200  # somebody else
    now[0] += PAUSE + 1
    assert status(door, basic(SECRET)) == 200
    assert status(door, basic("wrong")) == 401


def test_a_browser_is_asked_and_then_sees_everything(tmp_path: Path) -> None:
    with open_server([tmp_path], "127.0.0.1", 0, SECRET) as server, server.background():
        for path in ("/", "/api/runs", "/palette.css", "/report/x", "/none"):
            code, headers, body = ask(server, path)
            assert code == 401
            assert headers["www-authenticate"].startswith("Basic realm=")
            assert b"isentrope" not in body
        code, _, body = ask(server, "/api/runs", Authorization=basic(SECRET), Host="any.name.example")
        assert code == 200
        assert b'"runs"' in body
        assert ask(server, "/", Authorization=basic(SECRET))[0] == 200
        assert [ask(server, "/", Authorization=basic("wrong"))[0] for _ in range(GUESSES + 1)][-2:] == [401, 429]
    assert make_app([tmp_path], "0.0.0.0", SECRET) is not None
