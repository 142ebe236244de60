"""One GRPO step of 128 household episodes, ours against TRL's GRPOTrainer with vLLM in its process, on one card.

    python -m isentrope.bench.trl_vllm                          # Qwen2.5-1.5B's shape: at most 5 minutes of a GPU
    python -m isentrope.bench.trl_vllm --seconds 240 --steps 1 --json trl_vllm.json
    python -m isentrope.bench.trl_vllm --sides trl --micro 2    # TRL alone, with less memory
    python -m isentrope.bench.trl_vllm --model small --device cpu --groups 2 --turns 2 --response 8 --sides ours

The work is that of bench/trl.py: the same games, forced lengths, random weights, one update a step. TRL samples by
`use_vllm=True, vllm_mode="colocate"`: vLLM holds its own copy of the weights in the trainer's process, keeps what it
has read over turns, and gets new weights before each rollout. It has TRL's defaults: its share of the card, the sampled
tokens' log-probs, and the trainer's own log-probs once more for the correction between the two.

Each side has a process of its own, one after the other: both together do not fit on the card. The first step of a side
is not counted, TRL's with --warm-turns turns; the ratio is that of the medians. Needs TRL, vLLM and datasets.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from isentrope.bench.against_trl import CLOSE, Compared, add_sizes, rows_of, work_of
from isentrope.bench.apart import measured_apart
from isentrope.bench.results import Row, finish
from isentrope.bench.sampling import SHAPES
from isentrope.bench.trl_peer import Colocated, TrlPeer, missing
from isentrope.bench.work import CONTROLS, Ours, Spent, Work, device_named, write_model
from isentrope.core.needs import is_here
from isentrope.engines.vllm import vllm_module

BAR = 2.5
WORK = Work("qwen2.5-1.5b", device="auto", groups=16, group_size=8, turns=24, response=64, context=4096)
SIDES = ("ours", "trl")
GRACE = 20.0  # seconds that a side may take beyond its time
OURS = 0.45  # of the time: TRL's side has vLLM to start
DEFAULTS = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "WARNING"}
"""Of the environment: nobody is asked or told anything."""


@dataclass(frozen=True)
class Measured:
    """One side: its counted steps, seconds until the first of them began, who it is and what it has to say."""

    spent: list[Spent] = field(default_factory=list[Spent])
    start: float = 0.0
    name: str = ""
    told: str = ""
    failed: str = ""

    @classmethod
    def of(cls, found: Mapping[str, Any] | None, failed: str) -> Measured:
        """As the process wrote it; a side that was ended later has measured all the same."""
        if not found or not found["spent"]:
            return cls(failed=failed or "no step was counted")
        spent = [Spent(**step) for step in found["spent"]]
        return cls(spent, found["start"], found["name"], found["told"])


def with_model_in(work: Work, folder: Path) -> Work:
    """The work with its model as a folder: written there if it is a shape of either list."""
    settled = work.with_model_in(folder)
    if settled is not work or work.model not in SHAPES:
        return settled
    cuda = work.device.startswith("cuda")
    dtype = torch.bfloat16 if cuda else torch.float32  # vLLM takes the one that the folder names
    where = write_model(SHAPES[work.model].config(**CONTROLS), folder / work.model, work.device, dtype)
    if cuda:
        torch.cuda.empty_cache()
    return replace(work, model=str(where))


class Report:
    """What a side has measured so far, in the file: it is kept if the process is ended."""

    def __init__(self, file: Path) -> None:
        self.file, self.began, self.start = file, time.monotonic(), 0.0

    def warmed(self) -> None:
        self.start = time.monotonic() - self.began

    def write(self, spent: list[Spent], name: str, told: str) -> None:
        if torch.cuda.is_initialized():
            told += f"; at most {torch.cuda.max_memory_reserved() / 2**30:.0f} GiB"
        self.file.write_text(json.dumps(asdict(Measured(spent, self.start, name, told))), "utf-8")


def measure_ours(work: Work, given: argparse.Namespace, until: float, report: Report) -> None:
    ours, spent = Ours(work, work.config([f"run.threads={given.threads}", *given.set])), list[Spent]()
    ours.step(0)
    report.warmed()
    for step in range(1, given.steps + 1):
        spent.append(ours.step(step))
        report.write(spent, "ours", type(ours.collector.engine).__name__)
        if time.monotonic() + spent[-1].step > until:
            return


def measure_trl(work: Work, given: argparse.Namespace, until: float, report: Report) -> None:
    vllm = Colocated(given.share, not given.uncorrected)
    config = work.config([f"run.threads={given.threads}", *given.set])
    peer = TrlPeer(work, config, min(given.micro, work.episodes), given.threads, vllm)
    generating: list[float] = []

    def between(step: int) -> None:
        if not step:
            return report.warmed()
        generating.append(peer.generating)
        seconds = ", ".join(f"{one:.1f}" for one in generating)
        told = f"transformers {version('transformers')}; of the rollouts in vLLM {seconds} s"
        return report.write(peer.spent, f"TRL {version('trl')}, vLLM {vllm_module('vllm').__version__}", told)

    peer.run(given.steps, min(given.warm_turns, work.turns), between, until)


def measure_side(given: argparse.Namespace) -> None:
    """In this process: one side; the result goes to the file, step by step."""
    until, report = time.monotonic() + given.seconds, Report(given.json)
    work = with_model_in(work_of(given), given.folder)
    (measure_ours if given.alone == "ours" else measure_trl)(work, given, until, report)


def arguments_of(given: argparse.Namespace) -> list[str]:
    """The options that a side's process gets, as they were given here."""
    names = ("model", "device", "group_size", "turns", "response", "context", "rooms", "prompt", "steps", "micro",
             "threads", "warm_turns", "share", "groups", "episodes")  # fmt: skip
    options = [part for name in names for part in (f"--{name.replace('_', '-')}", str(getattr(given, name)))]
    flags = [f"--{name.replace('_', '-')}" for name in ("free", "own_time", "uncorrected") if getattr(given, name)]
    return [*options, *flags, *(part for setting in given.set for part in ("--set", setting))]


def measure_both(given: argparse.Namespace, folder: Path) -> dict[str, Measured]:
    """Each side that is asked for, in a process of its own."""
    until, found = time.monotonic() + given.seconds, dict[str, Measured]()
    for side in given.sides:
        left = until - time.monotonic() - GRACE
        seconds = left * OURS if side == "ours" and len(given.sides) > 1 else left
        if seconds <= 0:
            found[side] = Measured(failed=f"no time was left of {given.seconds:.0f} s (--seconds)")
            continue
        alone = ["--alone", side, "--folder", str(folder), "--seconds", f"{seconds:.0f}"]
        found[side] = Measured.of(*measured_apart(__spec__.name, [*arguments_of(given), *alone], seconds + GRACE))
        told = "; ".join(f"rollout {one.rollout:.2f} s, update {one.update:.2f} s" for one in found[side].spent)
        print(f"{side}: {found[side].failed or told}", flush=True)
    return found


def rows_of_sides(found: Mapping[str, Measured], work: Work, bar: float | None) -> tuple[list[Row], bool]:
    """The table, and whether both sides were measured doing the same work."""
    ours, theirs = found.get("ours", Measured()), found.get("trl", Measured())
    notes = [
        Row(f"{work.model}: {side}, a step", one.step, "s", note=f"rollout {one.rollout:.3g}, update {one.update:.3g}")
        for side, each in found.items() for one in each.spent
    ]  # fmt: skip
    ready = [
        Row(f"{side}: until counted", each.start, "s", note=each.told) for side, each in found.items() if each.spent
    ]
    if not ours.spent or not theirs.spent:
        return [*notes, *ready], False
    compared = Compared(ours.spent, theirs.spent, in_turn=False)
    return [*rows_of(compared, work.model, bar, work, theirs.name), *notes, *ready], compared.apart <= CLOSE


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_sizes(parser, WORK, steps=2, micro=4)
    parser.add_argument("--sides", nargs="+", default=list(SIDES), choices=SIDES, help="both, or one of them alone")
    parser.add_argument("--share", type=float, default=Colocated().memory, help="of the card's memory for TRL's vLLM")
    parser.add_argument(
        "--uncorrected", action="store_true", help="TRL without its second log-probs (not its default): quicker"
    )
    parser.add_argument("--seconds", type=float, default=300, help="for all; no step that would end later")
    parser.add_argument("--alone", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    return parser


def main() -> None:
    given = options().parse_args()
    os.environ.update({**DEFAULTS, **os.environ})
    given.device = device_named(given.device)
    if given.trl_groups:
        raise SystemExit("--trl-groups is of bench/trl.py; here both sides play all groups: --groups")
    if given.alone:
        measure_side(given)
        os._exit(0)  # without the engines' own ends, which may take long and change nothing any more
    if "trl" in given.sides and (reason := missing() or ("" if is_here("vllm") else "vLLM is not installed")):
        raise SystemExit(f"TRL with vLLM cannot be measured here: {reason}. Ours alone: --sides ours")
    work = work_of(given)
    with tempfile.TemporaryDirectory(prefix="isentrope-trl-vllm-") as folder:
        found = measure_both(given, Path(folder))
    bar = BAR if work.device.startswith("cuda") and work.model == WORK.model else None
    rows, same = rows_of_sides(found, work, bar)
    result = finish("trl_vllm", rows, given.json)
    if failed := "; ".join(f"{side}: {each.failed}" for side, each in found.items() if each.failed):
        raise SystemExit(f"not measured: {failed}")
    if not result.met or (len(found) == len(SIDES) and not same):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
