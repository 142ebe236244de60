"""One side of a comparison in a process of its own, so that nothing of it is left on the card for the other."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def measured_apart(module: str, arguments: Sequence[str], limit: float) -> tuple[dict[str, Any] | None, str]:
    """What `python -m module ARGUMENTS --json FILE` writes into the file, and what went wrong if something did: the
    process ended badly, or was ended after `limit` seconds. What it had written by then is given all the same; without
    anything, the end of what it said is printed."""
    with tempfile.TemporaryDirectory() as folder:
        file, log = Path(folder) / "measured.json", Path(folder) / "log"
        command = [sys.executable, "-m", module, *arguments, "--json", str(file)]
        with log.open("wb") as told:
            try:
                code = subprocess.run(command, stdout=told, stderr=subprocess.STDOUT, timeout=limit).returncode
            except subprocess.TimeoutExpired:
                code = None
        text = log.read_text("utf-8", "replace")
        last = next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "it said nothing")
        reason = f"took longer than {limit:.0f} s" if code is None else f"ended with {code}: {last[:200]}"
        if file.is_file():
            return json.loads(file.read_text("utf-8")), "" if code == 0 else reason
        print(text[-4000:], file=sys.stderr, flush=True)
        return None, reason
