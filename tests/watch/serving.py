"""The real server in a thread, for tests that ask it and tests that look at its page."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def serving(*places: Path) -> Iterator[str]:
    """The address of a server over the folders. What it needs is an extra: it is imported here."""
    from isentrope.watch.server import listen, make_app, make_server

    with listen("127.0.0.1", 0) as listening:
        server = make_server(make_app(places))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
        server.should_exit = True
        thread.join()


def ask(address: str, question: str, **parameters: str | int | Sequence[str]) -> Any:
    """The answer to a question of the page; an error's too."""
    url = f"{address}api/{question}?{urllib.parse.urlencode(parameters, doseq=True)}"
    try:
        with urllib.request.urlopen(url) as answer:
            return json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return json.loads(error.read()) | {"status": error.code}
