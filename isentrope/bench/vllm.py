"""Sampled tokens a second, ours against vLLM: the same work on one card, one side after the other in one run.

    python -m isentrope.bench.vllm                            # seven shapes: about 12 minutes of an H200
    python -m isentrope.bench.vllm --shapes qwen2.5-7b --rounds 5 --seconds 300
    python -m isentrope.bench.vllm --shapes tiny --sides ours  # a CPU: that it runs

prompts        256 prompts of 313 to 512 tokens that share nothing, 64 new tokens each
conversations  128 conversations of 12 turns: 32 new tokens each, 80 read between, prompts of 300

Random weights in bfloat16. Each side of each shape has a process of its own, so nothing of one is left on the card for
the other. Ours is the native engine, with log-prob and entropy of every token. vLLM runs its engine in the process that
calls it, with CUDA graphs, prefix caching and its own settings otherwise, and gives tokens alone. Both get the same
prompts, new ones in each round; a first round is not counted; rates are medians. vLLM is not part of Isentrope:
docs/engines.md says how to install it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from isentrope.bench.apart import measured_apart
from isentrope.bench.results import Row, finish
from isentrope.bench.sampling import (
    PROMPTS,
    SHAPES,
    TALK,
    TINY_PROMPTS,
    TINY_TALK,
    EngineSampler,
    SamplingWork,
    quickest_engine,
    random_policy,
    rates_of,
)
from isentrope.core.command import page
from isentrope.core.needs import is_here
from isentrope.engines.vllm import vllm_module

BARS = {"smollm2-135m": (4.0, 3.5), "qwen2.5-1.5b": (1.5, 2.0), "qwen2.5-7b": (1.15, 1.4)}
"""The least of ours over vLLM's rate, on prompts and in conversations."""
MEASURED = (*BARS, "llama3-1b", "llama3-8b", "qwen3-0.6b", "qwen3-8b")
SIDES = ("ours", "vllm")
OURS, VLLM = (0.5, 0.8)  # shares of the card's memory: ours takes no more than it needs of it
GRACE = 20.0  # seconds that a side may take beyond its time, for its last round
_SETTINGS = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}  # its engine in the calling process, where it is quicker
_DEFAULTS = {"VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "WARNING", "HF_HUB_OFFLINE": "1"}


@dataclass(frozen=True)
class Measured:
    """One side of one shape: rates of each round by the work's name, or why there are none."""

    rates: Mapping[str, list[float]]
    version: str = ""
    start: float = 0.0  # seconds until the first prompt could be answered
    failed: str = ""


def works_of(shape: str) -> tuple[SamplingWork, SamplingWork]:
    return (TINY_PROMPTS, TINY_TALK) if shape == "tiny" else (PROMPTS, TALK)


class VllmSampler:
    """vLLM as its users call it, with tokens for prompts and for answers."""

    def __init__(self, shape: str, room: int) -> None:
        os.environ.update({**_DEFAULTS, **os.environ, **_SETTINGS})  # before vLLM is imported: it reads these then
        if not is_here("flashinfer"):
            os.environ.setdefault("VLLM_USE_FLASHINFER_SAMPLER", "0")
        package = vllm_module("vllm")
        self.version = str(package.__version__)
        self._params: Any = package.SamplingParams
        with tempfile.TemporaryDirectory(prefix="isentrope-vllm-") as folder:
            SHAPES[shape].config().save_pretrained(folder)  # no weights: vLLM draws its own
            self._model: Any = package.LLM(
                model=folder, load_format="dummy", skip_tokenizer_init=True, generation_config="vllm",
                dtype="bfloat16", max_model_len=room, enable_prefix_caching=True, gpu_memory_utilization=VLLM,
                disable_log_stats=True, seed=0,
            )  # fmt: skip

    def forget(self, conversations: int) -> None:
        self._model.reset_prefix_cache()

    def answer(self, prompts: Sequence[list[int]], new: int, rng: np.random.Generator) -> list[list[int]]:
        asked = [{"prompt_token_ids": prompt} for prompt in prompts]
        params = self._params(temperature=1.0, max_tokens=new, ignore_eos=True, detokenize=False)
        return [list(given.outputs[0].token_ids) for given in self._model.generate(asked, params, use_tqdm=False)]


def measure_side(side: str, shape: str, rounds: int, seconds: float) -> Measured:
    """In this process: both works."""
    began, works = time.monotonic(), works_of(shape)
    room, rows = max(work.room for work in works), max(work.conversations for work in works)
    version, sampler = "", None
    if side == "vllm":
        sampler = VllmSampler(shape, room)
        version = sampler.version
    else:
        sampler = EngineSampler(quickest_engine(random_policy(shape), rows, room, OURS))
    start, words = time.monotonic() - began, SHAPES[shape].config().vocab_size
    rates = {work.name: rates_of(sampler, work, words, rounds, began + seconds) for work in works}
    return Measured(rates, version, start)


def measure_apart(side: str, shape: str, rounds: int, seconds: float) -> Measured:
    """In a process of its own, which is ended when its time is over."""
    given = ["--alone", side, "--shapes", shape, "--rounds", str(rounds), "--seconds", f"{seconds:.0f}"]
    found, failed = measured_apart(__spec__.name, given, seconds + GRACE)
    return Measured(**found) if found else Measured({}, failed=failed)


def rows_of(shape: str, sides: Mapping[str, Measured]) -> list[Row]:
    """A row for each work: our rate and the ratio; vLLM's where only it was measured."""
    rows: list[Row] = []
    for number, work in enumerate(works_of(shape)):
        rates = {side: found.rates[work.name] for side, found in sides.items() if found.rates.get(work.name)}
        middle = {side: statistics.median(each) for side, each in rates.items()}
        told = [_told(side, found, rates.get(side)) for side, found in sides.items()]
        what, note = f"{shape}: {work.name}", "; ".join(told)
        if "ours" in middle and "vllm" in middle:
            bar = BARS[shape][number] if shape in BARS else None
            peer = f"vLLM {sides['vllm'].version}"
            rows.append(Row(what, middle["ours"], "new tokens/s", middle["ours"] / middle["vllm"], peer, bar, note))
        else:
            rows += [Row(f"{what}, {side}", rate, "new tokens/s", note=note) for side, rate in middle.items()]
    return rows


def _told(side: str, found: Measured, rates: Sequence[float] | None) -> str:
    if not rates:
        return f"{side}: {found.failed or 'not measured'}"
    return (
        f"{side} {statistics.median(rates):,.0f} ({min(rates):,.0f} to {max(rates):,.0f}), ready in {found.start:.0f} s"
    )


def compare(shapes: Sequence[str], sides: Sequence[str], rounds: int, seconds: float) -> tuple[list[Row], list[str]]:
    """Rows of all shapes, and what is missing among them."""
    until, rows, missing = time.monotonic() + seconds, list[Row](), list[str]()
    for shape in shapes:
        found: dict[str, Measured] = {}
        for side in sides:
            left = until - time.monotonic() - GRACE
            if left <= 0:
                found[side] = Measured({}, failed=f"no time was left of {seconds:.0f} s (--seconds)")
            else:
                found[side] = measure_apart(side, shape, rounds, left)
            if found[side].failed:
                missing.append(f"{shape}, {side}: {found[side].failed}")
        rows += rows_of(shape, found)
        for row in rows[-2:] if any(one.rates for one in found.values()) else []:
            ratio = "" if row.ratio is None else f" ({row.ratio:.2f} ×)"
            print(f"{row.what}: {row.value:,.0f}{ratio}; {row.note}", file=sys.stderr, flush=True)
    return rows, missing


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", default=list(MEASURED), choices=list(SHAPES), metavar="SHAPE",
                        help=f"of {', '.join(SHAPES)}")  # fmt: skip
    parser.add_argument("--sides", nargs="+", default=list(SIDES), choices=SIDES, help="both, or one of them alone")
    parser.add_argument("--rounds", type=int, default=3, help="measured rounds of each work")
    parser.add_argument("--seconds", type=float, default=1150, help="what has not begun by then is left out")
    parser.add_argument("--json", type=Path, default=None, help="write the result there")
    parser.add_argument("--alone", choices=SIDES, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.alone:
        found = measure_side(given.alone, given.shapes[0], given.rounds, given.seconds)
        given.json.write_text(json.dumps(asdict(found)), "utf-8")
        os._exit(0)  # without the engines' own ends, which may take long and change nothing any more
    if "vllm" in given.sides and not is_here("vllm"):
        raise SystemExit(
            "vLLM cannot be measured here: it is not installed (best in an environment of its own: "
            f"{page('engines')}). Ours alone: --sides ours"
        )
    rows, missing = compare(given.shapes, given.sides, given.rounds, given.seconds)
    result = finish("vllm", rows, given.json)
    if missing:
        raise SystemExit(f"not measured: {'; '.join(missing)}")
    if not result.met:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
