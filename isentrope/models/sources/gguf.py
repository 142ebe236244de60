"""Converts a GGUF file to a Hugging Face folder that can be trained: unpacked to float32 once, and kept.

GGUF is how quantised models are passed around for running. Its weights are unpacked exactly as they are used when the
file is run; what quantising lost stays lost.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
import math
import re
import shutil
import struct
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from safetensors import SafetensorError

from isentrope.core.errors import EngineError
from isentrope.core.limits import real
from isentrope.core.needs import install_command
from isentrope.models.memory import free_memory, gib
from isentrope.models.sources.cache import cache_folder, quiet_transformers, working
from isentrope.models.sources.catalogue import Facts, unsupported
from isentrope.models.trial import gguf_trial, try_alone
from isentrope.runs.atomic import flush_folder, share_as

_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _LIST = 8, 9
ENTRIES = 100_000  # settings, or tensors; the largest models have 3,000
WORDS = 4_000_000  # of a list; the longest vocabularies have 300,000
TEXT_BYTES = 16 << 20  # of a text
MOST_PACKED = 8  # numbers in a byte
Value = int | float | str


@dataclass(frozen=True)
class GgufHeader:
    """Settings and tensor shapes of a GGUF file, without reading a weight.

    Long lists (a vocabulary has 150,000 words) are counted, not kept. The file may come from anywhere, so every number
    in it is held against the file's size before it is believed.
    """

    settings: dict[str, Value]  # a list stands here as its length
    shapes: dict[str, tuple[int, ...]]

    @property
    def architecture(self) -> str:
        return str(self.settings.get("general.architecture", "unknown"))[:80]

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
        tensors, pairs = self.count(ENTRIES), self.count(ENTRIES)
        settings = {self.text(): self.value(self.number("I")) for _ in range(pairs)}
        return GgufHeader(settings, shapes=dict(self.tensor() for _ in range(tensors)))

    def number(self, code: str) -> int:
        return struct.unpack(f"<{code}", self.read(struct.calcsize(f"<{code}")))[0]

    def count(self, most: int) -> int:
        """How many things follow: each takes a byte at least, so more than the file has bytes is a lie."""
        number = self.number("Q")
        if number > min(self.size, most):
            raise ValueError(f"a length of {number} in a file of {self.size} bytes; expected at most {most}")
        return number

    def text(self) -> str:
        return self.read(self.count(TEXT_BYTES)).decode("utf-8", "replace")

    def read(self, length: int) -> bytes:
        data = self.file.read(length)
        if len(data) < length:
            raise ValueError("it ends too early")
        return data

    def value(self, kind: int) -> Value:
        if kind == _STRING:
            return self.text()
        if kind != _LIST:
            if kind not in _NUMBERS:
                raise ValueError(f"a value of type {kind}; expected 0 to 12")
            return self.number(_NUMBERS[kind])
        kind, length = self.number("I"), self.count(WORDS)
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
        self.number("I")  # how it is packed
        if (offset := self.number("Q")) > self.size or math.prod(shape) > MOST_PACKED * self.size:
            raise ValueError(f"a tensor of {math.prod(shape)} numbers from byte {offset} on")
        return name, shape


VERSION = 1  # of the conversion: a folder made by another version is made again
NOTE = "isentrope.json"  # beside the weights: where they came from
STALE = 24 * 3600  # seconds after which a half-made folder has no maker any more
# Where text may be cut before merges apply, by the file's own name for it. Others are known to transformers, or not.
KNOWN_CUTS = {
    "smollm", "qwen2", "llama-bpe", "llama3", "llama-v3", "gpt-2", "gpt2", "default", "tekken", "gpt-4o", "qwen35",
}  # fmt: skip


def converted_folder(file: Path, identity: str = "") -> Path:
    """Where the conversion of `file` is, or would be. A file that changes gets another folder."""
    if not identity:
        stat = file.stat()
        identity = f"{real(file)} {stat.st_size} {stat.st_mtime_ns}"
    key = hashlib.sha256(f"{VERSION} {identity}".encode()).hexdigest()[:12]
    return cache_folder() / "converted" / f"{re.sub(r'[^A-Za-z0-9._-]', '_', file.stem)[:80]}-{key}"


def convert(file: Path, identity: str = "") -> Path:
    """The Hugging Face folder of a GGUF file, made on the first call. Two processes may do it at once: each works in
    a folder of its own, and the first to be done gives it its name."""
    target = converted_folder(file, identity)
    if (target / NOTE).is_file():
        return target
    header = read_gguf_header(file)
    _check(file, header)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _sweep(target.parent)
        making = Path(tempfile.mkdtemp(prefix=".making-", dir=target.parent))
        (model := making / "model").mkdir()  # with the usual permissions, which `making` has not
    except OSError as error:
        raise EngineError(f"cannot write {target.parent} ({error}); set ISENTROPE_CACHE to a folder you own") from error
    try:
        with working(f"converting {file.name} to float32, {gib(4 * header.parameters)}, once, into {target}"):
            _convert_into(model, file, header)
        made = {"file": file.name, "licence": header.settings.get("general.license", ""), "version": VERSION}
        (model / NOTE).write_text(json.dumps(made) + "\n", encoding="utf-8")
        share_as(model / NOTE)
        flush_folder(model)
        with suppress(FileNotFoundError):
            if not (target / NOTE).is_file():  # what is left of one that was deleted in part
                target.rename(making / "old")
        model.rename(target)
        flush_folder(target.parent, deep=False)
    except (OSError, SafetensorError) as error:  # a full disk is the latter
        if not (target / NOTE).is_file():  # else another process was done first, and its folder is as good
            raise EngineError(f"could not write {target}: {error}; free some space or set ISENTROPE_CACHE") from error
    finally:
        shutil.rmtree(making, ignore_errors=True)
    return target


def _sweep(folder: Path) -> None:
    """What a killed conversion left behind is half a gigabyte at least."""
    for left in folder.glob(".making-*"):
        with suppress(FileNotFoundError):  # another process sweeps too, or is done with it
            if time.time() - left.stat().st_mtime > STALE:
                shutil.rmtree(left, ignore_errors=True)


def _check(file: Path, header: GgufHeader) -> None:
    if header.whole("split.count", 1) > 1:
        raise EngineError(f"{file.name} is one part of several; join them first: llama-gguf-split --merge")
    for package in ("transformers", "gguf", "accelerate"):
        if importlib.util.find_spec(package) is None:
            raise EngineError(f"GGUF files need {package}, which is not installed: {install_command('hf')}")
    need, free = 2 * 4 * header.parameters, free_memory("cpu")  # once as unpacked, once as the model
    if free is not None and need > free:
        raise EngineError(
            f"unpacking {file.name} takes about {gib(need)} of memory and {gib(free)} are free; close something, or "
            "convert it on a larger machine and give the folder as policy.model"
        )


def _convert_into(folder: Path, file: Path, header: GgufHeader) -> None:
    """In a process of its own (`models/trial.py`), as the readers were not made for files that lie."""
    answer = try_alone(file, gguf_trial(file, folder, 4 * header.parameters))
    if failed := answer.get("failed"):
        raise OSError(failed)
    if warning := answer.get("warning"):
        print(f"warning: {warning}", file=sys.stderr)


def unpack(folder: Path, file: Path) -> str:
    """Write the model of a GGUF file as a Hugging Face folder; gives a warning, or nothing."""
    import torch

    header = read_gguf_header(file)

    transformers: Any = importlib.import_module("transformers")
    place: dict[str, Any] = {"gguf_file": file.name, "local_files_only": True, "trust_remote_code": False}
    try:
        with quiet_transformers():
            config = transformers.AutoConfig.from_pretrained(file.parent, **place)
            reason = unsupported(config.to_dict())
            if reason:
                raise EngineError(f"{file.name}: {reason}")
            tokenizer = transformers.AutoTokenizer.from_pretrained(file.parent, **place)
            packed, report = transformers.AutoModelForCausalLM.from_pretrained(
                file.parent, config=config, dtype="float32", output_loading_info=True, **place
            )  # with the config at hand the file's long vocabulary is read fewer times: half of the whole time
    except ImportError as error:
        raise EngineError(f"GGUF files need one more package: {error}") from error
    except (EngineError, MemoryError):
        raise
    except Exception as error:  # a file that is not as expected may end anywhere in the reader
        raise EngineError(f"cannot read a {header.architecture} model from {file.name}: {str(error)[:300]}") from error
    missing: list[str] = sorted(report["missing_keys"])
    if missing:  # transformers would fill them with random numbers and say so in passing
        raise EngineError(f"{file.name} lacks {len(missing)} tensors of a {config.model_type} model: {missing[:3]}")
    warning = cut_as_learnt(tokenizer, str(header.settings.get("tokenizer.ggml.pre", "default")))
    with quiet_transformers():
        # the same weights in a model that does not think of itself as quantised, which could not be saved
        config.__dict__.pop("quantization_config", None)
        config.dtype = torch.float32
        with torch.device("meta"):
            model = transformers.AutoModelForCausalLM.from_config(config)
        model.load_state_dict(packed.state_dict(), assign=True)
        model.tie_weights()
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return warning


def cut_as_learnt(tokenizer: Any, name: str) -> str:
    """SmolLM's merges were learnt with every digit apart; transformers does not know that, and would cut "\\n\\n1"
    into other tokens than the model has read. Gives a warning where the way is not known."""
    from tokenizers import pre_tokenizers

    if name == "smollm":
        parts: list[Any] = [pre_tokenizers.Digits(individual_digits=True)]
        parts.append(pre_tokenizers.ByteLevel(add_prefix_space=False))
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(parts)
    elif name not in KNOWN_CUTS:
        return f"text is cut into words in the way {name[:80]!r}, which may not be known here"
    return ""


def gguf_facts(file: Path) -> Facts:
    """What the converted model will be like."""
    header = read_gguf_header(file)
    heads, width = max(1, header.number("attention.head_count")), header.number("embedding_length")
    vocabulary = ("token_embd.weight", "output.weight")
    linear = [shape for name, shape in header.shapes.items() if len(shape) == 2 and name not in vocabulary]
    embedding = header.shapes.get("token_embd.weight", (0, 0))
    if len(embedding) != 2:
        raise EngineError(f"{file}: token_embd.weight has {len(embedding)} dimensions; expected 2: it is damaged")
    return Facts(
        folder=file,
        architecture=f"{header.architecture} (GGUF)",
        parameters=header.parameters,
        linear_edges=sum(sum(shape) for shape in linear),
        disk=file.stat().st_size,
        layers=header.number("block_count"),
        width=width,
        inner=header.number("feed_forward_length"),
        kv_width=2 * (header.number("attention.head_count_kv") or heads) * (width // heads),
        vocabulary=embedding[-1],
        context=header.number("context_length"),
        chat_template="tokenizer.chat_template" in header.settings,
        licence=str(header.settings.get("general.license", ""))[:80],
        learned_positions="position_embd.weight" in header.shapes,
        heads=heads,
        head_width=width // heads,
    )
