"""One cell of the hardware table, in this process: a training step of one shape, its seconds and its memory.

A step is made of conversations of random tokens with random weights: all are answered in every turn, by responses of a
fixed length that never end early, and read some tokens between two turns, until they have exactly as many tokens as the
context. The native engine plays them; they are scored (the old log-probs are computed again) and learnt from as the
training loop does it. A short step before warms everything up.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import torch

from isentrope.bench.sampling import SHAPES, never, quickest_engine, random_policy, wait
from isentrope.config.load import load_config
from isentrope.config.schema import LearnSettings, RunConfig
from isentrope.core.engine import Engine, Request
from isentrope.core.errors import RunError
from isentrope.core.types import Episode, Turn
from isentrope.learning.learner import Learner
from isentrope.learning.packing import micro_batches
from isentrope.learning.tokens import flatten
from isentrope.models.lora import Base, with_adapters
from isentrope.models.memory import BFLOAT16, Need, Plays, Wanted, memory_of
from isentrope.models.policy import Policy
from isentrope.models.sources.catalogue import Facts, facts_of

RANK = 16
ENGINE = 0.3  # share of the card that the engine's cache may take
_TWICE, _LEAN = "learn.gradient_checkpointing=true", "learn.optimiser=adamw8"
WAYS: tuple[tuple[str, ...], ...] = ((), (_TWICE,), (_LEAN,), (_LEAN, _TWICE))
"""Settings to fall back on, quickest first: the first that are foretold to fit are taken."""


@dataclass(frozen=True)
class Talk:
    """Conversations of `context` tokens each: a prompt, then responses with what is read between them."""

    conversations: int
    turns: int
    new: int  # tokens of a response
    read: int  # tokens between two responses
    micro: int = 16_384  # learn.micro_tokens

    def prompt(self, context: int) -> int:
        return context - self.turns * self.new - (self.turns - 1) * self.read


TALKS = {64: Talk(4, 3, 8, 16, 128), 2048: Talk(32, 8, 64, 160), 8192: Talk(8, 16, 64, 416)}
"""By the context. Both large ones have 65,536 tokens a step, in four passes of 16,384 that are exactly full."""
GROUP = 4  # conversations with one prompt: too little of the tokens to be worth sharing in training


@dataclass(frozen=True)
class Cell:
    shape: str
    learns: str  # all, or adapters
    context: int

    @property
    def name(self) -> str:
        return f"{self.shape}, {self.learns}, {self.context}"

    @property
    def rank(self) -> int:
        return RANK if self.learns == "adapters" else 0


@cache
def shape_facts(shape: str) -> Facts:
    """Of a model that is not made."""
    import transformers

    config = SHAPES[shape].config()
    with torch.device("meta"):
        model: Any = getattr(transformers, config.architectures[0])(config)
    shapes = {name: tuple(p.shape) for name, p in model.named_parameters()}  # a tied head is there once
    return facts_of(config.to_dict(), shapes)


def foretold(cell: Cell, learn: LearnSettings, card: int) -> Need:
    """What the check before the first step says of it, in bfloat16 on a GPU with so many bytes."""
    facts, talk = shape_facts(cell.shape), TALKS[cell.context]
    room = Plays(talk.conversations, ENGINE).room(facts, cell.context, card)
    return Wanted(facts, BFLOAT16, cell.rank, learn, gpu=True, cache_tokens=room, card=card).need


def estimate(found: Mapping[str, Any]) -> int:
    """Bytes that the package of now foretells for a cell that was measured."""
    cell = Cell(found["shape"], found["learns"], found["context"])
    return foretold(cell, settings_of(cell, tuple(found["settings"])).learn, found.get("total", 0)).total


def settings_of(cell: Cell, way: tuple[str, ...]) -> RunConfig:
    talk = TALKS[cell.context]
    own = [
        "learn.kl=0", "learn.old_logprobs=recompute", "learn.lr=1e-6", f"learn.micro_tokens={talk.micro}",
        f"agent.max_context={cell.context}", f"agent.max_response={talk.new}", f"rollout.batch={talk.conversations}",
        f"policy.lora_rank={cell.rank}", f"task.max_turns={talk.turns}",
    ]  # fmt: skip
    return load_config(None, [*own, *way])


def chosen(cell: Cell, room: int) -> tuple[tuple[str, ...], RunConfig, Need]:
    """The quickest way that is foretold to fit into so many bytes; the last one if none is."""
    ways = [(way, settings_of(cell, way)) for way in WAYS]
    card = memory_of(torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    needs = [(way, config, foretold(cell, config.learn, card)) for way, config in ways]
    return next((each for each in needs if each[2].total <= room), needs[-1])


def play(engine: Engine, talk: Talk, context: int, words: int, seed: int = 0) -> list[Episode]:
    """All turns of all conversations, as episodes."""
    rng, count = np.random.default_rng(seed), talk.conversations
    firsts = rng.integers(0, words, (-(-count // GROUP), talk.prompt(context)))
    seen = [firsts[i // GROUP] for i in range(count)]
    prompts, turns = [part.tolist() for part in seen], [list[Turn]() for _ in range(count)]
    engine.open(range(count))
    for number in range(talk.turns):
        uniforms = rng.random((count, talk.new), dtype=np.float32)
        asked = [
            Request(i, prompts[i], uniforms[i], 1.0, never, closings=(b"</action>",)) for i in range(count)
        ]  # fmt: skip
        for i, sampled in enumerate(engine.sample(asked)):
            if len(sampled.ids) != talk.new:
                raise RunError(f"a response has {len(sampled.ids)} tokens, not {talk.new}: the work is not the same")
            turns[i].append(
                Turn(
                    "", None, "", np.asarray(seen[i], dtype=np.int32), number > 0, sampled.ids, sampled.logprobs,
                    sampled.entropies, sampled.temperatures, None, None, "look", "ok", "length", float(rng.random()),
                )
            )  # fmt: skip
            seen[i] = rng.integers(0, words, talk.read)
            prompts[i] = [*prompts[i], *sampled.ids.tolist(), *seen[i].tolist()]
    engine.open(())  # the update that follows needs the memory
    return [
        Episode(
            "bench", "train", i // GROUP, "", "", i // GROUP, i % GROUP, "think_act", tuple(each), True, "terminated"
        )
        for i, each in enumerate(turns)
    ]


class Meter:
    """Seconds and the most memory of each part of a step."""

    def __init__(self) -> None:
        self.seconds, self.peaks, self.held = dict[str, float](), dict[str, int](), dict[str, int]()

    def begin(self) -> None:
        wait()
        if torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()
        self._began = time.perf_counter()

    def end(self, part: str) -> None:
        wait()
        self.seconds[part] = time.perf_counter() - self._began
        if torch.cuda.is_available():
            self.peaks[part] = torch.cuda.max_memory_allocated()
        self.hold(part)

    def hold(self, part: str) -> None:
        if torch.cuda.is_available():
            self.held[part] = torch.cuda.memory_allocated()


def step(
    engine: Engine, learner: Learner, talk: Talk, context: int, number: int, meter: Meter, learnt: int | None = None
) -> list[Episode]:
    """`learnt`: only so many of the episodes are."""
    words = learner.policy.model.head_weight().shape[0]
    meter.begin()
    episodes = play(engine, talk, context, words, number)
    meter.end("rollout")
    meter.begin()
    credited = learner.credit(number, episodes[:learnt])
    meter.end("score")
    meter.begin()
    update = learner.update(credited)
    engine.refresh()
    meter.end("update")
    if update.metrics["update/skipped"]:
        raise RunError(f"the update was skipped: {update.metrics}")
    return episodes


def measure(cell: Cell, layers: int = 0) -> dict[str, Any]:
    """The cell's figures. `layers`: of a model that has only so many, to compile what the whole one will need."""
    room = torch.cuda.mem_get_info()[0] if torch.cuda.is_available() else 2**62
    way, config, _ = chosen(cell, room)
    talk, meter = TALKS[cell.context], Meter()
    found: dict[str, Any] = {**asdict(cell), "settings": list(way)}
    found |= {"tokens": talk.conversations * cell.context, "sampled": talk.conversations * talk.turns * talk.new}
    try:
        policy = random_policy(cell.shape, layers)
        if cell.rank:
            policy = with_adapters(policy, config.policy, 0, Base("random", "random"))
        if config.learn.gradient_checkpointing:
            policy.model.compute_twice()
        meter.hold("model")
        found["why"] = "the engine could not be made"
        engine = quickest_engine(policy, talk.conversations, cell.context, ENGINE)
        found["why"] = "the optimiser could not be made"
        learner = Learner(policy, None, config)
        meter.hold("learner")
        found["why"] = "during the short step"
        short = talk.prompt(cell.context) + 2 * talk.new + talk.read
        episodes = step(engine, learner, replace(talk, turns=2), short, 0, meter, GROUP)
        found["kept"] = kept_bytes(policy, config, episodes)
        found["why"] = "during the step"
        step(engine, learner, talk, cell.context, 1, meter)
        del found["why"]
    except torch.OutOfMemoryError as error:
        found |= {"oom": found.pop("why", "while the model was made"), "said": str(error)[:300]}
    return found | {"seconds": meter.seconds, "peaks": meter.peaks, "held": meter.held} | card()


def kept_bytes(policy: Policy, config: RunConfig, episodes: list[Episode]) -> float:
    """Bytes that one forward pass keeps for each token, by what is allocated before and behind it."""
    if not torch.cuda.is_available():
        return 0.0
    sequences, tokens = flatten(episodes)
    micro = config.learn.micro_tokens
    batch = next(micro_batches(sequences, tokens, row_tokens=micro, micro_tokens=micro, device=policy.device))
    before = torch.cuda.memory_allocated()
    stats = policy.stats(batch)
    kept = (torch.cuda.memory_allocated() - before) / batch.ids_BT.numel()
    del stats
    return kept


def card() -> dict[str, int]:
    """Of the whole card: what is taken beside torch's memory, and what recorded passes hold within it."""
    if not torch.cuda.is_available():
        return {}
    wait()
    free, total = torch.cuda.mem_get_info()
    reserved, passes = torch.cuda.memory_reserved(), 0
    for segment in torch.cuda.memory_snapshot():
        if tuple(segment.get("segment_pool_id", (0, 0))) != (0, 0):
            passes += segment["total_size"] - segment["allocated_size"]
    most = torch.cuda.max_memory_reserved()
    return {"total": total, "outside": total - free - reserved, "passes": passes, "reserved": most}


def peak(found: Mapping[str, Any]) -> int:
    """The most memory that a cell took of the card: tensors, recorded passes, and what is outside of torch's memory."""
    return max(found["peaks"].values(), default=0) + found.get("passes", 0) + found.get("outside", 0)


def clear() -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
