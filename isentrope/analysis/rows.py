"""Rows of a table: sources with one name, one for each seed, that were measured in the same way. A source is a file of
`isentrope eval`, or the evaluations in a run folder."""

from __future__ import annotations

import glob
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from isentrope.analysis.measure import Evaluation, Outcome, SplitResult, measure, ordered_kinds
from isentrope.analysis.record import LARGEST_NUMBER, SAME_TEST, by_section, finite, read_record
from isentrope.core.command import command
from isentrope.core.errors import ConfigError, RunError
from isentrope.core.limits import real
from isentrope.core.stats import Share, wilson
from isentrope.core.types import CUTS
from isentrope.runs.episodes import read_episodes
from isentrope.runs.folder import about_or_nothing, read_about, read_config
from isentrope.runs.layout import METRICS, eval_path, names_a_file
from isentrope.runs.log import Record as Line
from isentrope.runs.log import read_records
from isentrope.runs.origin import imported_of

_SUCCESS = re.compile(r"eval/([^/]+)/success")
_MEANS = ("valid_ratio", "return", "turns")  # those that runs record
_OWN_TO_A_SEED = (  # what may differ between two seeds of one row without a word
    "run.seed", "policy.model", "run.device", "run.threads", "run.keep_last", "run.store_episodes",
    "task.where", "task.workers", "task.key_env", "eval.splits",
    "cluster.kind", "cluster.trainers", "cluster.engines", "cluster.seconds",
)  # fmt: skip


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
        return str(real(path) if path.exists() else path)
    except (OSError, ValueError):  # a name that no folder can have
        return model


def _tells_games(line: Line) -> bool:
    return any(key.endswith("/games") for key in line)


def _read_run(path: Path) -> Source:
    log = path / METRICS
    if not log.is_file():
        told = f"{path} is not a run folder: it has no {METRICS}"
        raise RunError(f"{told}; give a run folder or a file of isentrope eval")
    lines = read_records(log, "eval")
    imported = imported_of(about_or_nothing(path))
    if imported is not None and not imported.watched and not any(_tells_games(line) for line in lines):
        raise RunError(
            f"{path} was imported, and its log has no evaluation with a number of games; import it again with "
            "--set eval.games=NUMBER, and with --map eval/SPLIT/success=NAME where success has a name of its own"
        )
    found = {int(line["step"]): _evaluation(line, log) for line in lines}
    evaluations = tuple(found[step] for step in sorted(found) if found[step].splits)
    if not evaluations:
        raise RunError(
            f"the run {path} has no evaluation yet; wait for one, or make one: {command('eval', path)} --out FILE.json"
        )
    try:
        config, about = by_section(read_config(path)[1]), read_about(path)
    except RunError as error:
        raise RunError(f"{error}; the run folder is damaged") from error
    identity = _identity(lines, config)
    seed, steps = config.get("run.seed", 0), config.get("run.steps")
    known = isinstance(steps, int) and steps <= LARGEST_NUMBER and about.get("kind", "train") == "train"
    seed, steps = seed if isinstance(seed, int) else 0, steps if known else None
    return Source(path, real(path).name, seed, identity, config, evaluations, is_run=True, steps=steps)


def _identity(lines: Sequence[Line], config: Mapping[str, Any]) -> str:
    """Of a run: what it measured, and with which settings."""
    return hashlib.sha256(json.dumps([lines, config], default=str, sort_keys=True).encode()).hexdigest()


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
    start, games = f"{base}/success/", f"{base}/games/"
    kinds = ordered_kinds({key.removeprefix(start) for key in line if key.startswith(start)})
    means = {name: line.get(f"{base}/{name}") for name in _MEANS}
    return SplitResult(
        success=_share(line[f"{base}/success"], line[f"{base}/games"]),
        kinds={kind: _share(line[start + kind], line[games + kind]) for kind in kinds if games + kind in line},
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
    if not names_a_file(split):
        return None
    path = eval_path(source.path, evaluation.step, split)
    return measure(read_episodes(path), 0.0, 0.0).outcomes if path.is_file() else None


# -- sources of one name


@dataclass(frozen=True)
class Row:
    name: str
    sources: tuple[Source, ...]  # by seed, then path: the order they were given in does not matter


def read_rows(paths: Sequence[str], named: Sequence[str]) -> list[Row]:
    """Rows from plain paths, which are named by what they say of themselves, then those of `--row NAME=PATTERN`."""
    sources: dict[str, list[Source]] = {}
    for pattern in paths:
        for path in _paths(pattern):
            source = read_source(path)
            found = sources.setdefault(source.name, [])
            _check_name(source, found)
            found.append(source)
    for entry in named:
        name, equals, pattern = entry.partition("=")
        if not equals or not name.strip() or not pattern:
            raise ConfigError(f"--row {entry!r}: expected NAME=PATH, where PATH may have * in it")
        sources.setdefault(name.strip(), []).extend(read_source(path) for path in _paths(pattern))
    if not sources:
        raise ConfigError("nothing to show: give run folders, files of isentrope eval, or --row NAME=PATH")
    return [make_row(name, found) for name, found in sources.items()]


def _check_name(source: Source, others: Sequence[Source]) -> None:
    """Refuse two models that share a row only because the last parts of their names are the same."""
    for other in others:
        unnamed = all(one.model and one.name == Path(one.model).name for one in (source, other))
        if unnamed and source.model != other.model and source.seed == other.seed:
            raise RunError(
                f"{other.path} and {source.path} are both called {source.name!r}, but their models differ "
                f"({other.model}, {source.model}); tell them apart with --row NAME=PATH, or with isentrope eval --name"
            )


def _paths(pattern: str) -> list[Path]:
    if Path(pattern).exists():  # also a name that has a bracket or a star in it
        return [Path(pattern)]
    found = sorted(glob.glob(pattern))
    if not found:
        raise RunError(f"nothing is called {pattern}; give run folders or files that isentrope eval --out wrote")
    return [Path(path) for path in found]


def make_row(name: str, sources: Sequence[Source]) -> Row:
    """A row, unless the same measurement is in it twice."""
    seen: dict[str, Source] = {}
    for source in sources:
        for key in (source.identity, str(real(source.path))):
            if key in seen:
                raise RunError(
                    f"the row {name!r} has the same measurement twice: {seen[key].path} and {source.path}; "
                    "give each seed once"
                )
        seen |= {source.identity: source, str(real(source.path)): source}
    return Row(name, tuple(sorted(sources, key=lambda one: (one.seed, str(one.path)))))


def check_row(row: Row, mixed: bool) -> list[str]:
    """What to know of the sources of a row. Tests that differ are refused unless `mixed` allows them."""
    first, notes = row.sources[0], list[str]()
    for other in row.sources[1:]:
        tests = differing(first, other, SAME_TEST)
        if tests and not mixed:
            raise RunError(
                f"the row {row.name!r} mixes tests: {first.path} and {other.path} differ in {'; '.join(tests)}. "
                "Give them rows of their own, or allow it with --mixed"
            )
        if first.is_run == other.is_run:
            ignored = (*_OWN_TO_A_SEED, *(() if tests else SAME_TEST))
            keys = sorted((first.settings.keys() | other.settings.keys()).difference(ignored))
            tests = differing(first, other, keys)
        if tests:
            more = f" and {len(tests) - 3} more" if len(tests) > 3 else ""
            notes.append(f"{row.name}: {first.path} and {other.path} differ in {'; '.join(tests[:3])}{more}")
    for is_run, what in ((True, "runs"), (False, "files")):
        seeds = [source.seed for source in row.sources if source.is_run == is_run]
        if len(set(seeds)) < len(seeds):
            notes.append(f"{row.name}: two of its {what} have the same seed ({', '.join(map(str, seeds))})")
    return notes + _check_models(row, mixed)


def _check_models(row: Row, mixed: bool) -> list[str]:
    """The files of a row should be of as many models, one for each training: playing one again is no other seed."""
    notes, seen = list[str](), dict[str, Source]()
    for source in row.sources:
        if not source.model:
            continue
        first = seen.setdefault(source.model, source)
        if first is source:
            continue
        if not mixed:
            raise RunError(
                f"the row {row.name!r} has one model twice: {first.path} and {source.path} are both of {source.model}, "
                "and playing it again is not another seed. Play more with isentrope eval --episodes, give them rows "
                "of their own, or allow it with --mixed"
            )
        notes.append(f"{row.name}: {first.path} and {source.path} are of one model, not of two trainings")
    if len(seen) > 1:
        models = ", ".join(_short(model) for model in seen)
        notes.append(f"{row.name}: its files are of {len(seen)} models ({models})")
    return notes


def check_rows(rows: Sequence[Row]) -> list[str]:
    """Rows that were not given the same test."""
    first, *others = rows
    tests = [(other.name, differing(first.sources[0], other.sources[0], SAME_TEST)) for other in others]
    return [f"{first.name} and {name} differ in their test: {'; '.join(told)}" for name, told in tests if told]


def differing(first: Source, second: Source, keys: Sequence[str]) -> list[str]:
    """Settings that both know and that differ, as "eval.temperature (0.4, 0.0)".

    A run's response form is left out beside a file's: methods may change it, which only the file has seen.
    """
    found: list[str] = []
    for key in keys:
        if key == "agent.order" and first.is_run != second.is_run:
            continue
        a, b = _known(first, key), _known(second, key)
        found += [] if a is None or b is None else _unequal(key, a, b)
    return found


def _unequal(key: str, a: Any, b: Any) -> list[str]:
    if a == b:
        return []
    if isinstance(a, dict) and isinstance(b, dict):
        one, other = cast("dict[str, Any]", a), cast("dict[str, Any]", b)
        names = sorted(one.keys() | other.keys())
        return [text for name in names for text in _unequal(f"{key}.{name}", one.get(name), other.get(name))]
    return [f"{key} ({_short(a)}, {_short(b)})"]


def _known(source: Source, key: str) -> Any:
    if key == "eval.episodes" and source.is_run:
        return 1  # evaluations during a run play each game once
    if key == "agent.window" and source.settings.get("agent.context") != "window":
        return None
    return source.settings.get(key)


def _short(value: Any) -> str:
    text = "not set" if value is None else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
