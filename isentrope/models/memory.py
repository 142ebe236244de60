"""Estimates the memory that a model needs before it is loaded, and compares it with what is free."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import cache, reduce
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from isentrope.config.schema import CriticSettings, LearnSettings
from isentrope.core.errors import EngineError

if TYPE_CHECKING:
    import torch

    from isentrope.models.sources.catalogue import Facts

FLOAT32, BFLOAT16 = 4, 2
ADAM = 2 * FLOAT32  # two moments per parameter that learns
EIGHT_BITS = 2 * (1 + FLOAT32 / 256)  # the same in 8 bits, with a scale for every 256
ON_THE_WAY = 3 * 2**24  # numbers whose moments are on the card at once, if the others are on the host
GPU = 700 * 2**20  # what CUDA, its libraries and the kernels take before anything is put on the card
READ_AT_ONCE = 16_384  # prompt tokens of the native engine's largest recorded pass: engines/native/prefill.py
COMPILED = ("LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")  # as models/model_adapter.py knows them
CGROUP = Path("/sys/fs/cgroup")
CHUNK_VALUES = {"cpu": 1 << 24, "cuda": 1 << 27}
"""Logits that the token head holds at once, in float32: 64 MiB; on a GPU, which needs more to be busy, 512 MiB."""
LEARNING_ROWS, CARD_SHARE, TILE = 2048, 256, 128
"""While a model learns on a GPU, chunks have up to so many rows if the GPU has so many bytes for each logit of a chunk:
the gradient of the head's weight, as large as the head, is read and written once a chunk. A product takes so many rows
at once."""
ROOM = 0.5
"""Share of a GPU's memory that what learns and its activations may take if all products are kept for the backward pass:
the rest is for a reference, the engine's cache and whatever else."""
HELD = 20
"""Bytes for each weight, with its gradient, Adam's moments and a float32 copy. The activations of small models are much
larger than that, and several of them may share a GPU."""


def chunk_rows(vocabulary: int, device: str = "cpu") -> int:
    return max(1, CHUNK_VALUES.get(device, CHUNK_VALUES["cpu"]) // vocabulary)


def learning_rows(vocabulary: int, memory: int) -> int:
    """Rows of a chunk while a model learns, on a GPU with this many bytes in all."""
    rows = max(chunk_rows(vocabulary, "cuda"), min(LEARNING_ROWS, memory // CARD_SHARE // vocabulary))
    return rows // TILE * TILE or rows


def keeps_products(kept: int, weights: int, memory: int) -> bool:
    """Whether so many bytes of activations, no product computed twice, leave room on a card with this much memory and
    are no more than a model of so many weights takes by itself."""
    held = HELD * weights
    return kept <= held and kept + held <= ROOM * memory


@dataclass(frozen=True)
class Need:
    """Bytes on the device, by what they are for. What comes before the cache is known exactly; the cache may be less
    than asked for; the rest is computed from the shape and was compared with measurements (docs/hardware.md)."""

    weights: int  # adapters included
    copies: int = 0  # float32 copies of bfloat16 weights
    moments: int = 0  # of Adam
    gradients: int = 0
    reference: int = 0
    critic: int = 0  # a separate one: its weights, gradients and optimiser
    engine: int = 0  # the engine's own copies of weights
    cache: int = 0  # keys and values of the conversations that are played at once
    passes: int = 0  # the engine's recorded passes
    activations: int = 0  # of one forward pass of training, kept for the backward pass
    layer: int = 0  # beside them, while the backward pass is in a layer or in the head
    base: int = 0  # what the device's own software takes
    host: int = 0  # in main memory, beside a GPU: moments (learn.moments = "host"); no part of the sums

    @property
    def optimiser(self) -> int:
        return self.copies + self.moments + self.gradients

    @property
    def certain(self) -> int:
        return self.weights + self.optimiser + self.reference + self.critic

    @property
    def total(self) -> int:
        return sum(self.items().values())

    def items(self) -> dict[str, int]:
        """All on the device."""
        return {item.name: getattr(self, item.name) for item in fields(self) if item.name != "host"}


def training_need(
    facts: Facts,
    weight_bytes: int,
    lora_rank: int = 0,
    reference: bool = False,
    masters: bool = True,
    tokens: int = 0,
    compute_twice: bool = False,
    critic: bool = False,
    eight_bits: bool = False,
    on_host: bool = False,
) -> Need:
    """Of training with passes of so many tokens, in plain torch. `eight_bits`, `on_host`: learning/lean_adamw.py."""
    count = facts.parameters
    weights, learning = weight_bytes * count, count
    if lora_rank:
        learning = lora_rank * facts.linear_edges
        weights += FLOAT32 * learning  # adapters are float32, whatever the weights are
    plain, lean = weight_bytes == FLOAT32 or lora_rank > 0, eight_bits or on_host
    number = FLOAT32 if plain or masters else BFLOAT16  # of what the optimiser works with
    copies = 0 if plain or not masters else (BFLOAT16 if lean else FLOAT32) * learning
    moments = round(EIGHT_BITS * learning) if eight_bits else (ADAM if lean else 2 * number) * learning
    moved = min(moments, round(ON_THE_WAY * moments / max(1, learning)))
    gradients, copied = number * learning, copies + (moved if on_host else moments) + number * learning
    return Need(
        weights=weights,
        copies=copies,
        moments=moved if on_host else moments,
        gradients=gradients,
        reference=weight_bytes * count if reference and not lora_rank else 0,  # adapters off is the reference
        critic=weights + copied if critic else 0,  # a whole copy of the policy, which learns as it does
        activations=tokens * activations_per_token(facts, compute_twice, weight_bytes),
        host=moments * (2 if critic else 1) if on_host else 0,
    )


def on_gpu(
    need: Need, facts: Facts, lora_rank: int, tokens: int, compute_twice: bool, cache_tokens: int, card: int = 0
) -> Need:
    """The same for a Llama-shaped model in bfloat16 on a GPU, where the native engine plays and training is compiled:
    sums of what kernels/forward.py, models/token_head.py and the engine hold at once. `card`: bytes that the GPU has in
    all; 0: not known, then it is taken for one without room to spare."""
    q, kv, d, inner, rank = _queries(facts), facts.kv_width, facts.width, facts.inner, lora_rank
    kept = BFLOAT16 * (d + 2 * q + kv) + FLOAT32 * (facts.heads + 1)  # the stream, attention's four and its normaliser
    if lora_rank:  # frozen weights leave the compiler no reason to compute the feed-forward part twice
        kept += BFLOAT16 * (3 * inner + 3 * d + 7 * rank)
    elif _roomy(facts, tokens, card):
        kept += BFLOAT16 * (2 * inner + 2 * d)
    if compute_twice:
        kept, within = BFLOAT16 * d, kept
    else:
        within = 0
    around = (BFLOAT16 + BFLOAT16 + 2 * FLOAT32) * d  # behind the last layer: the norm works in float32
    back = tokens * (within + BFLOAT16 * (5 * inner + 6 * d))  # a layer's backward pass
    if not lora_rank:  # its joined weights and their gradient, and that of the head, which waits for the words' own
        back += 2 * BFLOAT16 * 2 * inner * d + BFLOAT16 * facts.vocabulary * d
    logits = max(CHUNK_VALUES["cuda"], learning_rows(facts.vocabulary, card) * facts.vocabulary)
    head = (FLOAT32 + BFLOAT16) * logits + (0 if lora_rank else 2 * FLOAT32 * facts.vocabulary * d)
    read = min(READ_AT_ONCE, cache_tokens)
    return replace(
        need,
        engine=BFLOAT16 * rank * facts.linear_edges,
        cache=BFLOAT16 * facts.layers * kv * cache_tokens,
        passes=read * BFLOAT16 * (3 * inner + 4 * d + q + kv) if cache_tokens else 0,
        activations=tokens * (facts.layers * kept + around),
        layer=max(back, head) if tokens else 0,
        base=GPU,
    )


def _roomy(facts: Facts, tokens: int, card: int) -> bool:
    """As `has_room` of kernels/forward.py counts it."""
    q, kv, d, inner = _queries(facts), facts.kv_width, facts.width, facts.inner
    joined = d * (q + kv + 2 * inner)  # `kv_width` counts keys and values
    kept = facts.layers * (tokens * (6 * d + 2 * inner) + joined)
    weights = facts.layers * (joined + q * d + d * inner) + facts.vocabulary * d
    return keeps_products(BFLOAT16 * kept, weights, card)


def _queries(facts: Facts) -> int:
    """Numbers of a token's queries."""
    return facts.heads * facts.head_width or facts.width


def activations_per_token(facts: Facts, compute_twice: bool, number_bytes: int = FLOAT32) -> int:
    """Bytes kept for the backward pass, counted for a Llama's layers; docs/models.md has what was measured."""
    layer = 12 * facts.width + 5 * facts.inner
    if compute_twice:  # one number per layer and unit of width, and one layer at a time in full
        return number_bytes * (facts.layers * facts.width + layer)
    return number_bytes * facts.layers * layer


@cache
def memory_of(device: torch.device) -> int:
    """Bytes that a GPU has in all: what is free on it may be another number when a run is resumed."""
    import torch

    if device.type != "cuda":
        return 0
    return int(cast(Any, torch.cuda.get_device_properties(device)).total_memory)


def free_memory(device: str) -> int | None:
    """Bytes that may still be taken on `cpu` or a CUDA device; None where that cannot be known."""
    if device.startswith("cuda"):
        import torch

        free, _ = torch.cuda.mem_get_info(device)
        return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    if device != "cpu":
        return None
    known: list[int] = []
    with suppress(OSError, ValueError, LookupError):
        table = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        known.append(int(table["MemAvailable"].split()[0]) * 1024)
    # a container's own limits, less what it uses and cannot give back (cached files it can): cgroup 2, then cgroup 1
    for folder, limit, used, cached in (
        (CGROUP, "max", "current", "inactive_file"),
        (CGROUP / "memory", "limit_in_bytes", "usage_in_bytes", "total_inactive_file"),
    ):
        with suppress(OSError, ValueError):  # "max" is no number: no limit
            most, now = (int((folder / f"memory.{name}").read_text()) for name in (limit, used))
            stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
            known.append(max(0, most - now + int(stat.get(cached, 0))))
    if known:
        return min(known)
    with suppress(AttributeError, ValueError, OSError):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None


def gib(count: float) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 / 10 else f"{count / 2**20:.0f} MiB"


@dataclass(frozen=True)
class Wanted:
    """All that decides how much memory a run takes."""

    facts: Facts
    held: int  # bytes of a weight
    lora_rank: int = 0
    learn: LearnSettings | None = None  # None: the model is only to be sampled from
    critic: bool = False  # a separate one
    gpu: bool = False  # the native engine plays and training is compiled; else the sums are those of plain torch
    cache_tokens: int = 0  # that the engine's cache has room for
    apart: bool = False  # the device's memory is not the host's
    card: int = 0  # bytes that the GPU has in all; 0: not known

    @property
    def need(self) -> Need:
        facts, learn, rank = self.facts, self.learn, self.lora_rank
        if learn is None:
            return Need(self.held * facts.parameters)
        told = (learn.kl > 0, learn.master_weights, learn.micro_tokens, learn.gradient_checkpointing, self.critic)
        lean = (learn.optimiser == "adamw8", learn.moments == "host")
        need = training_need(facts, self.held, rank, *told, *lean)
        if not self.gpu:
            return need
        twice = learn.gradient_checkpointing
        return on_gpu(need, facts, rank, learn.micro_tokens, twice, self.cache_tokens, self.card)


def compiled_on_gpu(facts: Facts, device: torch.device, held: int) -> bool:
    """Whether `on_gpu` counts for a model, as far as can be said before it is loaded."""
    return device.type == "cuda" and held == BFLOAT16 and facts.architecture in COMPILED


@dataclass(frozen=True)
class Plays:
    """What the native engine's cache is for."""

    conversations: int  # at once
    share: float  # of the card that the cache may take

    def room(self, facts: Facts, context: int, card: int) -> int:
        """Tokens that the cache will have room for: those of all conversations, or as many as its share holds of a GPU
        with so many bytes (0: there is none)."""
        wanted = -(-self.conversations // 8) * 8 * (-(-context // 64) * 64)
        each = BFLOAT16 * facts.layers * facts.kv_width
        return min(wanted, int(self.share * card) // max(1, each)) if card else wanted


def check_memory(
    name: str,
    facts: Facts,
    device: torch.device,
    lora_rank: int,
    held: torch.dtype,
    learn: LearnSettings | None,
    critic: CriticSettings | None = None,
    cache_tokens: int = 0,
) -> None:
    """Refuse what cannot fit: weights and optimiser alone over what is free. Warn where the rest may not fit.
    Without `learn` the model is only to be sampled from; without `critic` there is none, whatever `learn` says."""
    free = free_memory(str(device))
    if free is None:
        return
    separate = learn is not None and learn.advantage.kind == "gae" and critic is not None and critic.kind == "separate"
    if learn is not None and device.type != "cuda":  # the host's memory is the device's there
        learn = replace(learn, moments="card")
    gpu = compiled_on_gpu(facts, device, held.itemsize)
    apart, card = device.type == "cuda", memory_of(device)
    wanted = Wanted(facts, held.itemsize, lora_rank, learn, separate, gpu, cache_tokens, apart, card)
    need = wanted.need
    _check_host(name, need)
    if need.certain > free:
        over = gib(need.certain - free)
        raise EngineError(f"{_sum(name, need, free, device)}: {over} too little. {_advice(wanted, free)}")
    if need.total > free:
        print(
            f"warning: {_sum(name, need, free, device)}. That is for passes that fill learn.micro_tokens; if memory "
            f"runs out: {_advice(wanted, free)}",
            file=sys.stderr,
        )


def _check_host(name: str, need: Need) -> None:
    """Page-locked memory comes in powers of two, so a tenth more may be taken."""
    free = free_memory("cpu") if need.host else None
    if free is not None and need.host * 1.1 > free:
        raise EngineError(
            f"{name}: learn.moments = host puts {gib(need.host)} of AdamW's moments into main memory, and "
            f"{gib(free)} are free there: {gib(need.host * 1.1 - free)} too little with what is lost in pages. "
            "Set learn.optimiser=adamw8, whose moments are a quarter as large, and learn.moments=card if they fit there"
        )


def _sum(name: str, need: Need, free: int, device: torch.device) -> str:
    parts = [f"{gib(need.weights)} for weights"]
    parts += [f"{gib(need.optimiser)} for gradients and optimiser"] if need.optimiser else []
    parts += [f"{gib(need.reference)} for the reference"] if need.reference else []
    parts += [f"{gib(need.critic)} for the critic"] if need.critic else []
    engine = need.engine + need.cache + need.passes
    parts += [f"{gib(engine)} for the engine's cache and passes"] if engine else []
    kept = need.activations + need.layer
    parts += [f"up to about {gib(kept)} for activations"] if kept else []
    parts += [f"{gib(need.base)} for CUDA"] if need.base else []
    return f"{name} takes {', '.join(parts)}: {gib(need.total)}, and {gib(free)} are free on {device}"


def _advice(wanted: Wanted, free: int) -> str:
    """The settings that would fit, as few at once as will do, with what they come to."""
    changes = _changes(wanted)
    for count in (1, 2, 3, -1, -2, -3):  # then the least that a lower learn.micro_tokens can do
        fitting = list[str]()
        for some in combinations(changes, abs(count)):
            need = reduce(lambda before, one: changes[one](before), some, wanted).need
            taken = need.total if count > 0 else need.certain
            if taken <= free:
                fitting.append(f"{' with '.join(some)} ({gib(taken)}{'' if count > 0 else ' without activations'})")
        if fitting and count > 0:
            return f"These would fit: {'; '.join(fitting[:3])}; or a smaller model"
        if fitting:
            return f"Try {'; '.join(fitting[:3])}, and a lower learn.micro_tokens; or a smaller model"
    return "No setting makes it fit: take a smaller model" if changes else "Take a smaller model"


def _changes(wanted: Wanted) -> dict[str, Callable[[Wanted], Wanted]]:
    """Settings that take less; those first that change least of what is learnt."""

    def learning(**less: Any) -> Callable[[Wanted], Wanted]:
        return lambda one: replace(one, learn=replace(cast("LearnSettings", one.learn), **less))

    learn, rank, found = wanted.learn, wanted.lora_rank, dict[str, Callable[[Wanted], Wanted]]()
    if learn is not None:
        if not learn.gradient_checkpointing:
            found["learn.gradient_checkpointing=true"] = learning(gradient_checkpointing=True)
        if not rank and learn.optimiser == "adamw" and learn.moments == "card":
            found["learn.optimiser=adamw8"] = learning(optimiser="adamw8")
            if wanted.apart:
                found["learn.moments=host"] = learning(moments="host")
        if wanted.critic:
            found["critic.kind=head"] = lambda one: replace(one, critic=False)
        if learn.kl > 0 and not rank:
            found["learn.kl=0"] = learning(kl=0.0)
        if not rank:
            found["policy.lora_rank=16"] = lambda one: replace(one, lora_rank=16)
    if wanted.held == FLOAT32:
        found["run.weights=bfloat16"] = lambda one: replace(one, held=BFLOAT16)
    return found
