"""Reads a run folder. No trainer and no model is needed, and the run may still be going.

run = Run.open("runs/first")
run.curve("entropy/token"), run.setting("learn.lr"), run.episodes(12), run.events, run.alive
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from isentrope.config.older import read_settings
from isentrope.core.errors import RunError
from isentrope.core.limits import LARGEST, NOTE_BYTES, SETTINGS_BYTES, read_bounded, read_json, real
from isentrope.core.text import plain
from isentrope.core.types import Episode
from isentrope.runs.checkpoints import kept_checkpoints
from isentrope.runs.curves import Curve, curve
from isentrope.runs.episodes import EpisodeFile, check_scores, episode_files, read_episodes, read_scores
from isentrope.runs.integrity import check_settings, log_damage, texts_damage, without_sum
from isentrope.runs.layout import (
    ABOUT,
    CHECKPOINTS,
    CONFIG,
    EVENTS,
    FOR_TRAINING,
    METRICS,
    TIMINGS,
    TOKENS,
    WARMUP,
    scores_path,
)
from isentrope.runs.lock import held_locks, is_alive
from isentrope.runs.log import CLOCK, Record, read_log
from isentrope.runs.origin import Imported, imported_of

LOG = logging.getLogger("isentrope")


@dataclass(frozen=True)
class Run:
    """A run as it was when its folder was read. Everything but the path may be empty."""

    path: Path
    kind: str = "train"  # the command that made it: train, sft or rft
    config: Mapping[str, Any] = field(default_factory=dict[str, Any])
    records: list[Record] = field(default_factory=list[Record])
    events: list[Record] = field(default_factory=list[Record])  # alarms and changes of phase, as they were said
    timings: list[Record] = field(default_factory=list[Record])
    episode_files: Sequence[EpisodeFile] = ()  # of training and of evaluations, by step
    config_text: str = ""
    about: Mapping[str, Any] = field(default_factory=dict[str, Any])  # what run.json says of its beginning
    alive: bool = False  # whether a process of this machine is writing to the folder
    problems: tuple[str, ...] = ()  # what of the folder could not be read, a line each
    # What was asked for already: long runs are asked for the same curve again and again.
    _rows: dict[str, list[Record]] = field(
        default_factory=dict[str, list[Record]], init=False, repr=False, compare=False
    )
    _curves: dict[tuple[str, str], Curve] = field(
        default_factory=dict[tuple[str, str], Curve], init=False, repr=False, compare=False
    )

    @classmethod
    def open(cls, path: Path | str, thin: bool = False) -> Run:
        """Read a run folder. What a run has not written yet is empty. Damaged lines of a log are left out, as
        `problems` and a warning say; settings that cannot be read are a RunError. `thin`: of metrics that would take
        long to read (core/limits.py), one of so many training records."""
        path = Path(path)
        if not path.is_dir():
            raise RunError(f"{path} is not a run folder; give the folder that holds {METRICS}")
        text, config = read_config(path)
        metrics = read_log(path / METRICS, thin=thin)
        events, timings = (read_log(path / name) for name in (EVENTS, TIMINGS))
        records, (about, about_problem) = metrics.records, _about(path)
        kind = kind_of(about, any(record.get("kind") == "sft" for record in records))
        for problem in _damage(path):
            LOG.warning("%s: its numbers may be wrong", problem)
        if about_problem:
            LOG.warning(plain(about_problem))
        files = [file for file in episode_files(path) if file.kind != "dropped"]
        problems = tuple(log.problem for log in (metrics, events, timings) if log.problem)
        for problem in problems:
            LOG.warning(f"{plain(str(path))}: {plain(problem)}")
        alive = is_alive(path, held_locks())
        return cls(
            path, kind, config, records, events.records, timings.records, files, text, about, alive, problems
        )  # fmt: skip

    @property
    def name(self) -> str:
        return real(self.path).name

    def of_kind(self, kind: str) -> list[Record]:
        if kind not in self._rows:
            self._rows[kind] = [record for record in self.records if record.get("kind", "train") == kind]
        return self._rows[kind]

    def curve(self, key: str, kind: str = "") -> Curve:
        """A metric over the steps at which it was measured: by default those of evaluations for eval/..., the clock's
        for seconds/..., else those of training."""
        of = (
            "clock"
            if not kind and key.startswith(CLOCK)
            else kind or ("eval" if key.startswith("eval/") else self._learning)
        )
        if (of, key) not in self._curves:
            self._curves[of, key] = curve(self.timings if of == "clock" else self.of_kind(of), key)
        return self._curves[of, key]

    def keys(self, prefix: str, records: Sequence[Record] | None = None) -> list[str]:
        """The metric keys that start so, in alphabetical order."""
        keys = {key for record in (self.records if records is None else records) for key in record}
        return sorted(key for key in keys if key.startswith(prefix))

    @property
    def splits(self) -> list[str]:
        """Those with an evaluation."""
        parts = [key.split("/") for key in self.keys("eval/")]
        return [part[1] for part in parts if len(part) == 3 and part[2] == "success"]

    def setting(self, name: str, default: Any = None) -> Any:
        """A setting by its full name, `learn.lr`; the default where the folder does not say."""
        value: Any = self.config
        for part in name.split("."):
            if not isinstance(value, Mapping) or part not in value:
                return default
            value = cast("Mapping[str, Any]", value)[part]
        return value

    def amount(self, name: str) -> float | None:
        """A setting that is a number, and one that can be reckoned with."""
        value = self.setting(name)
        known = isinstance(value, int | float) and not isinstance(value, bool) and -LARGEST <= value <= LARGEST
        return float(value) if known else None

    def episodes(self, step: int, split: str | None = None) -> list[Episode]:
        """The stored episodes of a training step, or of the evaluation of a split at that step."""
        for file in self.episode_files:
            if (file.step, file.split) == (step, split):
                return read_episodes(file.path)
        what = "training" if split is None else f"evaluation on {split}"
        stored = ", ".join(str(file.step) for file in self.episode_files if file.split == split) or "none"
        raise RunError(f"{self.path} has no episodes of {what} at step {step}; stored are those of: {stored}")

    def advantages(self, step: int, episodes: Sequence[Episode]) -> dict[int, float]:
        """The mean advantage of each stored episode of a step that was learnt from, by its place among them; after all
        methods."""
        path = scores_path(self.path, step)
        scores = read_scores(path)
        check_scores(path, scores, list(episodes))
        ends = scores.length_U.cumsum()
        sums, counts = dict[int, float](), dict[int, int]()
        for place, length, end in zip(scores.episode_U.tolist(), scores.length_U.tolist(), ends.tolist(), strict=True):
            sums[place] = sums.get(place, 0.0) + float(scores.advantage_N[end - length : end].sum())
            counts[place] = counts.get(place, 0) + length
        return {place: total / counts[place] for place, total in sums.items() if counts[place]}

    @property
    def methods(self) -> tuple[str, ...]:
        """Those that the run began with and those that an alarm switched on."""
        methods = self.setting("methods")
        named = [str(name) for name in cast("list[Any]", methods)] if isinstance(methods, list | tuple) else []
        return (*named, *(str(event.get("name")) for event in self.events if event.get("kind") == "switch"))

    @property
    def imported(self) -> Imported | None:
        """Where it came from, if another program made it."""
        return imported_of(self.about)

    @property
    def last_step(self) -> int:
        return max((int(record["step"]) for record in self.of_kind(self._learning)), default=0)

    @property
    def _learning(self) -> str:
        """The kind of the records that its learning leaves."""
        return "train" if self.kind == "train" else "sft"

    def warmup(self, allowed: Callable[[Path], bool] = lambda path: True, thin: bool = False) -> Run | None:
        """The warm-up that the run's policy came from, if its numbers can be found. `allowed`: where it may lie.

        It is `RUN/warmup`, or the run folder that `policy.model` names, taken from here or from beside the run; or one
        beside it with that name, where the path is one of another machine.
        """
        model = self.setting("policy.model", "")
        places = [self.path / WARMUP]
        if isinstance(model, str) and model:
            places += [Path(model), self.path / model, self.path.parent / model]
            places += [self.path.resolve().parent / Path(model).name] if Path(model).name not in ("", "..") else []
        for place in places:
            try:
                there = allowed(place) and (place / METRICS).is_file() and real(place) != real(self.path)
            except (OSError, ValueError):  # a name of a model that cannot be a path
                there = False
            if there:
                return Run.open(place, thin)
        return None


def read_config(run: Path) -> tuple[str, dict[str, Any]]:
    """The settings that a run recorded, as they stand there and as a table in the names of today; both are empty if it
    recorded none. Of a run that another program made those stand in run.json, as far as they are known."""
    path = run / CONFIG
    try:
        if not path.exists():
            imported = imported_of(about_or_nothing(run))
            return "", {} if imported is None else dict(imported.settings)
        text = read_bounded(path, SETTINGS_BYTES).decode("utf-8")
        return text, read_settings(text)
    except (OSError, ValueError) as error:  # ValueError: neither TOML nor, perhaps, UTF-8
        raise RunError(f"could not read {path}: {error}") from error


def read_about(run: Path) -> dict[str, Any]:
    """What run.json says: the command that made the folder, when, by which version, from which weights. Empty where the
    folder is older than that file."""
    path = run / ABOUT
    try:
        if not path.exists():
            return {}
        entries = read_json(path, NOTE_BYTES)
        if not isinstance(entries, dict):
            raise TypeError("it is not a table")
        return without_sum(cast("dict[str, Any]", entries))
    except (OSError, ValueError, TypeError) as error:
        todo = "put it back from a copy, or delete it: it says when, by what and from which weights the run was begun"
        raise RunError(f"could not read {path}: {error}; {todo}") from error


def about_or_nothing(run: Path) -> dict[str, Any]:
    """As `read_about`; a damaged file is as good as none."""
    return _about(run)[0]


def _about(run: Path) -> tuple[dict[str, Any], str]:
    """What run.json says, and what is wrong with it, in words."""
    try:
        return read_about(run), ""
    except RunError as error:
        return {}, str(error)


def kind_of(about: Mapping[str, Any], imitates: bool) -> str:
    """train, sft or rft, as run.json says; else by whether the run has records of imitation."""
    kind = about.get("kind")
    return str(kind) if kind in ("train", "sft", "rft") else "sft" if imitates else "train"


def leaves(table: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """Settings by their full names."""
    flat: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, dict) and value:
            flat |= leaves(cast("dict[str, Any]", value), f"{path}{key}.")
        else:
            flat[path + key] = value
    return flat


def keep_numbers(run: Path) -> None:
    """Remove what only a further training or a reader of episodes would need; settings, metrics, timings and events
    stay. A folder that is a link is somebody else's and stays too."""
    for path in (run / name for name in FOR_TRAINING):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
    (run / TOKENS).unlink(missing_ok=True)


def _damage(run: Path) -> list[str]:
    """What is wrong with the files that a run is read from, as far as its newest checkpoint knows them."""
    found: list[str] = []
    try:
        check_settings(run / CONFIG)
    except RunError as error:
        found.append(str(error))
    newest = next(reversed(kept_checkpoints(run / CHECKPOINTS).values()), None)
    if newest is not None:
        told = (log_damage(run, newest), texts_damage(run, newest))
        found += [f"{run} is damaged: by its checkpoint {newest.name}, {problem}" for problem in told if problem]
    return found
