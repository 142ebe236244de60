"""Two kinds of sampling work and models of known shapes: the same for every engine that is measured.

Prompts are of random tokens and share nothing; responses have a fixed length. So both sides of a comparison read and
sample exactly the same number of tokens. Weights are random: speed does not depend on what a model knows.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from isentrope.bench.work import random_model
from isentrope.core.engine import Engine, Request
from isentrope.core.errors import RunError
from isentrope.engines.native.available import fast_engine, why_not
from isentrope.engines.torch import TorchEngine
from isentrope.models.hugging_face import HuggingFaceModel, register_attention
from isentrope.models.policy import Policy
from isentrope.models.sources.find import POCKET
from isentrope.models.sources.pocket import PocketTokens
from isentrope.models.sources.shapes import SHAPES


@dataclass(frozen=True)
class SamplingWork:
    """Conversations that are all answered in every turn, and read some tokens between two turns."""

    name: str
    conversations: int
    turns: int
    new: int  # tokens of a response
    read: int  # tokens between two responses
    shortest: int  # tokens of a first prompt
    longest: int

    @property
    def tokens(self) -> int:
        """That are sampled."""
        return self.conversations * self.turns * self.new

    @property
    def room(self) -> int:
        """Tokens that a conversation may have."""
        return self.longest + self.turns * (self.new + self.read) + 64


PROMPTS = SamplingWork("256 prompts of 313-512, 64 new", 256, 1, 64, 0, 313, 512)
TALK = SamplingWork("128 conversations × 12 turns of 32, 80 read", 128, 12, 32, 80, 300, 300)
TINY_PROMPTS = SamplingWork("8 prompts of 20-40, 6 new", 8, 1, 6, 0, 20, 40)
TINY_TALK = SamplingWork("4 conversations × 2 turns of 4, 5 read", 4, 2, 4, 5, 30, 30)


class Sampler(Protocol):
    """One side of a comparison."""

    def forget(self, conversations: int) -> None:
        """Begin with so many new conversations: nothing that was read before may help."""
        ...

    def answer(self, prompts: Sequence[list[int]], new: int, rng: np.random.Generator) -> list[list[int]]:
        """The tokens of one response of `new` tokens to each prompt."""
        ...


class EngineSampler:
    """An engine of ours: log-prob and entropy of every token come with it, and the host looks for closing tags."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def forget(self, conversations: int) -> None:
        self.engine.refresh()
        self.engine.open(range(conversations))

    def answer(self, prompts: Sequence[list[int]], new: int, rng: np.random.Generator) -> list[list[int]]:
        uniforms = rng.random((len(prompts), new), dtype=np.float32)
        asked = [
            Request(slot, prompt, uniforms[slot], 1.0, never, closings=(b"</action>",))
            for slot, prompt in enumerate(prompts)
        ]
        return [sampled.ids.tolist() for sampled in self.engine.sample(asked)]


def never(tail: bytes) -> bool:
    """The stop rule of responses that go on to their full length."""
    return False


def seconds_of(sampler: Sampler, work: SamplingWork, words: int, seed: int = 0) -> float:
    """How long all turns of all conversations take, from the first prompts to the last tokens on the host."""
    texts, draws = np.random.default_rng([seed, 0]), np.random.default_rng([seed, 1])
    lengths = texts.integers(work.shortest, work.longest + 1, work.conversations)
    prompts = [texts.integers(0, words, int(length)).tolist() for length in lengths]
    said = texts.integers(0, words, (work.turns, work.conversations, work.read)).tolist()
    sampler.forget(work.conversations)
    wait()
    began = time.perf_counter()
    for turn in range(work.turns):
        answers = sampler.answer(prompts, work.new, draws)
        if any(len(answer) != work.new for answer in answers):
            found = sorted({len(answer) for answer in answers})
            raise RunError(f"{work.name}: responses have {found} tokens, not {work.new}: the work is not the same")
        prompts = [[*p, *a, *s] for p, a, s in zip(prompts, answers, said[turn], strict=True)]
    wait()
    return time.perf_counter() - began


def rates_of(sampler: Sampler, work: SamplingWork, words: int, rounds: int, until: float = float("inf")) -> list[float]:
    """Sampled tokens a second in each round after a first one that is not counted; at least one, none after `until`."""
    found: list[float] = []
    for seed in range(rounds + 1):
        if len(found) and time.monotonic() > until:
            break
        seconds = seconds_of(sampler, work, words, seed)
        if seed:
            found.append(work.tokens / seconds)
    return found


def rate_of(sampler: Sampler, work: SamplingWork, words: int, rounds: int) -> float:
    """The median of them."""
    return statistics.median(rates_of(sampler, work, words, rounds))


class AnyWord(PocketTokens):
    """Words of a model that has many more than the pocket tokens, none of which ends a response."""

    def __init__(self, phrases: Sequence[str]) -> None:
        super().__init__(phrases)
        self.eos_ids = frozenset[int]()

    def pieces(self, ids: Sequence[int]) -> list[bytes]:
        return [b""] * len(ids)


def random_policy(shape: str, layers: int = 0) -> Policy:
    """A model of this shape on the GPU in bfloat16, or on the CPU in float32. It never ends a response by itself.
    `layers`, if not 0: as many as that."""
    cuda = torch.cuda.is_available()
    device, dtype = torch.device("cuda" if cuda else "cpu"), torch.bfloat16 if cuda else torch.float32
    fewer = {"num_hidden_layers": layers} if layers else {}
    config = SHAPES[shape].config(attn_implementation=register_attention(), **fewer)
    model = HuggingFaceModel(random_model(config, device, dtype)).eval()
    return Policy(model, AnyWord.load(POCKET), device, dtype)


def quickest_engine(policy: Policy, rows: int, context: int, memory: float) -> Engine:
    """The native engine where it can be, else torch's."""
    return TorchEngine(policy) if why_not(policy) else fast_engine(policy, rows, context, memory)


def wait() -> None:
    """Until the GPU has done what it was given, if there is one in use."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
