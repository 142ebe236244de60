"""`isentrope recipes`, and `isentrope train` without --out."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from isentrope.cli import train as train_command
from isentrope.cli.main import app
from isentrope.config.recipes import RECIPES
from isentrope.core.errors import ConfigError


def said(*words: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["recipes", *map(str, words)], env={"COLUMNS": "200"})
    return done.exit_code, done.output


def test_all_are_listed_by_name() -> None:
    code, text = said()
    assert code == 0
    for name in ("demo", "studies/quick", "papers/aem/alfworld-grpo-aem", "alfworld.sh"):
        assert f" {name} " in text
    assert "base-" not in text
    assert text.index("Ready to train") < text.index("Studies") < text.index("Runs of the papers")


def test_one_is_shown() -> None:
    assert said("demo") == (0, (RECIPES / "demo.toml").read_text())
    code, text = said("alfworld-grpo-aem")
    assert code == 2
    assert "did you mean papers/aem/alfworld-grpo-aem?" in " ".join(text.split())


def test_a_copy_is_never_written_over_a_file(tmp_path: Path) -> None:
    place = tmp_path / "new" / "mine.toml"
    code, text = said("demo", "--copy", place)
    assert (code, place.read_bytes()) == (0, (RECIPES / "demo.toml").read_bytes())
    assert f"train {place} --out runs/mine" in text
    place.write_text("mine")
    code, text = said("demo", "--copy", place)
    assert (code, place.read_text()) == (2, "mine")
    assert "--force" in text
    code, text = said("demo", "--copy", place, "--force")
    assert code == 0
    assert "over what was there" in text
    assert place.read_text() != "mine"
    assert said("studies/quick", "--copy", tmp_path)[0] == 0
    assert (tmp_path / "quick.toml").is_file()


def test_copying_nothing_is_refused() -> None:
    assert said("--copy", "x.toml")[0] == 2


def test_without_out_a_run_takes_a_new_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = train_command._folder  # pyright: ignore[reportPrivateUsage]
    assert folder(None, Path("a/mine.toml"), False, "train") == Path("runs/mine")
    assert "--out runs/mine" in capsys.readouterr().err
    for name in ("first", "first-2", "demo-sft"):
        (tmp_path / "runs" / name).mkdir(parents=True)
    assert folder(None, None, False, "train") == Path("runs/first-3")
    assert folder(None, Path("demo"), False, "sft") == Path("runs/demo-sft-2")
    assert folder(Path("there"), None, True, "train") == Path("there")
    (tmp_path / "runs" / "first-2" / "config.toml").write_text("")
    with pytest.raises(ConfigError, match="train --resume --out runs/first-2"):
        folder(None, None, True, "train")
