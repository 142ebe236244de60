"""The command that hints print is one that works."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from isentrope.core import command as module
from isentrope.core.command import command, program_of


def script(folder: Path, first: str = "#!/usr/bin/python3") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "isentrope"
    path.write_text(f"{first}\n")
    return path


def test_the_name_alone_where_a_shell_finds_this_installation(tmp_path: Path) -> None:
    here, python = tmp_path, tmp_path / "venv/bin/python"
    ours = script(tmp_path / "venv/bin")
    assert program_of(python, str(ours), here) == "isentrope"
    linked = tmp_path / "bin"
    linked.mkdir()
    os.symlink(ours, linked / "isentrope")
    assert program_of(python, str(linked / "isentrope"), here) == "isentrope"
    by_user = script(tmp_path / "local", f"#!{tmp_path}/usr/python3")
    assert program_of(tmp_path / "usr/python3", str(by_user), here) == "isentrope"


def test_the_script_where_the_name_is_another_installation_or_nothing(tmp_path: Path) -> None:
    python = tmp_path / "a venv/bin/python"
    script(python.parent)
    other = script(tmp_path / "other")
    for on_path in (None, str(other), str(tmp_path / "gone")):
        assert program_of(python, on_path, tmp_path) == "'a venv/bin/isentrope'"
        assert program_of(python, on_path, tmp_path / "x") == f"'{python.parent}/isentrope'"


def test_the_module_where_there_is_no_script(tmp_path: Path) -> None:
    assert program_of(tmp_path / "python", None, Path("/")) == f"{str(tmp_path / 'python')[1:]} -m isentrope"
    assert program_of(Path("/usr/bin/python3"), None, tmp_path) == "/usr/bin/python3 -m isentrope"


def test_words_are_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "program", lambda: "isentrope")
    assert command("report", Path("my runs/a;b")) == "isentrope report 'my runs/a;b'"
