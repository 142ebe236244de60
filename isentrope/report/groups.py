"""Groups runs that differ only in their seed, and names the settings in which other runs differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from isentrope.core.limits import real
from isentrope.runs.folder import Run, leaves

SEED = "run.seed"
# settings that say where and how a run runs, not what it computes
_NOT_COMPARED = (
    SEED, "run.device", "run.threads", "run.keep_last", "run.checkpoint_every", "run.store_episodes", "run.track",
    "task.where", "task.workers", "task.key_env", "engine.memory", "engine.url", "engine.key_env",
    "learn.micro_tokens", "learn.gradient_checkpointing", "cluster.kind", "cluster.trainers",
    "cluster.engines", "cluster.seconds",
)  # fmt: skip


@dataclass(frozen=True)
class Group:
    """One line of a comparison: a run, or several seeds of it."""

    name: str
    runs: tuple[Run, ...]

    @property
    def label(self) -> str:
        return self.name if len(self.runs) == 1 else f"{self.name} ({len(self.runs)} seeds)"


def grouped(runs: Sequence[Run], rows: Mapping[str, Sequence[Run]] | None = None) -> list[Group]:
    """Runs that differ only in their seed together, in the order given; then `rows`, as they were named."""
    found: dict[str, list[Run]] = {}
    for number, run in enumerate(runs):
        found.setdefault(but_the_seed(run.kind, leaves(run.config)) or str(number), []).append(run)
    groups = [Group(_name(members), tuple(members)) for members in found.values()]
    groups += [Group(name, tuple(members)) for name, members in (rows or {}).items() if members]
    return _distinct(groups)


def but_the_seed(kind: str, settings: Mapping[str, Any]) -> str:
    """Equal for runs that differ only in their seed; empty for one without a seed, which is a seed of nothing."""
    rest = sorted((key, repr(value)) for key, value in settings.items() if key not in _NOT_COMPARED)
    return repr((kind, rest)) if SEED in settings else ""


def _name(runs: Sequence[Run]) -> str:
    """What the names of the runs begin with; the first one's name if that says nothing."""
    if len(runs) == 1:
        return runs[0].name
    alike = takewhile(lambda letters: len(set(letters)) == 1, zip(*(run.name for run in runs), strict=False))
    start = "".join(letters[0] for letters in alike).rstrip("0123456789-_. ").removesuffix("seed").rstrip("-_. ")
    return start or f"{runs[0].name} and others"


def _distinct(groups: Sequence[Group]) -> list[Group]:
    """Groups of one name are told apart by the folder that they lie in, or else by a number."""
    made: list[Group] = []
    for group in groups:
        name = group.name
        if sum(other.name == name for other in groups) > 1:
            name = f"{real(group.runs[0].path).parent.name}/{name}"
        count = sum(other.name == name or other.name.startswith(f"{name} #") for other in made)
        made.append(Group(f"{name} #{count + 1}" if count else name, group.runs))
    return made


def differences(runs: Sequence[Run]) -> dict[str, list[Any]]:
    """The settings in which some of the runs differ, with each run's value; None: it has no such setting."""
    tables = [leaves(run.config) for run in runs]
    keys = list(dict.fromkeys(key for table in tables for key in table))
    rows = {key: [table.get(key) for table in tables] for key in keys}
    return {key: values for key, values in rows.items() if any(repr(one) != repr(values[0]) for one in values)}
