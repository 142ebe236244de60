"""What fits on this card and how long a training step takes: shapes × what learns × context, foretold and measured.

    python -m isentrope.bench.hardware --cells hardware.json --seconds 500    # again: goes on with what is missing
    python -m isentrope.bench.hardware --only 7b --again                      # cells whose names have this in them
    python -m isentrope.bench.hardware --tiny                                 # a CPU: that it runs

Every cell is a process of its own, with a limit; memory that runs out is a result. Before, models of one layer compile
what the whole ones will need, several at once. Each cell writes its figures into the file as soon as it has them. A
step is 65,536 tokens of conversations (isentrope/bench/hardware_cell.py). Memory is the most that tensors took at once,
with recorded passes and what CUDA takes for itself; the estimate beside it is that of `isentrope models`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from threading import Timer
from typing import Any

from isentrope.analysis.tables import markdown_table
from isentrope.bench.hardware_cell import Cell, clear, estimate, measure, peak
from isentrope.bench.results import Row, finish
from isentrope.core.errors import writing

NAMES = {"135M": "smollm2-135m", "0.5B": "qwen2.5-0.5b", "1.5B": "qwen2.5-1.5b", "3B": "qwen2.5-3b", "7B": "qwen2.5-7b"}
ORDER = ("7B", "1.5B", "3B", "0.5B", "135M")
CELLS = [
    Cell(NAMES[shape], learns, context) for context in (2048, 8192) for shape in ORDER for learns in ("all", "adapters")
]
"""The most important first."""
TINY = [Cell("tiny", learns, 64) for learns in ("all", "adapters")]
GIB = 2.0**30
LIMIT = 100.0  # seconds of a cell
CLOSE = 0.1  # how far an estimate may be off
Found = dict[str, Any]


def command(layers: int) -> list[str]:
    return [sys.executable, "-m", "isentrope.bench.hardware", "--child", str(layers)]


class Child:
    """A process that has imported all it needs, and waits for a cell to measure."""

    def __init__(self, layers: int, log: Path, threads: int = 0) -> None:
        more = {"TORCHINDUCTOR_COMPILE_THREADS": str(threads)} if threads else {}
        self.log = log
        with log.open("wb") as told:
            self.process = subprocess.Popen(
                command(layers), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=told, text=True,
                env=os.environ | more,
            )  # fmt: skip

    def start(self, cell: Cell) -> None:
        assert self.process.stdin is not None
        self.began = time.monotonic()
        try:
            self.process.stdin.write(json.dumps(asdict(cell)) + "\n")
            self.process.stdin.close()
        except BrokenPipeError:
            pass  # it has ended: `result` says how

    def result(self, limit: float) -> Found:
        """Its figures, or why there are none."""
        assert self.process.stdout is not None
        late = Timer(max(0.1, limit - (time.monotonic() - self.began)), self.process.kill)
        late.start()
        try:
            lines = self.process.stdout.read().strip().splitlines()
            code = self.process.wait()
        finally:
            in_time = late.is_alive()
            late.cancel()
        whole = time.monotonic() - self.began
        if lines and not code:
            return {**json.loads(lines[-1]), "whole": whole}
        said = [line.strip() for line in self.log.read_text("utf-8", "replace").splitlines() if line.strip()]
        reason = f"ended with {code}: {said[-1][:300] if said else 'it said nothing'}"
        return {"failed": reason if in_time else f"took longer than {limit:.0f} s", "whole": whole}

    def stop(self) -> None:
        self.process.kill()
        self.process.communicate()


def child(layers: int) -> None:
    """In the process of a cell: wait for it, measure, print the figures."""
    import peft  # noqa: F401  # pyright: ignore  # what takes seconds is imported before the cell's time begins
    import transformers  # noqa: F401  # pyright: ignore

    print(json.dumps(measure(Cell(**json.loads(sys.stdin.readline())), layers)), flush=True)
    clear()
    os._exit(0)  # what CUDA's libraries do at their end changes nothing any more


def compile_first(cells: Sequence[Cell], together: int, until: float, folder: Path) -> None:
    """Models of one layer, so that compiled kernels are on the disk for the whole ones."""
    kinds = list({(cell.shape, cell.learns): cell for cell in reversed(cells)}.values())[::-1]
    for at in range(0, len(kinds), together):
        running = [(cell, Child(1, folder / "compiling.log", threads=4)) for cell in kinds[at : at + together]]
        for cell, one in running:
            one.start(cell)
        for cell, one in running:
            found = one.result(min(2 * LIMIT, max(1.0, until - time.monotonic())))
            said = found.get("failed") or found.get("oom") or "compiled"
            print(f"one layer of {cell.name}: {said}, {found['whole']:.0f} s", file=sys.stderr, flush=True)


def fill(cells: Sequence[Cell], file: Path, until: float, limit: float, layers: int) -> list[Found]:
    """Measure what is missing in the file, as long as there is time."""
    done = read(file)
    spare: Child | None = None
    log = file.with_suffix(".log")
    try:
        for number, cell in enumerate(cells):
            left = until - time.monotonic()
            if left < 5:
                break
            one, spare = spare or Child(layers, log), None
            one.start(cell)
            if number + 1 < len(cells):
                spare = Child(layers, log.with_suffix(f".{number % 2}.log"))
            found = {**asdict(cell), **one.result(min(limit, left))}
            done = [old for old in done if Cell(old["shape"], old["learns"], old["context"]) != cell] + [found]
            write(file, done)
            print(told(found), file=sys.stderr, flush=True)
    finally:
        if spare is not None:
            spare.stop()
    return done


def read(file: Path) -> list[Found]:
    return json.loads(file.read_text("utf-8"))["cells"] if file.is_file() else []


def write(file: Path, cells: Sequence[Found]) -> None:
    with writing(file):
        part = file.with_suffix(".part")
        part.write_text(json.dumps({"date": time.strftime("%Y-%m-%d"), "cells": cells}, indent=1) + "\n", "utf-8")
        part.rename(file)


def told(found: Mapping[str, Any]) -> str:
    name = f"{found['shape']}, {found['learns']}, {found['context']}"
    if "failed" in found:
        return f"{name}: {found['failed']}"
    most, wanted = peak(found) / GIB, estimate(found) / GIB
    if "oom" in found:
        return f"{name}: out of memory {found['oom']} (foretold {wanted:.1f} GiB)"
    seconds = found["seconds"]
    parts = ", ".join(f"{part} {spent:.2f} s" for part, spent in seconds.items())
    ways = " ".join(found["settings"])
    off = f", off by {100 * (wanted / most - 1):+.0f} %" if most else ""
    return (
        f"{name}: {sum(seconds.values()):.2f} s ({parts}); {most:.1f} GiB, foretold {wanted:.1f}{off}; {ways} "
        f"[whole process {found.get('whole', 0):.0f} s]"
    )


def rows_of(cells: Sequence[Found]) -> list[Row]:
    """Seconds of a step, with its parts and memory; the estimate's ratio, where the card told what was taken."""
    rows: list[Row] = []
    for found in cells:
        what, said = f"{found['shape']}, {found['learns']}, {found['context']:,} tokens", told(found)
        if "failed" in found or "oom" in found:
            rows.append(Row(what, 0.0, "s", note=said.split(": ", 1)[1]))
            continue
        most, wanted = peak(found), estimate(found)
        rows.append(Row(what, sum(found["seconds"].values()), "s", note=said.split(": ", 1)[1]))
        if most:
            close = min(most, wanted) / max(most, wanted)
            rows.append(Row(f"{what}: memory", most / GIB, "GiB", close, "the estimate", 1 - CLOSE))
    return rows


HEAD = ("shape", "learns", "context", "rollout, s", "score, s", "update, s", "tokens/s", "GiB", "foretold", "settings")


def markdown(cells: Sequence[Found]) -> str:
    """The table of docs/hardware.md."""
    places = {shape: place for place, shape in enumerate(NAMES.values())}
    order = sorted(cells, key=lambda one: (places.get(one["shape"], -1), one["learns"], one["context"]))
    return markdown_table(HEAD, [_line(found) for found in order])


def _line(found: Found) -> list[str]:
    start = [found["shape"], found["learns"], f"{found['context']:,}"]
    wanted = f"{estimate(found) / GIB:.1f}" if "settings" in found else ""
    if "failed" in found or "oom" in found:
        return [*start, *[""] * 5, wanted, found.get("failed") or f"out of memory {found['oom']}"]
    seconds = found["seconds"]
    parts = [f"{seconds[part]:.2f}" for part in ("rollout", "score", "update")]
    rate = f"{found['tokens'] / sum(seconds.values()):,.0f}"
    ways = ", ".join(f"`{way}`" for way in found["settings"])
    return [*start, *parts, rate, f"{peak(found) / GIB:.1f}", wanted, ways]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=Path, help="the file of all figures; else cells.json beside --json, or here")
    parser.add_argument("--only", nargs="+", default=[""], help="cells whose names have one of these in them")
    parser.add_argument("--again", action="store_true", help="measure what is in the file anew")
    parser.add_argument("--seconds", type=float, default=540.0, help="no cell begins or goes on after that")
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds of a cell")
    parser.add_argument("--together", type=int, default=5, help="models of one layer that compile at once; 0: none")
    parser.add_argument("--tiny", action="store_true", help="two small cells, for a CPU")
    parser.add_argument("--json", type=Path, help="write the result there, in the form that all benches share")
    parser.add_argument("--child", type=int, default=None, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.child is not None:
        return child(given.child)
    until = time.monotonic() + given.seconds
    file: Path = given.cells or (given.json or Path("cells.json")).with_name("cells.json")
    wanted = [cell for cell in (TINY if given.tiny else CELLS) if any(_within(part, cell) for part in given.only)]
    there = {(one["shape"], one["learns"], one["context"]) for one in read(file) if "failed" not in one}
    missing = [c for c in wanted if given.again or (c.shape, c.learns, c.context) not in there]
    with writing(file):
        file.parent.mkdir(parents=True, exist_ok=True)
    if given.together and missing and not given.tiny:
        compile_first(missing, given.together, until, file.parent)
    cells = fill(missing, file, until, given.limit, 0) if missing else read(file)
    print(markdown(cells), flush=True)
    result = finish("hardware", rows_of(cells), given.json)
    if not result.met:
        raise SystemExit(1)


def _within(part: str, cell: Cell) -> bool:
    return part.lower() in cell.name.lower()


if __name__ == "__main__":
    main()
