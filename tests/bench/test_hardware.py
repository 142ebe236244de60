"""The hardware table: every cell is the same work, what is missing is measured, and what goes wrong is a result."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from isentrope.bench import hardware, hardware_cell
from isentrope.bench.hardware import CELLS, Cell, Child, fill, main, markdown, rows_of, told
from isentrope.bench.hardware_cell import TALKS, WAYS, chosen, estimate, measure, peak, play
from isentrope.core.engine import Request, Sampled
from isentrope.learning.packing import micro_batches
from isentrope.learning.tokens import flatten

pytest.importorskip("transformers", reason="the bench builds Hugging Face models")
TINY = Cell("tiny", "all", 64)
GIB = 2**30


class Echo:
    """Answers any prompt at once."""

    def open(self, slots: object) -> None: ...

    def sample(self, requests: Sequence[Request]) -> list[Sampled]:
        new = len(requests[0].uniforms)
        one, ids = np.ones(new, np.float32), np.arange(new, dtype=np.int32)
        return [Sampled(ids, -one, one, one, "length") for _ in requests]


@pytest.mark.parametrize("context", list(TALKS))
def test_every_conversation_has_exactly_the_context_and_passes_are_full(context: int) -> None:
    talk, engine = TALKS[context], cast("Any", Echo())
    sequences, tokens = flatten(play(engine, talk, context, 607))
    assert [len(sequence.ids) for sequence in sequences] == [context] * talk.conversations
    assert len(tokens.target_N) == talk.conversations * talk.turns * talk.new
    how = {"row_tokens": talk.micro, "micro_tokens": talk.micro}
    batches = list(micro_batches(sequences, tokens, share=True, **how))  # type: ignore[arg-type]
    each = talk.conversations * context // talk.micro
    assert [batch.ids_BT.numel() for batch in batches] == [talk.micro] * each
    assert all(batch.parents_BT is None for batch in batches)  # no beginning is worth sharing
    assert context == 64 or each * talk.micro == 65_536


def test_a_cell_is_measured_on_a_cpu_too() -> None:
    for learns in ("all", "adapters"):
        if learns == "adapters":
            pytest.importorskip("peft")
        found = json.loads(json.dumps(measure(Cell("tiny", learns, 64))))
        assert set(found["seconds"]) == {"rollout", "score", "update"}
        assert found["tokens"] == 256
        assert estimate(found) > GIB // 2  # what CUDA takes is counted
        assert "oom" not in found


def test_the_quickest_way_that_is_foretold_to_fit_is_taken() -> None:
    ways = {cell.shape: chosen(cell, 139 * GIB)[0] for cell in CELLS if cell.learns == "all"}
    assert ways["qwen2.5-1.5b"] == ()
    assert ways["qwen2.5-7b"] == ("learn.optimiser=adamw8",)
    assert chosen(Cell("qwen2.5-7b", "all", 2048), 40 * GIB)[0] == WAYS[-1]


def test_memory_that_runs_out_is_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    def full(*_: Any) -> None:
        raise torch.OutOfMemoryError("no room")

    monkeypatch.setattr(hardware_cell, "quickest_engine", full)
    found = measure(TINY)
    assert found["oom"] == "the engine could not be made"
    assert "out of memory the engine could not be made" in told(found)
    assert "out of memory" in markdown([found])


FIGURES = {
    "settings": [], "tokens": 1000, "sampled": 10,
    "seconds": {"rollout": 1.0, "score": 0.5, "update": 0.5}, "peaks": {"rollout": GIB, "update": 2 * GIB},
    "passes": GIB // 2, "outside": GIB // 2,
}  # fmt: skip


def stand_in(monkeypatch: pytest.MonkeyPatch, lines: str) -> None:
    """Children are processes that say this of the cell that they are given."""
    code = f"import json, sys, time\ncell = json.loads(sys.stdin.readline())\n{lines}"
    monkeypatch.setattr(hardware, "command", lambda layers: [sys.executable, "-c", code])


def test_what_is_missing_is_measured_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "cells.json"
    monkeypatch.setattr(hardware, "estimate", lambda _: 3 * GIB)
    stand_in(monkeypatch, f"print(json.dumps({{**cell, **{FIGURES!r}}}))")
    main(["--cells", str(file), "--tiny"])
    first = json.loads(file.read_text())["cells"]
    assert [one["learns"] for one in first] == ["all", "adapters"]
    stand_in(monkeypatch, "sys.exit('is not called')")
    main(["--cells", str(file), "--tiny"])
    assert json.loads(file.read_text())["cells"] == first
    # memory that is further from the estimate than a tenth is a missed bar
    stand_in(monkeypatch, f"print(json.dumps({{**cell, **{FIGURES | {'outside': GIB}!r}}}))")
    with pytest.raises(SystemExit):
        main(["--cells", str(file), "--tiny", "--again", "--only", "all", "--json", str(tmp_path / "shared.json")])
    rows = json.loads((tmp_path / "shared.json").read_text())["rows"]
    assert [row["ratio"] for row in rows if row["unit"] == "GiB"] == [1.0, pytest.approx(3 / 3.5)]


def test_a_child_that_fails_or_takes_too_long_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, "sys.exit('it broke')")
    [found] = fill([TINY], tmp_path / "cells.json", 1e9, 30.0, 0)
    assert found["failed"] == "ended with 1: it broke"
    stand_in(monkeypatch, "print('{}', flush=True)\nsys.exit('it broke at its end')")
    [found] = fill([TINY], tmp_path / "cells.json", 1e9, 30.0, 0)
    assert found["failed"] == "ended with 1: it broke at its end"
    stand_in(monkeypatch, "time.sleep(60)")
    child = Child(0, tmp_path / "log")
    child.start(TINY)
    assert child.result(0.5)["failed"] == "took longer than 0 s"
    [found] = fill([TINY], tmp_path / "cells.json", 0.0, 30.0, 0)  # no time is left: what there was stays
    assert found["failed"] == "ended with 1: it broke at its end"


def test_the_table_has_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "estimate", lambda _: 3 * GIB)
    found = {"shape": "qwen2.5-7b", "learns": "all", "context": 2048, **FIGURES, "whole": 20.0}
    assert peak(found) == 3 * GIB
    assert "| qwen2.5-7b | all | 2,048 | 1.00 | 0.50 | 0.50 | 500 | 3.0 | 3.0 |  |" in markdown([found])
    assert "off by +0 %" in told(found)
    assert [row.met for row in rows_of([found])] == [None, True]


DOCS = Path(__file__).parents[2] / "docs"


def test_every_kept_cell_is_foretold_within_a_tenth() -> None:
    """Measured on a GPU, and foretold by the package as it is now; the page has the table that comes of it."""
    cells = json.loads((DOCS / "hardware.json").read_text())["cells"]
    assert {Cell(one["shape"], one["learns"], one["context"]) for one in cells} == set(CELLS)
    off = {f"{one['shape']}, {one['learns']}, {one['context']}": estimate(one) / peak(one) - 1 for one in cells}
    assert max(map(abs, off.values())) <= hardware.CLOSE, off
    assert markdown(cells).strip() in (DOCS / "hardware.md").read_text()
