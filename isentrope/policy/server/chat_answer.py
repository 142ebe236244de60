"""What a server's chat completion says, and the response it becomes.

The server says nothing of log-probs and entropies, so they are NaN. The text is cut right behind the closing tag of
the form, where the other engines stop: `stop` is not sent, since servers cut the tag itself off.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from isentrope.policy.engine import TAIL_BYTES, Request, Sampled
from isentrope.policy.server.api_client import ApiClient, Failed

_MOST = 2**53  # tokens: up to here sums and costs are exact


@dataclass(frozen=True)
class Answer:
    text: str
    cut_off: bool  # at the length limit
    prompt_tokens: int
    sampled_tokens: int
    counted: bool  # whether the server said how many tokens these were

    def sampled(self, request: Request) -> Sampled:
        said = self.text.encode("utf-8", "replace")
        end = _complete_at(request.stop, said)
        ids = np.frombuffer(said[:end], dtype=np.uint8).astype(np.int32)
        unknown = np.full(len(ids), np.nan, dtype=np.float32)
        stop = "tag" if end is not None else "length" if self.cut_off else "eos"
        return Sampled(ids, unknown, unknown.copy(), np.full(len(ids), request.temperature, dtype=np.float32), stop)


def read_answer(client: ApiClient, answer: dict[str, Any]) -> Answer:
    try:
        choice = answer["choices"][0]
        text = choice["message"]["content"] or ""  # None: the model said nothing
        cut_off = choice.get("finish_reason") == "length"
    except (KeyError, IndexError, TypeError, AttributeError):
        raise Failed(f"its answer is not a chat completion: {client.clean(str(answer))!r}") from None
    if not isinstance(text, str):
        raise Failed("the content of its answer is not text")
    counts = [_count(answer.get("usage"), name) for name in ("prompt_tokens", "completion_tokens")]
    return Answer(client.hide(text), cut_off, counts[0] or 0, counts[1] or 0, None not in counts)


def _count(usage: Any, name: str) -> int | None:
    value = cast("dict[str, Any]", usage).get(name) if isinstance(usage, dict) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST else None


def _complete_at(complete: Callable[[bytes], bool], said: bytes) -> int | None:
    """Where the response is complete: behind the first tag at which the other engines would have stopped."""
    at = said.find(b">")
    while at >= 0:
        if complete(said[max(0, at + 1 - TAIL_BYTES) : at + 1]):
            return at + 1
        at = said.find(b">", at + 1)
    return None
