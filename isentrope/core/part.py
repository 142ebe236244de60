"""The base class of what can be exchanged in a run: methods, advantage estimators and losses."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any

from isentrope.core.errors import IsentropeError, TrainError
from isentrope.core.metric import Metric

if TYPE_CHECKING:  # keeps `isentrope --help` free of numpy
    from isentrope.core.types import Metrics


@dataclass(frozen=True)
class NoOptions:
    """For a part without settings."""


class Part:
    """A part has a name, settings and metrics of its own. Any module may hold one: `module:Class` names it."""

    what = "part"  # in messages
    name = ""
    summary = ""  # one line, for `isentrope methods`
    paper = ""
    options_class: type[Any] = NoOptions  # a dataclass whose fields are made with `setting`
    metrics: tuple[Metric, ...] = ()  # all that it records; another key is an error

    def __init__(self, options: Any = None) -> None:
        self.options = self.options_class() if options is None else options

    def declares(self, key: str) -> bool:
        return any(metric.match(key) is not None for metric in self.metrics)


@contextmanager
def calling(part: Part, hook: str) -> Generator[None]:
    """Errors of a hook name the part and the hook. Those that speak for themselves, and a full card, pass."""
    try:
        yield
    except IsentropeError:
        raise
    except Exception as error:
        if type(error).__name__ == "OutOfMemoryError":
            raise
        name = part.name or type(part).__name__
        said = str(error) if type(error) is ValueError else f"raised {type(error).__name__}: {error}"
        raise TrainError(f"{part.what} {name}, hook {hook}: {said}") from error


def check_declared(part: Part, metrics: Mapping[str, object]) -> None:
    """A metric that the part has not declared is an error: nobody could say what it means."""
    for key in metrics:
        if not part.declares(key):
            known = ", ".join(metric.key for metric in part.metrics) or "none"
            raise ValueError(f"gave the metric {key!r}, which `metrics` of its class does not declare (there: {known})")


def numbers(part: Part, metrics: object) -> Metrics:
    """What a hook gave to record, as plain numbers, all of them declared."""
    if not isinstance(metrics, Mapping):
        raise ValueError(f"gave {shape_of(metrics)}: expected metrics, a dict of names and numbers")
    for key, value in metrics.items():  # pyright: ignore[reportUnknownVariableType]
        if not isinstance(key, str) or not isinstance(value, Real):
            raise ValueError(f"gave the metric {key!r} = {value!r:.60}: expected a name and a number")
    plain = {str(key): float(value) for key, value in metrics.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    check_declared(part, plain)
    return plain


def shape_of(value: object) -> str:
    """A value in a few words: its kind, and its shape where it has one."""
    shape = getattr(value, "shape", None)
    return f"{type(value).__name__} of shape {tuple(shape)}" if shape is not None else f"{value!r:.60}"
