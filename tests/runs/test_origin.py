"""What run.json says of how a run was started, and what it must not say."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from isentrope.core.process import memory_metrics
from isentrope.runs.origin import STARTS, command_line, start_entry, starts_of, with_start

HOME = {"HOME": "/home/ada", "WANDB_API_KEY": "correct horse", "LANG": "en_GB.UTF-8", "EDITOR_PASS": "x"}


def told(*arguments: str) -> str:
    return command_line(["/usr/bin/isentrope", *arguments], HOME)


def test_a_command_can_be_typed_again() -> None:
    line = told("train", "demo", "--out", "runs/a b", "--set", "learn.lr=2e-4", "--set", "learn.micro_tokens=4096")
    assert line == "isentrope train demo --out 'runs/a b' --set learn.lr=2e-4 --set learn.micro_tokens=4096"
    assert told("eval", "--set", "engine.key_env=MY_KEY") == "isentrope eval --set engine.key_env=MY_KEY"
    paths = ("/home/ada/x.toml", "/home/ada/x y", "/home/adam/y", "/disk/home/ada/z", "--out=/home/ada/z", "/home/ada")
    assert shlex.split(told("train", *paths)) == [
        "isentrope",
        "train",
        "~/x.toml",
        "~/x y",
        *paths[2:4],
        "--out=~/z",
        "~",
    ]
    assert told("train", *paths[:2]) == "isentrope train ~/x.toml ~/'x y'"  # in quotes it would not be the home folder


@pytest.mark.parametrize(
    "arguments",
    [
        ("--set", "task.options.api_key=S3CRET"), ("--set=engine.token=S3CRET",), ("--api-key", "S3CRET"),
        ("--set", 'task.options={user="a", password="S3CRET", n=1}'), ("--header", "Authorization: Bearer S3CRET"),
        ("--set", "engine.url=https://ada:S3CRET@host/v1"), ("--set", "engine.url=http://host/v1?a=1&api_key=S3CRET"),
        ("--set", "policy.model=hf_S3CRETabcdefgh"), ("--out", "sk-S3CRETabcdefghijkl"),
        ("--set", "x=S3CRETaB4dE6gH8jK0mN2pQ4sT6vW8yZ0"), ("--password", "S3CRET", "--set", "run.seed=1"),
    ],
)  # fmt: skip
def test_what_looks_like_a_key_is_hidden(arguments: tuple[str, ...]) -> None:
    line = told("train", *arguments)
    assert "S3CRET" not in line
    assert "[hidden]" in line


def test_a_value_that_the_shell_took_from_a_variable_is_hidden() -> None:
    assert told("train", "--set", "x=correct horse") == "isentrope train --set 'x=[hidden]'"


def test_arguments_of_other_programs_are_not_recorded() -> None:
    assert command_line(["/opt/kernel.py", "--key", "S3CRET"], {}) == "from Python (kernel.py)"
    assert command_line([""], {}) == "from Python (python)"


def test_the_first_start_and_the_last_ones_are_kept_and_read() -> None:
    about: dict[str, object] = {"kind": "train"}
    for number in range(30):
        about = with_start(about, start_entry(f"t{number}"))
    starts = starts_of(about)
    assert [starts[0].at, starts[1].at, starts[-1].at, len(starts)] == ["t0", "t11", "t29", 20]
    assert starts[0].versions["Python"]
    assert int(starts[0].machine["cores"]) >= 1


@pytest.mark.parametrize("entry", [None, {}, "x", [1, "x", None], [{"at": 3, "machine": [1], "versions": {1: {}}}]])
def test_entries_that_are_none_are_read_as_far_as_they_go(entry: object) -> None:
    assert len(starts_of({STARTS: entry})) == (1 if isinstance(entry, list) and isinstance(entry[0], dict) else 0)


def test_peak_memory(tmp_path: Path) -> None:
    (tmp_path / "status").write_text("Name:\tpython\nVmHWM:\t 3145728 kB\nVmRSS:\t 1 kB\n")
    assert memory_metrics(tmp_path / "status")["memory/peak"] == 3.0
    assert "memory/peak" not in memory_metrics(tmp_path / "none")
