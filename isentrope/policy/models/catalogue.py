"""What can be known of a model folder without loading it, and whether it can be used.

Only `config.json` and the headers of the safetensors files are read: a second for a model of any size.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isentrope.errors import EngineError
from isentrope.policy.models.supported import architectures, needs_foreign_code, unsupported
from isentrope.policy.models.weight_files import read_json, weight_shapes

TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "pocket_tokens.json")
LARGEST = 2**40  # no honest number in a config.json is larger
_POSITIONS = ("wpe", "embed_positions", "position_embeddings")


@dataclass(frozen=True)
class Facts:
    folder: Path
    architecture: str
    parameters: int
    linear_edges: int  # inputs plus outputs of all linear layers: the size of an adapter of rank 1
    disk: int
    layers: int
    width: int
    inner: int
    kv_width: int  # numbers that a token leaves in the cache, per layer
    vocabulary: int
    context: int
    chat_template: bool
    licence: str
    learned_positions: bool = False  # one vector for each: there is none beyond the last


def read_facts(folder: Path) -> Facts:
    config, shapes = read_config(folder), weight_shapes(folder)
    heads = _number(config, "num_attention_heads", "n_head") or 1
    width = _number(config, "hidden_size", "n_embd", "d_model")
    head_width = _number(config, "head_dim") or width // heads
    linear = [s for name, s in shapes.items() if len(s) == 2 and not _is_vocabulary(name)]
    return Facts(
        folder=folder,
        architecture=", ".join(architectures(config)) or str(config.get("model_type", "unknown")),
        parameters=sum(math.prod(shape) for shape in shapes.values()),
        linear_edges=sum(sum(shape) for shape in linear),
        disk=sum(file.stat().st_size for file in folder.iterdir() if file.is_file()),
        layers=_number(config, "num_hidden_layers", "n_layer"),
        width=width,
        inner=_number(config, "intermediate_size", "n_inner") or 4 * width,
        kv_width=2 * (_number(config, "num_key_value_heads") or heads) * head_width,
        vocabulary=_number(config, "vocab_size"),
        context=_number(config, "max_position_embeddings", "n_positions"),
        chat_template=has_chat_template(folder),
        licence=_licence(folder),
        learned_positions=any(part in name.split(".") for name in shapes for part in _POSITIONS),
    )


def check_folder(folder: Path) -> Facts:
    """Refuse, before anything is loaded, a folder that cannot be a policy; else what it holds."""
    config = read_config(folder)
    if not has_tokenizer(folder):
        raise EngineError(f"{folder} has no tokenizer (tokenizer.json); copy the model's tokenizer files into it")
    reason = unsupported(config) or needs_foreign_code(config)
    if reason:
        raise EngineError(f"{folder}: {reason}")
    return read_facts(folder)


def read_config(folder: Path) -> dict[str, Any]:
    return read_json(folder / "config.json", "copy the whole model folder again")


def has_tokenizer(folder: Path) -> bool:
    return any((folder / name).is_file() for name in TOKENIZERS)


def has_chat_template(folder: Path) -> bool:
    if (folder / "chat_template.jinja").is_file() or (folder / "chat_template.json").is_file():
        return True
    try:
        return bool(read_json(folder / "tokenizer_config.json", "").get("chat_template"))
    except EngineError:
        return False


def _licence(folder: Path) -> str:
    """As a conversion noted it, or as the model card's first lines say."""
    try:
        return str(read_json(folder / "isentrope.json", "").get("licence", ""))
    except EngineError:
        pass
    try:
        with (folder / "README.md").open(encoding="utf-8", errors="replace") as card:
            head = [next(card, "") for _ in range(60)]
    except OSError:
        return ""
    return next((line.removeprefix("license:").strip() for line in head if line.startswith("license:")), "")


def _number(config: Mapping[str, Any], *names: str) -> int:
    for name in names:
        value = config.get(name)
        if isinstance(value, int) and 0 <= value <= LARGEST:
            return value
    return 0


def _is_vocabulary(name: str) -> bool:
    return any(part in name for part in ("embed", "wte", "wpe", "lm_head"))
