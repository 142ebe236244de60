"""What the doctor reads of a run, in a few kB of JSON, and a run folder made of it again.

Kept are the settings, the numbers that the doctor asks for (four digits), and of the episodes of four training steps
what it asks: the game, how it ended, what it was worth, and how cut responses begin.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from isentrope.diagnosis.alarms import Alarms
from isentrope.diagnosis.facts import Facts
from isentrope.runs.episodes import write_episodes
from isentrope.runs.folder import Run
from isentrope.runs.layout import train_path
from isentrope.runs.token_texts import shown_token_texts
from tests.builders.episodes import episode
from tests.builders.turns import said

KEPT = (
    "success/", "return/", "valid_ratio", "verdict/", "stop/", "failures", "advantage/std", "advantage/zero_groups",
    "kl/k3", "kl/old", "entropy/token", "mismatch/kl", "mismatch/truncated", "grad_norm", "lr", "clip/fraction",
    "critic/value", "critic/explained", "context/shortened", "episode/turns", "response/tokens", "likelihood/valid",
    "degeneracy/duplication", "update/",
)  # fmt: skip
OPENINGS = 4  # cut responses that are kept of each of the steps


def record(folder: Path, to: Path) -> None:
    run = Run.open(folder)
    texts = shown_token_texts(folder)
    steps: dict[str, Any] = {}
    for step, episodes in Facts(run, Alarms().phases).stored:
        plays = [
            [one.index, one.group, one.member, int(one.success), one.stop, len(one.turns), _short(one.ret),
             sum(not turn.valid for turn in one.turns)]
            for one in episodes
        ]  # fmt: skip
        cut = [turn for one in episodes for turn in one.turns if turn.verdict == "too_long"]
        openings = [texts.text(turn.response_ids.tolist())[:150] for turn in cut[:OPENINGS]]
        steps[str(step)] = {"plays": plays, "openings": openings}
    kept = {
        "config": run.config_text,
        "about": {"kind": "train", "parameters": run.about.get("parameters", 0)},
        "train": _columns([line for line in run.records if line.get("kind", "train") == "train"]),
        "evals": _columns([line for line in run.records if line.get("kind") == "eval"], ("eval/",)),
        "steps": steps,
    }
    to.parent.mkdir(parents=True, exist_ok=True)
    to.write_text(json.dumps(kept, separators=(",", ":")) + "\n")


def restore(file: Path, folder: Path) -> Run:
    """A run folder of what was kept."""
    kept: dict[str, Any] = json.loads(file.read_text())
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(kept["config"])
    (folder / "run.json").write_text(json.dumps(kept["about"]))
    lines = [*_lines(kept["evals"], "eval"), *_lines(kept["train"], "train")]
    (folder / "metrics.jsonl").write_text(
        "".join(json.dumps(line) + "\n" for line in sorted(lines, key=lambda line: line["step"]))
    )
    table: list[str] = []
    (folder / "episodes").mkdir()
    for step, stored in kept["steps"].items():
        write_episodes(train_path(folder, int(step)), _episodes(stored, table))
    (folder / "tokens.json").write_text(json.dumps(table))
    return Run.open(folder)


def _episodes(stored: dict[str, Any], table: list[str]) -> list[Any]:
    openings, episodes = list(stored["openings"]), list[Any]()
    for index, group, member, success, stop, turns, ret, invalid in stored["plays"]:
        played: list[Any] = []
        for number in range(turns):
            bad = number < invalid
            cut = bad and bool(openings)
            if cut:
                table.append(openings.pop())
            ids = [len(table) - 1] if cut else []
            verdict = "too_long" if cut else "inadmissible" if bad else "ok"
            reward = ret if number == turns - 1 else 0.0
            played.append(said(ids, verdict=verdict, reward=reward))
        place = {"index": index, "group": group, "member": member, "success": bool(success), "stop": stop}
        episodes.append(episode(*played, **place))
    return episodes


def _columns(lines: list[dict[str, Any]], kept: tuple[str, ...] = KEPT) -> dict[str, list[Any]]:
    keys = sorted({key for line in lines for key in line if key.startswith(kept)})
    columns: dict[str, list[Any]] = {"step": [line["step"] for line in lines]}
    return columns | {key: [_short(line.get(key)) for line in lines] for key in keys}


def _lines(columns: dict[str, list[Any]], kind: str) -> list[dict[str, Any]]:
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    return [{"kind": kind} | {key: value for key, value in row.items() if value is not None} for row in rows]


def _short(value: Any) -> Any:
    return float(f"{value:.4g}") if isinstance(value, float) else value
