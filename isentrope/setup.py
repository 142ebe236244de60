"""Settings of the machine that hold for a whole run."""

from __future__ import annotations

import os

import torch

from isentrope.config.schema import RunConfig
from isentrope.policy.load import choose_device


def use_threads(config: RunConfig) -> None:
    """Torch threads: what was asked for, else one per core that task workers leave. More threads than free cores
    make everything many times slower."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    torch.set_num_threads(config.run.threads or max(1, min(8, cores) - config.task.workers))
    torch.use_deterministic_algorithms(choose_device(config.run.device).type == "cpu", warn_only=True)
