"""Kernels fit into the fast memory of small cards and large ones: compiled for them, without having one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.builders.sizes import EXPLORE

MOST = {"86": 101376, "90": 232448}  # bytes for one program, by what the card can compute: 8.6 and 9.0


@pytest.mark.slow(8)
@pytest.mark.skipif(
    find_spec("triton.backends.nvidia") is None,
    reason="Triton has no compiler for NVIDIA's cards here: pip install triton (Linux, x86-64)",
)
def test_kernels_fit_into_small_and_large_cards(tmp_path: Path):
    here = Path(__file__).resolve()
    clean = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    clean |= {"TRITON_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(here.parents[3])}
    made = subprocess.run(
        [sys.executable, str(here.with_name("fits.py"))], env=clean, capture_output=True, text=True, timeout=300
    )
    assert made.returncode == 0, made.stderr[-2000:]
    found: dict[str, int] = json.loads(made.stdout)
    assert len(found) == (8 if EXPLORE else 4)
    too_large = {name: size for name, size in found.items() if size > MOST[name.split()[1]]}
    assert not too_large
