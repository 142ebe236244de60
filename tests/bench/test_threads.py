"""How many threads torch gets on a CPU."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch

from isentrope.config.load import load_config
from isentrope.loop.session import use_threads


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize(
    ("asked", "setting", "workers", "threads"), [("3", 0, 0, 3), ("3", 2, 0, 2), ("", 0, 99, 1), ("2,1", 0, 99, 1)]
)
def test_threads(monkeypatch: pytest.MonkeyPatch, asked: str, setting: int, workers: int, threads: int) -> None:
    """The setting wins over the environment, which wins over the number of cores."""
    monkeypatch.setitem(os.environ, "OMP_NUM_THREADS", asked)
    use_threads(load_config(None, ["run.device=cpu", f"run.threads={setting}", f"task.workers={workers}"]))
    assert torch.get_num_threads() == threads
