"""Records the golden runs anew: `python -m tests.golden.record "what changed, why, who checked it" [CASE ...]`.

The rule. A golden run is recorded again only if what is computed was meant to change. The reason says what changed,
why, and who looked at the differences; the log in golden.json keeps it, with the names of the cases. A change that was
not meant, however small, is a bug: find it instead. Without names all cases are recorded, which is for a new version of
torch, or for a change that concerns all of them.
"""

from __future__ import annotations

import json
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.golden.cases import CASES, machine, play

FILE = Path(__file__).with_name("golden.json")


def read() -> dict[str, Any]:
    return json.loads(FILE.read_text()) if FILE.exists() else {"log": [], "cases": {}}


def main(arguments: list[str]) -> int:
    if not arguments or len(arguments[0].split()) < 3 or not set(arguments[1:]) <= CASES.keys():
        print(__doc__)
        return 2
    why, names = arguments[0], arguments[1:] or list(CASES)
    table = read()
    for name in names:
        with tempfile.TemporaryDirectory() as place:
            table["cases"][name] = play(name, Path(place) / "run") | {"machine": machine()}
        print(name)
    date = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    table["log"].append({"date": date, "why": why, "cases": "all" if len(names) == len(CASES) else names})
    table["cases"] = {name: table["cases"][name] for name in CASES if name in table["cases"]}
    FILE.write_text(written(table))
    return 0


def written(table: dict[str, Any]) -> str:
    """JSON with a line for each row of metrics, so that a change shows where it is."""
    lines = ['{"log": [', ",\n".join(json.dumps(entry) for entry in table["log"]), '],\n"cases": {']
    cases: list[str] = []
    for name, case in table["cases"].items():
        rows = ",\n  ".join(json.dumps(row, sort_keys=True) for row in case["rows"])
        head = json.dumps({"machine": case["machine"], "weights": case["weights"]})[:-1]
        cases.append(f'"{name}": {head}, "rows": [\n  {rows}]}}')
    return "\n".join([*lines, ",\n".join(cases), "}}"]) + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
