"""Commands with a fault, to see that the attack on folders finds it: `python -m tests.attack.folders --planted`."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Planted:
    act: Callable[[], None]  # in the folder
    problem: str  # how what is said of it begins
    family: str = "whole"


def _raises() -> None:
    raise KeyError("planted")


def _computes() -> None:
    while True:
        pass


def _waits() -> None:
    os.mkfifo("run/pipe")
    os.open("run/pipe", os.O_RDONLY)


def _takes() -> None:
    bytearray(b"x") * 1_200_000_000


def _takes_beside_its_imports() -> None:
    """More than a gigabyte with them, less without."""
    from isentrope.cli.main import app

    app(["export", "run", "--out", "exported"], standalone_mode=False)
    bytearray(b"x") * 650_000_000


def _shows() -> None:
    print(Path("run/tokens.json").read_text()[:2000], Path("run/config.toml").read_text()[-2000:])
    for name in ("run.json", "metrics.jsonl", "events.jsonl"):
        print(Path("run", name).read_text()[-2000:])


def _copies() -> None:
    """Into a file of its own, below."""
    Path("exported/deep").mkdir(parents=True)
    for name in ("run.json", "config.toml", "metrics.jsonl", "events.jsonl", "tokens.json"):
        Path("exported/deep", name).write_bytes(Path("run", name).read_bytes())


def _writes_through_a_link() -> None:
    Path("run/.report.html.tmp").write_text("<html>")


def _imports_what_lies_there() -> None:
    sys.path.insert(0, os.getcwd())
    __import__("payload")


def _ends_by_a_signal() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def _imports_torch() -> None:
    __import__("torch")


PLANTED = {
    "planted-traceback": Planted(_raises, "traceback"),
    "planted-loop": Planted(_computes, "hangs"),
    "planted-wait": Planted(_waits, "hangs"),
    "planted-memory": Planted(_takes, "1"),
    "planted-memory-with-imports": Planted(_takes_beside_its_imports, "1"),
    "planted-shown": Planted(_shows, "shows a file outside", "link_out"),
    "planted-copied": Planted(_copies, "shows a file outside", "link_out"),
    "planted-overwritten": Planted(_writes_through_a_link, "overwrote a file outside", "link_in_the_way"),
    "planted-code": Planted(_imports_what_lies_there, "ran code of the folder", "foreign_code"),
    "planted-signal": Planted(_ends_by_a_signal, "killed by SIGSEGV"),
    "planted-torch": Planted(_imports_torch, "imports torch"),
}
