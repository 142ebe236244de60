"""The files by which a project is joined and released: they agree with each other and with the package."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

from isentrope import __version__

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
GITHUB = sorted((ROOT / ".github").rglob("*.yml"))
RELEASE_FILES = ("CHANGELOG.md", "CITATION.cff", "isentrope/__init__.py", "tools/check_release.py")


@pytest.mark.parametrize("path", GITHUB, ids=lambda path: path.name)
def test_workflows_call_files_that_are_here(path: Path) -> None:
    text = path.read_text()
    assert isinstance(yaml.safe_load(text), dict)
    called = re.findall(r"\b(?:python|bash) ((?:tools|\.ci)/[\w./]+)", text)
    assert all((ROOT / name).is_file() for name in called), called
    assert called or "workflows" not in path.parts


def test_the_address_is_the_same_everywhere() -> None:
    home = PROJECT["urls"]["Homepage"]
    assert all(url.startswith(home) for url in PROJECT["urls"].values())
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["repository-code"] == home
    issues = yaml.safe_load((ROOT / ".github/ISSUE_TEMPLATE/config.yml").read_text())
    assert issues["contact_links"][0]["url"].startswith(f"{home}/")


def test_the_changelog_begins_with_this_version() -> None:
    first = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert first is not None
    assert first[1] == __version__


def check_release(folder: Path, tag: str) -> str:
    command = [sys.executable, str(folder / "tools/check_release.py"), tag]
    return subprocess.run(command, capture_output=True, text=True).stderr


def test_a_release_needs_a_version_a_dated_section_and_a_citation(tmp_path: Path) -> None:
    for name in RELEASE_FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    changelog = tmp_path / "CHANGELOG.md"
    undated = re.sub(
        r"^## .*$", f"## {__version__} (not released yet)", changelog.read_text(), count=1, flags=re.MULTILINE
    )
    changelog.write_text(undated)
    assert "no dated section" in check_release(tmp_path, f"v{__version__}")
    changelog.write_text(undated.replace("(not released yet)", "(2026-12-01)"))
    assert check_release(tmp_path, f"v{__version__}") == ""
    assert "expected v" in check_release(tmp_path, "v9.9.9")
    cited = tmp_path / "CITATION.cff"
    cited.write_text(cited.read_text().replace(f"version: {__version__}", "version: 0.0.1"))
    assert "CITATION.cff names version 0.0.1" in check_release(tmp_path, f"v{__version__}")


def test_what_is_built_into_the_image_is_not_left_out_of_it() -> None:
    """hatchling needs these files to build the wheel in the container."""
    left_out = (ROOT / ".dockerignore").read_text().split()
    assert not {"README.md", "LICENSE", "NOTICE", "locks", "pyproject.toml", "recipes", "docs", "isentrope"} & set(
        left_out
    )


@pytest.mark.slow(6)
def test_a_wheel_can_be_built_from_the_archive_of_sources_which_is_small(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-d", str(tmp_path / "dist"), "-t"]
    subprocess.run([*build, "sdist"], cwd=ROOT, check=True, capture_output=True)
    (archive,) = (tmp_path / "dist").iterdir()
    assert archive.stat().st_size < 6_500_000  # the shipped model has 3.2 MB, the lock files 0.3
    with tarfile.open(archive) as opened:
        opened.extractall(tmp_path, filter="data")
    (sources,) = tmp_path.glob("isentrope-*")
    subprocess.run([*build, "wheel"], cwd=sources, check=True, capture_output=True)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    subprocess.run([*build[:-2], str(tmp_path / "again"), "-t", "wheel"], cwd=ROOT, check=True, capture_output=True)
    assert (tmp_path / "again" / wheel.name).read_bytes() == wheel.read_bytes(), "two builds of the wheel differ"
    with zipfile.ZipFile(wheel) as opened:
        names = opened.namelist()
    assert {"isentrope/recipes/demo.toml", "isentrope/bench/scripts/update.py", "isentrope/py.typed"} <= set(names)
    licences = f"isentrope-{__version__}.dist-info/licenses"
    assert {f"{licences}/{name}" for name in PROJECT["license-files"]} <= set(names)
    assert f"isentrope-{__version__}.dist-info/sboms/isentrope.cdx.json" in names
