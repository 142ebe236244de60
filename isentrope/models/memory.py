"""Estimates the memory that a model needs before it is loaded, and compares it with what is free."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isentrope.config.schema import CriticSettings, LearnSettings
from isentrope.core.errors import EngineError

if TYPE_CHECKING:
    import torch

    from isentrope.models.sources.catalogue import Facts

FLOAT32, BFLOAT16 = 4, 2
ADAM = 2 * FLOAT32  # two moments per parameter that learns
CGROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Need:
    """Bytes. All but the activations are known exactly; those are an estimate."""

    weights: int
    optimiser: int = 0  # gradients, Adam's moments, float32 copies
    reference: int = 0
    critic: int = 0  # a separate one: its weights, gradients and optimiser
    activations: int = 0

    @property
    def certain(self) -> int:
        return self.weights + self.optimiser + self.reference + self.critic

    @property
    def total(self) -> int:
        return self.certain + self.activations


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
    count = facts.parameters
    weights, learning = weight_bytes * count, count
    if lora_rank:
        learning = lora_rank * facts.linear_edges
        weights += FLOAT32 * learning  # adapters are float32, whatever the weights are
    if weight_bytes == FLOAT32 or lora_rank:
        optimiser = (FLOAT32 + ADAM) * learning
    elif masters:  # the float32 copy, and its gradient
        optimiser = (2 * FLOAT32 + ADAM) * learning
    else:
        optimiser = 3 * BFLOAT16 * learning
    return Need(
        weights=weights,
        optimiser=optimiser,
        reference=weight_bytes * count if reference and not lora_rank else 0,  # adapters off is the reference
        critic=weights + optimiser if critic else 0,  # a whole copy of the policy, which learns as it does
        activations=tokens * activations_per_token(facts, compute_twice, weight_bytes),
    )


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
    card: Any = torch.cuda.get_device_properties(device)
    return int(card.total_memory)


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
