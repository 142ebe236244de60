"""`isentrope watch` as it is typed."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

from typer.testing import CliRunner

from isentrope.cli.main import app
from tests.watch.make_runs import make_watched
from tests.watch.serving import ask


def unwrapped(panel: str) -> str:
    return " ".join(panel.replace("│", " ").split())


def test_it_prints_its_address_serves_and_stops_at_an_interrupt(tmp_path: Path) -> None:
    make_watched(tmp_path / "one", steps=3)
    command = [sys.executable, "-m", "isentrope", "watch", str(tmp_path), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            found = re.search(r"http://127\.0\.0\.1:\d+/", server.stdout.readline())
            assert found is not None
            assert [run["name"] for run in ask(found[0], "runs")["runs"]] == ["one"]
        finally:
            server.send_signal(signal.SIGINT)
            _, errors = server.communicate(timeout=30)
    assert "Traceback" not in errors


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["watch", str(tmp_path / "nowhere")])
    assert result.exit_code == 2
    assert "is not a folder" in unwrapped(result.output)


def test_help_stays_light() -> None:
    heavy = "{'starlette', 'uvicorn', 'pyarrow', 'numpy'}"
    code = f"import sys, isentrope.cli.main; sys.exit(bool({heavy} & set(sys.modules)))"
    subprocess.run([sys.executable, "-c", code], check=True)
