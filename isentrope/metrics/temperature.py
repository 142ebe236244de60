"""The temperature that a run's entropies were measured at, and what has to be said where it was not 1.

Entropies and log-probs of a token belong to the temperature that it was sampled with. The same policy has more entropy
at T = 1.2 than at T = 1, so a curve or a table of several runs marks those that were measured elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from isentrope.core.types import StepTokens
from isentrope.metrics.means import Metrics, known_means, mean

MARK = "†"
MEAN, NOT_ONE = "temperature/mean", "temperature/not_one"
_MEASURED = ("entropy/", "surprisal/", "likelihood/")  # metrics that depend on the temperature
_ALL = 0.9995  # of the tokens


def temperature_metrics(step: StepTokens) -> Metrics:
    elsewhere_N = step.temperature_N != 1
    return known_means({MEAN: step.sampled_at_N.astype(np.float64), NOT_ONE: elsewhere_N.astype(np.float64)})


def entropy_temperature(settings: Mapping[str, Any], rows: Iterable[Mapping[str, Any]] = ()) -> str | None:
    """A note on a run's entropies; None if all are at temperature 1. `settings` by their full names ("rollout.
    temperature"); `rows` are its training records, which know better. Those of older versions do not say."""
    measured = [row for row in rows if _number(row.get("entropy/token")) is not None]
    told = [row for row in measured if _number(row.get(NOT_ONE)) is not None]
    note = _of_rows(told) if told else None
    return note if note or (told and len(told) == len(measured)) else _of_settings(settings)


def _of_rows(rows: list[Mapping[str, Any]]) -> str | None:
    share, heat = (mean([_number(row.get(key)) or 0.0 for row in rows]) for key in (NOT_ONE, MEAN))
    if share == 0:
        return None
    if share > _ALL:
        return f"entropy at T = {heat:.3g}"
    return f"entropy of {100 * share:.2g} % of the tokens at another temperature than 1 (mean T = {heat:.3g})"


def _of_settings(settings: Mapping[str, Any]) -> str | None:
    methods = settings.get("methods")
    names = [str(name) for name in methods] if isinstance(methods, list | tuple) else []  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    base = _setting(settings, "rollout.temperature", 1.0)
    if "higher_temperature" in names:
        base = _setting(settings, "method.higher_temperature.temperature", 1.2)
    parts = [f"entropy at T = {base:g}"] if base != 1 else []
    hot = _setting(settings, "method.actre.temperature", 1.2)
    cool = settings.get("method.actre.variant") in ("no_stage1", "no_high_temperature")
    if "actre" in names and not cool and hot != base:
        parts.append(f"entropy of branching action tokens at T = {hot:g} in stage 1")
    return "; ".join(parts) or None


def _setting(settings: Mapping[str, Any], name: str, default: float) -> float:
    value = _number(settings.get(name))
    return default if value is None else value


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def marked(name: str, note: str | None) -> str:
    return f"{name} {MARK}" if note else name


def note_for(key: str, settings: Mapping[str, Any], rows: Iterable[Mapping[str, Any]] = ()) -> str | None:
    """The note, for a metric that depends on the temperature."""
    return entropy_temperature(settings, rows) if key.startswith(_MEASURED) else None


def footnotes(notes: Mapping[str, str | None]) -> list[str]:
    """From names and their notes to a line for each different note, with the names that it holds for."""
    names: dict[str, list[str]] = {}
    for name, note in notes.items():
        if note:
            names.setdefault(note, []).append(name)
    return [f"{MARK} {', '.join(who)}: {note}" for note, who in names.items()]
