"""The attack on models (`make attack` has all of it): what it calls a problem, and that its lists spoil something."""

from __future__ import annotations

from pathlib import Path
from random import Random

from tests.attack.models import LONGEST_ERROR, MEGABYTES, lists, problems_of
from tests.builders.hostile_models import MARK


def test_what_the_attack_calls_a_problem(tmp_path: Path) -> None:
    assert list(problems_of(0, 500.0, "LOADS", tmp_path, 0)) == []
    assert list(problems_of(2, 500.0, "REFUSED in words", tmp_path, 0)) == []
    (tmp_path / MARK).touch()
    long = "REFUSED " + "x" * LONGEST_ERROR
    assert list(problems_of(2, MEGABYTES + 1.0, long, tmp_path, 1)) == [
        f"{MEGABYTES + 1} MB", "ran code of the folder", "asked the hub", f"an error of {len(long)} characters"
    ]  # fmt: skip
    (tmp_path / MARK).unlink()
    assert list(problems_of(None, 1.0, "", tmp_path, 0)) == ["hangs"]
    assert list(problems_of(-6, 1.0, "", tmp_path, 0)) == ["killed by SIGABRT"]
    assert list(problems_of(1, 1.0, "Traceback (most recent call last)\nKeyError: 5", tmp_path, 0)) == [
        "traceback: KeyError: 5"
    ]


def test_entries_of_the_lists_change_the_folder(tmp_path: Path) -> None:
    whole = {
        "config.json": "{}", "generation_config.json": "{}", "tokenizer_config.json": "{}", "chat_template.jinja": "x",
        "tokenizer.json": '{"model": {"vocab": {}, "merges": []}}',
    }  # fmt: skip
    for number, (name, _, spoil) in enumerate(lists()[::3]):
        if name.startswith("adapter"):
            continue  # these need weights
        folder = tmp_path / str(number) / "model"
        folder.mkdir(parents=True)
        for file, text in whole.items():
            (folder / file).write_text(text)
        spoil(Random(0), folder)
        plain = [file for file in folder.iterdir() if file.is_file() and not file.is_symlink()]
        now = {file.name: file.read_text() for file in plain if file.stat().st_size < 1e8}
        assert now != whole or {file.name for file in folder.iterdir()} != set(whole), name
