"""Settings of all tests: a busy machine is not a failure, so hypothesis does not watch the clock; its examples are the
same in every run, unless ISENTROPE_EXPLORE=1 asks for new ones (make explore); interrupts work even where a shell that
started the tests in the background has turned them off; without a GPU kernels are interpreted; long files go first."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings

from tests.builders.sizes import EXPLORE

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # before anyone imports triton: its own functions need it too

patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", patient, derandomize=True)
settings.register_profile("explore", patient)
settings.load_profile("explore" if EXPLORE else "same")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with slow tests come first, the longest before the others: workers that share files end together."""
    seconds: Counter[Path] = Counter()
    for item in items:
        if (slow := item.get_closest_marker("slow")) is not None:
            seconds[item.path] += slow.args[0] if slow.args else 5
    items.sort(key=lambda item: -seconds[item.path])
