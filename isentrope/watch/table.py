"""What the table of runs needs of all runs at once: settings in which they differ, and last values of metrics."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from isentrope.charts.text import clipped, visible
from isentrope.runs.log import CLOCK
from isentrope.watch.pace import RATE
from isentrope.watch.runs import Run

_MOST_VALUES = 200_000  # of one answer
_MOST_KEYS = 1000
_LETTERS = 120
METRIC_KEYS = 24  # of one answer


def settings_table(runs: Sequence[Run]) -> dict[str, Any]:
    """Settings by full name: what all runs have alike once, the rest by run. `left_out` counts settings that differ
    and were too many for one answer."""
    texts = [{visible(key): _text(value) for key, value in run.config.items()} for run in runs]
    keys = sorted({key for table in texts for key in table})
    alike = {key: texts[0][key] for key in keys if len({table.get(key) for table in texts}) == 1}
    differing = [key for key in keys if key not in alike]
    # settings that some runs only lack, being older or of another kind, tell least
    differing.sort(key=lambda key: len({table[key] for table in texts if key in table}) < 2)
    kept = differing[: max(10, min(_MOST_KEYS, _MOST_VALUES // max(1, len(runs))))]
    return {
        "alike": dict(list(alike.items())[:_MOST_KEYS]),
        "differing": kept,
        "runs": {run.id: [table.get(key) for key in kept] for run, table in zip(runs, texts, strict=True)},
        "left_out": len(differing) - len(kept),
    }


def _text(value: object) -> str:
    """As a user would type it: text without quotes."""
    told = value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
    return visible(clipped(told, _LETTERS))


def last_values(runs: Sequence[Run], keys: Sequence[str]) -> dict[str, list[float | None]]:
    """The last value of each metric that is a number, by run."""
    asked = keys[:METRIC_KEYS]
    return {run.id: [column_of(run, key).last(key) for key in asked] for run in runs}


def column_of(run: Run, key: str) -> Any:
    """The log in which a metric stands."""
    return run.clock if key.startswith((*CLOCK, RATE)) or key == "axis/seconds" else run.columns
