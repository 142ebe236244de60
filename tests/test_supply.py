"""What the package is installed from and ships with: locks, licences, the list of parts. See tools/audit.py."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools import audit, install, lock, sbom

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "locks", tmp_path / "locks")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def test_the_locks_hold_what_pyproject_asks_for_and_nothing_without_a_hash() -> None:
    assert audit.unlocked() == []
    assert audit.unhashed() == []
    assert audit.licence_problems() == []


def test_the_list_of_parts_is_made_from_the_locks() -> None:
    known = dict(re.findall(r'^([\w.-]+) = "(.*)"$', sbom.LICENCES.read_text(encoding="utf-8"), re.MULTILINE))
    assert sbom.SBOM.read_text(encoding="utf-8") == sbom.sbom(known)
    parts = {part["name"]: part for part in json.loads(sbom.sbom(known))["components"]}
    assert {"torch", "numpy", "uPlot", "pocket", "all-MiniLM-L6-v2", "SmolLM2-135M-Instruct"} <= set(parts)
    assert all(part["licenses"] for part in parts.values())


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"scipy>=1.11"', '"scipy>=99"', "scipy>=99 is asked for, 1."),
        ('"numpy",', '"numpy", "left-pad",', "left-pad is asked for, nothing is locked"),
        ('"hypothesis",', '"hypothesis>=999",', "hypothesis>=999 is asked for"),
        ('"peft>=0.15"', '"peft==0.1"', "peft==0.1 is asked for"),
    ],
)
def test_a_requirement_that_is_not_locked_is_told(sources: Path, old: str, new: str, said: str) -> None:
    change(sources / "pyproject.toml", old, new)
    assert any(said in problem for problem in audit.unlocked(sources)), audit.unlocked(sources)


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        ("run", "\nfilelock==", "\nfilelock>=", "is no pin with hashes"),
        ("dev", "\nchess==", "\nchess @ https://example.org/chess.tar.gz\nchess==", "is no pin with hashes"),
        ("build", "    --hash=sha256:", "    --hash=md5:", "is no pin with hashes"),
        ("cpu", "torch==2.13.0+cpu", "torch==2.12.0+cpu", "expected one version"),
        ("torch", "torch==2.13.0", "torch==2.14.0", "expected one version"),
    ],
)
def test_a_hole_in_a_lock_is_told(sources: Path, name: str, old: str, new: str, said: str) -> None:
    change(sources / "locks" / f"{name}.txt", old, new)
    assert any(said in problem for problem in audit.unhashed(sources / "locks"))


def test_make_installs_from_the_locks_and_each_is_listed_once() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    ours = makefile.partition("\n$(VLLM_STAMP):")[0]  # what follows is the environment of another package
    assert [
        line for line in ours.splitlines() if line.startswith("\t") and "pip install" in line and "echo" not in line
    ] == []
    assert {path.stem for path in lock.LOCKS.glob("*.txt")} == set(lock.FILES)
    pins = [(name, pin) for name in lock.FILES if name not in ("audit", "cuda") for pin in lock.read(name)]
    assert len({pin for _, pin in pins}) == len(pins)
    assert install.TORCH == lock.TORCH == next(iter(lock.read("torch")))


@pytest.mark.slow(4)
def test_pip_refuses_a_file_with_another_hash(tmp_path: Path) -> None:
    """The way tools/install.py calls it, with an index that serves a changed file."""
    served = tmp_path / "served"
    served.mkdir()
    (served / "demo_part-1.0.tar.gz").write_bytes(b"not what was locked")
    wanted = tmp_path / "lock.txt"
    wanted.write_text(f"demo-part==1.0 --hash=sha256:{'0' * 64}\n")
    command = [sys.executable, "-m", "pip", "install", "--no-deps", "--require-hashes", "--no-index", "--target",
               str(tmp_path / "out"), "--find-links", str(served), "-r", str(wanted)]  # fmt: skip
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=clean)
    assert done.returncode != 0
    assert "DO NOT MATCH THE HASHES" in done.stderr


def test_notice_names_each_file_of_others_that_is_shipped() -> None:
    notice = (ROOT / "NOTICE").read_text(encoding="utf-8")
    binary = (".safetensors", ".bin", ".jar", ".gz", ".gguf", ".min.js")
    shipped = [path for path in (ROOT / "isentrope").rglob("*") if path.name.endswith(binary)]
    assert shipped
    for path in shipped:
        assert path.parent.relative_to(ROOT).as_posix() in notice, path
    assert sbom.parts_of_others()[0]["version"] in notice
