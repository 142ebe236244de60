"""Estimates the memory that a model needs before it is loaded, and compares it with what is free."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

from isentrope.config.schema import CriticSettings, LearnSettings
from isentrope.core.errors import EngineError

if TYPE_CHECKING:
    import torch

    from isentrope.models.sources.catalogue import Facts

FLOAT32, BFLOAT16 = 4, 2
ADAM = 2 * FLOAT32  # two moments per parameter that learns
GPU = 700 * 2**20  # what CUDA, its libraries and the kernels take before anything is put on the card
HEAD_LOGITS = 2**27  # logits that the head holds at once on a GPU: models/token_head.py
READ_AT_ONCE = 16_384  # prompt tokens of the native engine's largest recorded pass: engines/native/prefill.py
CGROUP = Path("/sys/fs/cgroup")


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
        return {item.name: getattr(self, item.name) for item in fields(self)}


def training_need(
    facts: Facts,
    weight_bytes: int,
    lora_rank: int = 0,
    reference: bool = False,
    masters: bool = True,
    tokens: int = 0,
    compute_twice: bool = False,
    critic: bool = False,
) -> Need:
    """Of training with passes of so many tokens, in plain torch."""
    count = facts.parameters
    weights, learning = weight_bytes * count, count
    if lora_rank:
        learning = lora_rank * facts.linear_edges
        weights += FLOAT32 * learning  # adapters are float32, whatever the weights are
    plain = weight_bytes == FLOAT32 or lora_rank > 0
    number = FLOAT32 if plain or masters else BFLOAT16  # of what the optimiser works with
    copies = 0 if plain or not masters else FLOAT32 * learning
    moments, gradients = 2 * number * learning, number * learning
    return Need(
        weights=weights,
        copies=copies,
        moments=moments,
        gradients=gradients,
        reference=weight_bytes * count if reference and not lora_rank else 0,  # adapters off is the reference
        critic=weights + copies + moments + gradients if critic else 0,  # a whole copy of the policy, which learns
        activations=tokens * activations_per_token(facts, compute_twice, weight_bytes),
    )


def on_gpu(need: Need, facts: Facts, lora_rank: int, tokens: int, compute_twice: bool, cache_tokens: int) -> Need:
    """The same for a Llama-shaped model in bfloat16 on a GPU, where the native engine plays and training is compiled:
    sums of what kernels/forward.py, models/token_head.py and the engine hold at once."""
    q, kv, d, inner, rank = _queries(facts), facts.kv_width, facts.width, facts.inner, lora_rank
    kept = BFLOAT16 * (d + 2 * q + kv) + FLOAT32 * (facts.heads + 1)  # the stream, attention's four and its normaliser
    if lora_rank:  # frozen weights leave the compiler no reason to compute the feed-forward part twice
        kept += BFLOAT16 * (3 * inner + 2 * d + 7 * rank)
    if compute_twice:
        kept, within = BFLOAT16 * d, kept
    else:
        within = 0
    around = (BFLOAT16 + BFLOAT16 + 2 * FLOAT32) * d  # behind the last layer: the norm works in float32
    back = tokens * (within + BFLOAT16 * (5 * inner + 6 * d))  # a layer's backward pass
    back += 0 if lora_rank else 2 * BFLOAT16 * 2 * inner * d  # its joined weights, and their gradient
    head = (FLOAT32 + BFLOAT16) * HEAD_LOGITS + (0 if lora_rank else 2 * FLOAT32 * facts.vocabulary * d)
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


def _queries(facts: Facts) -> int:
    """Numbers of a token's queries."""
    return facts.heads * facts.head_width or facts.width


def activations_per_token(facts: Facts, compute_twice: bool, number_bytes: int = FLOAT32) -> int:
    """Bytes kept for the backward pass, counted for a Llama's layers; docs/models.md has what was measured."""
    layer = 12 * facts.width + 5 * facts.inner
    if compute_twice:  # one number per layer and unit of width, and one layer at a time in full
        return number_bytes * (facts.layers * facts.width + layer)
    return number_bytes * facts.layers * layer


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


def check_memory(
    name: str,
    facts: Facts,
    device: torch.device,
    lora_rank: int,
    held: torch.dtype,
    learn: LearnSettings | None,
    critic: CriticSettings | None = None,
) -> None:
    """Refuse what cannot fit: weights and optimiser alone over what is free. Warn where activations may not fit.
    Without `learn` the model is only to be sampled from; without `critic` there is none, whatever `learn` says."""
    free = free_memory(str(device))
    if free is None:
        return
    need = Need(held.itemsize * facts.parameters)
    if learn is not None:
        separate = learn.advantage.kind == "gae" and critic is not None and critic.kind == "separate"
        told = (learn.kl > 0, learn.master_weights, learn.micro_tokens, learn.gradient_checkpointing, separate)
        need = training_need(facts, held.itemsize, lora_rank, *told)
    if need.certain > free:
        raise EngineError(f"{_sum(name, need, free, device)}. {_advice(lora_rank, learn, need, held.itemsize)}")
    if need.total > free:
        print(
            f"warning: {_sum(name, need, free, device)}. That is for passes that fill learn.micro_tokens; if memory "
            "runs out, set it lower, or learn.gradient_checkpointing=true",
            file=sys.stderr,
        )


def _sum(name: str, need: Need, free: int, device: torch.device) -> str:
    parts = [f"{gib(need.weights)} for weights"]
    parts += [f"{gib(need.optimiser)} for gradients and optimiser"] if need.optimiser else []
    parts += [f"{gib(need.reference)} for the reference"] if need.reference else []
    parts += [f"{gib(need.critic)} for the critic"] if need.critic else []
    parts += [f"up to about {gib(need.activations)} for activations"] if need.activations else []
    return f"{name} takes {', '.join(parts)}: {gib(need.total)}, and {gib(free)} are free on {device}"


def _advice(lora_rank: int, learn: LearnSettings | None, need: Need, size: int) -> str:
    if learn is None:
        return "Take a smaller model" + (" or run.weights=bfloat16" if size == FLOAT32 else "")
    # Full training in bfloat16 keeps float32 copies, and gains nothing here.
    ways = ["policy.lora_rank=16"] if not lora_rank else ["run.weights=bfloat16"] if size == FLOAT32 else []
    ways += ["learn.kl=0, which needs no reference"] if need.reference else []
    ways += ["critic.kind=head"] if need.critic else []
    return f"Try {', '.join([*ways, 'a smaller model'])}; for activations, a lower learn.micro_tokens"
