"""A GGUF file as a model that can be trained: unpacked to float32 once, and kept as a Hugging Face folder.

GGUF is how quantised models are passed around for running. Its weights are unpacked exactly as they are used when the
file is run; what quantising lost stays lost.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
import re
import shutil
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from isentrope.disk import flush_folder, share_as
from isentrope.errors import EngineError
from isentrope.policy.models.catalogue import Facts
from isentrope.policy.models.gguf_header import GgufHeader, read_gguf_header
from isentrope.policy.models.home import cache_folder
from isentrope.policy.models.memory import free_memory, gib
from isentrope.policy.models.quiet import quiet_transformers, working
from isentrope.policy.models.supported import unsupported

VERSION = 1  # of the conversion: a folder made by another version is made again
NOTE = "isentrope.json"  # beside the weights: where they came from
INSTALL = "pip install 'isentrope[hf]'"
STALE = 24 * 3600  # seconds after which a half-made folder has no maker any more
# Where text may be cut before merges apply, by the file's own name for it. Others are known to transformers, or not.
KNOWN_CUTS = {
    "smollm", "qwen2", "llama-bpe", "llama3", "llama-v3", "gpt-2", "gpt2", "default", "tekken", "gpt-4o", "qwen35",
}  # fmt: skip


def converted_folder(file: Path, identity: str = "") -> Path:
    """Where the conversion of `file` is, or would be. A file that changes gets another folder."""
    if not identity:
        stat = file.stat()
        identity = f"{file.resolve()} {stat.st_size} {stat.st_mtime_ns}"
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
            raise EngineError(f"GGUF files need {package}, which is not installed: {INSTALL}")
    need, free = 2 * 4 * header.parameters, free_memory("cpu")  # once as unpacked, once as the model
    if free is not None and need > free:
        raise EngineError(
            f"unpacking {file.name} takes about {gib(need)} of memory and {gib(free)} are free; close something, or "
            "convert it on a larger machine and give the folder as policy.model"
        )


def _convert_into(folder: Path, file: Path, header: GgufHeader) -> None:
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
    except EngineError:
        raise
    except Exception as error:  # a file that is not as expected may end anywhere in the reader
        raise EngineError(f"cannot read a {header.architecture} model from {file.name}: {error}") from error
    missing: list[str] = sorted(report["missing_keys"])
    if missing:  # transformers would fill them with random numbers and say so in passing
        raise EngineError(f"{file.name} lacks {len(missing)} tensors of a {config.model_type} model: {missing[:3]}")
    cut_as_learnt(tokenizer, str(header.settings.get("tokenizer.ggml.pre", "default")))
    with quiet_transformers():
        _plain(packed, config).save_pretrained(folder)
        tokenizer.save_pretrained(folder)


def _plain(packed: Any, config: Any) -> Any:
    """The same weights in a model that does not think of itself as quantised, which could not be saved."""
    import torch

    transformers: Any = importlib.import_module("transformers")
    config.__dict__.pop("quantization_config", None)
    config.dtype = torch.float32
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    model.load_state_dict(packed.state_dict(), assign=True)
    model.tie_weights()
    return model


def cut_as_learnt(tokenizer: Any, name: str) -> None:
    """SmolLM's merges were learnt with every digit apart; transformers does not know that, and would cut "\\n\\n1"
    into other tokens than the model has read."""
    from tokenizers import pre_tokenizers

    if name == "smollm":
        parts: list[Any] = [pre_tokenizers.Digits(individual_digits=True)]
        parts.append(pre_tokenizers.ByteLevel(add_prefix_space=False))
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(parts)
    elif name not in KNOWN_CUTS:
        print(f"warning: text is cut into words in the way {name!r}, which may not be known here", file=sys.stderr)


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
        licence=str(header.settings.get("general.license", "")),
        learned_positions="position_embd.weight" in header.shapes,
    )
