"""The golden runs: tiny runs in the toy world that between them use every algorithm, method and way to train."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import torch

from isentrope.config.schema import RunConfig
from isentrope.loop.imitate import warm_up
from isentrope.loop.train import train
from tests.builders.toy_runs import WARM_MODEL, toy_config

SMALL = (
    "run.seed=3", "run.steps=3", "run.eval_every=0", "run.checkpoint_every=3", "run.keep_last=1", "task.max_turns=5",
    "rollout.groups=4", "rollout.group_size=4", "eval.games=4", "learn.warmup=0", "learn.lr=3e-3", "learn.kl=0.01",
    "learn.divide_by_std=true", "methods=[]", "agent.max_response=12", "sft.games=4", "sft.batch_games=2",
    "sft.epochs=1",
)  # fmt: skip
_ALGORITHMS = (
    "rloo", "grpo", "dr_grpo", "dapo", "gspo", "gigpo", "gigpo_mixed", "ppo", "grpo_plus", "recommended"
)  # fmt: skip
_METHODS = ("entropy_bonus", "higher_temperature", "epo", "ea", "seal", "aem", "actre", "no_think")
CASES: dict[str, tuple[str, ...]] = {
    **{name: (f"learn.algorithm={name}",) for name in _ALGORITHMS},
    "reinforce": ("learn.algorithm=reinforce", "learn.mini_batches=1"),
    "probes": ("instruments.probe_every=1",),
    **{f"grpo-{name}": ("learn.algorithm=grpo", f"methods={name}") for name in _METHODS},
    "all-methods": ("learn.algorithm=gspo", "methods=actre,epo,aem,seal,ea", "learn.epochs=2"),
    "ahead": ("rollout.ahead=1", "learn.old_logprobs=recompute", "learn.mismatch=truncate"),
    "lora": ("policy.lora_rank=4",),
    "undivided-by-turn": ("learn.divide_by_std=false", "learn.aggregation=turn"),
    "by-episode": ("learn.aggregation=episode",),
    "sft": ("sft.orders=think_act,act_think",),
    "rft": ("sft.source=own",),
}
_CLOCK = ("seconds/", "rollout_seconds/", "tokens_per_second/", "cores/", "memory/")


def config_of(name: str) -> RunConfig:
    return toy_config(WARM_MODEL, *SMALL, *CASES[name])


def play(name: str, folder: Path) -> dict[str, Any]:
    """Run a case; gives its metrics by step and kind, and the hash of the weights that it ends with."""
    run = warm_up if name in ("sft", "rft") else train
    run(config_of(name), folder, quiet=True)
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    last = sorted((folder / "checkpoints").glob("step-*"))[-1] / "policy"
    return {"rows": [numbers(row) for row in rows], "weights": _weights(last)}


def numbers(row: dict[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in row.items() if not key.startswith(_CLOCK)}
    return {key: repr(value) if isinstance(value, float) else value for key, value in sorted(kept.items())}


def _weights(folder: Path) -> str:
    """Over all numbers of the last checkpoint, adapters and all, by name."""
    told = hashlib.sha256()
    for path in sorted(folder.glob("*.safetensors")):
        told.update(path.name.encode() + path.read_bytes())
    return told.hexdigest()[:16]


def machine() -> str:
    """What bits depend on: the processor's instructions and the build of torch."""
    flags = next((line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("flags")), "")
    build = f"{torch.__version__} {torch.backends.cpu.get_cpu_capability()} {torch.__config__.show()}"
    return hashlib.sha256(f"{' '.join(sorted(flags.split()))} {build}".encode()).hexdigest()[:16]


def alike(ours: str, theirs: str, digits: int) -> bool:
    """Two numbers as they were written, to so many significant digits; not finite ones must be the same."""
    a, b = float(ours), float(theirs)
    if not (math.isfinite(a) and math.isfinite(b)):
        return ours == theirs
    return abs(a - b) <= 10.0 ** (1 - digits) * max(abs(a), abs(b), 1e-3)
