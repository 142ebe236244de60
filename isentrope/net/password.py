"""A password that a browser asks its user for (HTTP Basic), and a limit to how often an address may guess.

The browser sends it with every request to this server and to no other. Any user name will do. Wrong guesses are counted
by address: after some of them nothing from there is looked at for a while, a right password neither.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import os
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable

from starlette.types import Scope

from isentrope.config.validate import is_local
from isentrope.core.errors import ConfigError
from isentrope.net.app import Refusal, headers_of

SHORTEST = 12  # characters of a password that the user chose
GUESSES = 10  # wrong ones of an address
PAUSE = 60.0  # seconds after the first of them, until the address may guess again
_ADDRESSES = 10_000  # that are remembered
_ASK = {"WWW-Authenticate": 'Basic realm="isentrope watch", charset="UTF-8"'}


def page_password(host: str, key_env: str) -> tuple[str, bool]:
    """The password of a page at an address, and whether it was made here: others are never let in without one."""
    if not key_env:
        return ("", False) if is_local(host) else (secrets.token_urlsafe(15), True)
    password = os.environ.get(key_env, "").strip()
    if len(password) < SHORTEST:
        raise ConfigError(
            f"--key-env: expected the name of an environment variable that holds a password of at least {SHORTEST} "
            "characters; there is none of the name given, or it is shorter. Without --key-env one is made and printed"
        )
    return password, False


class Password:
    """Lets in who sends the password."""

    def __init__(self, password: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._password, self._clock = password.encode(), clock
        self._wrong: OrderedDict[str, tuple[float, int]] = OrderedDict()  # when the first was, and how many

    def __repr__(self) -> str:
        return "Password()"

    def __call__(self, scope: Scope) -> Refusal | None:
        address = str((scope.get("client") or ("",))[0])
        began, wrong = self._wrong.get(address, (0.0, 0))
        if wrong and self._clock() - began > PAUSE:
            del self._wrong[address]
            wrong = 0
        if wrong >= GUESSES:
            left = max(1, round(PAUSE - (self._clock() - began)))
            words = f"too many wrong passwords came from this address; try again in {left} s"
            return Refusal(words, 429, {"Retry-After": str(left)})
        sent = headers_of(scope, b"authorization")
        if not sent:
            return Refusal("A password is needed.", 401, _ASK)  # every browser asks so at first: no guess
        if len(sent) == 1 and hmac.compare_digest(_password_in(sent[0]), self._password):
            return None
        self._wrong[address] = (began if wrong else self._clock(), wrong + 1)
        while len(self._wrong) > _ADDRESSES:
            self._wrong.popitem(last=False)
        return Refusal("The password is wrong.", 401, _ASK)


def _password_in(header: bytes) -> bytes:
    """What follows the user's name, in `Basic ` and base64; empty if it is something else."""
    kind, _, coded = header.partition(b" ")
    if kind.lower() != b"basic":
        return b""
    try:
        return base64.b64decode(coded.strip(), validate=True).partition(b":")[2]
    except binascii.Error:
        return b""
