"""What stands at the head of a GGUF file: its settings and the shapes of its tensors, without reading a weight.

Long lists (a vocabulary has 150,000 words) are counted, not kept. The file may come from anywhere, so every number in
it is held against the file's size before it is believed.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from isentrope.errors import EngineError

_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _LIST = 8, 9
Value = int | float | str


@dataclass(frozen=True)
class GgufHeader:
    settings: dict[str, Value]  # a list stands here as its length
    shapes: dict[str, tuple[int, ...]]

    @property
    def architecture(self) -> str:
        return str(self.settings.get("general.architecture", "unknown"))

    @property
    def parameters(self) -> int:
        return sum(math.prod(shape) for shape in self.shapes.values())

    def number(self, name: str) -> int:
        """A number of the architecture's own, e.g. `block_count`; 0 where it is not given."""
        return self.whole(f"{self.architecture}.{name}", 0)

    def whole(self, name: str, default: int) -> int:
        value = self.settings.get(name, default)
        if not isinstance(value, int | float) or not math.isfinite(value) or value < 0 or value != int(value):
            raise EngineError(f"the GGUF file has {name} = {str(value)[:40]!r}; expected a whole number: it is damaged")
        return int(value)


def read_gguf_header(path: Path) -> GgufHeader:
    try:
        with path.open("rb") as file:
            return _Reader(file, path.stat().st_size).header()
    except OSError as error:
        raise EngineError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, struct.error, KeyError, UnicodeDecodeError, RecursionError) as error:
        raise EngineError(f"{path} is not a whole GGUF file ({error}); download it again") from error


class _Reader:
    def __init__(self, file: BinaryIO, size: int) -> None:
        self.file, self.size = file, size

    def header(self) -> GgufHeader:
        if self.file.read(4) != b"GGUF":
            raise ValueError("it does not begin with GGUF")
        version = self.number("I")
        if version not in (2, 3):
            raise ValueError(f"version {version}; expected 2 or 3")
        tensors, pairs = self.count(), self.count()
        settings = {self.text(): self.value(self.number("I")) for _ in range(pairs)}
        shapes = dict(self.tensor() for _ in range(tensors))
        return GgufHeader(settings, shapes)

    def number(self, code: str) -> int:
        size = struct.calcsize(f"<{code}")
        return struct.unpack(f"<{code}", self.read(size))[0]

    def count(self) -> int:
        """How many things follow: each takes a byte at least, so more than the file has bytes is a lie."""
        number = self.number("Q")
        if number > self.size:
            raise ValueError(f"a length of {number} in a file of {self.size} bytes")
        return number

    def text(self) -> str:
        return self.read(self.count()).decode("utf-8", "replace")

    def read(self, length: int) -> bytes:
        data = self.file.read(length)
        if len(data) < length:
            raise ValueError("it ends too early")
        return data

    def value(self, kind: int) -> Value:
        if kind == _STRING:
            return self.text()
        if kind != _LIST:
            return self.number(_NUMBERS[kind])
        kind, length = self.number("I"), self.count()
        if kind in _NUMBERS:
            self.file.seek(length * struct.calcsize(f"<{_NUMBERS[kind]}"), 1)
        else:
            for _ in range(length):
                self.value(kind)
        return length

    def tensor(self) -> tuple[str, tuple[int, ...]]:
        name, dimensions = self.text(), self.number("I")
        if dimensions > 8:
            raise ValueError(f"a tensor of {dimensions} dimensions")
        shape = tuple(self.number("Q") for _ in range(dimensions))
        self.file.seek(4 + 8, 1)  # how it is packed, and where it lies
        return name, shape
