"""Which benches run where, and what becomes of one that fails."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from isentrope.bench import suite
from isentrope.bench.suite import BENCHES, Bench, Machine, arguments, chosen, run
from isentrope.cli.main import app
from isentrope.core.errors import ConfigError

LAPTOP, SERVER = Machine(False, True, True), Machine(True, True, True)
GOOD = """
import argparse, json
parser = argparse.ArgumentParser()
parser.add_argument("--json")
parser.add_argument("--rounds", default="9")
given = parser.parse_args()
row = {"what": "speed", "value": 1.0, "unit": "s", "ratio": float(given.rounds), "peer": "p", "bar": 5.0, "note": ""}
json.dump({"name": "good", "machine": "m", "date": "d", "rows": [row]}, open(given.json, "w"))
raise SystemExit(float(given.rounds) < 5)
"""


def by_name(name: str) -> Bench:
    return next(bench for bench in BENCHES if bench.name == name)


def test_what_makes_sense_where() -> None:
    here = {bench.name for bench in BENCHES if not isinstance(arguments(bench, LAPTOP, False), str)}
    there = {bench.name for bench in BENCHES if not isinstance(arguments(bench, SERVER, False), str)}
    assert here == {"update", "cpu", "growth"}
    assert there == {"rollout", "update", "trl", "growth", "hardware"}
    assert arguments(by_name("vllm"), Machine(True, True, False, vllm=True), False) == []
    assert "needs vLLM" in str(arguments(by_name("vllm"), SERVER, False))
    assert "measures a GPU" in str(arguments(by_name("vllm"), Machine(False, True, True, vllm=True), False))
    assert arguments(by_name("trl_vllm"), Machine(True, True, True, vllm=True), False) == []
    assert "needs vLLM" in str(arguments(by_name("trl_vllm"), SERVER, False))
    assert "needs TRL" in str(arguments(by_name("trl_vllm"), Machine(True, True, False, vllm=True), False))
    assert arguments(by_name("growth"), LAPTOP, False) == ["--tiny"]
    assert "trl==1.16.0" in str(arguments(by_name("cpu"), Machine(False, True, False), False))
    assert "[hf]" in str(arguments(by_name("growth"), Machine(True, False, True), False))
    assert len(arguments(by_name("trl"), SERVER, True)) > len(arguments(by_name("trl"), SERVER, False))


def test_every_bench_is_there() -> None:
    assert all(suite.target(bench.name) for bench in BENCHES)


def test_unknown_names_are_named() -> None:
    with pytest.raises(ConfigError, match=r"'spead'; there are rollout"):
        chosen(["spead"])
    assert [bench.name for bench in chosen(["growth", "growth"])] == ["growth"]


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "bench").mkdir()
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "bench" / "good.py").write_text(GOOD)
    (tmp_path / "bench" / "bad.py").write_text("raise SystemExit('no such device')")
    (tmp_path / "bench" / "slow.py").write_text("import time; time.sleep(60)")
    monkeypatch.setattr(suite, "SOURCES", tmp_path)
    return tmp_path


def test_results_are_kept_and_judged(sources: Path, tmp_path: Path) -> None:
    bench = Bench("good", "x", cpu=(), quick=("--rounds", "2"), hugging_face=False)
    for quick, met in ((False, True), (True, False)):
        outcome = run(bench, LAPTOP, quick, tmp_path / "out", 60)
        assert outcome.result is not None
        assert outcome.result.met is met  # a missed bar is a result, not a failure
        assert not outcome.failed
    assert json.loads((tmp_path / "out" / "good.json").read_text())["rows"][0]["ratio"] == 2.0


def test_failures_are_told(sources: Path, tmp_path: Path) -> None:
    def outcome(name: str, limit: float) -> suite.Outcome:
        return run(Bench(name, "x", cpu=(), hugging_face=False), LAPTOP, False, tmp_path / "out", limit)

    bad, slow = outcome("bad", 60), outcome("slow", 1)
    assert bad.failed
    assert "no such device" in bad.reason
    assert slow.failed
    assert "longer than 1 s" in slow.reason
    absent = outcome("absent", 60)
    assert not absent.failed
    assert "checkout" in absent.reason


def test_a_bench_that_ends_badly_with_its_bars_met_has_failed(sources: Path, tmp_path: Path) -> None:
    text = GOOD.replace("raise SystemExit(float(given.rounds) < 5)", "raise SystemExit('a shape is missing')")
    (sources / "bench" / "good.py").write_text(text)
    outcome = run(Bench("good", "x", cpu=(), hugging_face=False), LAPTOP, False, tmp_path / "out", 60)
    assert outcome.failed
    assert outcome.result is not None
    assert "a shape is missing" in outcome.reason


def test_a_bench_that_can_end_in_time_is_told_when(sources: Path, tmp_path: Path) -> None:
    text = GOOD.replace('"--rounds"', '"--seconds"').replace("given.rounds", "given.seconds")
    (sources / "bench" / "good.py").write_text(text)
    outcome = run(Bench("good", "x", cpu=(), hugging_face=False, timed=True), LAPTOP, False, tmp_path / "out", 60)
    assert outcome.result is not None
    assert outcome.result.rows[0].ratio == 54.0


def test_the_command_lists_what_would_run() -> None:
    told = CliRunner().invoke(app, ["bench", "--list", "growth", "rollout"])
    assert told.exit_code == 0
    assert "growth" in told.output
    assert "rollout" in told.output
