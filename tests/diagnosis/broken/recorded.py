"""What the doctor reads of a run, in a few kB of JSON, and a run folder made of it again.

Kept are the settings, the numbers that the doctor asks for (four digits), and of the episodes of four training steps
what it asks: the game, how it ended, what it was worth, its mean advantage where scores are stored, and how cut
responses begin. Of the warm-up that it began from, its settings.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from isentrope.core.types import Scores
from isentrope.diagnosis.alarms import Alarms
from isentrope.diagnosis.facts import Facts
from isentrope.runs.episodes import write_episodes, write_scores
from isentrope.runs.folder import Run
from isentrope.runs.layout import ABOUT, CONFIG, EPISODES, METRICS, TOKENS, WARMUP, scores_path, train_path
from isentrope.runs.token_texts import shown_token_texts
from tests.builders.episodes import episode
from tests.builders.turns import said

KEPT = (
    "success/", "return/", "valid_ratio", "verdict/", "stop/", "failures", "advantage/std", "advantage/zero_groups",
    "kl/k3", "kl/old", "entropy/token", "mismatch/kl", "mismatch/truncated", "grad_norm", "lr", "clip/fraction",
    "critic/value", "critic/explained", "context/shortened", "episode/", "response/tokens", "likelihood/valid",
    "degeneracy/duplication", "update/",
)  # fmt: skip
OPENINGS = 4  # cut responses that are kept of each of the steps


def record(folder: Path, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    to.write_text(json.dumps(kept_of(folder), separators=(",", ":")) + "\n")


def kept_of(folder: Path) -> dict[str, Any]:
    run = Run.open(folder)
    texts = shown_token_texts(folder)
    steps: dict[str, Any] = {}
    for step, episodes in Facts(run, Alarms().phases).stored:
        means = run.advantages(step, episodes) if scores_path(folder, step).exists() else {}
        plays = [
            [one.index, one.group, one.member, int(one.success), one.stop, len(one.turns), _short(one.ret),
             sum(not turn.valid for turn in one.turns), *([_short(means[place])] if place in means else [])]
            for place, one in enumerate(episodes)
        ]  # fmt: skip
        cut = [turn for one in episodes for turn in one.turns if turn.verdict == "too_long"]
        openings = [texts.text(turn.response_ids.tolist())[:150] for turn in cut[:OPENINGS]]
        steps[str(step)] = {"plays": plays, "openings": openings}
    kept = {
        "config": _without_machine(run.config_text),
        "about": {"kind": "train", "parameters": run.about.get("parameters", 0)},
        "train": _columns([line for line in run.records if line.get("kind", "train") == "train"]),
        "evals": _columns([line for line in run.records if line.get("kind") == "eval"], ("eval/",)),
        "steps": steps,
    }
    warmup = folder.parent / Path(str(run.setting("policy.model", ""))).name / CONFIG
    return kept | ({"warmup": _without_machine(warmup.read_text())} if warmup.is_file() else {})


def _without_machine(config: str) -> str:
    """Folders by their names alone; a sum of the text would not be right any more."""
    lines = [line for line in config.splitlines() if not line.startswith("# SHA-256")]
    return "\n".join(re.sub(r'= "(?:~|/)[^"]*/([^"/]*)"', r'= "\1"', line) for line in lines) + "\n"


def restore(file: Path, folder: Path) -> Run:
    """A run folder of what was kept."""
    return restored(json.loads(file.read_text()), folder)


def restored(kept: dict[str, Any], folder: Path) -> Run:
    folder.mkdir(parents=True)
    (folder / CONFIG).write_text(kept["config"])
    (folder / ABOUT).write_text(json.dumps(kept["about"]))
    if "warmup" in kept:
        (folder / WARMUP).mkdir()
        (folder / WARMUP / CONFIG).write_text(kept["warmup"])
        (folder / WARMUP / METRICS).touch()
    lines = [*_lines(kept["evals"], "eval"), *_lines(kept["train"], "train")]
    (folder / METRICS).write_text(
        "".join(json.dumps(line) + "\n" for line in sorted(lines, key=lambda line: line["step"]))
    )
    table = ["."]
    (folder / EPISODES).mkdir()
    for step, stored in kept["steps"].items():
        write_episodes(train_path(folder, int(step)), _episodes(stored, table))
        _write_scores(folder, int(step), stored["plays"])
    (folder / TOKENS).write_text(json.dumps(table))
    return Run.open(folder)


def _episodes(stored: dict[str, Any], table: list[str]) -> list[Any]:
    openings, episodes = list(stored["openings"]), list[Any]()
    for index, group, member, success, stop, turns, ret, invalid, *advantage in stored["plays"]:
        played: list[Any] = []
        for number in range(turns):
            bad = number < invalid
            cut = bad and bool(openings)
            if cut:
                table.append(openings.pop())
            ids = [len(table) - 1] if cut else [0] if advantage else []
            verdict = "too_long" if cut else "inadmissible" if bad else "ok"
            reward = ret if number == turns - 1 else 0.0
            played.append(said(ids, verdict=verdict, reward=reward, logprobs=np.zeros(len(ids), np.float32)))
        place = {"index": index, "group": group, "member": member, "success": bool(success), "stop": stop}
        episodes.append(episode(*played, **place))
    return episodes


def _write_scores(folder: Path, step: int, plays: list[Any]) -> None:
    """Each response has one token, and the mean advantage of its episode."""
    known = [(place, play) for place, play in enumerate(plays) if len(play) > 8]
    if not known:
        return
    turns = [(place, turn, play[8]) for place, play in known for turn in range(play[5])]
    number = np.array([[place, turn] for place, turn, _ in turns], dtype=np.int64)
    advantage_N = np.array([value for _, _, value in turns], dtype=np.float32)
    ones = np.ones(len(turns), dtype=np.int64)
    scores = Scores(number[:, 0], number[:, 1], ones, advantage_N, np.ones_like(advantage_N))
    write_scores(scores_path(folder, step), scores)


def _columns(lines: list[dict[str, Any]], kept: tuple[str, ...] = KEPT) -> dict[str, list[Any]]:
    keys = sorted({key for line in lines for key in line if key.startswith(kept)})
    columns: dict[str, list[Any]] = {"step": [line["step"] for line in lines]}
    return columns | {key: [_short(line.get(key)) for line in lines] for key in keys}


def _lines(columns: dict[str, list[Any]], kind: str) -> list[dict[str, Any]]:
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    return [{"kind": kind} | {key: value for key, value in row.items() if value is not None} for row in rows]


def _short(value: Any) -> Any:
    return float(f"{value:.4g}") if isinstance(value, float) else value
