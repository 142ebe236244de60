"""recipes/study.sh with programs in the place of isentrope, Python and NVIDIA's: what it calls, and in which order."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "recipes" / "study.sh"
STUDY = """#!/bin/sh
echo "isentrope $*" >> calls
if [ "$2" = recipes/studies/some.toml ]; then [ -e no-plan ] || touch runs/some/study.json; exit "$(cat code)"; fi
"""
TELLS = '#!/bin/sh\necho "{} $*" >> calls\n'
MPS = '#!/bin/sh\n[ -n "$1" ] || read -r word\necho "mps $1$word in ${CUDA_MPS_PIPE_DIRECTORY##*/}" >> calls\n'


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for name in ("recipes", "runs/some", "docs/runs/some", "bin"):
        (tmp_path / name).mkdir(parents=True)
    shutil.copy(SCRIPT, tmp_path / "recipes")
    (tmp_path / "code").write_text("0")
    none = "#!/bin/sh\nexit 1\n"  # pgrep: no MPS runs yet
    for name, text in (("isentrope", STUDY), ("python", TELLS.format("python")), ("pgrep", none)):
        program(tmp_path, name, text)
    return tmp_path


def program(place: Path, name: str, text: str) -> None:
    (place / "bin" / name).write_text(text)
    (place / "bin" / name).chmod(0o755)


def call(place: Path, *words: str) -> tuple[int, list[str]]:
    """From another folder, as it may be called."""
    path = f"{place / 'bin'}:{os.environ['PATH']}"
    done = subprocess.run([str(place / "recipes" / "study.sh"), *words], env={"PATH": path}, cwd="/", check=False)
    calls = place / "calls"
    return done.returncode, calls.read_text().splitlines() if calls.exists() else []


def test_runs_then_numbers_then_pages(place: Path) -> None:
    code, calls = call(place, "some", "5", "-n", "3", "--set", "run.steps=2")
    assert code == 0
    assert calls == [
        "isentrope study recipes/studies/some.toml --minutes 5 -n 3 --set run.steps=2",
        "isentrope study runs/some --compact docs/runs/some",
        "python -m tools.study_docs",
        "python -m tools.claims_docs",
    ]


def test_what_is_kept_counts_and_stays(place: Path) -> None:
    (place / "docs" / "runs" / "some" / "runs.jsonl.xz").touch()
    assert call(place, "some", "5")[1][:2] == [
        "isentrope study recipes/studies/some.toml --minutes 5 --earlier docs/runs/some",
        "isentrope study runs/some --compact docs/runs/some --earlier docs/runs/some",
    ]


def test_failed_runs_do_not_keep_the_others_numbers_back(place: Path) -> None:
    (place / "code").write_text("1")
    code, calls = call(place, "some", "5")
    assert code == 1
    assert calls[-1] == "python -m tools.claims_docs"


def test_a_study_that_was_refused_is_not_written(place: Path) -> None:
    (place / "code").write_text("2")
    (place / "no-plan").touch()
    code, calls = call(place, "some", "5")
    assert code == 2
    assert len(calls) == 1


def test_mps_runs_as_long_as_the_study(place: Path) -> None:
    program(place, "nvidia-cuda-mps-control", MPS)
    calls = call(place, "some", "5")[1]
    assert calls[0] == "mps -d in pipe"
    assert calls[-1] == "mps quit in pipe"
    program(place, "pgrep", "#!/bin/sh\nexit 0\n")  # somebody else's: it stays
    (place / "calls").unlink()
    assert not any(one.startswith("mps") for one in call(place, "some", "5")[1])


def test_without_words_it_says_how_it_is_called(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert call(place, "some")[0] == 2
    assert "recipes/study.sh NAME MINUTES" in capfd.readouterr().out
