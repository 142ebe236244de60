"""Which rows came out as meant: a fault that shows, or a run in which nothing is wrong. Written before any run.

    python bench/broken_runs/judge.py FOLDER [--rows FILE]      one run folder a row, named as in rows.toml or FILE

Of a run are taken: success at its first and at its last evaluation, and success of its training episodes over the
first and over the last fifth of its steps (at least three). Then

    rose     the evaluation gained 6 points and training did not lose more than 5, or training gained 10 points and the
             evaluation did not fall
    high     the last evaluation is at 75 % or more, not 6 points below the first, and training ends at 70 % or more
    level    median first evaluation of the healthy rows that begin from the same warm-up in the same family

A healthy row counts if it did all its steps and rose or was high. A broken row counts if it did half of its steps or
more, is not high, and

    stuck    its evaluation gained less than 6 points and its training less than 10 (watch = "eval": only the former)
    or low   its last evaluation lies 10 points or more below the level: below where the warm-up stood untrained

A row that does not count is left out before any diagnosis is asked.

A row may have an `onset`, the step after which its fault begins: then "first" means the last evaluation up to that step
and the training steps up to it. A warm-up alone (what = "sft") has no training success and counts by its evaluations.
"""

from __future__ import annotations

import argparse
import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

ROWS = Path(__file__).with_name("rows.toml")
EVAL_GAIN, TRAIN_GAIN, EVAL_LOSS, TRAIN_LOSS = 0.06, 0.10, 0.06, 0.05
HIGH, HIGH_TRAINING, LOW = 0.75, 0.70, 0.10
FULL = "task.options.rooms=full"  # other games than the rest's, so no level holds for them

Row = Mapping[str, Any]


def read_rows(path: Path = ROWS) -> list[dict[str, Any]]:
    return [{"watch": "both", "what": "train", "onset": 0, **row} for row in tomllib.loads(path.read_text())["rows"]]


def outcome(folder: Path, onset: int = 0) -> dict[str, Any] | None:
    """Success at the start, or where the fault begins, and at the end, from metrics.jsonl; None if too little is
    there."""
    path = folder / "metrics.jsonl"
    if not path.is_file():
        return None
    records = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
    trained = [r["success/all"] for r in records if r.get("kind") == "train" and r.get("success/all") is not None]
    taught = sum(r.get("kind") == "sft" for r in records)
    tested = [(int(r["step"]), value) for r in records if (value := _evaluated(r)) is not None]
    if not (trained or taught) or not tested:
        return None
    part = min(len(trained), max(3, len(trained) // 5))
    before = [value for step, value in tested if step <= onset] or [tested[0][1]]
    return {
        "steps": len(trained) or taught, "evaluations": len(tested), "eval_first": before[-1],
        "eval_last": tested[-1][1],
        "train_first": _mean(trained[max(0, onset - part) : onset] if onset else trained[:part]),
        "train_last": _mean(trained[-part:] if part else []),
    }  # fmt: skip


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


def _evaluated(record: Row) -> float | None:
    found = [v for k, v in record.items() if k.startswith("eval/") and k.count("/") == 2 and k.endswith("/success")]
    return fmean(found) if found else None


def judge(row: Row, seen: Row | None, steps: int, level: float | None) -> tuple[bool, str]:
    """Whether a row counts, and why."""
    if seen is None:
        return False, "no result"
    gained = seen["eval_last"] - seen["eval_first"]
    first, last = seen["train_first"], seen["train_last"]  # None: a warm-up, or a run that ended before the onset
    learnt: float = 0.0 if first is None or last is None else last - first
    rose = (gained >= EVAL_GAIN and learnt >= -TRAIN_LOSS) or (learnt >= TRAIN_GAIN and gained >= 0)
    high = seen["eval_last"] >= HIGH and gained > -EVAL_LOSS and (last is None or last >= HIGH_TRAINING)
    if row["group"] == "healthy":
        if seen["steps"] < steps or seen["evaluations"] < 2:
            return False, f"only {seen['steps']} of {steps} steps"
        return rose or high, "rose" if rose else "high" if high else "did not rise"
    if 2 * seen["steps"] < steps or seen["steps"] <= row.get("onset", 0):
        return False, f"only {seen['steps']} of {steps} steps"
    stuck = gained < EVAL_GAIN and (row["watch"] == "eval" or learnt < TRAIN_GAIN)
    low = level is not None and seen["eval_last"] <= level - LOW
    if high:
        return False, "success is high all the same"
    return stuck or low, "stuck" if stuck else "low" if low else "learnt all the same"


def judge_all(rows: Sequence[Row], seen: Mapping[str, Row | None], steps: Mapping[str, int]) -> list[dict[str, Any]]:
    levels = _levels(rows, seen)
    table: list[dict[str, Any]] = []
    for row in rows:
        level = None if FULL in row["set"] else levels.get((row["family"], row["start"] or row["family"]))
        counts, why = judge(row, seen.get(row["name"]), steps.get(row["name"], 1), level)
        told = seen.get(row["name"]) or {}
        table.append({"name": row["name"], "group": row["group"], "counts": counts, "why": why, "level": level, **told})
    return table


def _levels(rows: Sequence[Row], seen: Mapping[str, Row | None]) -> dict[tuple[str, str], float]:
    """A row without a warm-up is held against the family's usual one."""
    firsts: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        told = seen.get(row["name"])
        if row["group"] == "healthy" and told is not None and FULL not in row["set"]:
            firsts.setdefault((row["family"], row["start"]), []).append(told["eval_first"])
    return {key: median(values) for key, values in firsts.items()}


def show(table: Sequence[Row]) -> str:
    def percent(value: Any) -> str:
        return "    -" if value is None else f"{100 * value:5.1f}"

    lines = ["name  group    counts  eval first last  train first last  steps  why"]
    for row in table:
        tested, trained = (" ".join(percent(row.get(f"{what}_{when}")) for when in ("first", "last"))
                           for what in ("eval", "train"))  # fmt: skip
        counts = "yes" if row["counts"] else "no"
        numbers = f"{tested:>15}  {trained:>16}  {row.get('steps', 0):5}"
        lines.append(f"{row['name']:5} {row['group']:8} {counts:6}  {numbers}  {row['why']}")
    for group in ("broken", "healthy"):
        of = [row for row in table if row["group"] == group]
        lines.append(f"{group}: {sum(bool(row['counts']) for row in of)} of {len(of)} count")
    return "\n".join(lines)


def planned_steps(row: Row, family: Row) -> int:
    if row.get("what") == "sft":
        return 1  # how many updates it has is known when its games are
    asked = [s.partition("=")[2] for s in (*family["set"], *row["set"]) if s.startswith("run.steps=")]
    return int(asked[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="one run folder a row")
    parser.add_argument("--rows", type=Path, default=ROWS, help="the rows' file")
    args = parser.parse_args()
    families = tomllib.loads(args.rows.read_text())["family"]
    rows = read_rows(args.rows)
    seen = {row["name"]: outcome(args.folder / row["name"], row["onset"]) for row in rows}
    print(show(judge_all(rows, seen, {row["name"]: planned_steps(row, families[row["family"]]) for row in rows})))


if __name__ == "__main__":
    main()
