"""Settings of all tests: a busy machine is not a failure, so hypothesis does not watch the clock; its examples are the
same in every run, unless ISENTROPE_EXPLORE=1 asks for new ones (make explore); interrupts work even where a shell that
started the tests in the background has turned them off; without a GPU kernels are interpreted; long files go first."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

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


@pytest.fixture(autouse=True)
def trials_in_this_process(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Models are tried here instead of in a child, which takes seconds to begin; `real_trials` asks for the child."""
    if "real_trials" not in request.fixturenames:
        monkeypatch.setattr("isentrope.models.trial.in_child", _in_this_process)


@pytest.fixture
def real_trials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is known of any model yet, and each is tried in a child."""
    monkeypatch.setenv("ISENTROPE_CACHE", str(tmp_path / "tried-cache"))
    monkeypatch.setattr("isentrope.models.trial._known", {})


def _in_this_process(trials: Sequence[Any], limits: object = None) -> list[dict[str, Any]]:
    from isentrope.models.sources.small_files import laid_out
    from isentrope.models.trial_child import answers_to

    with ExitStack() as stack:
        places = [str(stack.enter_context(laid_out(trial.files))) for trial in trials]
        told = [{"what": t.what, "folder": place, **t.options} for t, place in zip(trials, places, strict=True)]
        return answers_to(told, lambda _: None)
