"""What the shells are offered, by the environment variables with which they ask."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from isentrope.cli.completion import complete_run, joined
from isentrope.cli.main import app
from isentrope.config.algorithms import ALGORITHMS


def offered(*words: str) -> list[str]:
    """What zsh and fish are given for the last word."""
    asked = {"_ISENTROPE_COMPLETE": "complete_fish", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    done = CliRunner().invoke(
        app, prog_name="isentrope", env={**asked, "_TYPER_COMPLETE_ARGS": " ".join(["isentrope", *words])}
    )
    return [line.split("\t")[0] for line in done.stdout.splitlines() if line]


@pytest.mark.parametrize(("words", "some"), [
    (("tr",), ["train"]),
    (("train", "de"), ["demo"]),
    (("train", "--recipe", "de"), ["demo"]),
    (("eval", "--recipe", "de"), ["demo"]),
    (("study", "studies/q"), ["studies/quick"]),
    (("play", "web"), ["webshop"]),
    (("docs", "eng"), ["engines"]),
    (("docs", "methods/ac"), ["methods/actre"]),
    (("docs", "systems", "in"), ["in-a-container"]),
    (("methods", "gig"), ["gigpo", "gigpo_mixed"]),
    (("methods", "ep"), ["epo"]),
    (("check-method", "seq"), ["sequence"]),
    (("models", "smol"), ["smollm2"]),
    (("config", "learn."), ["learn.advantage", "learn.loss"]),
    (("figures", "--metric", "entropy/tok"), ["entropy/token"]),
    (("bench", "gro"), ["growth"]),
    (("train", "--set", "learn.kl"), ["learn.kl=", "learn.kl_estimator=", "learn.kl_in="]),
    (("train", "--set", "learn.kl_in"), ["learn.kl_in=", "learn.kl_in=loss", "learn.kl_in=reward"]),
    (("train", "-s", "learn.kl_in=l"), ["learn.kl_in=loss"]),
    (("train", "--set", "learn.loss=c"), ["learn.loss=clip"]),
    (("train", "--set", "learn.mask_truncated=t"), ["learn.mask_truncated=true"]),
    (("train", "--set", "methods=epo,ae"), ["methods=epo,aem"]),
    (("train", "--set", "method.epo.al"), ["method.epo.alpha="]),
    (("play", "webshop", "--set", "task.options.de"), ["task.options.dev="]),
    (("train", "--set", "task.world=webshop", "--set", "task.options.de"), ["task.options.dev="]),
    (("train", "--set", "task.world=web"), ["task.world=webshop"]),
])  # fmt: skip
def test_names(words: Sequence[str], some: list[str]) -> None:
    assert offered(*words) == some


def test_all_values_of_a_choice() -> None:
    assert offered("train", "--set", "learn.algorithm=") == [f"learn.algorithm={name}" for name in ALGORITHMS]


def test_run_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("runs/first", "runs/$(touch here)", "runs/two words", "mine", ".hidden"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "metrics.jsonl").write_text("not read")
    (tmp_path / "runs" / "other").mkdir()
    assert [name for name, _ in complete_run("")] == ["mine", "runs/first"]
    assert [name for name, _ in complete_run("runs/f")] == ["runs/first"]
    assert complete_run("nowhere/x") == []
    assert offered("report", "mi") == ["mine"]


@pytest.mark.parametrize(("text", "current", "expected"), [
    ("isentrope train --set learn.lr = 1", 5, ("isentrope train --set learn.lr=1", 3, "learn.lr=")),
    ("isentrope train --set learn.lr =", 4, ("isentrope train --set learn.lr=", 3, "learn.lr=")),
    ("isentrope\ntrain\n--set\nlearn.lr\n=\n1", 5, ("isentrope\ntrain\n--set\nlearn.lr=1", 3, "learn.lr=")),
    ("isentrope train --set learn.lr = 1 ", 6, ("isentrope train --set learn.lr=1 ", 4, "")),
    ("isentrope tr", 1, ("isentrope tr", 1, "")),
])  # fmt: skip
def test_words_that_bash_split(text: str, current: int, expected: tuple[str, int, str]) -> None:
    assert joined(text, current) == expected


def test_bash_is_given_the_part_behind_the_sign_and_nothing_heavy_is_imported() -> None:
    words = {"COMP_WORDS": "isentrope train --set learn.algorithm = da", "COMP_CWORD": "5"}
    code = (
        "import sys; sys.argv = ['isentrope']\n"
        "from isentrope.cli.main import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'scipy', 'pyarrow', 'transformers'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    environment = {**os.environ, **words, "_ISENTROPE_COMPLETE": "complete_bash"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "dapo\n"), done.stderr
