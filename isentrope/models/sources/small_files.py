"""The small files of a model folder (settings, tokenizer, chat template): read once, within limits, and without what
makes libraries fetch or load code.

transformers never sees the folder itself. It gets a private copy with the files of `LIMITS`, cleaned, and links to the
safetensors files. So no Python file, no pickle, no adapter and no processor beside them can be found, and what was
tried (`models/trial.py`) is what is loaded.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from isentrope.core.errors import EngineError
from isentrope.core.limits import INDEX_BYTES, MIB, NOTE_BYTES, parse_json, read_bounded, real

LIMITS = {
    "config.json": NOTE_BYTES, "generation_config.json": NOTE_BYTES, "tokenizer_config.json": 16 * MIB,
    "tokenizer.json": INDEX_BYTES, "special_tokens_map.json": NOTE_BYTES, "added_tokens.json": 16 * MIB,
    "vocab.json": INDEX_BYTES, "merges.txt": INDEX_BYTES, "vocab.txt": INDEX_BYTES, "tokenizer.model": INDEX_BYTES,
    "chat_template.jinja": NOTE_BYTES, "chat_template.json": NOTE_BYTES,
}  # fmt: skip
"""Bytes. Large vocabularies take 35 MB, the longest chat templates 30 kB."""
MODEL_FILES = ("config.json", "generation_config.json")

# Of config.json: what names code, kernels, other models or ways to compute, none of which a folder decides here.
_DROPPED = {
    "trust_remote_code", "name_or_path", "use_kernels", "kernel_config", "device_map", "distributed_config",
    "custom_generate", "generation_config", "compression_config", "fusion_config", "pruned_heads", "num_labels",
    "id2label", "label2id", "problem_type", "task_specific_params", "torchscript", "output_attentions",
    "output_hidden_states", "return_dict", "keys_to_ignore_at_inference", "base_config_key", "sub_configs",
    "processor_class", "adapters", "backbone", "use_timm_backbone", "gguf_file",
}  # fmt: skip
_DROPPED_ENDS = ("_implementation", "_plan", "_map", "_kwargs")
DTYPES = ("float32", "bfloat16", "float16")
LARGEST = 2**40  # a whole number in config.json; no size, no count and no token is larger

_GENERATION = {
    "bos_token_id", "eos_token_id", "pad_token_id", "temperature", "top_p", "top_k", "min_p", "do_sample",
    "repetition_penalty", "max_length", "max_new_tokens", "transformers_version",
}  # fmt: skip
_TOKENIZER = {
    "tokenizer_class", "chat_template", "added_tokens_decoder", "additional_special_tokens", "extra_special_tokens",
    "add_bos_token", "add_eos_token", "add_prefix_space", "clean_up_tokenization_spaces", "errors", "legacy",
    "model_max_length", "padding_side", "truncation_side", "spaces_between_special_tokens", "split_special_tokens",
    "use_default_system_prompt", "do_lower_case", "strip_accents", "tokenize_chinese_chars", "model_input_names",
    "backend",
}  # fmt: skip
ENDS = 1000  # tokens that end an answer
Files = dict[str, bytes]


def read_small(folder: Path, names: tuple[str, ...] = tuple(LIMITS)) -> Files:
    """The small files of a model folder that are there, cleaned. EngineError for one that cannot be what it says."""
    found: Files = {}
    for name in names:
        path = folder / name
        if not (path.exists() or path.is_symlink()):
            continue
        try:
            data = read_bounded(path, LIMITS[name], found=False)
            found[name] = _CLEANERS[name](data) if name in _CLEANERS else data
        except (OSError, ValueError, UnicodeError) as error:
            raise EngineError(
                f"cannot read {path} ({str(error)[:300]}); expected what model folders have under that name: "
                "copy it again"
            ) from error
    return found


@contextmanager
def laid_out(files: Mapping[str, bytes], weights: Mapping[str, Path] | None = None) -> Generator[Path]:
    """A private folder with these files, and links to the weights, as long as it is used."""
    with tempfile.TemporaryDirectory(prefix="isentrope-model-") as name:
        folder = Path(name)
        for file, data in files.items():
            (folder / file).write_bytes(data)
        for file, target in (weights or {}).items():
            (folder / file).symlink_to(real(target))
        yield folder


def _clean_config(data: bytes) -> bytes:
    table = _object(data)
    for name in ("dtype", "torch_dtype"):
        value = table.get(name)
        if value is not None and (not isinstance(value, str) or value.removeprefix("torch.") not in DTYPES):
            raise ValueError(f"{name} is {str(value)[:40]!r}; expected one of {', '.join(DTYPES)}")
    return _packed(_kept(table))


def _kept(value: Any, name: str = "config.json") -> Any:
    if isinstance(value, dict):
        table = cast("dict[str, Any]", value)
        return {key: _kept(inner, key) for key, inner in table.items() if not _names_code(key)}
    if isinstance(value, list):
        entries = cast("list[Any]", value)
        if len(entries) > 10_000:
            raise ValueError(f"{name[:40]} is a list of {len(entries):,}; more than 10,000 entries are not read")
        return [_kept(inner, name) for inner in entries]
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{name[:40]} is {value}; expected a finite number")
    if isinstance(value, int) and abs(value) > LARGEST:
        raise ValueError(f"{name[:40]} is {value}; expected a number below {LARGEST:,}")
    return value


def _names_code(key: str) -> bool:
    return key.startswith("_") or key in _DROPPED or key.endswith(_DROPPED_ENDS)


def _clean_tokenizer_config(data: bytes) -> bytes:
    table = _object(data)
    if isinstance(longest := table.get("model_max_length"), float) and math.isfinite(longest):
        table["model_max_length"] = int(longest)  # 10**30, for "no limit", is no whole number of 64 bits
    return _packed({k: v for k, v in table.items() if k in _TOKENIZER or (k.endswith("_token") and _is_token(v))})


def _is_token(value: object) -> bool:
    return value is None or isinstance(value, str | dict)


def _clean_generation(data: bytes) -> bytes:
    table = {key: value for key, value in _object(data).items() if key in _GENERATION}
    return _packed({key: value for key, value in table.items() if key == "transformers_version" or _is_plain(value)})


def _is_plain(value: object) -> bool:
    if isinstance(value, list):
        entries = cast("list[object]", value)
        return len(entries) <= ENDS and all(isinstance(entry, int) for entry in entries)
    return isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value))


def _clean_template(data: bytes) -> bytes:
    data.decode()
    return data


def _object(data: bytes) -> dict[str, Any]:
    table = parse_json(data)
    if not isinstance(table, dict):
        raise ValueError("it is not a JSON object")
    return cast("dict[str, Any]", table)


def _packed(table: Any) -> bytes:
    return json.dumps(table).encode()


def _clean_table(data: bytes) -> bytes:
    return _packed(_object(data))


_CLEANERS: dict[str, Callable[[bytes], bytes]] = {
    "config.json": _clean_config, "generation_config.json": _clean_generation,
    "tokenizer_config.json": _clean_tokenizer_config, "special_tokens_map.json": _clean_table,
    "added_tokens.json": _clean_table, "chat_template.json": _clean_table, "chat_template.jinja": _clean_template,
}  # fmt: skip
