"""`isentrope doctor` without a run: the extras of the package."""

from __future__ import annotations

import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from isentrope.cli import machine

PROJECT = Path(__file__).parents[2] / "pyproject.toml"
NUMPY = metadata.version("numpy")


def declare(monkeypatch: pytest.MonkeyPatch, **by_extra: list[str]) -> None:
    found = {name: [Requirement(line) for line in lines] for name, lines in by_extra.items()}
    monkeypatch.setattr(machine, "_declared", lambda: found)
    monkeypatch.setattr(machine, "PURPOSES", dict.fromkeys(by_extra, "a test"))


def test_every_extra_of_the_project_is_known() -> None:
    declared = tomllib.loads(PROJECT.read_text())["project"]["optional-dependencies"]
    assert set(machine.PURPOSES) == set(declared)
    assert all(machine.asked_for(name) for name in declared)


def test_extras_that_name_others_ask_for_what_those_ask_for(monkeypatch: pytest.MonkeyPatch) -> None:
    declare(monkeypatch, a=["isentrope[b,c]", "x"], b=["isentrope[a]", "y>=2"], c=["y"])
    assert sorted(one.name for one in machine.asked_for("a")) == ["x", "y"]


def test_what_is_here_what_is_not_and_what_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    declare(monkeypatch, here=["numpy>=1"], gone=["numpy", "no-such-package"], old=["numpy>=1000"])
    here, gone, old = machine.examine()["Extras"]
    assert here == machine.Sign("[here]", "ok", f"numpy {NUMPY}")
    assert (gone.state, gone.detail) == ("missing", "for a test; not here: no-such-package")
    assert gone.advice.endswith("[gone]'")
    assert (old.state, old.detail) == ("warning", f"numpy {NUMPY} is installed, >=1000 is asked for")


def test_a_package_that_does_not_import_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> None:
        raise RuntimeError(f"{name} wants another torch")

    declare(monkeypatch, sick=["numpy"])
    monkeypatch.setattr(machine, "IMPORTED", ("numpy",))
    monkeypatch.setattr(machine.importlib, "import_module", broken)
    (wrong,) = machine.unfit("sick")
    assert wrong == f"numpy {NUMPY} does not import: numpy wants another torch"


def test_without_the_sources_the_installation_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ['peft>=0.15; extra == "hf"', "numpy", 'starlette; extra == "watch"']
    monkeypatch.setattr(machine, "SOURCES", Path("/nowhere/pyproject.toml"))
    monkeypatch.setattr(machine.metadata, "requires", lambda name: lines)
    assert [str(one) for one in machine.asked_for("hf")] == ['peft>=0.15; extra == "hf"']
    assert [one.name for one in machine.asked_for("watch")] == ["starlette"]
    assert machine.asked_for("gym") == []


def test_a_file_that_cannot_be_read_is_no_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[project")
    monkeypatch.setattr(machine, "SOURCES", tmp_path / "pyproject.toml")
    (sign,) = machine.examine()["Extras"]
    assert sign.state == "warning"
