"""What can be known of a model folder without loading it, and whether it can be used.

Only `config.json` and the headers of the safetensors files are read: a second for a model of any size.
"""

from __future__ import annotations

import importlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from isentrope.errors import EngineError

HEADER_LIMIT = 100_000_000  # bytes; what the safetensors format allows
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "pocket_tokens.json")
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")
_CAUSAL = ("ForCausalLM", "LMHeadModel")


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


def read_facts(folder: Path) -> Facts:
    config, shapes = read_config(folder), weight_shapes(folder)
    heads = _number(config, "num_attention_heads", "n_head") or 1
    width = _number(config, "hidden_size", "n_embd", "d_model")
    head_width = _number(config, "head_dim") or width // heads
    linear = [s for name, s in shapes.items() if len(s) == 2 and not _is_vocabulary(name)]
    return Facts(
        folder=folder,
        architecture=", ".join(_architectures(config)) or str(config.get("model_type", "unknown")),
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
    )


def check_folder(folder: Path) -> Facts:
    """Refuse, before anything is loaded, a folder that cannot be a policy; else what it holds."""
    config = read_config(folder)
    if not any((folder / name).is_file() for name in TOKENIZERS):
        raise EngineError(f"{folder} has no tokenizer (tokenizer.json); copy the model's tokenizer files into it")
    reason = unsupported(config) or _needs_foreign_code(config)
    if reason:
        raise EngineError(f"{folder}: {reason}")
    return read_facts(folder)


def read_config(folder: Path) -> dict[str, Any]:
    return _read_json(folder / "config.json", "copy the whole model folder again")


def unsupported(config: Mapping[str, Any]) -> str | None:
    """Why a model with this config.json cannot be used; None where nothing speaks against it."""
    names = _architectures(config)
    if names and not any(name.endswith(_CAUSAL) for name in names):
        return f"a {', '.join(names)} is no causal language model (…ForCausalLM)"
    if config.get("quantization_config"):
        return "its weights are quantised and cannot be trained; take the full model, or its GGUF file"
    for name in ("final_logit_softcapping", "logit_scale", "logits_scaling"):
        if config.get(name) not in (None, 1, 1.0):
            return f"{_title(config)}: logits changed by {name} are not supported"
    kinds = set(cast("list[str]", config.get("layer_types") or ["full_attention"]))
    if kinds != {"full_attention"}:
        return f"{_title(config)}: layers of type {', '.join(sorted(kinds))}; only full attention works"
    return None


def _needs_foreign_code(config: Mapping[str, Any]) -> str | None:
    """A model may bring Python files of its own. They are never run: it works only if transformers knows its kind."""
    if not config.get("auto_map"):
        return None
    kind = str(config.get("model_type", ""))
    try:
        known: Any = importlib.import_module("transformers.models.auto.configuration_auto")
    except ImportError:
        return None  # the loader says that transformers is missing
    if kind in known.CONFIG_MAPPING_NAMES:
        return None
    return f"it needs code of its own (auto_map in config.json), which is never run; {kind!r} is not in transformers"


def weight_shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """The shapes of all weights, from the headers of the safetensors files."""
    files = sorted(folder.glob("*.safetensors"))
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        parts = set(
            cast("dict[str, str]", _read_json(index, "download the model again").get("weight_map", {})).values()
        )
        files = [folder / Path(name).name for name in sorted(parts)]
    missing = [file.name for file in files if not file.is_file()]
    if missing:
        raise EngineError(f"{folder} is not whole: {missing[0]} is missing ({len(missing)} of {len(files)} files)")
    if not files:
        pickles = [file.name for pattern in PICKLES for file in folder.glob(pattern)]
        if pickles:
            raise EngineError(
                f"{folder} has its weights as {pickles[0]}, a pickle, which can run code when it is read and is not "
                "loaded; look for the model's safetensors version, or convert it where you trust it: "
                "AutoModelForCausalLM.from_pretrained(…).save_pretrained(…)"
            )
        raise EngineError(f"{folder} has a config.json but no weights (*.safetensors); copy the whole folder")
    return {name: shape for file in files for name, shape in _safetensors_header(file).items()}


def _safetensors_header(file: Path) -> dict[str, tuple[int, ...]]:
    try:
        with file.open("rb") as opened:
            length = int.from_bytes(opened.read(8), "little")
            if length > min(HEADER_LIMIT, file.stat().st_size):
                raise ValueError("its header is longer than the file")
            table = cast("dict[str, Any]", json.loads(opened.read(length)))
        return {name: tuple(map(int, entry["shape"])) for name, entry in table.items() if name != "__metadata__"}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise EngineError(f"{file} is not a whole safetensors file ({error}); copy it again") from error


def has_chat_template(folder: Path) -> bool:
    if (folder / "chat_template.jinja").is_file() or (folder / "chat_template.json").is_file():
        return True
    try:
        return bool(_read_json(folder / "tokenizer_config.json", "").get("chat_template"))
    except EngineError:
        return False


def _licence(folder: Path) -> str:
    """As a conversion noted it, or as the model card's first lines say."""
    try:
        return str(_read_json(folder / "isentrope.json", "").get("licence", ""))
    except EngineError:
        pass
    try:
        with (folder / "README.md").open(encoding="utf-8", errors="replace") as card:
            head = [next(card, "") for _ in range(60)]
    except OSError:
        return ""
    return next((line.removeprefix("license:").strip() for line in head if line.startswith("license:")), "")


def _read_json(path: Path, advice: str) -> dict[str, Any]:
    try:
        table: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise EngineError(f"cannot read {path} ({error}); {advice}") from error
    if not isinstance(table, dict):
        raise EngineError(f"{path} is not a JSON object; {advice}")
    return cast("dict[str, Any]", table)


def _architectures(config: Mapping[str, Any]) -> list[str]:
    return [str(name) for name in cast("list[object]", config.get("architectures") or [])]


def _title(config: Mapping[str, Any]) -> str:
    return ", ".join(_architectures(config)) or str(config.get("model_type", "the model"))


def _number(config: Mapping[str, Any], *names: str) -> int:
    for name in names:
        value = config.get(name)
        if isinstance(value, int):
            return value
    return 0


def _is_vocabulary(name: str) -> bool:
    return any(part in name for part in ("embed", "wte", "wpe", "lm_head"))
