"""What a diagnosis is made from, and what it is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from isentrope.core.types import Episode
from isentrope.metrics.curves import Curve, curve

SEVERITIES = ("good", "note", "warning", "bad")


@dataclass(frozen=True)
class Finding:
    name: str
    claim: str  # one or a few plain sentences, with the numbers
    severity: str  # one of SEVERITIES
    evidence: dict[str, float] = field(default_factory=dict[str, float])
    steps: tuple[int, ...] = ()  # the steps that the claim names
    remedy: tuple[str, ...] = ()  # what to try, one thing each


@dataclass(frozen=True)
class Course:
    """A run, as far as its folder tells it. Everything but the name may be empty."""

    name: str
    kind: str = "train"  # train, sft or rft
    config: Mapping[str, Any] = field(default_factory=dict[str, Any])
    records: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    events: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    running: bool = False
    episodes: Sequence[Episode] = ()  # of one stored step, the last
    episodes_step: int = 0

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        return [record for record in self.records if record.get("kind", "train") == kind]

    def curve(self, key: str, kind: str = "train") -> Curve:
        return curve(self.of_kind(kind), key)

    def keys(self, prefix: str, kind: str = "train") -> list[str]:
        return sorted({key for record in self.of_kind(kind) for key in record if key.startswith(prefix)})

    def setting(self, name: str) -> Any:
        """A setting by its full name, `learn.lr`; None where the folder does not say."""
        value: Any = self.config
        for part in name.split("."):
            value = cast("Mapping[str, Any]", value).get(part) if isinstance(value, Mapping) else None
        return value

    def amount(self, name: str) -> float | None:
        """A setting that is a number."""
        value = self.setting(name)
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None

    @property
    def methods(self) -> tuple[str, ...]:
        """Those that the run began with and those that an alarm switched on."""
        methods = self.setting("methods")
        named = [str(name) for name in cast("list[Any]", methods)] if isinstance(methods, list | tuple) else []
        return (*named, *(str(event.get("name")) for event in self.events if event.get("kind") == "switch"))

    @property
    def last_step(self) -> int:
        kind = "train" if self.kind == "train" else "sft"
        return max((int(record["step"]) for record in self.of_kind(kind)), default=0)


def slower(course: Course) -> str:
    """`a smaller learning rate`, with the one that ran if it is known."""
    lr = course.amount("learn.lr")
    return "a smaller learning rate" + (f" (learn.lr is {lr:g})" if lr else "")
