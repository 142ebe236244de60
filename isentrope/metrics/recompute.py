"""Recomputes a run's metrics from its stored episodes and scores, and compares them with those it wrote.

    analysis = analyze(Path("runs/first"))
    analysis.differing, analysis.new, analysis.left

They are made by the same functions as in the live run, so they are equal to the last bit. A step whose episodes were
not stored keeps its recorded numbers, so that what goes on from step to step (drift, phases, alarms) stays right.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from isentrope.core.errors import RunError
from isentrope.metrics.episodes import eval_metrics, rollout_metrics
from isentrope.metrics.log import record_of
from isentrope.metrics.means import Metrics
from isentrope.metrics.observe import Observer
from isentrope.runs.episodes import check_scores, episode_files, read_episodes, read_scores
from isentrope.runs.layout import METRICS, dropped_path, scores_path, train_path
from isentrope.runs.log import Record, read_records
from isentrope.runs.token_texts import read_token_texts

# What episodes can tell. A number of these that the run wrote and that does not come out again is a difference.
OF_EPISODES = (
    "entropy/", "surprisal/", "likelihood/", "degeneracy/", "drift/", "phase", "alarm/", "success/", "return/",
    "response/", "episode/", "context/", "temperature/", "valid_ratio", "verdict/", "mended/", "stop/",
    "failures", "eval/", "accepted/", "observation/",
)  # fmt: skip


@dataclass(frozen=True)
class Difference:
    step: int
    key: str
    recorded: float | None
    computed: float | None


@dataclass
class Analysis:
    records: list[Record] = field(default_factory=list[Record])  # what was computed, as lines of a metrics.jsonl
    steps: int = 0  # training steps with stored episodes
    evaluations: int = 0
    compared: int = 0  # numbers that stand in both
    differing: list[Difference] = field(default_factory=list[Difference])
    new: dict[str, int] = field(default_factory=dict[str, int])  # key -> steps at which the run did not record it
    left: dict[str, int] = field(default_factory=dict[str, int])  # recorded, but not to be had from episodes
    missing: list[str] = field(default_factory=list[str])  # what could not be computed, and why


def analyze(run: Path) -> Analysis:
    """Compute everything again that can be. What cannot is named in `missing` and `left`."""
    if not (run / METRICS).is_file():
        raise RunError(f"{run} is not a run folder: it has no {METRICS}")
    found = Analysis()
    recorded = {(record["step"], record.get("kind", "train")): record for record in read_records(run / METRICS)}
    _training(run, recorded, found)
    _evaluations(run, recorded, found)
    if not any(kind == "train" for _, kind in recorded):
        found.missing.append("the run has no steps of reinforcement learning")
    elif not found.steps:
        found.missing.append("no training episodes are stored (run.store_episodes)")
    return found


def _training(run: Path, recorded: dict[tuple[int, str], Record], found: Analysis) -> None:
    try:
        words = read_token_texts(run)
    except RunError as error:
        words = None
        found.missing.append(f"degeneracy/duplication: {error}")
    observer = Observer(words)
    without: list[int] = []
    for step in sorted(step for step, kind in recorded if kind == "train"):
        record = recorded[step, "train"]
        before = _numbers(record)
        if not train_path(run, step).exists():
            observer.running.look(step, before)
            continue
        played = (train_path(run, step), dropped_path(run, step))  # in this order
        episodes = [episode for path in played if path.exists() for episode in read_episodes(path, to_learn_from=True)]
        scored = scores_path(run, step)
        scores = read_scores(scored) if scored.exists() else None
        if scores is None:
            without.append(step)
        else:
            check_scores(scored, scores, episodes)
        metrics = rollout_metrics(episodes)
        seen = observer.look(step, episodes, scores, {**before, **metrics})
        found.steps += 1
        excused = {"degeneracy/duplication"} if words is None else set[str]()
        excused |= {"drift/predicted"} if scores is None else set[str]()
        _compare(found, record, metrics | seen.metrics, "train", excused)
    if without:
        several = f"{len(without)} steps ({without[0]} to {without[-1]})"
        steps = several if len(without) > 1 else f"step {without[0]}"
        found.missing.append(f"drift/predicted at {steps}: no scores were stored beside the episodes")


def _evaluations(run: Path, recorded: dict[tuple[int, str], Record], found: Analysis) -> None:
    by_step: dict[int, Metrics] = {}
    for file in episode_files(run):
        if file.split is not None and (file.step, "eval") in recorded:
            by_step.setdefault(file.step, {}).update(
                eval_metrics(file.split, read_episodes(file.path, to_learn_from=True))
            )
    for step, metrics in by_step.items():
        found.evaluations += 1
        record = recorded[step, "eval"]
        read = {_split(key) for key in metrics}
        _compare(found, record, metrics, "eval", {key for key in record if _split(key) not in read})


def _split(key: str) -> str:
    """`eval/seen/` of `eval/seen/success`: the episodes of another split may not be there."""
    return "/".join(key.split("/")[:2])


def _compare(found: Analysis, record: Record, metrics: Metrics, kind: str, excused: Collection[str] = ()) -> None:
    """`excused` keys cannot be computed here, for a reason that stands in `missing`."""
    computed = record_of(record["step"], metrics, kind)
    found.records.append(computed)
    for key in metrics:
        if key not in record:
            found.new[key] = found.new.get(key, 0) + 1
            continue
        found.compared += 1
        if computed[key] != record[key]:
            found.differing.append(Difference(record["step"], key, record[key], computed[key]))
    for key, value in _numbers(record).items():
        if key in metrics:
            continue
        if key.startswith(OF_EPISODES) and key not in excused:
            found.differing.append(Difference(record["step"], key, value, None))
        else:
            found.left[key] = found.left.get(key, 0) + 1


def _numbers(record: Record) -> dict[str, float | None]:
    """The metrics of a line; what was not finite is None, as it is to those who look at metrics."""
    return {key: value for key, value in record.items() if key not in ("step", "kind", "nonfinite")}


def lines(found: Analysis, most: int = 10) -> Iterator[str]:
    """The analysis in words."""
    yield (
        f"{found.steps} training steps and {found.evaluations} evaluations computed again from stored episodes: "
        f"{found.compared} numbers stand in {METRICS} too, {len(found.differing)} of them differ"
    )
    for one in found.differing[:most]:
        yield f"  differs: step {one.step}, {one.key}: recorded {one.recorded}, computed {one.computed}"
    if len(found.differing) > most:
        yield f"  and {len(found.differing) - most} more"
    if found.new:
        yield f"not recorded by the run: {', '.join(sorted(found.new))}"
    if found.left:
        left = ", ".join(sorted(found.left))
        yield f"recorded, but made by the update or the model and not to be had from episodes: {left}"
    for reason in found.missing:
        yield f"could not be computed: {reason}"
