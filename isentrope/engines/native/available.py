"""Says whether the native engine can sample from a policy, and if not, why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from isentrope.core.errors import EngineError
from isentrope.core.needs import install_command, is_here
from isentrope.models.policy import Policy

if TYPE_CHECKING:
    from isentrope.engines.native.engine import FastEngine

SIZES = (16, 32, 64, 128, 256)  # of a head
MOST_SHARING = 16  # query heads that share keys
LARGE = 256  # size of a head that in float32 only fits into the fast memory of the larger cards,
ROOMY = 160 * 1024  # which have so many bytes for one program


def fast_memory(device: torch.device) -> int:
    """Bytes of a core's own memory that one program may have; 0 without CUDA."""
    cuda: Any = torch.cuda  # whose properties have no types
    properties = cuda.get_device_properties(device) if device.type == "cuda" else None
    return getattr(properties, "shared_memory_per_block_optin", 0)


def why_not(policy: Policy) -> str:
    """Why the native engine cannot sample from this policy; empty if it can."""
    from isentrope.models.model_adapter import KNOWN, adapt_model

    if policy.device.type != "cuda":
        return f"it needs a GPU with CUDA, and the policy is on {policy.device.type}"
    if not is_here("triton"):
        return f"triton is not installed ({install_command('triton')}; torch for CUDA on Linux brings it)"
    parts = adapt_model(policy.model)
    if parts is None:
        return f"it knows our own model and Hugging Face's {', '.join(KNOWN)}, with plain adapters or none"
    if parts.head_size not in SIZES:
        return f"its heads are of size {parts.head_size}, not one of {', '.join(map(str, SIZES))}"
    if parts.head_size >= LARGE and policy.dtype == torch.float32 and fast_memory(policy.device) < ROOMY:
        return f"heads of size {parts.head_size} in float32 do not fit into this card (policy.dtype=bfloat16 do)"
    if parts.heads // parts.kv_heads > MOST_SHARING:
        return f"{parts.heads // parts.kv_heads} query heads share keys, more than {MOST_SHARING}"
    return ""


def fast_engine(policy: Policy, rows: int, context: int, memory: float, drafts: int = 0) -> FastEngine:
    reason = why_not(policy)
    if reason:
        raise EngineError(f'engine.kind = "fast" cannot be used: {reason}; use engine.kind=torch')
    from isentrope.engines.native.engine import FastEngine
    from isentrope.models.model_adapter import adapt_model

    parts = adapt_model(policy.model)
    assert parts is not None
    return FastEngine(policy, parts, rows, context, memory, drafts)
