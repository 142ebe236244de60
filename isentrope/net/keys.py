"""API keys, read from the environment: one that a client sends, and where it may go; one that a server asks for."""

from __future__ import annotations

import os
import re
from typing import Any
from urllib.parse import urlsplit

from isentrope.config.validate import is_local, is_variable_name
from isentrope.core.errors import ConfigError, EngineError

AUTO = "auto"
_USUAL = "OPENAI_API_KEY"
_SECRET = 8  # characters from which a key is one: local servers are given "x" or "none", which are also words

# Letters alone, with a number at the end at most: a key that was put where its name belongs has digits in its midst.
_SURELY_A_NAME = re.compile(r"[A-Z_]{1,40}[0-9]{0,2}")


class Key:
    """A key that can be sent and hidden but not shown. `setting` is engine.key_env, `url` where it would go.

    Unless a variable is named, OpenAI's key goes to OpenAI and to this machine: no other server is given it for its
    address alone.
    """

    def __init__(self, setting: str, url: str) -> None:
        if setting and not is_variable_name(setting):
            raise EngineError(
                "engine.key_env: expected the name of an environment variable that holds the key; what stands there "
                "cannot be one, and is not repeated here as it may be the key itself"
            )
        if setting not in ("", AUTO) and setting not in os.environ:
            raise EngineError(_missing(setting))
        host = host_of(url)  # an address without one is refused by check_address
        usual = setting == AUTO and (host == "api.openai.com" or is_local(host))
        self._variable = _USUAL if usual else "" if setting == AUTO else setting
        self._text = os.environ.get(self._variable, "").strip() if self._variable else ""
        self.name = f"${self._variable}" if self._variable else ""
        if not all("!" <= char <= "~" for char in self._text):
            raise EngineError(
                f"the key in {self.name} has characters that cannot be sent; copy it again, without spaces inside"
            )

    def __bool__(self) -> bool:
        return bool(self._text)

    def __repr__(self) -> str:
        return f"Key({self.name})"

    def __reduce__(self) -> Any:
        raise TypeError("a key is not written anywhere")

    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._text}"} if self._text else {}

    def hide(self, text: str) -> str:
        """`text` without the key, should a server have put it there."""
        return text.replace(self._text, "[key]") if len(self._text) >= _SECRET else text


def check_address(url: str, key: Key) -> bool:
    """Whether the address is on this machine. Refuses one that cannot be asked safely."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port  # a port that is no number raises
    except ValueError:
        host, parts = None, urlsplit("")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise EngineError(
            "engine.url holds a user name, a password or a query, which would be written into config.toml; give the "
            "plain address of the server, and its key in the environment variable that engine.key_env names"
        )
    shown = repr(url if len(url) <= 100 else url[:100] + "…")
    if not host or parts.scheme not in ("http", "https") or not parts.path.isascii():
        raise EngineError(f"engine.url = {shown}: expected an address like http://127.0.0.1:8000/v1")
    local = is_local(host)
    if key and parts.scheme == "http" and not local:
        raise EngineError(
            f"engine.url = {shown}: the key in {key.name} would go over the network for all to read; use https, or set "
            "engine.key_env to the empty string if that server needs no key"
        )
    return local


def server_key(host: str, key_env: str) -> str:
    """The key that clients must send. Without one a server stays on this machine."""
    key = os.environ.get(key_env, "").strip() if key_env else ""
    if key_env and not key:
        raise ConfigError(
            "--key-env: expected the name of an environment variable that holds the key that clients send; there is "
            "none of the name given, or it is empty"
        )
    if not key and not is_local(host):
        raise ConfigError(
            f"--host {host} can be reached by others, and there is no key: name the environment variable that holds "
            "one with --key-env, or stay on this machine with --host 127.0.0.1"
        )
    return key


def _missing(setting: str) -> str:
    """A key put where its name belongs may look like a name, so not every name is repeated."""
    if _SURELY_A_NAME.fullmatch(setting):
        return (
            f"engine.key_env = {setting}, but the environment has no {setting}: set it to the server's key "
            f"(export {setting}=...), or set engine.key_env to the empty string if the server needs none"
        )
    return (
        "engine.key_env names a variable that the environment does not have; what stands there is not repeated here "
        "as it may be the key itself. Give the name of an environment variable that holds the key"
    )


def host_of(address: str) -> str:
    """The host in an address; empty if there is none, as in the origin "null"."""
    try:
        return urlsplit(address).hostname or ""
    except ValueError:
        return ""
