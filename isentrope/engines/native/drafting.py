"""How many guesses the native engine reads in a pass: as many as give most tokens for their cost.

What a pass costs follows from the model's shape and fixed numbers of the card, what guesses are worth from counts of
what was right so far. No clock has a say, and the counts are in checkpoints.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from isentrope.engines.drafts import MOST_COUNTED, REACH, Array, Counts, Said
from isentrope.engines.native.attention import MOST_QUERIES
from isentrope.engines.native.lookup import DeviceMemory
from isentrope.engines.native.weights import Weights

WIDTHS = (1.5, 2, 3, 4, 6, 9, 12, 16, 24, 33, 48, 65)  # tokens of a pass, for each row, that are looked at
REST, LONGEST_REST = 64, 4096  # passes after which guesses are tried again where they were not worth their cost: each
# try that is in vain doubles the wait for the next
FIRST = 8  # reads that are counted before there were any, each with as many guesses as there may be


@dataclass(frozen=True)
class Card:
    """A GPU in numbers."""

    kernel: float  # seconds from the start of a small kernel to that of the next
    bandwidth: float  # bytes a second
    products: float  # of bfloat16, added up: operations a second


CARD = Card(kernel=3.8e-6, bandwidth=4.0e12, products=4.5e14)
"""An H200. On other cards the same numbers are used: what counts is how they compare."""


@dataclass(frozen=True)
class PassCost:
    """Seconds of a pass."""

    fixed: float
    token: float
    held: float  # for each token whose keys and values are read
    runs: float  # more of a pass over runs of guesses than of one over single tokens

    @classmethod
    def of(cls, weights: Weights, card: Card = CARD) -> PassCost:
        a, size = weights.model, torch.finfo(weights.dtype).bits // 8
        words, width = a.head.shape
        numbers = made = 0  # of the layers' weights, and of what their products give for a token
        for layer in weights.layers:
            for product in (layer.qkv, layer.o, layer.gate_up, layer.down):
                numbers += product.weight.numel()
                made += len(product.weight)
        head = words * width
        steps = 8 * len(weights.layers) + 8
        products = card.products if size == 2 else card.products / 12
        return cls(
            fixed=steps * card.kernel + size * (numbers + head) / card.bandwidth,
            token=2 * (numbers + head) / products + (3 * size * made + 8 * words) / card.bandwidth,
            held=2 * len(a.layers) * a.kv_heads * a.head_size * size / card.bandwidth,
            runs=(len(weights.layers) + 6) * card.kernel,
        )

    def single(self, rows: int, held: int) -> float:
        return self.fixed + rows * self.token + held * self.held

    def with_runs(self, tokens: int, held: int) -> float:
        return self.single(tokens, held) + self.runs


@dataclass(frozen=True)
class Plan:
    tokens: int  # of the pass
    reach: tuple[int, ...]  # guesses that a row may read, by tokens matched


def longest_guess(wanted: int, sharing: int) -> int:
    """The tile of attention has room for so many tokens of a run."""
    return min(wanted, MOST_QUERIES // sharing - 1)


class Guesses(Counts):
    """What is guessed, up to `longest` tokens ahead."""

    def __init__(self, longest: int, device: torch.device, cost: PassCost) -> None:
        super().__init__(longest)
        self.memory, self.cost = DeviceMemory(device), cost
        # by tokens matched and place: rows that had a guess there, of all that were read
        self.found: Array = np.zeros((REACH + 1, longest), dtype=np.int64)
        self.rest = REST
        self._heard: list[Said] = []

    def plan(self, rows: int, count: int, most: int, held: int) -> Plan | None:
        """The next pass of so many rows, recorded for `count` of them and `most` tokens, which have so many tokens in
        the cache; None: one without guesses."""
        if not self.memory.told:
            return None
        if self.rested:
            self.rested = (self.rested + 1) % self.rest
            if self.rested:
                return None
            self.rest = min(2 * self.rest, LONGEST_REST)
            return self._best(rows, count, most, held, 0.0)
        plan = self._best(rows, count, most, held, rows / self.cost.single(count, held))
        if plan is None:
            self.rested = 1
        else:
            self.rest = REST
        return plan

    def _best(self, rows: int, count: int, most: int, held: int, least: float) -> Plan | None:
        """The plan that gives most tokens for its cost, if it is more than `least`; where that is 0 the narrowest one,
        to try again."""
        chance_MK = self.chances()
        found_MK = self.found.astype(np.float64)
        found_MK[REACH] += FIRST
        share_MK = found_MK / (self.reads + FIRST)
        order = np.argsort(-chance_MK, axis=None, kind="stable")
        chance, share = chance_MK.ravel()[order], share_MK.ravel()[order]
        read, gained = rows * share.cumsum(), rows * (share * chance).cumsum()
        best: Plan | None = None
        for width in WIDTHS:
            tokens = -(-int(count * width) // 8) * 8
            if tokens > most or width > 2 * (1 + self.longest):
                break
            at = min(int(np.searchsorted(read, tokens - rows)), len(read) - 1)
            part = min(1.0, (tokens - rows) / max(read[at], 1e-9))
            worth = (rows + part * gained[at]) / self.cost.with_runs(tokens, held)
            if worth > least:
                reach_M = (chance_MK >= chance[at]).sum(axis=1)
                best, first = Plan(tokens, tuple(reach_M.tolist())), least == 0.0
                least = worth
                if first:
                    break
        return best

    def judged(self, match_R: Array, found_R: Array, drafted_R: Array, taken_R: Array, kept_R: Array) -> None:
        """Of some rows: tokens matched, guesses that there were, how many were read, how many tokens the device took
        and how many of those belong to the response."""
        k = np.arange(self.longest)
        right_R = np.minimum(kept_R, taken_R - 1)
        compared_R = np.minimum(drafted_R, kept_R)
        at_RK = np.minimum(match_R[:, None] + k, REACH)
        self.tried += np.bincount(at_RK[k < compared_R[:, None]], minlength=REACH + 1)
        self.right += np.bincount(at_RK[k < right_R[:, None]], minlength=REACH + 1)
        same_MR = np.arange(REACH + 1)[:, None] == match_R
        self.found += same_MR.astype(np.int64) @ (k < found_R[:, None]).astype(np.int64)
        self.reads += len(match_R)
        self.drafted += int(drafted_R.sum())
        self.accepted += int(right_R.sum())
        self.gained += int(right_R.sum())
        if self.reads >= MOST_COUNTED:
            self.reads, self.gained = self.reads // 2, self.gained // 2
            self.found //= 2
        many = self.tried >= MOST_COUNTED
        self.tried[many] //= 2
        self.right[many] //= 2

    def heard(self, prompt: Sequence[int], ids: NDArray[np.int32]) -> None:
        """A response that is complete, to be remembered with others."""
        self._heard.append((prompt[-REACH:], ids))

    def remember(self) -> None:
        if self._heard:
            self.memory.tell(self._heard)
        self._heard.clear()

    def fade(self) -> None:
        super().fade()
        self.found //= 2
        self.rest, self.rested = REST, self.rested % REST

    def state_dict(self) -> dict[str, Any]:
        self.remember()
        return {
            "memory": self.memory.state_dict(),
            **super().state_dict(),
            "found": self.found.tolist(),
            "rest": self.rest,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        found = np.array(state.get("found", []), dtype=np.int64)  # another engine counts it otherwise
        super().load_state_dict(state)
        if found.shape == self.found.shape and (found >= 0).all():
            self.found = found
        else:
            self.found[:], self.reads, self.gained = 0, 0, 0
        self.rest = min(max(REST, int(state.get("rest", REST))), LONGEST_REST)
        self.rested %= self.rest
        self._heard.clear()
        self.memory.load_state_dict(state["memory"])
