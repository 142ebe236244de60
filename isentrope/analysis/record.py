"""The file that `isentrope eval --out` writes: what was run, and how often each game was solved.

    {"format": "isentrope.evaluation", "version": 1, "isentrope": "0.1.0",
     "name": "GRPO", "model": "runs/grpo-0", "seed": 0, "config_digest": "…", "settings": {"task.world": …},
     "evaluations": [{"step": 30, "notes": {}, "splits": {"unseen": {
         "games": 512, "episodes": 512, "successes": 455, "success": 0.889, "low": 0.859, "high": 0.913,
         "average": 0.887, "failures": 0, "cut": {},
         "kinds": {"pick": {"games": …, "successes": …, "success": …, …}, …},
         "means": {"score": …, "return": …, "turns": …, "valid_ratio": …, "response_tokens": …},
         "outcomes": [[0, "pick", 1, 1], …]}}}]}

An outcome is game, kind, episodes solved, episodes played. `failures` are episodes lost to a fault, and `cut` says how
many the clock (failures too) and the limit of the context ended: {"clock": 3, "context_limit": 1}. Readers of this
module take the counts from the outcomes alone; the other figures stand there for people and for other programs. Equal
evaluations give equal bytes.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from isentrope import __version__
from isentrope.analysis.measure import EXTRAS, Evaluation, Outcome, SplitResult, of_outcomes
from isentrope.config.schema import RunConfig
from isentrope.config.text import as_table
from isentrope.core.errors import RunError
from isentrope.core.limits import RESULT_BYTES, read_json
from isentrope.core.stats import Share
from isentrope.core.types import CUTS, RolloutPlan
from isentrope.runs.atomic import write_atomically

FORMAT, VERSION = "isentrope.evaluation", 1
LARGEST_NUMBER = 2**63  # of any number in a record or a log
Table = dict[str, Any]
SAME_TEST = (  # what decides how hard the test is: a row's sources must agree, rows that do not are pointed out
    "task.world", "task.options", "task.max_turns", "task.episode_seconds",
    "eval.temperature", "eval.first_game", "eval.episodes",
    "agent.order", "agent.context", "agent.window", "agent.prompt", "agent.show_admissible", "agent.max_response",
    "agent.max_context", "agent.overflow", "policy.chat_template",
)  # fmt: skip


@dataclass(frozen=True)
class Record:
    name: str
    model: str
    seed: int
    config_digest: str
    settings: Mapping[str, Any]
    evaluations: tuple[Evaluation, ...]
    notes: tuple[Mapping[str, float], ...] = field(default=())  # of the engine, one for each evaluation
    version: str = __version__  # of the program that wrote it


def write_record(path: Path, record: Record) -> None:
    write_atomically(path, (json.dumps(as_json(record), indent=1, allow_nan=False) + "\n").encode())


def as_json(record: Record) -> Table:
    notes = record.notes or tuple({} for _ in record.evaluations)
    told: Table = {"format": FORMAT, "version": VERSION, "isentrope": record.version, "name": record.name}
    told |= {"model": record.model, "seed": record.seed, "config_digest": record.config_digest}
    evaluations = [
        {
            "step": evaluation.step,
            "notes": {key: value for key, value in said.items() if math.isfinite(value)},
            "splits": {split: _split(result) for split, result in evaluation.splits.items()},
        }
        for evaluation, said in zip(record.evaluations, notes, strict=True)
    ]
    return told | {"settings": dict(record.settings), "evaluations": evaluations}


def _split(result: SplitResult) -> Table:
    told = {"average": result.average, "failures": result.failures, "cut": dict(result.cut)}
    kinds = {kind: _share(share) for kind, share in result.kinds.items()}
    outcomes = [[one.game, one.kind, one.wins, one.episodes] for one in result.outcomes or ()]
    return _share(result.success) | told | {"kinds": kinds, "means": dict(result.means), "outcomes": outcomes}


def _share(share: Share) -> Table:
    successes = round(share.value * share.episodes)
    told = {"games": share.games, "episodes": share.episodes, "successes": successes, "success": share.value}
    return told | {"low": share.low, "high": share.high}


def read_record(path: Path) -> Record:
    """The record in a file; a RunError says what is wrong with any other file."""
    table = _load(path)
    if table.get("format") != FORMAT:
        if any(key.startswith("eval/") for key in table):
            raise RunError(f"{path} has the figures of an earlier version without its games; evaluate the model again")
        raise RunError(f"{path} is not a result of isentrope eval: it has no format {FORMAT!r}; leave it out")
    if table.get("version") != VERSION:
        raise RunError(
            f"{path} is of version {table.get('version')!r}, this program reads {VERSION}; evaluate the model again, "
            "or use the program that wrote it"
        )
    try:
        return _record(table)
    except (KeyError, TypeError, ValueError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise RunError(f"{path} is damaged: {reason[:200]}; evaluate the model again") from error


def _load(path: Path) -> Table:
    try:
        data = read_json(path, RESULT_BYTES, found=False)
    except OSError as error:
        raise RunError(f"could not read {path}: {error.strerror or error}; leave it out") from error
    except ValueError as error:
        raise RunError(f"{path} is not JSON, or only a part of it: {error}; evaluate the model again") from error
    if not isinstance(data, dict):
        raise RunError(f"{path} is not a result of isentrope eval: it holds a {type(data).__name__}; leave it out")
    return cast(Table, data)


def _record(table: Table) -> Record:
    evaluations: list[Table] = [_typed(one, dict, "an evaluation") for one in _list(table["evaluations"])]
    if not evaluations:
        raise ValueError("it has no evaluation")
    steps = [one.get("step") for one in evaluations]
    if len(set(steps)) < len(steps):
        raise ValueError("it has a step twice")
    return Record(
        name=_typed(table["name"], str, "name"),
        model=_typed(table["model"], str, "model"),
        seed=count(table["seed"], "seed"),
        config_digest=_typed(table["config_digest"], str, "config_digest"),
        settings=_typed(table["settings"], dict, "settings"),
        evaluations=tuple(_evaluation(one) for one in evaluations),
        notes=tuple(_numbers(one.get("notes", {})) for one in evaluations),
        version=_typed(table.get("isentrope", ""), str, "isentrope"),
    )


def _evaluation(table: Table) -> Evaluation:
    step = None if table["step"] is None else count(table["step"], "step")
    splits: Table = _typed(table["splits"], dict, "splits")
    return Evaluation(step, {name: _result(_typed(split, dict, name)) for name, split in splits.items()})


def _result(table: Table) -> SplitResult:
    outcomes = tuple(_outcome(_list(row)) for row in _list(table["outcomes"]))
    if len({one.game for one in outcomes}) < len(outcomes):
        raise ValueError("a game stands twice among the outcomes")
    if len(outcomes) != table["games"]:
        raise ValueError(f"{len(outcomes)} outcomes for {table['games']!r} games")
    means = {key: value for key, value in _numbers(table["means"]).items() if key in EXTRAS}
    stops: Table = _typed(table.get("cut", {}), dict, "cut")
    cut = {stop: count(stops[stop], stop) for stop in CUTS if stop in stops}
    return of_outcomes(outcomes, means, count(table.get("failures", 0), "failures"), cut)


def _outcome(row: Sequence[Any]) -> Outcome:
    game, kind, wins, episodes = row
    outcome = Outcome(count(game, "game"), _typed(kind, str, "kind"), count(wins, "wins"), count(episodes, "episodes"))
    if not outcome.wins <= outcome.episodes or outcome.episodes == 0:
        raise ValueError(f"game {outcome.game} was solved {outcome.wins} times in {outcome.episodes} episodes")
    return outcome


def _numbers(value: Any) -> dict[str, float]:
    table: Table = _typed(value, dict, "means")
    return {key: finite(number, key) for key, number in table.items() if isinstance(number, int | float)}


def _list(value: Any) -> list[Any]:
    return _typed(value, list, "a list")


def _typed(value: Any, kind: type[Any], name: str) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"{name} is {value!r:.60}, expected a {kind.__name__}")
    return value


def count(value: Any, name: str) -> int:
    if type(value) is not int or not 0 <= value <= LARGEST_NUMBER:
        raise ValueError(f"{name} is {value!r:.60}, expected a count")
    return value


def finite(value: Any, name: str) -> float:
    """A number that can be reckoned with: JSON may hold NaN, infinity and integers that no float reaches."""
    if not isinstance(value, int | float) or not abs(value) <= LARGEST_NUMBER:  # NaN compares with nothing
        raise ValueError(f"{name} is {value!r:.60}, expected a number of at most {LARGEST_NUMBER:.0e}")
    return float(value)


# -- the settings of an evaluation that a record keeps


def played_settings(config: RunConfig, plan: RolloutPlan, episodes: int) -> dict[str, Any]:
    """Those that tables compare, by their full names; what was really played, whatever the recipe says."""
    played = {"agent.order": plan.order, "eval.temperature": plan.temperature, "eval.episodes": episodes}
    told = {key: value for key, value in by_section(as_table(config)).items() if key in SAME_TEST}
    told |= {"engine.kind": config.engine.kind, "methods": list(config.methods), **played}
    return json.loads(json.dumps(told, default=str, sort_keys=True))


def digest(config: RunConfig, settings: Mapping[str, Any], all_games: bool) -> str:
    """Of all that decides what is measured, but for the model: not of where it runs or how it was trained."""
    run, task = config.run, config.task
    told = {key: value for key, value in settings.items() if key != "methods"}
    told |= {"run.seed": run.seed, "run.dtype": run.dtype, "run.weights": run.weights}
    told |= {"eval.splits": list(config.eval.splits), "eval.games": "all" if all_games else config.eval.games}
    told |= {"task.success_reward": task.success_reward, "task.invalid_reward": task.invalid_reward}
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def by_section(table: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by section and name; options of methods and of a world stay tables."""
    flat: dict[str, Any] = {}
    for section, value in table.items():
        if isinstance(value, dict) and section != "method":
            flat |= {f"{section}.{name}": entry for name, entry in cast("dict[str, Any]", value).items()}
        else:
            flat[section] = value
    return flat
