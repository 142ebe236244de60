"""Answers to the live page as plain data: runs, metrics, events, episodes. All text is made visible first."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from isentrope.charts.text import clipped, visible
from isentrope.core.errors import RunError
from isentrope.metrics.glossary import entry_of, sentence
from isentrope.metrics.temperature import entropy_temperature
from isentrope.runs.lock import held_locks
from isentrope.runs.log import CLOCK
from isentrope.watch.episodes import Found, Tokens, Wanted, actions_of, first_difference, row_of, search, view
from isentrope.watch.pace import AXIS, MEANINGS, RATE
from isentrope.watch.runs import EpisodeFile, Indexes, Run, Runs, file_of, files_of

PHASES = ("descent", "eruption", "subsidence")
_TEXT_LETTERS = 1000
_MOST_VALUES = 200_000  # of one answer
_MOST_KEYS = 1000
_LETTERS = 120
METRIC_KEYS = 24  # of one answer
Span = tuple[int, int, str]  # first step, last step, name


def phases_of(run: Run) -> list[Span]:
    """The phases as spans that touch, the last one up to the run's last step.

    Told from the entropy curve, as the report does: the trainer notices an eruption some steps after its onset. Runs
    that recorded no change of phase are not looked through, and those that recorded no entropy have what was told.
    """
    told = _told(run)
    if told and all(name == PHASES[0] for _, _, name in told):
        return told
    dated = _dated(run)
    return dated if run.phases.eruptions or not told else told


def _dated(run: Run) -> list[Span]:
    steps, values = run.columns.between("entropy/token", run.phased, run.columns.rows)
    run.phased = run.columns.rows
    for step, value in zip(steps, values, strict=True):
        run.phases.look(step, value)
    spans = run.phases.spans()  # empty without an entropy
    starts = [*(span.first for span in spans), run.columns.last_step]
    return [(span.first, max(span.first, end), span.name) for span, end in zip(spans, starts[1:], strict=True)]


def _told(run: Run) -> list[Span]:
    """As the trainer told them at the time."""
    starts = [(int(event["step"]), str(event.get("name"))) for event in run.events if event.get("kind") == "phase"]
    if not starts:
        steps, values = run.columns.between("phase", 0, run.columns.rows)
        named = [(step, _phase(value)) for step, value in zip(steps, values, strict=True) if value is not None]
        starts = named[:1] + [b for a, b in pairwise(named) if a[1] != b[1]]
    starts = sorted((step, name) for step, name in starts if name in PHASES)
    if not starts:
        return []
    if starts[0][0] > 0 and starts[0][1] == PHASES[1]:  # only changes are recorded, and every run begins with a descent
        starts.insert(0, (0, PHASES[0]))
    ends = [*(step for step, _ in starts[1:]), max(run.columns.last_step, starts[-1][0])]
    return [(step, end, name) for (step, name), end in zip(starts, ends, strict=True)]


def alarms_of(run: Run) -> list[dict[str, Any]]:
    """The alarms and what was done about them in the order of their steps, each with its sentence."""
    alarms: list[dict[str, Any]] = [
        {"step": int(event["step"])} | {name: _text(event.get(name)) for name in ("name", "text", "remedy")}
        for event in run.events
        if event.get("kind") != "phase"  # an alarm, or what was done about one
    ]
    if not alarms:
        for key in run.columns.keys:
            if key.startswith("alarm/"):
                name = _text(key.removeprefix("alarm/"))
                steps, values = run.columns.between(key, 0, run.columns.rows)
                fired = [step for step, value in zip(steps, values, strict=True) if value]
                alarms += [{"step": step, "name": name, "text": f"Alarm: {name}", "remedy": ""} for step in fired]
    return sorted(alarms, key=lambda alarm: alarm["step"])


def _phase(value: float) -> str:
    return PHASES[int(value)] if 0 <= value < len(PHASES) else ""


def _text(value: object) -> str:
    return visible(clipped(value, _TEXT_LETTERS)) if isinstance(value, str) else ""


PAGE = 50  # episodes
_KEY_LIMIT = 400  # series of one answer, by key


class Answers:
    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self._indexes, self._tokens = Indexes(), Tokens()

    def runs(self) -> dict[str, Any]:
        """All runs: how far each is, and how many records there are to ask for."""
        locks, now = held_locks(), time.time()
        runs = self._runs.refresh()
        with self._runs.lock:
            rows = [_run_row(run, run.status(locks, now), now) for run in runs]
        unread = sum(not run.read_at for run in runs)
        return {"runs": rows, "unread": unread, "places": [visible(str(place)) for place in self._runs.places]}

    def keys(self) -> dict[str, Any]:
        """Every metric that some run has: its meaning and unit."""
        with self._runs.lock:
            every = {key for run in self._runs.all() for key in (*run.columns.keys, *run.clock.keys)}
        keys = sorted(key for key in every if not key.startswith(AXIS))
        return {"keys": [_meaning(key) for key in keys]}

    def series(self, wants: Sequence[str], keys: Sequence[str]) -> bytes:
        """Numbers of `keys` for each want, RUN:BEGUN:SINCE:UNTIL:CLOCK_SINCE:CLOCK_UNTIL in records, as JSON: of many
        long runs they are millions, which as lists would take more memory than the runs."""
        answer: dict[str, str] = {}
        for want in wants:
            name, *numbers = want.split(":")
            run = self._runs.get(name)
            if run is None or len(numbers) != 5 or not all(map(is_number, numbers)):
                continue
            begun, *window = (int(number) for number in numbers)
            with self._runs.lock:
                same = begun == run.begun  # else the run was resumed since, and the page has to begin anew
                answer[run.id] = _series(run, window, keys[:_KEY_LIMIT]) if same else "null"
        parts = (f"{json.dumps(name)}:{text}" for name, text in answer.items())
        return f'{{"series":{{{",".join(parts)}}}}}'.encode()

    def events(self, names: Sequence[str]) -> dict[str, Any]:
        answer: dict[str, Any] = {}
        for run in self._named(names):
            with self._runs.lock:  # run by run: the phases of many long ones take a while at first
                answer[run.id] = {"phases": phases_of(run), "alarms": alarms_of(run)}
        return answer

    def configs(self, names: Sequence[str]) -> dict[str, Any]:
        """Settings as TOML-like text, by key."""
        return {
            run.id: {visible(key): visible(clipped(json.dumps(value, default=str, ensure_ascii=False), 400))
                     for key, value in run.config.items()}
            for run in self._named(names)
        }  # fmt: skip

    def table(self) -> dict[str, Any]:
        """The settings of all runs, as far as they differ."""
        with self._runs.lock:
            return settings_table(self._runs.all())

    def last(self, keys: Sequence[str]) -> dict[str, Any]:
        """The last value of some metrics, of all runs."""
        with self._runs.lock:
            return {"last": last_values(self._runs.all(), keys)}

    def episodes(self, names: Sequence[str], wanted: Wanted, place: str) -> dict[str, Any]:
        """A page of the list of episodes."""
        files = files_of(self._named(names))
        found = search(files, wanted, self._indexes, self._table, place, PAGE)
        known = self._indexes.known(files)
        return _counts(found) | {
            "rows": [row_of(*hit) for hit in found.hits],
            "kinds": sorted({visible(kind) for index in known for kind in set(index.kind)})[:200],
            "stops": sorted({visible(stop) for index in known for stop in set(index.stop)})[:50],
            "sources": sorted({visible(file.source) for file in files}),
            "all_files": len(files),
        }

    def count(self, names: Sequence[str], wanted: Wanted, place: str) -> dict[str, Any]:
        """How many episodes fit in the files from `place` on, as many as can be looked through at once."""
        if wanted.text or wanted.duplicated:  # the indexes alone cannot tell
            return {"unknown": True}
        return _counts(search(files_of(self._named(names)), wanted, self._indexes, self._table, place, 0))

    def episode(self, name: str, file: str, number: int, first: int) -> dict[str, Any]:
        found = self._file(name, file)
        return view(found, number, self._indexes, self._tokens, first) | {"run_name": found.run.name}

    def difference(self, name: str, file: str, a: int, b: int) -> dict[str, Any]:
        """The first turn in which two episodes of a file act differently."""
        found = self._file(name, file)
        size = len(self._indexes.of(found))
        if not (0 <= a < size and 0 <= b < size):
            raise RunError(f"{found.path.name} has {size} episodes")
        return {"turn": first_difference(*(actions_of(found, number, self._indexes) for number in (a, b)))}

    def _table(self, file: EpisodeFile) -> Any:
        return self._tokens.of(file.run.path)

    def _named(self, names: Sequence[str]) -> list[Run]:
        return [run for run in map(self._runs.get, names) if run is not None]

    def _file(self, name: str, file: str) -> EpisodeFile:
        run = self._runs.get(name)
        found = file_of(run, file) if run is not None else None
        if found is None:
            raise RunError("there is no such episode file (any more); go back to the list")
        return found


def _run_row(run: Run, status: str, now: float) -> dict[str, Any]:
    evals = {key: run.columns.last(key) for key in run.columns.keys if key.startswith("eval/")}
    measured = [key for key, value in evals.items() if key.endswith("/success") and value is not None]
    return {
        "id": run.id, "name": run.name, "path": visible(str(run.path)), "group": run.group, "kind": run.kind,
        "status": status, "seed": visible(str(run.config.get("run.seed", ""))), "begun": run.begun,
        "rows": run.columns.rows, "clock_rows": run.clock.rows, "events": len(run.events),
        "step": run.columns.last_step,
        "steps": run.config.get("run.steps") if isinstance(run.config.get("run.steps"), int) else None,
        "keys": len(run.columns.keys) + len(run.clock.keys),
        "success": evals[measured[-1]] if measured else run.columns.last("success/all"),
        "success_of": visible(measured[-1].split("/")[1]) if measured else "",
        "per_hour": run.pace.per_hour, "tokens_per_second": run.clock.last("tokens_per_second/rollout"),
        "memory": run.clock.last("memory/gpu") or run.clock.last("memory/peak"), "seconds": run.pace.seconds,
        "age": max(0, round(now - run.written)) if run.written else None, "problems": run.problems(),
        "entropy_note": visible(entropy_temperature(run.config) or ""),
    }  # fmt: skip


def _series(run: Run, window: Sequence[int], keys: Sequence[str]) -> str:
    """Keys that were written at the same steps share one list of steps."""
    steps: dict[str, int] = {}
    values: list[str] = []
    for columns, since, until in ((run.columns, *window[:2]), (run.clock, *window[2:])):
        shown, found = columns.texts([key for key in keys if column_of(run, key) is columns], since, until)
        places = [steps.setdefault(text, len(steps)) for text in shown]
        values += [f"{json.dumps(key)}:[{places[place]},{text}]" for key, (place, text) in found.items()]
    return f'{{"x":[{",".join(steps)}],"y":{{{",".join(values)}}}}}'


def _meaning(key: str) -> dict[str, str]:
    if key in MEANINGS:
        unit, text = MEANINGS[key]
        return {"key": key, "shown": key, "text": text, "unit": unit}
    try:
        return {"key": key, "shown": visible(key), "text": visible(sentence(key)), "unit": entry_of(key).unit}
    except KeyError:  # written by another version
        return {"key": key, "shown": visible(key), "text": "", "unit": ""}


def _counts(found: Found) -> dict[str, Any]:
    counts = {name: value for name, value in vars(found).items() if name != "hits"}
    return counts | {"broken": [visible(text) for text in found.broken[:20]]}


def is_number(text: str, digits: int = 18) -> bool:
    """Whether it is a whole number of so many digits at most. isdigit alone holds for ², which is none."""
    return text.isascii() and text.isdigit() and len(text) <= digits


def wanted_from(query: Mapping[str, str]) -> Wanted:
    """The filters of a request; what makes no sense is left out."""

    def number(name: str, default: int) -> int:
        text = query.get(name, "")
        return int(text) if is_number(text, 11) else default

    return Wanted(
        kind=query.get("kind", "")[:200], stop=query.get("stop", "")[:100], source=query.get("source", "")[:120],
        outcome=query.get("outcome", "") if query.get("outcome") in ("solved", "failed") else "",
        high=query.get("high") == "1", invalid=query.get("invalid") == "1", duplicated=query.get("duplicated") == "1",
        first_step=number("from", -1), last_step=number("to", 1 << 60), text=query.get("text", "")[:200],
        oldest_first=query.get("order") == "oldest",
    )  # fmt: skip


# -- the table of runs


def settings_table(runs: Sequence[Run]) -> dict[str, Any]:
    """Settings by full name: what all runs have alike once, the rest by run. `left_out` counts settings that differ
    and were too many for one answer."""
    texts = [{visible(key): _typed(value) for key, value in run.config.items()} for run in runs]
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


def _typed(value: object) -> str:
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
