"""Draws tokens inside vLLM with our own random numbers, by a logits processor.

vLLM computes the logits of a whole batch. The processor takes each row's temperature, draws the token with the
request's uniform numbers, writes down log-prob and entropy of exactly that distribution, and leaves vLLM one choice:
the drawn word is the largest. So temperatures may differ from token to token, the entropy is exact, and a sample
does not depend on the batch.
"""

from __future__ import annotations

import types
from typing import Any

from torch import Tensor

from isentrope.core.errors import EngineError
from isentrope.core.tokenizer import ChatTokenizer
from isentrope.engines.torch import Answer, draw_next

KEY = "isentrope"  # under which a request's sampling parameters name its answer


class Board:
    """The answers that are being sampled, by name: what the engine and the processor inside vLLM share."""

    def __init__(self, tokenizer: ChatTokenizer) -> None:
        self.tokenizer = tokenizer
        self.answers: dict[str, Answer] = {}


class Drawing:
    """vLLM's logits-processor interface. `board` is set by the subclass that an engine makes for itself."""

    board: Board

    def __init__(self, vllm_config: Any, device: Any, is_pin_memory: bool) -> None:
        self.rows: dict[int, tuple[Answer, list[int]]] = {}  # row -> answer, and what vLLM holds of it

    @classmethod
    def validate_params(cls, sampling_params: Any) -> None:
        """Nothing to check: only the engine makes requests."""

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: Any) -> None:
        """Follow vLLM's rows: requests leave, come and move, in this order."""
        if batch_update is None:
            return
        for row in batch_update.removed:
            self.rows.pop(row, None)
        for row, params, _, output in batch_update.added:
            self.rows[row] = (self.board.answers[params.extra_args[KEY]], output)
        for source, target, direction in batch_update.moved:
            moved, replaced = self.rows.pop(source, None), self.rows.pop(target, None)
            if moved:
                self.rows[target] = moved
            if replaced and direction.name == "SWAP":
                self.rows[source] = replaced

    def apply(self, logits: Tensor) -> Tensor:
        answers = [self.rows[row][0] for row in range(len(logits))]
        for answer, (_, output) in zip(answers, (self.rows[row] for row in range(len(logits))), strict=True):
            if len(answer.ids) != len(output):
                raise EngineError(
                    f"vLLM holds {len(output)} tokens of a response of {len(answer.ids)}: this version schedules in a "
                    "way that the engine does not know; see docs/engines.md for the versions it was tested with"
                )
        tokens = draw_next(answers, logits, self.board.tokenizer)
        return logits.zero_().scatter_(1, tokens[:, None], 1.0)


def processor_class(base: type, board: Board) -> type:
    """A class for vLLM to make: `base` is its LogitsProcessor."""

    def body(namespace: dict[str, Any]) -> None:
        namespace["board"] = board

    return types.new_class("IsentropeDrawing", (Drawing, base), exec_body=body)
