"""Requests to an engine, and the real server in a thread."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import numpy as np

from isentrope.agent.response_format import is_complete
from isentrope.config.kinds import ServerOptions
from isentrope.config.schema import RunConfig
from isentrope.core.engine import Engine, Request
from isentrope.engines.openai.engine import ByteTokens, OpenAIEngine
from isentrope.net.server import Server
from isentrope.serving.server import running
from isentrope.serving.speaker import Speaker

GOOD = "<think>x</think><action>look</action>"
KEY = "sk-test-0123456789abcdef"


def engine_at(url: str, **settings: Any) -> OpenAIEngine:
    return OpenAIEngine(ServerOptions(**({"url": url, "model": "m", "timeout": 5.0} | settings)))


def ask(message: str = "hello", slot: int = 0, **changes: Any) -> Request:
    fields: dict[str, Any] = {
        "slot": slot,
        "prompt": ByteTokens().opening("be good", message),
        "uniforms": np.full(32, 0.25, dtype=np.float32),
        "temperature": 0.5,
        "stop": lambda tail: is_complete("think_act", tail),
    }
    return Request(**(fields | changes))


@contextmanager
def served(config: RunConfig, engine: Engine, name: str = "pocket", key: str = "") -> Generator[Server]:
    """The server at a free port; its address is `address(server)`."""
    with served_speaker(config, engine, name, key) as (server, _):
        yield server


@contextmanager
def served_speaker(
    config: RunConfig, engine: Engine, name: str = "pocket", key: str = ""
) -> Generator[tuple[Server, Speaker]]:
    with running(config, engine, ("127.0.0.1", 0), name, key) as (server, speaker), server.background():
        yield server, speaker


def address(server: Server) -> str:
    return f"{server.address}/v1"
