"""Sources of a table row: a file of `isentrope eval`, or the evaluations in a run folder."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from isentrope.analysis.measure import Evaluation, Outcome, SplitResult, measure, ordered_kinds
from isentrope.analysis.record import LARGEST_NUMBER, finite, read_record
from isentrope.core.errors import RunError
from isentrope.core.stats import Share, wilson
from isentrope.core.types import CUTS
from isentrope.runs.episodes import read_episodes
from isentrope.runs.folder import read_about, read_config
from isentrope.runs.layout import METRICS, eval_path
from isentrope.runs.log import Record as Line
from isentrope.runs.log import read_records

_SUCCESS = re.compile(r"eval/([^/]+)/success")
_OF_A_RUN = {"valid_ratio": "valid_ratio", "return": "return", "turns": "turns"}  # means that runs record


@dataclass(frozen=True)
class Source:
    """One seed's evaluations, in the order of their steps."""

    path: Path
    name: str
    seed: int
    identity: str  # two sources with the same one are the same measurement
    settings: Mapping[str, Any]  # by their full names, e.g. "eval.temperature"
    evaluations: tuple[Evaluation, ...]
    is_run: bool
    steps: int | None = None  # of a run, when it is done; None: not known
    model: str = ""  # of a file: what was evaluated; two spellings of one folder are the same

    @property
    def trained(self) -> tuple[Evaluation, ...]:
        """The evaluations of a model that has learnt something: those after step 0."""
        return tuple(one for one in self.evaluations if one.step is not None and one.step > 0)


def read_source(path: Path) -> Source:
    if path.is_dir():
        return _read_run(path)
    if not path.exists():
        raise RunError(f"there is no {path}; give a run folder or a file that isentrope eval --out wrote")
    record = read_record(path)
    evaluations = sorted(record.evaluations, key=lambda one: -1 if one.step is None else one.step)
    model = record.model if record.settings.get("engine.kind") == "openai" else _local(record.model)
    told = [model, record.seed, record.config_digest, [one.step for one in evaluations]]
    identity = hashlib.sha256(json.dumps(told).encode()).hexdigest()
    return Source(
        path, record.name, record.seed, identity, record.settings, tuple(evaluations), is_run=False, model=model
    )


def _local(model: str) -> str:
    """A folder by the path it really has; any other name as it stands, but for a ./ in front of it and the like."""
    path = Path(model)
    try:
        return str(path.resolve() if path.exists() else path)
    except (OSError, ValueError):  # a name that no folder can have
        return model


def _read_run(path: Path) -> Source:
    log = path / METRICS
    if not log.is_file():
        raise RunError(
            f"{path} is not a run folder: it has no {METRICS}; give a run folder or a file of isentrope eval"
        )
    lines = [line for line in read_records(log) if line.get("kind") == "eval"]
    found = {int(line["step"]): _evaluation(line, log) for line in lines}
    evaluations = tuple(found[step] for step in sorted(found) if found[step].splits)
    if not evaluations:
        raise RunError(
            f"the run {path} has no evaluation yet; wait for one, or make one: isentrope eval {path} --out FILE.json"
        )
    try:
        config, about = _flat(read_config(path)[1]), read_about(path)
    except RunError as error:
        raise RunError(f"{error}; the run folder is damaged") from error
    identity = hashlib.sha256(log.read_bytes() + json.dumps(config, default=str, sort_keys=True).encode()).hexdigest()
    seed, steps = config.get("run.seed", 0), config.get("run.steps")
    return Source(
        path=path,
        name=path.resolve().name,
        seed=seed if isinstance(seed, int) else 0,
        identity=identity,
        settings=config,
        evaluations=evaluations,
        is_run=True,
        steps=steps
        if isinstance(steps, int) and steps <= LARGEST_NUMBER and about.get("kind", "train") == "train"
        else None,
    )


def _evaluation(line: Line, log: Path) -> Evaluation:
    splits = [found[1] for key in line if (found := _SUCCESS.fullmatch(key))]
    try:
        finite(line["step"], "step")
        return Evaluation(int(line["step"]), {split: _split(line, f"eval/{split}") for split in splits})
    except (KeyError, TypeError, ValueError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise RunError(
            f"{log} is damaged: the evaluation at step {line['step']!r:.60}: {reason}; leave it out"
        ) from error


def _split(line: Line, base: str) -> SplitResult:
    start = f"{base}/success/"
    kinds = ordered_kinds({key.removeprefix(start) for key in line if key.startswith(start)})
    shares = {
        kind: _share(line[f"{start}{kind}"], line[f"{base}/games/{kind}"])
        for kind in kinds
        if f"{base}/games/{kind}" in line
    }
    means = {name: line[f"{base}/{key}"] for name, key in _OF_A_RUN.items() if f"{base}/{key}" in line}
    return SplitResult(
        success=_share(line[f"{base}/success"], line[f"{base}/games"]),
        kinds=shares,
        means={name: finite(value, name) for name, value in means.items() if value is not None},
        failures=round(finite(line.get(f"{base}/failures", 0), "failures")),
        cut={stop: round(finite(line[key], key)) for stop in CUTS if (key := f"{base}/cut/{stop}") in line},
    )


def _share(success: float, games: float) -> Share:
    """From the share and the number of games, each of which was played once."""
    count = round(finite(games, "games"))
    if not 0.0 <= success <= 1.0 or count < 1:
        raise ValueError(f"success is {success!r:.60} of {games!r} games, expected 0 to 1 of one game or more")
    value = round(success * count) / count
    return Share(value, wilson(value * count, count), count, count, float(count))


def with_outcomes(source: Source, evaluation: Evaluation, split: str) -> tuple[Outcome, ...] | None:
    """How each game came out: from the record, or from the episodes that a run stored; None if neither has it."""
    result = evaluation.splits[split]
    if result.outcomes is not None or not source.is_run or evaluation.step is None:
        return result.outcomes
    path = eval_path(source.path, evaluation.step, split)
    return measure(read_episodes(path), 0.0, 0.0).outcomes if path.is_file() else None


def _flat(table: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by section and name; options of methods and of a world stay tables."""
    flat: dict[str, Any] = {}
    for section, value in table.items():
        if isinstance(value, dict) and section != "method":
            flat |= {f"{section}.{name}": entry for name, entry in cast("dict[str, Any]", value).items()}
        else:
            flat[section] = value
    return flat
