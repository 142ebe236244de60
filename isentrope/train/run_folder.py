"""The run folder: who may write to it, and what is in it before the first step.

config.toml  metrics.jsonl  timings.jsonl  events.jsonl  episodes/  checkpoints/  tensorboard/  tokens.json
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, cast

from isentrope import __version__
from isentrope.config.load import load_config
from isentrope.config.schema import RunConfig
from isentrope.config.text import as_table, config_to_toml
from isentrope.config.validate import switched_method
from isentrope.core.errors import RunError, writing
from isentrope.core.tokenizer import Dialect
from isentrope.methods.options import with_options
from isentrope.models.policy import Policy
from isentrope.rollout.files import write_atomically

KIND = "run.json"  # which command made the folder, when, with which version, and from which weights


class RunFolder:
    """Holds a run folder while the run lasts. One process at a time: a second one is refused, a dead one is not."""

    def __init__(self, path: Path, config: RunConfig, resume: bool, kind: str = "train") -> None:
        self.path, self.kind = path, kind
        with writing(path):
            path.mkdir(parents=True, exist_ok=True)
            self._lock = (path / "run.lock").open("a+")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._lock.seek(0)
            owner = self._lock.read().strip() or "unknown"
            self._lock.close()
            raise RunError(
                f"another run (process {owner}) is writing to {path}; wait for it or choose another --out"
            ) from error
        self._lock.truncate(0)
        self._lock.write(str(os.getpid()))
        self._lock.flush()
        try:
            self._prepare(config, resume)
        except BaseException:
            self.close()
            raise

    def _prepare(self, config: RunConfig, resume: bool) -> None:
        recorded = self.path / "config.toml"
        self.resumed, self.fresh = resume, not (recorded.exists() and self._begun())
        if not self.fresh:
            self._same_kind()
            if not resume:
                raise RunError(
                    f"{self.path} already holds a run; continue it with --resume or choose another folder with --out"
                )
            differing = differences(load_config(recorded, []), config)
            if differing:
                raise RunError(
                    f"{self.path} was begun with other settings: {'; '.join(differing)}. "
                    "Resume without changing them, or begin a new run in another folder"
                )
        else:
            if not recorded.exists():
                self._must_be_empty()
            begun = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")  # what rules are older or younger than
            self._write_kind({"kind": self.kind, "begun": begun, "version": __version__})
            write_atomically(recorded, config_to_toml(with_options(config)).encode())
        for name in ("episodes", "checkpoints"):
            with writing(self.path / name):
                (self.path / name).mkdir(exist_ok=True)

    def _write_kind(self, told: Mapping[str, Any]) -> None:
        write_atomically(self.path / KIND, (json.dumps(dict(told)) + "\n").encode())

    def write_start(self, policy: Policy) -> None:
        """Which weights the run begins from, so that runs of several warm-ups can be told apart."""
        told = json.loads((self.path / KIND).read_text()) if (self.path / KIND).exists() else {"kind": self.kind}
        self._write_kind({**told, "parameters": policy.size, "start": policy.fingerprint()})

    def _must_be_empty(self) -> None:
        ours = ("run.lock", "warmup", KIND)
        others = sorted(p.name for p in self.path.iterdir() if p.name not in ours and p.name[0] != ".")
        if others:
            raise RunError(f"{self.path} is not empty (it has {', '.join(others[:3])}); choose another folder")

    def _begun(self) -> bool:
        """Whether anything was measured, played or learnt here. A run that failed before that may begin anew."""
        return any(next(self.path.glob(pattern), None) for pattern in ("metrics.jsonl", "episodes/*", "checkpoints/*"))

    def _same_kind(self) -> None:
        path = self.path / KIND
        kind = json.loads(path.read_text())["kind"] if path.exists() else self.kind
        if kind != self.kind:
            raise RunError(
                f"{self.path} holds a run of `isentrope {kind}`, not of `isentrope {self.kind}`; "
                f"continue it with that command, or choose another folder with --out"
            )

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def reference(self) -> Path:
        return self.path / "reference"

    def write_reference(self, policy: Policy) -> None:
        """Keep the policy as it was at step 0. Written anew by a run that was killed before its first checkpoint."""
        with writing(self.reference):
            self.reference.mkdir(exist_ok=True)
            policy.save(self.reference)

    def write_tokens(self, dialect: Dialect) -> None:
        """What each token id reads as, for the report."""
        words = [list(piece) for piece in dialect.pieces(range(dialect.size))]
        write_atomically(self.path / "tokens.json", json.dumps(words).encode())

    def close(self) -> None:
        self._lock.close()

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


FREE_TO_CHANGE = (
    "run.device",
    "run.threads",
    "run.keep_last",
    "run.checkpoint_every",
    "run.track",
    "task.where",
    "task.workers",
    "task.key_env",
    "engine.memory",
    "engine.url",
    "engine.model",
    "engine.key_env",
    "instruments.on_alarm",
    "instruments.alarms",
    "learn.micro_tokens",
    "learn.gradient_checkpointing",
)
"""Settings that a resumed run may change: they say where and how it runs, not what it computes, rounding aside; and
what alarms do from then on, which events.jsonl records."""


def differences(before: RunConfig, now: RunConfig) -> list[str]:
    """Settings that differ, as sentences. An option that an older run did not record is at its default."""
    a, b = (dict(_leaves(as_table(with_options(config)))) for config in (before, now))
    keys = [key for key in sorted(a.keys() | b.keys()) if key not in FREE_TO_CHANGE and a.get(key) != b.get(key)]
    switches = {switched_method(config.instruments.on_alarm) for config in (before, now)}
    if len(switches) > 1:
        keys = [key for key in keys if not key.startswith(tuple(f"method.{name}." for name in switches if name))]
    if before.methods != now.methods:  # that says enough: the options of a method that came or went need not follow
        shared = tuple(f"method.{name}." for name in before.methods if name in now.methods)
        keys = [key for key in keys if not key.startswith("method.") or key.startswith(shared)]
    return [f"{key} was {a.get(key, 'not set')!r}, now {b.get(key, 'not set')!r}" for key in keys]


def _leaves(table: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _leaves(cast("Mapping[str, Any]", value), f"{path}{key}.")
        else:
            yield path + key, list(cast("tuple[Any, ...]", value)) if isinstance(value, tuple) else value
