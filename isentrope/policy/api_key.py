"""The key of a server, taken from the environment, and the addresses it may be sent to."""

from __future__ import annotations

import ipaddress
import os
from typing import Any
from urllib.parse import urlsplit

from isentrope.errors import EngineError

_SECRET = 8  # characters from which a key is one: local servers are given "x" or "none", which are also words


class Key:
    """A key that can be sent and hidden but not shown."""

    def __init__(self, variable: str) -> None:
        self._variable = variable
        self._text = os.environ.get(variable, "").strip() if variable else ""
        if not all("!" <= char <= "~" for char in self._text):
            raise EngineError(
                f"the key in ${variable} has characters that cannot be sent; copy it again, without spaces inside"
            )

    def __bool__(self) -> bool:
        return bool(self._text)

    def __repr__(self) -> str:
        return f"Key({self._variable})"

    def __reduce__(self) -> Any:
        raise TypeError("a key is not written anywhere")

    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._text}"} if self._text else {}

    def hide(self, text: str) -> str:
        """`text` without the key, should a server have put it there."""
        return text.replace(self._text, "[key]") if len(self._text) >= _SECRET else text


def check_address(url: str, has_key: bool, key_env: str) -> bool:
    """Whether the address is on this machine. Refuses one that cannot be asked safely."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port  # a port that is no number raises
    except ValueError:
        host, parts = None, urlsplit("")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise EngineError(
            "engine.url holds a user name, a password or a query, which would be written into config.toml; give the "
            f"plain address of the server, and its key in ${key_env or 'a variable that engine.key_env names'}"
        )
    shown = repr(url if len(url) <= 100 else url[:100] + "…")
    if not host or parts.scheme not in ("http", "https"):
        raise EngineError(f"engine.url = {shown}: expected an address like http://127.0.0.1:8000/v1")
    local = is_local(host)
    if has_key and parts.scheme == "http" and not local:
        raise EngineError(
            f"engine.url = {shown}: the key in ${key_env} would go over the network for all to read; use https, or set "
            "engine.key_env to the empty string if that server needs no key"
        )
    return local


def is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
