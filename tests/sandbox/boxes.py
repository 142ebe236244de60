"""What the tests of the sandbox share."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping

import pytest

from isentrope.sandbox.base import Item, Limits, Outcome, Sandbox, make_sandbox

needs_bwrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap: apt-get install bubblewrap")

QUICK = Limits(seconds=5.0, memory=400 << 20, processes=24, disk=24 << 20, file=8 << 20, files=3000, output=100_000)


def box(files: Mapping[str, str] | None = None, limits: Limits = QUICK) -> Sandbox:
    sandbox = make_sandbox("bubblewrap", limits)
    sandbox.start({path: Item(text.encode()) for path, text in (files or {}).items()})
    return sandbox


def run_python(code: str, limits: Limits = QUICK, files: Mapping[str, str] | None = None) -> Outcome:
    """Run untrusted code, and close the box."""
    sandbox = box(files, limits)
    outcome = sandbox.exec([sys.executable, "-I", "-c", code])
    sandbox.close()
    return outcome


def said(outcome: Outcome) -> str:
    return outcome.output.decode("utf-8", "replace")
