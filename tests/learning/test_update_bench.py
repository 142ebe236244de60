"""bench/update.py on a small model: it runs, and every form has the same gradient."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "bench" / "update.py"


@pytest.fixture
def bench() -> Any:
    pytest.importorskip("transformers", reason="the bench builds a Hugging Face model")
    spec = importlib.util.spec_from_file_location("bench_update", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["bench_update"] = module
    spec.loader.exec_module(module)
    return module


def test_all_forms_have_one_gradient_and_shared_beginnings_less_to_compute(
    bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUT", str(tmp_path))
    bench.main(["--tiny", "--rounds", "1"])
    result = json.loads((tmp_path / "update.json").read_text())
    for kind in ("answers", "episodes"):
        assert len(result[kind]) == len(bench.FORMS)
        for form, row in result[kind].items():
            assert row["gradient_off"] < 1e-5, (kind, form)
            assert row["tokens_per_second"] > 0
    setup = bench.build(True)
    work = bench.work_of(bench.conversations("answers", 2, 97, True))
    sizes = [
        sum(int((b.segments_BT >= 0).sum()) for b in bench.packed_rows(setup, work, share)) for share in (False, True)
    ]
    assert sizes[0] == work.real
    assert sizes[1] < 0.5 * work.real
