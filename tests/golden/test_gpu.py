"""The golden run on one GPU: metrics as recorded on this device and torch, to three digits; rates are only told.

`gpu.py` records it, with the rule for recording it again.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from isentrope.bench.work import Work
from tests.golden import gpu

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
SMALL = ("run.steps=1", "run.threads=1", "task.max_turns=2", "rollout.groups=2", "rollout.group_size=2", "eval.games=1",
         "instruments.probe_every=0")  # fmt: skip


def recorded() -> dict[str, Any]:
    key = gpu.key_of("cuda")
    devices = gpu.read()["devices"]
    if key not in devices:
        pytest.skip(f'nothing is recorded for {key}: python -m tests.golden.gpu "why"')
    return devices[key]


@needs_cuda
@pytest.mark.parametrize("case", gpu.CASES)
def test_as_it_was(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = recorded()["cases"][case]
    rows, rates = gpu.play(case, "cuda", tmp_path / "run")
    with capsys.disabled():
        print(f"\n{case}: {gpu.ratios(rates, kept['rates'])}")
    assert not gpu.differences(kept["rows"], rows)


@needs_cuda
def test_rates_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("transformers")
    kept = recorded()["rates"]
    if not kept:
        pytest.skip("no rates are recorded for this device")
    rates = gpu.bench("cuda", tmp_path)
    with capsys.disabled():
        print(f"\n{gpu.BUSY.model}: {gpu.ratios(rates, kept)}")


def test_recordings_say_why_and_hold_training_steps() -> None:
    table = gpu.read()
    assert all(len(entry["why"].split()) >= 3 and len(entry["date"]) == 20 for entry in table["log"])
    assert {entry["device"] for entry in table["log"]} >= table["devices"].keys()
    for device in table["devices"].values():
        assert device["cases"].keys() == set(gpu.CASES)
        assert all(any(row["kind"] == "train" for row in case["rows"]) for case in device["cases"].values())


@pytest.mark.slow(15)
def test_a_recording_on_a_cpu_is_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    monkeypatch.setattr(gpu, "PLAYS", 2)
    table = {
        "log": [{"date": "", "why": "", "device": "cpu"}],
        "devices": {"cpu": gpu.record("cpu", *SMALL, work=Work("tiny", groups=1, group_size=2, turns=2))},
    }
    assert json.loads(gpu.written(table)) == table
    kept = table["devices"]["cpu"]["cases"]
    for case in gpu.CASES:
        rows, rates = gpu.play(case, "cpu", tmp_path / case, *SMALL)
        assert len(kept[case]["rows"]) == len(rows) == 3  # nothing was left out: bits repeat on a CPU
        assert not gpu.differences(kept[case]["rows"], rows)
        assert gpu.ratios(rates, kept[case]["rates"])
    other, _ = gpu.play("float32", "cpu", tmp_path / "other", *SMALL, "run.seed=4")
    assert gpu.differences(kept["float32"]["rows"], other)


def row(step: int, tokens: float, **more: float) -> dict[str, Any]:
    named = {"response/tokens": tokens} | {name.replace("_", "/"): value for name, value in more.items()}
    return {"step": step, "kind": "train"} | {name: repr(value) for name, value in named.items()}


def test_what_does_not_repeat_is_not_kept() -> None:
    plays = [
        [row(1, 5.0, loss_kl=0.5, grad=1.0), row(2, 6.0, grad=1.0), row(3, 7.0)],
        [row(1, 5.0, loss_kl=0.51, grad=1.0), row(2, 6.5, grad=1.0), row(3, 7.0)],
    ]
    assert gpu.repeated(plays) == [row(1, 5.0, grad=1.0)]


def test_a_difference_is_told() -> None:
    kept = [row(1, 5.0, grad=1.0, mismatch_kl=1e-9)]
    assert not gpu.differences(kept, [row(1, 5.0, grad=1.001, mismatch_kl=-2e-6)])
    assert gpu.differences(kept, [row(1, 5.0, grad=1.02, mismatch_kl=0.0)]) == ["step 1 train grad: 1.02, was 1.0"]
    assert gpu.differences(kept, [row(1, 5.0, mismatch_kl=0.0)]) == ["step 1 train grad: None, was 1.0"]
    assert len(gpu.differences(kept, [row(2, 5.0, grad=1.0)])) == 5  # the step is missing: all of its keys are
