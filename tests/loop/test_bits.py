"""A single bit that flips anywhere in a run folder is found, or changes nothing."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from isentrope.loop.train import train
from tests.builders.sizes import EXPLORE
from tests.builders.toy_runs import WARM_MODEL, toy_config

FLIPS = 200 if EXPLORE else 8  # each is looked at by resuming, evaluating, exporting and reporting
ACTIONS = ("resume", "evaluate", "export", "report")
NOT_NOTICED = ("timings.jsonl",)  # what the clock said has no sums: it is another thing in every run
SETTINGS = (
    "run.steps=4", "run.eval_every=2", "run.checkpoint_every=2", "run.keep_last=3", "learn.algorithm=ppo",
    "learn.kl=0.1", "critic.lr=1e-2", "eval.games=6", "eval.quick_games=6",
)  # fmt: skip


class Reader:
    def __init__(self, place: Path) -> None:
        command = [sys.executable, "-m", "tests.loop.reader"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.path = place / "answer.json"

    def ask(self, action: str, run: Path) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.path.unlink(missing_ok=True)
        self.process.stdin.write(json.dumps([action, str(run), str(self.path)]) + "\n")
        self.process.stdin.flush()
        assert int(self.process.stdout.readline()) == 0, "the process died"
        return json.loads(self.path.read_text())


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bits")


@pytest.fixture(scope="module")
def reader(place: Path) -> Iterator[Reader]:
    reader = Reader(place)
    yield reader
    reader.process.kill()
    reader.process.wait()


@pytest.fixture(scope="module")
def whole(place: Path) -> Path:
    train(toy_config(WARM_MODEL, *SETTINGS), place / "whole", quiet=True)
    return place / "whole"


@pytest.fixture(scope="module")
def cut(whole: Path, place: Path) -> Path:
    """The run as a kill after its third step left it."""
    run = Path(shutil.copytree(whole, place / "cut"))
    shutil.rmtree(run / "checkpoints" / "step-000004")
    (run / "checkpoints" / "best.json").unlink()
    return run


@pytest.fixture(scope="module")
def sound(whole: Path, cut: Path, reader: Reader, place: Path) -> dict[str, Any]:
    """What comes of each action without damage."""
    found: dict[str, Any] = {}
    for action in ACTIONS:
        told = asked(reader, action, cut if action == "resume" else whole, place)
        assert "result" in told, told
        found[action] = told
    return found


def asked(reader: Reader, action: str, source: Path, place: Path, chance: random.Random | None = None) -> Any:
    """What an action on a copy of the run says, after a bit of it was flipped. The copy always has the same name."""
    run = Path(shutil.copytree(source, place / "run"))
    where = flip(run, chance) if chance is not None else ("", 0)
    told = reader.ask(action, run)
    shutil.rmtree(run)
    shutil.rmtree(place / "run-exported", ignore_errors=True)
    return told | {"where": where}


def flip(run: Path, chance: random.Random) -> tuple[str, int]:
    """A bit of a file of any kind: small files come up as often as large ones."""
    files = sorted(path for path in run.rglob("*") if path.is_file() and path.stat().st_size)
    kinds = sorted({path.name.rstrip("0123456789") for path in files})
    kind = chance.choice(kinds)
    path = chance.choice([path for path in files if path.name.rstrip("0123456789") == kind])
    data = bytearray(path.read_bytes())
    bit = chance.randrange(8 * len(data))
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)
    return str(path.relative_to(run)), bit


def verdict(action: str, told: dict[str, Any], sound: dict[str, Any]) -> str:
    """What became of the damage; "SILENT" if other numbers came out and nobody said so."""
    if "traceback" in told:
        return "TRACEBACK"
    if "refused" in told:
        return "refused"
    same = told["result"] == sound["result"]
    if action == "resume":  # however it was found, the same numbers come out
        return ("recovered" if any("damaged" in line for line in told["said"]) else "no effect") if same else "SILENT"
    said = [line for line in told["said"] if line not in sound["said"]]
    if said or "could not" in str(told["result"]).replace(str(sound["result"]), ""):
        return "said"
    return "no effect" if same else "SILENT"


@pytest.mark.slow(240 if EXPLORE else 12)
def test_a_flipped_bit_is_found_or_has_no_effect(
    whole: Path, cut: Path, reader: Reader, sound: dict[str, Any], place: Path
) -> None:
    seen: Counter[tuple[str, str]] = Counter()
    bad: list[str] = []
    for number in range(FLIPS):
        for action in ACTIONS:
            chance, source = random.Random(f"{number}/{action}"), cut if action == "resume" else whole
            told = asked(reader, action, source, place, chance)
            what, (where, bit) = verdict(action, told, sound[action]), told["where"]
            if what.isupper() and where not in NOT_NOTICED:
                bad.append(f"{action}, {where}, bit {bit}: {what} {told.get('traceback', '')}")
            seen[action, what] += 1
    print(dict(seen))
    assert not bad, "\n".join(bad)
    assert sum(seen.values()) == len(ACTIONS) * FLIPS
