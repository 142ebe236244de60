"""What the head of a request must be: one Host that is a name or an address, at most one length, a target that is a
path here.

Programs between a client and a server decide by these where a request goes and where the next one begins. Where two of
them could read a head differently it is refused. The parser refuses the rest: lengths that are no numbers or are given
twice, a length beside chunks, control characters, folded lines.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9_.])?"
_HOST = re.compile(rf"({_NAME}|\[[0-9A-Fa-f:.]{{2,45}}\])(?::([0-9]{{1,5}}))?".encode())
_ABSOLUTE = re.compile(rb"http://([^/?#]*)(?:[/?]|$)", re.IGNORECASE)
_MAX_HOST = 300  # bytes

Headers = Sequence[tuple[bytes, bytes]]


def problem_of_head(target: bytes, headers: Headers, version: str) -> str:
    """What is wrong with it, in words; empty if nothing is. Names of headers are in small letters."""
    if version not in ("1.0", "1.1"):
        return "the request must be HTTP/1.1 or HTTP/1.0"
    hosts = [value for name, value in headers if name == b"host"]
    if len(hosts) != 1 or len(hosts[0]) > _MAX_HOST or not is_host(hosts[0]):
        return "the request must have exactly one Host, a name or an address with or without a port"
    absolute = _ABSOLUTE.match(target)
    if absolute is not None and absolute[1].lower() != hosts[0].lower():
        return "the request's target names another host than its Host"
    if absolute is None and not target.startswith(b"/"):
        return "the request's target must be a path, which begins with /"
    if b"#" in target or b"%00" in target.partition(b"?")[0] or not target.isascii():
        return "the request's target has a fragment, a path with NUL, or letters that are not ASCII"
    codings = [value.strip().lower() for name, value in headers if name == b"transfer-encoding"]
    if codings and (codings != [b"chunked"] or version != "1.1"):
        return "the only Transfer-Encoding is chunked, once and in HTTP/1.1"
    return ""


def is_host(value: bytes) -> bool:
    parts = _HOST.fullmatch(value)
    return parts is not None and (parts[2] is None or int(parts[2]) < 1 << 16)
