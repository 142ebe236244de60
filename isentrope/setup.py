"""What is settled before a run begins: the machine, and what only the world can say."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace

import torch

from isentrope.config.schema import RunConfig
from isentrope.models.load import choose_device
from isentrope.worlds.pool.open import open_world


def settled(config: RunConfig) -> RunConfig:
    """The settings with the splits to evaluate on written out: all but those of training, if none were named."""
    if config.eval.splits:
        return config
    world = open_world(config.task)
    splits = tuple(world.splits())
    if close := getattr(world, "close", None):
        close()
    chosen = tuple(split for split in splits if split != "train") or splits
    return replace(config, eval=replace(config.eval, splits=chosen))


def use_threads(config: RunConfig) -> None:
    """Torch threads: what was asked for, here or by OMP_NUM_THREADS, else one per core that task workers leave. More
    threads than free cores make everything many times slower."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    asked = os.environ.get("OMP_NUM_THREADS", "")
    known = int(asked) if asked.isdecimal() else 0
    torch.set_num_threads(config.run.threads or known or max(1, min(8, cores) - config.task.workers))
    torch.use_deterministic_algorithms(choose_device(config.run.device).type == "cpu", warn_only=True)


@contextmanager
def lasting_objects() -> Generator[None]:
    """What exists now lives as long as the loop: the garbage collector need not look at it again and again. Torch and
    its neighbours alone are some 300,000 objects."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
