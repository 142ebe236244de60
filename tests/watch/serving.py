"""The real server in a thread, for tests that ask it and tests that look at its page."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from isentrope.watch.server import open_server


@contextmanager
def serving(*places: Path) -> Iterator[str]:
    """The address of a server over the folders."""
    with open_server(places, port=0) as server, server.background():
        yield f"{server.address}/"


def ask(address: str, question: str, **parameters: str | int | Sequence[str]) -> Any:
    """The answer to a question of the page; an error's too."""
    url = f"{address}api/{question}?{urllib.parse.urlencode(parameters, doseq=True)}"
    try:
        with urllib.request.urlopen(url) as answer:
            return json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return json.loads(error.read()) | {"status": error.code}
