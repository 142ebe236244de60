"""A request whose body is too long to be taken."""

from __future__ import annotations

import socket
from io import BufferedIOBase

MOST = 16 * 2**20
SECONDS = 0.5  # to wait for more of it


def pass_over(connection: socket.socket, stream: BufferedIOBase, length: int) -> None:
    """Read and drop the body, or its beginning: who still writes when the connection closes never sees the answer."""
    before, left = connection.gettimeout(), min(length, MOST)
    connection.settimeout(SECONDS)
    try:
        while left > 0:
            got = len(stream.read(min(left, 2**16)))
            if not got:
                return
            left -= got
    except TimeoutError:
        return  # it promised more than it sends
    finally:
        connection.settimeout(before)
