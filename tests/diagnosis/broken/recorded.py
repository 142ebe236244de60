"""What the doctor reads of a run, in a few kB of JSON, and a run folder made of it again.

Kept are the settings, the numbers that the doctor asks for (four digits), and of the episodes of four training steps
what it asks: the game, how it ended, what it was worth, its mean advantage where scores are stored, a digest of what
was said in it and how probable that was, how many turns have a thought, and how cut responses begin; of a few groups
what was read and done, as text. Of the last evaluation the same without texts. Of the warm-up that it began from, its
settings, its losses and its evaluations.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from isentrope.core.types import Episode, Scores
from isentrope.diagnosis.alarms import Alarms
from isentrope.diagnosis.facts import Facts
from isentrope.runs.episodes import write_episodes, write_scores
from isentrope.runs.folder import Run
from isentrope.runs.layout import (
    ABOUT,
    CONFIG,
    EPISODES,
    EVENTS,
    METRICS,
    TOKENS,
    WARMUP,
    eval_path,
    scores_path,
    train_path,
)
from isentrope.runs.token_texts import shown_token_texts
from tests.builders.episodes import episode
from tests.builders.turns import said

KEPT = (
    "success/", "return/", "valid_ratio", "verdict/", "stop/", "failures", "advantage/", "loss/", "accepted/",
    "sft/loss", "temperature/mean",
    "kl/k3", "kl/old", "entropy/token", "mismatch/kl", "mismatch/truncated", "grad_norm", "lr", "clip/fraction",
    "critic/value", "critic/explained", "context/shortened", "episode/", "response/tokens", "likelihood/valid",
    "degeneracy/duplication", "update/",
)  # fmt: skip
OPENINGS = 4  # cut responses that are kept of each of the steps
READ = 3  # groups whose texts are kept


def record(folder: Path, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    to.write_text(json.dumps(kept_of(folder), separators=(",", ":")) + "\n")


def kept_of(folder: Path) -> dict[str, Any]:
    run = Run.open(folder)
    texts = shown_token_texts(folder)
    steps: dict[str, Any] = {}
    for step, episodes in Facts(run, Alarms().phases).stored:
        means = run.advantages(step, episodes) if scores_path(folder, step).exists() else {}
        plays = [_play(one, means.get(place)) for place, one in enumerate(episodes)]
        cut = [turn for one in episodes for turn in one.turns if turn.verdict == "too_long"]
        openings = [texts.text(turn.response_ids.tolist())[:150] for turn in cut[:OPENINGS]]
        steps[str(step)] = {"plays": plays, "openings": openings} | _read(episodes)
    train = [line for line in run.records if line.get("kind", "train") == "train"]
    terms = {key.removeprefix("loss/") for line in train for key in line if key.startswith("loss/")}
    kept = {
        "config": _without_machine(run.config_text),
        "about": {"kind": run.kind, "parameters": run.about.get("parameters", 0)},
        "train": _columns(train, (*KEPT, *(f"{term}/" for term in terms - {"policy", "total", "kl"}))),
        "evals": _columns([line for line in run.records if line.get("kind") == "eval"], ("eval/",)),
        "sft": _columns([line for line in run.records if line.get("kind") == "sft"]),
        "steps": steps,
        "judged": _judged(run),
        "events": [_anywhere(event) for event in run.events if event.get("kind") == "warning"],
    }
    warmup = folder.parent / Path(str(run.setting("policy.model", ""))).name
    if not (warmup / CONFIG).is_file():
        return kept
    before = Run.open(warmup)
    losses = [line for line in before.records if line.get("kind") == "sft"]
    judged = [line for line in before.records if line.get("kind") == "eval"]
    told = {"sft": _columns(losses[:: max(1, len(losses) // 8)]), "evals": _columns(judged, ("eval/",))}
    return kept | {"warmup": _without_machine(before.config_text), "taught": told}


def _play(one: Episode, mean: float | None) -> list[Any]:
    said = zlib.crc32(b"/".join(turn.response_ids.tobytes() for turn in one.turns)) & 0x7FFFFFFF
    nats = -sum(float(turn.logprobs.sum()) for turn in one.turns)
    return [
        one.index, one.group, one.member, int(one.success), one.stop, len(one.turns), _short(one.ret),
        sum(not turn.valid for turn in one.turns), None if mean is None else _short(mean),
        said, _short(nats), sum(turn.think_span is not None for turn in one.turns),
    ]  # fmt: skip


def _read(episodes: Sequence[Episode]) -> dict[str, Any]:
    """What was read and done in the first groups: for each turn the place of its observation among the different ones,
    the action, whether it was accepted, and whether the world had listed it."""
    groups = sorted({one.group for one in episodes})[:READ]
    texts, read = dict[str, int](), dict[str, list[Any]]()
    for place, one in enumerate(episodes):
        if one.group in groups:
            read[str(place)] = [
                [texts.setdefault(turn.observation, len(texts)), turn.action, int(turn.valid),
                 int(turn.admissible is not None and turn.action in turn.admissible)]
                for turn in one.turns
            ]  # fmt: skip
    return {"texts": list(texts), "read": read}


def _judged(run: Run) -> dict[str, Any]:
    files = [file for file in run.episode_files if file.split is not None]
    if not files:
        return {}
    file = files[-1]
    return {
        "step": file.step,
        "split": file.split,
        "plays": [_play(one, None) for one in run.episodes(file.step, file.split)],
    }


def _without_machine(config: str) -> str:
    """Folders by their names alone; a sum of the text would not be right any more."""
    lines = [line for line in config.splitlines() if not line.startswith("# SHA-256")]
    return "\n".join(re.sub(r'= "(?:~|/)[^"]*/([^"/]*)"', r'= "\1"', line) for line in lines) + "\n"


def _anywhere(event: dict[str, Any]) -> dict[str, Any]:
    return {
        key: re.sub(r"[~/][^\s\"']*/", "", value) if isinstance(value, str) else value for key, value in event.items()
    }


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
        told = kept.get("taught", {"sft": {}, "evals": {}})
        _write(folder / WARMUP / METRICS, [*_lines(told["sft"], "sft"), *_lines(told["evals"], "eval")])
    lines = [*_lines(kept["evals"], "eval"), *_lines(kept["train"], "train"), *_lines(kept.get("sft", {}), "sft")]
    _write(folder / METRICS, sorted(lines, key=lambda line: line["step"]))
    _write(folder / EVENTS, kept.get("events", []))
    table = ["."]
    (folder / EPISODES).mkdir()
    for step, stored in kept["steps"].items():
        write_episodes(train_path(folder, int(step)), _episodes(stored, table))
        _write_scores(folder, int(step), stored["plays"])
    if judged := kept.get("judged"):
        write_episodes(eval_path(folder, judged["step"], judged["split"]), _episodes({"openings": []} | judged, table))
    (folder / TOKENS).write_text(json.dumps(table))
    return Run.open(folder)


def _write(file: Path, lines: list[dict[str, Any]]) -> None:
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))


def _episodes(stored: dict[str, Any], table: list[str]) -> list[Any]:
    """Each response is one token: the first of an episode is the digest of all that was said in it."""
    openings, episodes = list(stored["openings"]), list[Any]()
    for at, (index, group, member, success, stop, turns, ret, invalid, *more) in enumerate(stored["plays"]):
        digest, nats, thoughts = more[1:] if len(more) > 1 else (0, 0.0, 0)
        read, played = stored.get("read", {}).get(str(at)), list[Any]()
        for number in range(turns):
            text, action, valid, listed = read[number] if read else (None, None, int(number >= invalid), 0)
            cut = not valid and bool(openings)
            if cut:
                table.append(openings.pop())
            ids = [len(table) - 1] if cut else [digest if number == 0 else 0] if more else []
            played.append(
                said(
                    ids,
                    verdict="too_long" if cut else "ok" if valid else "inadmissible",
                    reward=ret if number == turns - 1 else 0.0,
                    logprobs=np.full(len(ids), -nats if number == 0 else 0.0, np.float32),
                    observation="" if text is None else stored["texts"][text],
                    action=action,
                    admissible=(action,) if listed else (),
                    think_span=(0, 1) if number < thoughts else None,
                )
            )
        place = {"index": index, "group": group, "member": member, "success": bool(success), "stop": stop}
        episodes.append(episode(*played, **place))
    return episodes


def _write_scores(folder: Path, step: int, plays: list[Any]) -> None:
    """Each response has one token, and the mean advantage of its episode."""
    known = [(place, play) for place, play in enumerate(plays) if len(play) > 8 and play[8] is not None]
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
    if not columns:
        return []
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    return [{"kind": kind} | {key: value for key, value in row.items() if value is not None} for row in rows]


def _short(value: Any) -> Any:
    return float(f"{value:.4g}") if isinstance(value, float) else value
