"""Opens a run folder for writing: takes its lock, records the settings, or checks those of a run that is resumed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol, cast

from isentrope import __version__
from isentrope.config.load import load_config, read_recipe
from isentrope.config.parts import refuse_foreign
from isentrope.config.schema import RunConfig
from isentrope.config.text import as_table, config_to_toml
from isentrope.config.validate import switched_method
from isentrope.core.errors import IsentropeError, RunError, writing
from isentrope.core.tokenizer import ChatTokenizer
from isentrope.runs.atomic import flush_folder, write_atomically
from isentrope.runs.checkpoints import latest_checkpoint
from isentrope.runs.folder import leaves, read_about
from isentrope.runs.integrity import check_settings, sealed, with_sum, write_sums
from isentrope.runs.layout import (
    ABOUT,
    CHECKPOINTS,
    CONFIG,
    EPISODES,
    EVENTS,
    LOCK,
    METRICS,
    REFERENCE,
    TIMINGS,
    TOKENS,
    WARMUP,
    checkpoint_step,
    own_path,
)
from isentrope.runs.lock import hold
from isentrope.runs.log import append_record, last_records, mend_end, read_records
from isentrope.runs.origin import start_entry, with_start

Completion = Callable[[RunConfig], RunConfig]


class Weights(Protocol):
    """What a run folder asks of a policy."""

    @property
    def size(self) -> int: ...
    def fingerprint(self) -> str: ...
    def save(self, folder: Path) -> None: ...


class RunFolder:
    """Holds the lock of a run folder while the run lasts. A second process is refused."""

    def __init__(
        self, path: Path, config: RunConfig, resume: bool, kind: str = "train", *, complete: Completion
    ) -> None:
        """`complete` writes out the options of a config's methods and world, which only their owners know."""
        self.path, self.kind = path, kind
        self.steps_before: int | None = None  # of a run that is resumed with another number of steps
        refused = f"another run (process {{owner}}) is writing to {path}; wait for it or choose another --out"
        self._lock = hold(path / LOCK, refused)
        try:
            self._prepare(config, resume, complete)
        except BaseException:
            self.close()
            raise

    def _prepare(self, config: RunConfig, resume: bool, complete: Completion) -> None:
        recorded = self.path / CONFIG
        self.resumed, self.fresh = resume, not begun(self.path)
        if not self.fresh:
            self._same_kind()
            if not resume:
                self._take_over(complete(config))
            check_settings(recorded)
            # code that only the run's own settings name is not imported for a comparison
            refuse_foreign(read_recipe(recorded), as_table(config), str(recorded))
            before, now = complete(load_config(recorded, [])), complete(config)
            differing = differences(before, now)
            if differing and not learnt(self.path):
                self._begin_anew(now)
            elif differing:
                raise RunError(
                    f"{self.path} was begun with other settings: {'; '.join(differing)}. "
                    "Resume without changing them, or begin a new run in another folder"
                )
            elif before.run.steps != now.run.steps:
                last = latest_checkpoint(self.checkpoints)
                done = (checkpoint_step(last.name) or 0) if last else 0
                if self.kind == "train" and now.run.steps < done:
                    raise RunError(
                        f"{self.path} has {done} of its {before.run.steps} steps behind it, and run.steps is now "
                        f"{now.run.steps}. Resume it with {done} or more"
                    )
                self.steps_before = before.run.steps
                write_atomically(recorded, sealed(config_to_toml(now)).encode())
        else:
            if not recorded.exists():
                self._must_be_empty()
            self._write_about({"kind": self.kind, "begun": _now(), "version": __version__})
            write_atomically(recorded, sealed(config_to_toml(complete(config))).encode())
        self._write_about(with_start(read_about(self.path) or {"kind": self.kind}, start_entry(_now())))
        for name in (EPISODES, CHECKPOINTS):
            with writing(self.path / name):
                (self.path / name).mkdir(exist_ok=True)

    def _take_over(self, config: RunConfig) -> None:
        """The folder of a run that an error stopped before it learnt anything: a bad start keeps no name occupied."""
        last = last_records(self.path / EVENTS) if (self.path / EVENTS).exists() else []
        if learnt(self.path) or not last or last[-1].get("kind") != "stop":
            words = "continue it with --resume or choose another folder with --out"
            raise RunError(f"{self.path} already holds a run; {words}")
        for name in (METRICS, TIMINGS, EVENTS):
            (self.path / name).unlink(missing_ok=True)
        self._begin_anew(config)

    def _begin_anew(self, config: RunConfig) -> None:
        """A run that stopped before it learnt anything has nothing that other settings would contradict."""
        for stored in (self.path / EPISODES).glob("*.parquet"):
            stored.unlink()
        self._write_about({**read_about(self.path), "kind": self.kind, "begun": _now(), "version": __version__})
        write_atomically(self.path / CONFIG, sealed(config_to_toml(config)).encode())

    def _write_about(self, entries: Mapping[str, Any]) -> None:
        write_atomically(self.path / ABOUT, (json.dumps(with_sum(entries)) + "\n").encode())

    def write_start(self, policy: Weights) -> None:
        """Which weights the run begins from, so that runs of several warm-ups can be told apart."""
        about = read_about(self.path) or {"kind": self.kind}
        self._write_about({**about, "parameters": policy.size, "start": policy.fingerprint()})

    def _must_be_empty(self) -> None:
        ours = (LOCK, WARMUP, ABOUT)
        others = sorted(p.name for p in self.path.iterdir() if p.name not in ours and p.name[0] != ".")
        if others:
            raise RunError(f"{self.path} is not empty (it has {', '.join(others[:3])}); choose another folder")

    def _same_kind(self) -> None:
        kind = read_about(self.path).get("kind", self.kind)
        if kind != self.kind:
            raise RunError(
                f"{self.path} holds a run of `isentrope {kind}`, not of `isentrope {self.kind}`; "
                f"continue it with that command, or choose another folder with --out"
            )

    @property
    def checkpoints(self) -> Path:
        return self.path / CHECKPOINTS

    @property
    def reference(self) -> Path:
        return self.path / REFERENCE

    def write_reference(self, policy: Weights) -> None:
        """Keep the policy as it was at step 0. Written anew by a run that was killed before its first checkpoint."""
        with writing(self.reference):
            self.reference.mkdir(exist_ok=True)
            policy.save(self.reference)
            write_sums(self.reference)
            flush_folder(self.reference)

    def write_tokens(self, tokenizer: ChatTokenizer) -> None:
        """What each token id reads as, for the report."""
        words = [list(piece) for piece in tokenizer.pieces(range(tokenizer.size))]
        write_atomically(self.path / TOKENS, json.dumps(words).encode())

    def close(self) -> None:
        self._lock.close()

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, IsentropeError):
            self._record_stop(error)
        self.close()

    def _record_stop(self, error: IsentropeError) -> None:
        """Leave the reason among the events, at the step that was not completed: a run that goes on from before it has
        it no more. A full disk may refuse even that."""
        with suppress(RunError):
            records = last_records(self.path / METRICS)
            unfinished = records and records[-1].get("kind") == "train" and "update/count" not in records[-1]
            step = int(records[-1]["step"]) + (not unfinished) if records else 0
            mend_end(self.path / EVENTS)
            event = {"step": step, "kind": "stop", "name": type(error).__name__, "text": str(error), "remedy": ""}
            append_record(self.path / EVENTS, event)


def begun(path: Path) -> bool:
    """Whether a run in this folder measured, played or learnt anything. One that failed before that may begin anew."""
    patterns = (METRICS, f"{EPISODES}/*", f"{CHECKPOINTS}/*")
    return (path / CONFIG).exists() and any(next(path.glob(pattern), None) for pattern in patterns)


def learnt(path: Path) -> bool:
    """Whether the run in this folder has something that belongs to its settings: a checkpoint, own games to imitate, or
    an update."""
    if own_path(path).exists() or latest_checkpoint(path / CHECKPOINTS) is not None:
        return True
    records = read_records(path / METRICS) if (path / METRICS).exists() else []
    return any(record.get("kind") == "sft" or record.get("update/count") for record in records)


def begun_config(path: Path) -> RunConfig | None:
    """The settings of the run in this folder, if it learnt anything. Nothing that they name is imported."""
    if not (begun(path) and learnt(path)):
        return None
    check_settings(path / CONFIG)
    return load_config(path / CONFIG)


def _now() -> str:
    """What rules are older or younger than."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def add_to_about(run: Path, name: str, entries: Mapping[str, Any]) -> None:
    """Add to a table of run.json."""
    about = read_about(run)
    known = about.get(name)
    table: dict[str, Any] = {**cast("dict[str, Any]", known), **entries} if isinstance(known, dict) else dict(entries)
    if about and table != known:
        write_atomically(run / ABOUT, (json.dumps(with_sum({**about, name: table})) + "\n").encode())


FREE_TO_CHANGE = (
    "run.steps", "run.device", "run.threads", "run.keep_last", "run.checkpoint_every", "run.eval_every",
    "run.store_episodes", "run.track", "task.where", "task.workers", "task.key_env", "task.step_seconds",
    "task.episode_seconds", "rollout.batch", "engine.memory", "engine.url",
    "engine.model", "engine.key_env", "eval.games", "eval.quick_games", "instruments.on_alarm", "instruments.alarms",
    "learn.micro_tokens", "learn.gradient_checkpointing", "run.grace",
    "cluster.kind", "cluster.trainers", "cluster.engines", "cluster.seconds",
)  # fmt: skip
"""Settings that a resumed run may change: they say where and how it runs and what is measured of it, not what it
computes, rounding aside; what alarms do from then on, which events.jsonl records; and how many steps it has, which
moves the end of its schedules."""


def differences(before: RunConfig, now: RunConfig) -> list[str]:
    """Settings that differ between two configs with all options written out, as sentences."""
    a, b = (_settings(config) for config in (before, now))
    keys = [key for key in sorted(a.keys() | b.keys()) if key not in FREE_TO_CHANGE and a.get(key) != b.get(key)]
    switches = {switched_method(config.instruments.on_alarm) for config in (before, now)}
    if len(switches) > 1:
        keys = [key for key in keys if not key.startswith(tuple(f"method.{name}." for name in switches if name))]
    if before.methods != now.methods:  # that says enough: the options of a method that came or went need not follow
        shared = tuple(f"method.{name}." for name in before.methods if name in now.methods)
        keys = [key for key in keys if not key.startswith("method.") or key.startswith(shared)]
    return [f"{key} was {a.get(key, 'not set')!r}, now {b.get(key, 'not set')!r}" for key in keys]


def _settings(config: RunConfig) -> dict[str, Any]:
    """By their full names; an empty table is none, and lists are lists."""
    found = {key: value for key, value in leaves(as_table(config)).items() if value != {}}
    return {key: list(cast("Any", value)) if isinstance(value, tuple) else value for key, value in found.items()}
