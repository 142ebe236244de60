"""Parses a chat request strictly: whatever would be answered wrongly is refused with a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from isentrope.core.engine import TAIL_BYTES
from isentrope.net.app import Refusal

MAX_STOPS = 4
_COLDEST = 1e-4  # a temperature below it, other than 0, would divide logits beyond what numbers hold
_NEUTRAL: dict[str, tuple[object, ...]] = {  # fields that would change the answer -> values with which they do not
    "n": (1,), "stream": (False,), "top_p": (1, 1.0), "top_k": (-1, 0), "min_p": (0,), "presence_penalty": (0,),
    "frequency_penalty": (0,), "repetition_penalty": (1,), "logit_bias": ({},), "tools": ([],), "functions": ([],),
    "response_format": ({"type": "text"},), "top_logprobs": (0,), "best_of": (1,), "echo": (False,),
}  # fmt: skip


class BadRequest(Refusal):
    """A request that is refused, in OpenAI's terms."""

    def __init__(self, message: str, status: int = 400, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message, status)
        self.param, self.code = param, code


@dataclass(frozen=True)
class Chat:
    """A conversation to be answered. `said` alternates between user and assistant and ends with the user."""

    system: str
    said: tuple[str, ...]
    temperature: float
    max_tokens: int
    stop: tuple[str, ...]
    seed: int | None
    logprobs: bool


def read_chat(body: Mapping[str, Any], max_response: int) -> Chat:
    for name, harmless in _NEUTRAL.items():
        value = body.get(name)
        if value is not None and value not in harmless:
            raise BadRequest(f"{name} = {str(value)[:50]} is not supported here; leave it out", param=name)
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise BadRequest("messages must be a list of messages, each with role and content", param="messages")
    system, said = _conversation(cast("list[Any]", messages))
    limit = body.get("max_completion_tokens", body.get("max_tokens"))
    temperature = _temperature(body.get("temperature"))
    max_tokens = max_response if limit is None else _whole(limit, "max_tokens")
    stop = _stops(body.get("stop"))
    seed = None if body.get("seed") is None else _whole(body["seed"], "seed", low=None)
    return Chat(system, said, temperature, max_tokens, stop, seed, logprobs=body.get("logprobs") is True)


def _conversation(messages: list[Any]) -> tuple[str, tuple[str, ...]]:
    roles: list[str] = []
    texts: list[str] = []
    for message in messages:
        if not isinstance(message, dict):
            raise BadRequest("a message must be an object with role and content", param="messages")
        fields = cast("dict[str, Any]", message)
        roles.append("system" if fields.get("role") == "developer" else str(fields.get("role"))[:50])
        texts.append(_text(fields.get("content"), roles[-1]))
    system = texts.pop(0) if roles[0] == "system" else ""
    spoken = roles[1:] if roles[0] == "system" else roles
    expected = [("user", "assistant")[i % 2] for i in range(len(spoken))]
    if spoken != expected or len(spoken) % 2 == 0:
        raise BadRequest(
            f"the roles are {', '.join(roles[:6])}{' …' if len(roles) > 6 else ''}: expected one system message or "
            "none, then user and assistant in turn, the last one by the user",
            param="messages",
        )
    return system, tuple(texts)


def _text(content: Any, role: str) -> str:
    if isinstance(content, str):
        return content
    if content is None and role == "assistant":
        return ""
    parts = cast("list[Any]", content) if isinstance(content, list) else [None]
    fields = [cast("dict[str, Any]", part) if isinstance(part, dict) else {} for part in parts]
    found = [one.get("text") for one in fields if one.get("type") == "text"]
    texts = [text for text in found if isinstance(text, str)]
    if len(texts) < len(parts):  # an image, say
        raise BadRequest("the content of a message must be text", param="messages")
    return "".join(texts)


def _temperature(value: Any) -> float:
    if value is None:
        return 1.0
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not (value == 0 or _COLDEST <= value <= 10):
        raise BadRequest(f"temperature must be 0 or a number from {_COLDEST:g} to 10", param="temperature")
    return float(value)


def _whole(value: Any, name: str, low: int | None = 1) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or (low is not None and value < low):
        raise BadRequest(f"{name} must be a whole number{'' if low is None else f' from {low} on'}", param=name)
    return value


def _is_unicode(text: str) -> bool:
    """JSON can also write halves of letters, as \\ud800, which no text ever holds."""
    return not any("\ud800" <= char <= "\udfff" for char in text)


def _stops(value: Any) -> tuple[str, ...]:
    stops = [value] if isinstance(value, str) else value or []
    if isinstance(stops, list):
        texts = [text for text in cast("list[Any]", stops) if isinstance(text, str)]
        fit = all(0 < len(text.encode("utf-8", "replace")) <= TAIL_BYTES and _is_unicode(text) for text in texts)
        if fit and len(texts) == len(cast("list[Any]", stops)) <= MAX_STOPS:
            return tuple(texts)
    raise BadRequest(
        f"stop must be a text or a list of at most {MAX_STOPS} texts of at most {TAIL_BYTES} bytes", param="stop"
    )
