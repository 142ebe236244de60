"""GGUF files from strangers: the header is held against the file before anything else reads it."""

from __future__ import annotations

import struct
from pathlib import Path
from random import Random

import pytest

from isentrope.core.errors import EngineError
from isentrope.models import trial
from isentrope.models.sources.find import find_folder
from isentrope.models.sources.gguf import gguf_facts, read_gguf_header
from tests.builders import hostile_gguf
from tests.builders.sizes import EXPLORE


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return hostile_gguf.make_gguf(tmp_path_factory.mktemp("gguf") / "whole.gguf")


def test_headers_load_or_are_refused(whole: Path, tmp_path: Path) -> None:
    """Seeded lies: never another error, and what is believed fits the file."""
    data, file, refused = whole.read_bytes(), tmp_path / "model.gguf", 0
    longest = 0
    count = 5000 if EXPLORE else 500
    for seed in range(count):
        file.write_bytes(data)
        hostile_gguf.spoil(Random(seed), file)
        try:
            facts = gguf_facts(file)
        except EngineError as error:
            refused, longest = refused + 1, max(longest, len(str(error)))
        else:
            assert facts.parameters <= 8 * facts.disk * 30  # 20 tensors, none larger than 8 numbers a byte
    assert count / 4 < refused < count
    assert longest < 600


def header(pairs: bytes, tensors: bytes, counts: tuple[int, int]) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, *counts[::-1]) + pairs + tensors


def text(words: bytes) -> bytes:
    return struct.pack("<Q", len(words)) + words


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (header(b"", b"", (2**63, 0)), "a length of 9223372036854775808"),
        (header(b"", b"", (0, 2**63)), "a length of 9223372036854775808"),
        (header(struct.pack("<Q", 2**40) + b"x" * 50, b"", (1, 0)), "a length of 1099511627776"),
        (header(text(b"x") + struct.pack("<IIQ", 9, 8, 2**62), b"", (1, 0)), "a length of 4611686018427387904"),
        (header(text(b"x") + struct.pack("<IIQ", 9, 9, 1) + struct.pack("<IQ", 9, 1) * 50_000, b"", (1, 0)), "recurs"),
        (header(text(b"x") + struct.pack("<I", 77) + b"x" * 50, b"", (1, 0)), "a value of type 77; expected 0 to 12"),
        (header(b"", text(b"w") + struct.pack("<I", 9), (0, 1)), "a tensor of 9 dimensions"),
        (header(b"", text(b"w") + struct.pack("<IQQIQ", 2, 2**31, 2**31, 0, 0), (0, 1)), "a tensor of 46116860184"),
        (header(b"", text(b"w") + struct.pack("<IQIQ", 1, 4, 0, 2**60), (0, 1)), "from byte 1152921504606846976 on"),
        (header(b"", text(b"w") + struct.pack("<IQI", 1, 4, 0), (0, 1)), "it ends too early"),
        (header(b"", b"", (100_001, 0)) + b"\0" * 2_000_000, "expected at most 100000"),
    ],
)  # fmt: skip
def test_numbers_that_lie(tmp_path: Path, data: bytes, message: str) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(data)
    with pytest.raises(EngineError, match=f"not a whole GGUF file .*{message}"):
        read_gguf_header(file)


def test_it_is_converted_in_a_child(whole: Path, real_trials: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "in_child", lambda trials, limits: [{"refused": f"{trials[0].what} in a child"}])
    with pytest.raises(EngineError, match=r"whole.gguf: gguf in a child"):
        find_folder(str(whole))


@pytest.mark.slow(6)
@pytest.mark.skipif(not EXPLORE, reason="ISENTROPE_EXPLORE=1: another child, of some seconds")
@pytest.mark.usefixtures("real_trials")
def test_the_child_converts_it(whole: Path) -> None:
    assert (find_folder(str(whole)) / "model.safetensors").is_file()
