"""vLLM's side of the comparison with a stand-in for vLLM, and what becomes of a side that fails or runs out of time."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from isentrope.bench import vllm as bench
from isentrope.bench.sampling import (
    SHAPES,
    TINY_PROMPTS,
    TINY_TALK,
    EngineSampler,
    quickest_engine,
    random_policy,
    rates_of,
    seconds_of,
)
from isentrope.bench.vllm import Measured, compare, measure_apart, measure_side, rows_of
from isentrope.core.errors import RunError
from isentrope.engines.torch import TorchEngine
from isentrope.models.model_adapter import adapt_model
from isentrope.models.sources.find import POCKET
from isentrope.models.sources.pocket import PocketTokens


class Recorder:
    """Answers at once, and remembers what it was asked."""

    def __init__(self, extra: int = 0) -> None:
        self.extra, self.forgotten, self.asked = extra, list[int](), list[list[list[int]]]()

    def forget(self, conversations: int) -> None:
        self.forgotten.append(conversations)

    def answer(self, prompts: Sequence[list[int]], new: int, rng: np.random.Generator) -> list[list[int]]:
        self.asked.append([list(prompt) for prompt in prompts])
        return [[len(self.asked)] * (new + self.extra) for _ in prompts]


def test_conversations_grow_by_what_was_said_and_read() -> None:
    recorder = Recorder()
    seconds_of(recorder, TINY_TALK, 503)
    first, second = recorder.asked
    assert [len(prompt) for prompt in first] == [30] * 4
    for before, after in zip(first, second, strict=True):
        assert after[:34] == [*before, 1, 1, 1, 1]
        assert len(after) == 30 + 4 + 5
    assert len({tuple(prompt) for prompt in first}) == 4, "prompts share nothing"
    recorder = Recorder()
    seconds_of(recorder, TINY_PROMPTS, 503)
    assert len(recorder.asked) == 1
    assert {20 <= len(prompt) <= 40 for prompt in recorder.asked[0]} == {True}


def test_every_round_is_new_and_both_sides_get_the_same() -> None:
    one, other = Recorder(), Recorder()
    assert len(rates_of(one, TINY_TALK, 503, rounds=2)) == 2
    rates_of(other, TINY_TALK, 503, rounds=2)
    assert one.asked == other.asked
    assert one.forgotten == [4, 4, 4]
    assert one.asked[0] != one.asked[2]
    assert one.asked[2] != one.asked[4]


def test_no_round_begins_when_time_is_over_but_one_is_measured() -> None:
    recorder = Recorder()
    assert len(rates_of(recorder, TINY_TALK, 503, rounds=9, until=time.monotonic() - 1)) == 1


@pytest.mark.parametrize("extra", [-1, 1])
def test_another_number_of_tokens_is_another_work(extra: int) -> None:
    with pytest.raises(RunError, match="not the same"):
        seconds_of(Recorder(extra), TINY_TALK, 503)


def test_our_side_is_an_engine_with_every_token_measured() -> None:
    policy = random_policy("tiny")
    # a model with random weights says every word now and then, and with it the end of a response
    policy.model.lm.lm_head.weight.data[sorted(PocketTokens.load(POCKET).eos_ids)] *= 1000  # type: ignore[union-attr]
    engine = quickest_engine(policy, 8, TINY_TALK.room, 0.2)
    given: list[Any] = []
    sample = engine.sample
    engine.sample = lambda requests: given.extend(found := sample(requests)) or found  # type: ignore[method-assign]
    assert isinstance(engine, TorchEngine)
    assert seconds_of(EngineSampler(engine), TINY_PROMPTS, 503) > 0
    assert sum(len(one.ids) for one in given) == TINY_PROMPTS.tokens
    assert all(np.isfinite(one.logprobs).all() and np.isfinite(one.entropies).all() for one in given)


@pytest.mark.parametrize("name", [name for name in SHAPES if name not in ("tiny", "small")])
def test_shapes_have_the_size_in_their_name_and_fit_the_native_engine(name: str) -> None:
    """On torch's meta device, where weights take no memory."""
    import torch
    import transformers

    from isentrope.models.hugging_face import HuggingFaceModel

    config = SHAPES[name].config()
    with torch.device("meta"):
        lm = getattr(transformers, config.architectures[0])(config)
    text = name.rsplit("-", 1)[1]
    said = float(text[:-1]) * {"m": 1e6, "b": 1e9}[text[-1]]
    size = sum(parameter.numel() for parameter in lm.parameters())
    assert size == pytest.approx(said, rel=0.25)
    parts = adapt_model(HuggingFaceModel(lm))
    assert parts is not None
    assert parts.head_size in (64, 128)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A module `vllm` that answers with token 7, and what it was made and asked with."""
    seen: dict[str, Any] = {"prompts": [], "resets": 0}

    class LLM:
        def __init__(self, model: str, **given: Any) -> None:
            seen["config"] = json.loads((Path(model) / "config.json").read_text("utf-8"))
            seen["given"] = given
            seen["process"] = os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"]

        def reset_prefix_cache(self) -> None:
            seen["resets"] += 1

        def generate(self, prompts: Sequence[Any], params: Any, use_tqdm: bool) -> list[Any]:
            seen["prompts"].append(len(prompts))
            seen["params"] = params
            answer = SimpleNamespace(token_ids=(7,) * params["max_tokens"])
            return [SimpleNamespace(outputs=[answer]) for _ in prompts]

    module: Any = ModuleType("vllm")
    module.__spec__, module.__version__ = ModuleSpec("vllm", None), "9.9"
    module.LLM, module.SamplingParams = LLM, dict
    monkeypatch.setitem(sys.modules, "vllm", module)
    for name in ("VLLM_ENABLE_V1_MULTIPROCESSING", "VLLM_USE_FLASHINFER_SAMPLER", *bench._DEFAULTS):
        monkeypatch.setenv(name, "before")  # so that they are put back
    return seen


def test_vllm_is_called_as_the_page_says(fake: dict[str, Any]) -> None:
    found = measure_side("vllm", "tiny", 1, 60)
    assert found.version == "9.9"
    assert {name: len(rates) for name, rates in found.rates.items()} == {TINY_PROMPTS.name: 1, TINY_TALK.name: 1}
    assert fake["config"]["architectures"] == ["Qwen2ForCausalLM"]
    assert fake["process"] == "0"
    assert fake["given"]["enable_prefix_caching"]
    assert fake["given"]["load_format"] == "dummy"
    assert fake["given"].get("enforce_eager") is None
    assert "logprobs" not in fake["params"]
    assert fake["params"]["ignore_eos"]
    assert fake["prompts"] == [8, 8, 4, 4, 4, 4]
    assert fake["resets"] == 4  # before every round


GOOD = {
    "ours": Measured({TINY_PROMPTS.name: [10.0, 30.0, 20.0], TINY_TALK.name: [8.0]}, start=3.0),
    "vllm": Measured({TINY_PROMPTS.name: [10.0], TINY_TALK.name: [2.0, 4.0, 9.0]}, "9.9", 40.0),
}


def test_ratios_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(bench.BARS, "tiny", (2.5, 2.0))
    prompts, talk = rows_of("tiny", GOOD)
    assert (prompts.value, prompts.ratio, prompts.peer, prompts.met) == (20.0, 2.0, "vLLM 9.9", False)
    assert (talk.value, talk.ratio, talk.met) == (8.0, 2.0, True)
    assert "vllm 4 (2 to 9), ready in 40 s" in talk.note
    alone = rows_of("tiny", {"vllm": GOOD["vllm"]})
    assert [(row.value, row.ratio, row.bar) for row in alone] == [(10.0, None, None), (4.0, None, None)]


def test_the_bars_are_of_shapes_that_are_measured() -> None:
    assert set(bench.BARS) <= set(bench.MEASURED) <= set(SHAPES)


def test_a_side_that_fails_is_named_and_the_other_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def measured(side: str, *rest: Any) -> Measured:
        return GOOD["ours"] if side == "ours" else Measured({}, failed="ended with 1: no memory")

    monkeypatch.setattr(bench, "measure_apart", measured)
    rows, missing = compare(["tiny"], ("ours", "vllm"), 1, 60)
    assert missing == ["tiny, vllm: ended with 1: no memory"]
    assert [(row.value, row.ratio) for row in rows] == [(20.0, None), (8.0, None)]
    rows, missing = compare(["tiny"], ("ours", "vllm"), 1, 5)
    assert rows == []
    assert len(missing) == 2
    assert "no time was left of 5 s" in missing[0]


CHILD = """#!/bin/sh
for last; do :; done
{}
"""


@pytest.mark.parametrize(
    ("does", "failed"),
    [
        ('echo \'{"rates": {"a": [1.0]}, "version": "9", "start": 1.0, "failed": ""}\' > "$last"', ""),
        ("echo warming up; echo CUDA out of memory >&2; exit 3", "ended with 3: CUDA out of memory"),
        ("exec sleep 30", "took longer than 1 s"),
        # one whose end hangs has measured all the same
        ('echo \'{"rates": {"a": [1.0]}}\' > "$last"; exec sleep 30', ""),
    ],
)
def test_a_process_that_ends_badly_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, does: str, failed: str
) -> None:
    child = tmp_path / "python"
    child.write_text(CHILD.format(does))
    child.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(child))
    monkeypatch.setattr(bench, "GRACE", 0.5)
    found = measure_apart("vllm", "tiny", 1, 0.5 if "sleep" in does else 30.0)
    assert found.failed.startswith(failed)
    assert dict(found.rates) == ({} if failed else {"a": [1.0]})


def test_without_vllm_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "is_here", lambda name: False)
    monkeypatch.setattr(sys, "argv", ["vllm", "--shapes", "tiny"])
    with pytest.raises(SystemExit, match=r"not installed .* --sides ours"):
        bench.main()


def test_what_is_missing_fails_the_bench_but_the_rest_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = rows_of("tiny", GOOD)
    monkeypatch.setattr(bench, "is_here", lambda name: True)
    monkeypatch.setattr(bench, "compare", lambda *given: (rows, ["tiny, vllm: gone"]))
    monkeypatch.setattr(sys, "argv", ["vllm", "--shapes", "tiny", "--json", str(tmp_path / "r.json")])
    with pytest.raises(SystemExit, match="tiny, vllm: gone"):
        bench.main()
    assert len(json.loads((tmp_path / "r.json").read_text("utf-8"))["rows"]) == 2
    monkeypatch.setattr(bench, "compare", lambda *given: ([replace(rows[0], bar=9.0)], []))
    with pytest.raises(SystemExit) as ended:
        bench.main()
    assert ended.value.code == 1
