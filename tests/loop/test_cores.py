"""Threads that wait for a core: counted by the kernel, and said once where there is something to do about it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

from isentrope.loop.messages import CROWDED, Cores, Crowd, crowded, waited
from isentrope.loop.progress import Progress

CPU = torch.device("cpu")


def tell(tasks: Path, **seconds: float) -> None:
    for name, wait in seconds.items():
        (tasks / name).mkdir(exist_ok=True)
        (tasks / name / "schedstat").write_text(f"5 {round(wait * 1e9)} 7\n")


def test_waits_of_all_threads_are_summed_and_divided_by_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter([100.0, 104.0, 106.0])
    monkeypatch.setattr(time, "perf_counter", lambda: next(times))
    tell(tmp_path, a=1.0, b=2.0)
    cores = Cores(tmp_path)
    tell(tmp_path, a=1.5, b=4.5)
    assert cores.look() == pytest.approx((0.5 + 2.5) / 4)
    tell(tmp_path, a=1.5, b=5.5)
    assert cores.look() == pytest.approx(1.0 / 2)  # from the last look on


def test_a_thread_that_ends_does_not_make_it_negative(tmp_path: Path) -> None:
    tell(tmp_path, a=1.0, b=50.0)
    cores = Cores(tmp_path)
    (tmp_path / "b" / "schedstat").unlink()
    assert cores.look() == 0.0


@pytest.mark.parametrize("content", ["", "5", "5 x 7", "\x00"])
def test_other_forms_and_other_systems_tell_nothing(tmp_path: Path, content: str) -> None:
    assert waited(tmp_path / "none") is None
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "schedstat").write_text(content)
    assert waited(tmp_path) is None
    assert Cores(tmp_path).look() is None


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="the kernel does not tell how long threads wait")
def test_the_kernel_tells_of_threads_that_share_a_core() -> None:
    """Two processes on one core: each waits about half of the time. Alone the wait is short."""
    allowed = os.sched_getaffinity(0)
    burn = (
        f"import os\nos.sched_setaffinity(0, {{{min(allowed)}}})\nprint(1, flush=True)\nwhile os.getppid() != 1: pass"
    )
    with subprocess.Popen([sys.executable, "-c", burn], stdout=subprocess.PIPE) as other:
        try:
            assert other.stdout is not None
            other.stdout.readline()
            os.sched_setaffinity(threading.get_native_id(), {min(allowed)})
            cores, end = Cores(), time.monotonic() + 1.5
            while time.monotonic() < end:
                pass
            found = cores.look()
        finally:
            os.sched_setaffinity(threading.get_native_id(), allowed)
            other.kill()
    assert found is not None
    assert found > CROWDED


def test_advice_is_for_several_threads_on_a_cpu() -> None:
    told = crowded(1.34, CPU, threads=2)
    assert "2 threads waited for them for 1.3 s in every second" in told
    assert "--resume --set run.threads=1" in told
    assert not crowded(1.34, CPU, threads=1)
    assert not crowded(1.34, torch.device("cuda"), threads=2)
    assert not crowded(CROWDED / 2, CPU, threads=2)
    assert not crowded(None, CPU, threads=2)


def test_it_is_said_once_and_measured_in_every_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    times = iter(float(second) for second in range(100))
    monkeypatch.setattr(time, "perf_counter", lambda: next(times))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    watch = Progress(quiet=True)
    monkeypatch.setattr(watch, "say", said.append)
    tell(tmp_path, a=0.0)
    crowd = Crowd(watch, CPU, Cores(tmp_path))
    shares: list[float] = []
    for step, (before, after) in enumerate([(9.0, 9.1), (9.1, 10.0), (12.0, 12.8)], start=1):
        tell(tmp_path, a=before)
        crowd.begin()
        tell(tmp_path, a=after)
        shares.append(crowd.look(step)["cores/waited"])
    assert shares == pytest.approx([0.1, 0.9, 0.8])
    assert len(said) == 1
    assert said[0].startswith("step 2: other programs keep the cores busy: 2 threads")
