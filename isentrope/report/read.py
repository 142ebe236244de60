"""Reads a run folder, and nothing else: no trainer, no model. The run may still be going."""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from isentrope.config.older import read_settings
from isentrope.core.errors import RunError
from isentrope.instruments.log import EVENTS, METRICS, TIMINGS, Record, read_records

_EPISODE_FILE = re.compile(r"(?:step-(\d+)|eval-(\d+)-(.+))\.parquet")


@dataclass(frozen=True)
class EpisodeFile:
    path: Path
    step: int
    split: str | None  # None: training


@dataclass(frozen=True)
class Run:
    """What a run folder says about its run."""

    path: Path
    config: dict[str, Any]
    config_text: str
    records: list[Record]
    timings: list[Record]
    episode_files: list[EpisodeFile]
    kind: str = "train"  # the command that made it: train, sft or rft
    events: tuple[Record, ...] = ()  # alarms and changes of phase, as they were said

    @property
    def name(self) -> str:
        return self.path.resolve().name

    def of_kind(self, kind: str) -> list[Record]:
        return [record for record in self.records if record.get("kind", "train") == kind]

    def setting(self, section: str, name: str, default: Any = None) -> Any:
        """A value of the config; a table or a value that is not there gives the default."""
        table = self.config.get(section)
        return cast("dict[str, Any]", table).get(name, default) if isinstance(table, dict) else default

    def keys(self, prefix: str, records: list[Record] | None = None) -> list[str]:
        """The metric keys that start so, in alphabetical order."""
        found = {key for record in (self.records if records is None else records) for key in record}
        return sorted(key for key in found if key.startswith(prefix))


def read_run(path: Path | str) -> Run:
    """Read a run folder. What a run has not written yet is empty; a file that is damaged is a RunError."""
    path = Path(path)
    if not path.is_dir():
        raise RunError(f"{path} is not a run folder; give the folder that holds {METRICS}")
    config_file = path / "config.toml"
    try:
        text = config_file.read_text(encoding="utf-8") if config_file.exists() else ""
        config = read_settings(text)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise RunError(f"could not read {config_file}: {error}") from error
    records = _log(path / METRICS)
    files = _episode_files(path / "episodes")
    kind, events = _kind(path, records), tuple(_log(path / EVENTS))
    return Run(path, config, text, records, _log(path / TIMINGS), files, kind, events)


def _kind(path: Path, records: list[Record]) -> str:
    """As run.json says; an older run folder, or one whose file is damaged, is told by its records."""
    try:
        said = json.loads((path / "run.json").read_bytes())["kind"]
    except (OSError, ValueError, RecursionError, TypeError, KeyError):
        said = None
    if said in ("train", "sft", "rft"):
        return str(said)
    return "sft" if any(record.get("kind") == "sft" for record in records) else "train"


def read_warmup(run: Run) -> Run | None:
    """The warm-up that the run's policy came from, if its numbers can be found.

    It is `RUN/warmup`, or the run folder that `policy.model` names, taken from here or from beside the run.
    """
    model = run.setting("policy", "model", "")
    places = [run.path / "warmup"]
    if isinstance(model, str) and model:
        places += [Path(model), run.path / model, run.path.parent / model]
    for place in places:
        try:
            found = (place / METRICS).is_file() and place.resolve() != run.path.resolve()
        except OSError:  # a name of a model that cannot be a path
            found = False
        if found:
            return read_run(place)
    return None


def _log(path: Path) -> list[Record]:
    return read_records(path) if path.exists() else []


def _episode_files(folder: Path) -> list[EpisodeFile]:
    files: list[EpisodeFile] = []
    for path in folder.glob("*.parquet") if folder.is_dir() else ():
        found = _EPISODE_FILE.fullmatch(path.name)
        if found is not None:
            files.append(EpisodeFile(path, int(found[1] or found[2]), found[3]))
    return sorted(files, key=lambda file: (file.step, file.split or ""))
