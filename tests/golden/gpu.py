"""A golden run on one GPU: the pocket model in the household world, sampled by the native engine.

Records it anew: `python -m tests.golden.gpu "what changed, why, who checked it"`. The rule is that of `record.py`. Each
device and version of torch has a recording of its own in gpu.json; the others stay as they are.

Bits are promised on the CPU alone, so a recording plays each case several times and keeps what repeats: a metric that
differed between two plays is left out, and so is everything from the first step on whose episodes differed. Rates are
kept beside the metrics to be looked at; nothing is asserted of them.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from isentrope.bench.work import Ours, Work, typical
from isentrope.config.load import load_config
from isentrope.config.schema import RunConfig
from isentrope.loop.train import train
from tests.golden.cases import alike, numbers

FILE = Path(__file__).with_name("gpu.json")
CASES = ("float32", "bfloat16")
PLAYS, DIGITS = 3, 3
BUSY = Work("smollm2", groups=16, group_size=8, turns=10)  # what the rates are measured with
STEPS = 4  # of which the first warms up
EPISODES = ("response/tokens", "context/tokens", "episode/turns")  # exact as long as the episodes are the same
NEARLY_NOTHING = ("mismatch/", "kl/old")  # rounding and nothing else
Row = dict[str, Any]


def config_of(case: str, device: str, *changes: str) -> RunConfig:
    """The native engine needs CUDA; elsewhere the torch engine stands in."""
    return load_config(
        None,
        [
            "task.world=household",
            "task.options.rooms=medium",
            "task.max_turns=8",
            "agent.prompt=brief",
            "agent.max_response=32",
            "agent.max_context=1024",
            "policy.model=pocket",
            f"engine.kind={'fast' if device.startswith('cuda') else 'torch'}",
            "engine.memory=0.05",
            f"run.device={device}",
            f"run.dtype={case}",
            f"run.weights={case}",
            "run.seed=3",
            "run.steps=3",
            "run.checkpoint_every=3",
            "run.keep_last=1",
            "rollout.groups=4",
            "rollout.group_size=4",
            "rollout.batch=16",
            "learn.lr=3e-4",
            "learn.warmup=0",
            "learn.kl=0.01",
            "learn.mini_batches=2",
            "eval.splits=['seen']",
            "eval.games=8",
            *changes,
        ],
    )


def play(case: str, device: str, folder: Path, *changes: str) -> tuple[list[Row], dict[str, float]]:
    """The metrics of each step and evaluation, and tokens per second in the last step."""
    train(config_of(case, device, *changes), folder, quiet=True)
    rows, timings = (
        [json.loads(line) for line in (folder / name).read_text().splitlines()]
        for name in ("metrics.jsonl", "timings.jsonl")
    )
    last = timings[-1]
    rates = {part: float(last[f"tokens_per_second/{part}"]) for part in ("rollout", "update")}
    return [numbers(row) for row in rows], rates


def bench(device: str, folder: Path, work: Work = BUSY, steps: int = STEPS) -> dict[str, float]:
    """Tokens per second of a larger model of random weights: sampled in rollouts, read in updates."""
    work = replace(work, device=device).with_model_in(folder)
    ours = Ours(work, work.config())
    try:
        spent = typical([ours.step(number) for number in range(1, steps + 1)][1:])
    finally:
        ours.close()
    return {"rollout": spent.sampled / spent.rollout, "update": spent.whole / spent.update}


def key_of(device: str) -> str:
    """What a recording holds for."""
    name = torch.cuda.get_device_name(device) if device.startswith("cuda") else device
    return f"{name}, torch {torch.__version__}"


def same(key: str, ours: Any, theirs: Any) -> bool:
    if not isinstance(ours, str) or not isinstance(theirs, str) or key == "kind":
        return ours == theirs
    nearly = key.startswith(NEARLY_NOTHING) and max(abs(float(ours)), abs(float(theirs))) < 1e-3
    return nearly or alike(ours, theirs, DIGITS)


def repeated(plays: Sequence[Sequence[Row]]) -> list[Row]:
    """What was the same in all plays of a case."""
    kept: list[Row] = []
    for first, *others in zip(*plays, strict=True):
        if any(other.get(key) != first.get(key) for other in others for key in EPISODES):
            break
        kept.append({key: first[key] for key in first if all(same(key, first[key], o.get(key)) for o in others)})
    return kept


def differences(kept: Sequence[Row], found: Sequence[Row]) -> list[str]:
    """What a recording has and a run has not, or not like that."""
    wrong: list[str] = []
    by_place = {(row["step"], row["kind"]): row for row in found}
    for row in kept:
        ours = by_place.get((row["step"], row["kind"]), {})
        names = [key for key in row if not same(key, row[key], ours.get(key))]
        wrong += [f"step {row['step']} {row['kind']} {key}: {ours.get(key)}, was {row[key]}" for key in names]
    return wrong


def ratios(ours: dict[str, float], theirs: dict[str, float]) -> str:
    """Rates of now, and as parts of those recorded."""
    parts = [f"{name} {ours[name]:,.0f} tokens/s ({ours[name] / theirs[name]:.2f} of the recorded)" for name in theirs]
    return ", ".join(parts)


def record(device: str, *changes: str, work: Work = BUSY) -> dict[str, Any]:
    """All cases and rates on this device."""
    cases: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as place:
        for case in CASES:
            plays = [play(case, device, Path(place) / f"{case}-{number}", *changes) for number in range(PLAYS)]
            kept = repeated([rows for rows, _ in plays])
            rows = plays[0][0]
            if not any(row["kind"] == "train" for row in kept):
                raise SystemExit(
                    f"{case}: no training step had the same episodes in {PLAYS} plays; nothing is recorded"
                )
            print(
                f"{case}: {len(kept)} of {len(rows)} rows repeat, {sum(map(len, kept))} of {sum(map(len, rows))} keys"
            )
            cases[case] = {"rates": plays[-1][1], "rows": kept}
        busy: dict[str, float] = {}
        if find_spec("transformers") is None:
            print("no rates of a larger model: they need transformers")
        else:
            busy = bench(device, Path(place), work)
    return {"rates": busy, "cases": cases}


def read() -> dict[str, Any]:
    return json.loads(FILE.read_text()) if FILE.exists() else {"log": [], "devices": {}}


def written(table: dict[str, Any]) -> str:
    """JSON with a line for each row of metrics, so that a change shows where it is."""
    devices: list[str] = []
    for name, device in sorted(table["devices"].items()):
        cases = [
            f'  "{case}": {{"rates": {json.dumps(kept["rates"])}, "rows": [\n    '
            + ",\n    ".join(json.dumps(row, sort_keys=True) for row in kept["rows"])
            + "]}"
            for case, kept in device["cases"].items()
        ]
        head = f'{json.dumps(name)}: {{"rates": {json.dumps(device["rates"])}, "cases": {{\n'
        devices.append(head + ",\n".join(cases) + "}}")
    log = ",\n".join(json.dumps(entry) for entry in table["log"])
    return f'{{"log": [\n{log}],\n"devices": {{\n' + ",\n".join(devices) + "}}\n"


def main(arguments: list[str]) -> int:
    if len(arguments) != 1 or len(arguments[0].split()) < 3:
        print(__doc__)
        return 2
    if not torch.cuda.is_available():
        print("there is no CUDA here: nothing is recorded")
        return 2
    table, key = read(), key_of("cuda")
    table["devices"][key] = record("cuda")
    date = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    table["log"].append({"date": date, "why": arguments[0], "device": key})
    FILE.write_text(written(table))
    print(f"{key}: {table['devices'][key]['rates']}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
