"""The comparison with TRL and vLLM in one process: what each side is asked, and what becomes of what it measured."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from isentrope.bench import trl_vllm as bench
from isentrope.bench.trl_peer import Colocated, TrlPeer
from isentrope.bench.trl_vllm import Measured, arguments_of, measure_both, options, rows_of_sides, with_model_in
from isentrope.bench.work import Spent, Work

WORK = Work("pocket", groups=2, group_size=2, turns=3, response=6, rooms="small", prompt="brief")
SMALL = [
    "--model",
    "pocket",
    "--device",
    "cpu",
    "--groups",
    "2",
    "--group-size",
    "2",
    "--turns",
    "2",
    "--response",
    "6",
]
OURS = Measured([Spent(2, 2, 100, 200), Spent(2, 4, 100, 200), Spent(2, 3, 100, 200)], 30.0, "ours", "NativeEngine")
TRL = Measured([Spent(6, 9, 100, 208)], 90.0, "TRL 1.16.0, vLLM 0.23.0", "of the rollouts in vLLM 5.0 s")


class Generator:
    """Answers with log-probs, as the trainer does with vLLM."""

    def _generate_single_turn(self, prompts: Any, *rest: object) -> tuple[list[list[int]], list[list[float]]]:
        answers = [[9 + (len(prompt) + i) % 500 for i in range(WORK.response)] for prompt in prompts]
        return answers, [[-float(token) for token in answer] for answer in answers]


def test_log_probs_stand_where_the_models_tokens_stand() -> None:
    peer = TrlPeer(WORK, WORK.config(), 2, vllm=Colocated())
    out = peer.rollout(["0", "0", "1", "1"], Generator())
    for rest, mask, logprobs in zip(out["completion_ids"], out["env_mask"], out["logprobs"], strict=True):
        assert logprobs == [-token if own else 0.0 for token, own in zip(rest, mask, strict=True)]
        assert sum(mask) == WORK.turns * WORK.response < len(mask)
    assert 0 < peer.generating < peer.rollout_seconds


def test_trl_is_asked_for_vllm_with_its_own_defaults() -> None:
    given = TrlPeer(WORK, WORK.config(), 2, vllm=Colocated())._sampling()
    assert given["use_vllm"]
    assert given["vllm_mode"] == "colocate"
    assert (given["vllm_gpu_memory_utilization"], given["vllm_importance_sampling_correction"]) == (0.3, True)
    assert given["generation_kwargs"] == {"ignore_eos": True, "detokenize": False}
    assert TrlPeer(WORK, WORK.config(), 2)._sampling() == {"generation_kwargs": {"min_new_tokens": 6}}


def test_a_sides_process_gets_the_options_that_were_given() -> None:
    more = ["--own-time", "--uncorrected", "--micro", "3", "--share", "0.2", "--set", "learn.lr=2e-6", "--set", "a.b=1"]
    given = options().parse_args([*SMALL, *more])
    again = options().parse_args(arguments_of(given))
    apart = {"sides", "seconds", "json"}  # of the calling process
    assert {k: v for k, v in vars(again).items() if k not in apart} == {
        k: v for k, v in vars(given).items() if k not in apart
    }


def test_rows_by_hand() -> None:
    rows, same = rows_of_sides({"ours": OURS, "trl": TRL}, WORK, 2.5)
    assert same
    first = rows[0]
    assert (first.value, first.ratio, first.met) == (5, 3.0, True)  # 15 over the median of 4, 6 and 5
    assert first.peer == "TRL 1.16.0, vLLM 0.23.0"
    assert [row.value for row in rows if row.what.endswith("a step")] == [4, 6, 5, 15]
    assert "in vLLM 5.0 s" in rows[-1].note
    _, same = rows_of_sides({"ours": OURS, "trl": Measured([Spent(6, 9, 100, 220)])}, WORK, 2.5)
    assert not same
    rows, same = rows_of_sides({"ours": OURS, "trl": Measured(failed="no memory")}, WORK, 2.5)
    assert not same
    assert [row.bar for row in rows] == [None] * 4


def test_each_side_has_its_time_and_what_it_had_measured_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, float] = {}

    def apart(module: str, arguments: list[str], limit: float) -> tuple[dict[str, Any] | None, str]:
        given = options().parse_args(arguments)
        asked[given.alone] = given.seconds
        assert limit == pytest.approx(given.seconds + bench.GRACE, abs=1)
        if given.alone == "ours":
            return {"spent": [], "start": 0.0, "name": "", "told": "", "failed": ""}, "ended with 1: no memory"
        step = {"rollout": 1.0, "update": 2.0, "sampled": 3, "whole": 4}
        return {"spent": [step], "start": 5.0, "name": "TRL", "told": "", "failed": ""}, "took longer than 9 s"

    monkeypatch.setattr(bench, "measured_apart", apart)
    found = measure_both(options().parse_args([*SMALL, "--seconds", "120"]), tmp_path)
    assert asked == {"ours": 45, "trl": 100}
    assert found["ours"].failed == "ended with 1: no memory"
    assert found["trl"] == Measured([Spent(1.0, 2.0, 3, 4)], 5.0, "TRL")
    late = measure_both(options().parse_args([*SMALL, "--seconds", "10"]), tmp_path)
    assert "no time was left of 10 s" in late["trl"].failed


def test_our_side_measures_one_step_at_least(tmp_path: Path) -> None:
    file = tmp_path / "found.json"
    alone = ["--alone", "ours", "--folder", str(tmp_path), "--json", str(file), "--steps", "9", "--seconds", "0"]
    given: argparse.Namespace = options().parse_args([*SMALL, *alone, "--threads", "1"])
    bench.measure_side(given)
    found = Measured.of(json.loads(file.read_text("utf-8")), "")
    assert len(found.spent) == 1, "one step, though the time is over"
    assert found.spent[0].sampled == 2 * 2 * 2 * 6
    assert found.told == "TorchEngine"


def test_a_shape_of_the_sampling_bench_becomes_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(bench.SHAPES, "qwen2.5-1.5b", bench.SHAPES["small"])
    work = with_model_in(Work("qwen2.5-1.5b"), tmp_path)
    told = json.loads((Path(work.model) / "config.json").read_text("utf-8"))
    assert (told["architectures"], told["dtype"], told["eos_token_id"]) == (["Qwen2ForCausalLM"], "float32", 2)
    assert (Path(work.model) / "tokenizer.json").is_file()
    written = Path(work.model) / "model.safetensors"
    before = written.stat().st_mtime_ns
    assert with_model_in(Work("qwen2.5-1.5b"), tmp_path) == work
    assert written.stat().st_mtime_ns == before, "made once"
    assert with_model_in(Work("some/folder"), tmp_path).model == "some/folder"


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "missing", lambda: "")
    monkeypatch.setattr(bench, "is_here", lambda name: False)
    monkeypatch.setattr(sys, "argv", ["trl_vllm", *SMALL])
    with pytest.raises(SystemExit, match=r"vLLM is not installed. Ours alone: --sides ours"):
        bench.main()
