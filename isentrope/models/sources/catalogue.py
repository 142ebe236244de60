"""Reads facts about a model folder without loading it, and says whether it can be used.

Only `config.json` and the headers of the safetensors files are read: a second for a model of any size.
"""

from __future__ import annotations

import importlib
import json
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from isentrope.core.errors import EngineError
from isentrope.core.limits import INDEX_BYTES, check_is_file, open_plain, read_bounded

# Rotary frequencies that depend on the longest conversation of a batch: a sample would depend on its neighbours.
_MOVING_ROPE = {"dynamic", "longrope", "su"}


def unsupported(config: Mapping[str, Any]) -> str | None:
    """Why a model with this config.json cannot be used; None where nothing speaks against it.

    Asked twice: before a folder is loaded, and once more of the loaded model's settings, which have the values that the
    file left out.
    """
    for name in ("architectures", "layer_types"):
        if not isinstance(config.get(name) or [], list | tuple):
            return f"{name} in config.json is {str(config[name])[:40]!r}; expected a list of names: copy the file again"
    names = architectures(config)
    if names and not any(name.endswith(("ForCausalLM", "LMHeadModel")) for name in names):
        return f"a {', '.join(names)} is no causal language model (…ForCausalLM)"
    if config.get("quantization_config"):
        return "its weights are quantised and cannot be trained; take the full model, or its GGUF file"
    if config.get("transformers_weights"):
        return "config.json has the weights in a file of another name (transformers_weights), which is not loaded"
    for name in ("final_logit_softcapping", "logit_scale", "logits_scaling"):
        if config.get(name) not in (None, 1, 1.0):
            return f"{_title(config)}: logits changed by {name} are not supported"
    if problem := _attention(config):
        return problem
    if moving := sorted(_rope_kinds(config) & _MOVING_ROPE):
        return f"{_title(config)}: positions of type {moving[0]} change with the length of the longest conversation"
    return None


def _attention(config: Mapping[str, Any]) -> str | None:
    kinds = set(map(str, config.get("layer_types") or []))
    if kinds and kinds != {"full_attention"}:
        return f"{_title(config)}: layers of type {', '.join(sorted(kinds))}; only full attention works"
    window = config.get("sliding_window")
    if kinds or window is None or config.get("use_sliding_window") is False:
        return None
    positions = config.get("max_position_embeddings")
    if isinstance(window, int) and isinstance(positions, int) and window >= positions:
        return None  # nothing is ever so far back that it goes out of sight
    return (
        f"{_title(config)}: attention in a sliding window of {window} tokens; only full attention works. If no "
        'conversation is longer than that (agent.max_context), write "sliding_window": null into a copy of config.json'
    )


def _rope_kinds(config: Mapping[str, Any]) -> set[str]:
    """Under its old name and its new one, which may have a table for each type of layer."""
    given: list[object] = [config.get("rope_scaling"), config.get("rope_parameters")]
    tables = [cast("Mapping[str, Any]", table) for table in given if isinstance(table, Mapping)]
    tables += [inner for table in tables for inner in table.values() if isinstance(inner, Mapping)]
    return {str(table.get(name)) for table in tables for name in ("rope_type", "type")}


def needs_foreign_code(config: Mapping[str, Any]) -> str | None:
    """A model may bring Python files of its own. They are never run: it works only if transformers knows its kind."""
    if not config.get("auto_map"):
        return None
    kind = str(config.get("model_type", ""))[:80]
    try:
        known: Any = importlib.import_module("transformers.models.auto.configuration_auto")
    except ImportError:
        return None  # the loader says that transformers is missing
    if kind in known.CONFIG_MAPPING_NAMES:
        return None
    return f"it needs code of its own (auto_map in config.json), which is never run; {kind!r} is not in transformers"


def architectures(config: Mapping[str, Any]) -> list[str]:
    named: object = config.get("architectures")
    return [str(name)[:80] for name in cast("list[object]", named)[:8]] if isinstance(named, list | tuple) else []


def _title(config: Mapping[str, Any]) -> str:
    return ", ".join(architectures(config)) or str(config.get("model_type", "the model"))[:80]


# The weight files: safetensors, nothing else.
SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"


def weight_shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """The shapes of all weights, from the headers of the safetensors files."""
    return {name: shape for shapes in weight_files(folder).values() for name, shape in shapes.items()}


def weight_files(folder: Path) -> dict[Path, dict[str, tuple[int, ...]]]:
    """The safetensors files of a model, each with the shapes of its weights."""
    files = _parts(folder) if (folder / INDEX).is_file() else [folder / SINGLE]
    missing = [file.name for file in files if not file.is_file()]
    if missing == [SINGLE] and len(files) == 1:
        raise EngineError(_why_none(folder))
    if missing:
        raise EngineError(f"{folder} is not whole: {missing[0]} is missing ({len(missing)} of {len(files)} files)")
    return {file: _header(file) for file in files}


def check_sizes(folder: Path, config: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Refuse a config.json whose model would be larger than its weights, before anything is made of it."""
    parameters = sum(math.prod(shape) for shape in shapes.values())
    layers, sizes = ("num_hidden_layers", "n_layer", "num_layers"), ("hidden_size", "n_embd", "d_model", "vocab_size")
    for names, most, what in ((layers, len(shapes), "tensors"), ((*sizes, "intermediate_size"), parameters, "numbers")):
        for name in names:
            value = config.get(name, 1)
            if not isinstance(value, int) or not 0 < value <= most:
                raise EngineError(
                    f"{folder}: config.json has {name} = {str(value)[:40]}; expected a whole number from 1 to "
                    f"{most:,}, as its weights have that many {what}: copy config.json and weights from one place"
                )


def _parts(folder: Path) -> list[Path]:
    """What the index names. It may come from anywhere, and the loader follows it: to a pickle too, or out of the
    folder."""
    table: object = read_json(folder / INDEX, "download the model again").get("weight_map")
    named = list(cast("dict[str, object]", table).values()) if isinstance(table, dict) else []
    if not named:
        raise EngineError(f"{folder / INDEX} names no files of weights (weight_map); download the model again")
    for name in named:
        if not isinstance(name, str) or Path(name).name != name or not name.endswith(".safetensors"):
            raise EngineError(
                f"{folder / INDEX} names {name!r}, which is not loaded: expected names of safetensors files in the "
                "same folder; take the model from a place that you trust"
            )
    return [folder / name for name in sorted(set(cast("list[str]", named)))]


def _why_none(folder: Path) -> str:
    pickles = [file.name for pattern in ("*.bin", "*.pt", "*.pth", "*.ckpt") for file in folder.glob(pattern)]
    if pickles:
        return (
            f"{folder} has its weights as {pickles[0]}, a pickle, which can run code when it is read and is not "
            "loaded; look for the model's safetensors version, or convert it where you trust it: "
            "AutoModelForCausalLM.from_pretrained(…).save_pretrained(…)"
        )
    others = sorted(file.name for file in folder.glob("*.safetensors"))
    if others:
        return f"{folder} has {others[0]}, but neither {SINGLE} nor {INDEX}; copy the whole folder"
    return f"{folder} has a config.json but no weights (*.safetensors); copy the whole folder"


def _header(file: Path) -> dict[str, tuple[int, ...]]:
    """Names and shapes. Every number is held against the file's size before it is believed."""
    try:
        size = check_is_file(file, found=False).st_size
        with open_plain(file, found=False) as opened:
            length = int.from_bytes(opened.read(8), "little")
            if length > min(100_000_000, size):  # bytes that the safetensors format allows
                raise ValueError("its header is longer than the file")
            table = cast("dict[str, Any]", json.loads(opened.read(length)))
        entries = {name: entry for name, entry in table.items() if name != "__metadata__"}
        shapes = {name: tuple(map(int, entry["shape"])) for name, entry in entries.items()}
        wanted = 8 + length + max((int(entry["data_offsets"][1]) for entry in entries.values()), default=0)
        if wanted != size:
            raise ValueError(f"its header tells of {wanted:,} bytes, and it has {size:,}")
        if any(min(shape, default=0) < 0 or math.prod(shape) > 8 * size for shape in shapes.values()):
            raise ValueError("a tensor that is larger than the file")
        return shapes
    except (OSError, ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise EngineError(f"{file} is not a whole safetensors file ({error}); copy it again") from error


def read_json(path: Path, advice: str) -> dict[str, Any]:
    try:
        table: Any = json.loads(read_bounded(path, INDEX_BYTES, found=False))
    except (OSError, ValueError, RecursionError) as error:
        raise EngineError(f"cannot read {path} ({error}); {advice}") from error
    if not isinstance(table, dict):
        raise EngineError(f"{path} is not a JSON object; {advice}")
    return cast("dict[str, Any]", table)


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
    heads: int = 1  # of queries
    head_width: int = 0


def read_facts(folder: Path) -> Facts:
    config, shapes = read_config(folder), weight_shapes(folder)
    return replace(
        facts_of(config, shapes),
        folder=folder,
        disk=sum(file.stat().st_size for file in folder.iterdir() if file.is_file()),
        chat_template=has_chat_template(folder),
        licence=_licence(folder),
    )


def facts_of(config: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> Facts:
    """What settings and shapes of the weights say, without a folder."""
    heads = _number(config, "num_attention_heads", "n_head") or 1
    width = _number(config, "hidden_size", "n_embd", "d_model")
    head_width = _number(config, "head_dim") or width // heads
    vocabulary = ("embed", "wte", "wpe", "lm_head")
    linear = [s for name, s in shapes.items() if len(s) == 2 and not any(part in name for part in vocabulary)]
    parts = {part for name in shapes for part in name.split(".")}
    return Facts(
        folder=Path(),
        architecture=", ".join(architectures(config)) or str(config.get("model_type", "unknown")),
        parameters=sum(math.prod(shape) for shape in shapes.values()),
        linear_edges=sum(sum(shape) for shape in linear),
        disk=0,
        layers=_number(config, "num_hidden_layers", "n_layer"),
        width=width,
        inner=_number(config, "intermediate_size", "n_inner") or 4 * width,
        kv_width=2 * (_number(config, "num_key_value_heads") or heads) * head_width,
        vocabulary=_number(config, "vocab_size"),
        context=_number(config, "max_position_embeddings", "n_positions"),
        chat_template=False,
        licence="",
        learned_positions=bool(parts & {"wpe", "embed_positions", "position_embeddings"}),
        heads=heads,
        head_width=head_width,
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
    names = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "pocket_tokens.json")
    return any((folder / name).is_file() for name in names)


def has_chat_template(folder: Path) -> bool:
    if (folder / "chat_template.jinja").is_file() or (folder / "chat_template.json").is_file():
        return True
    with suppress(EngineError):
        return bool(read_json(folder / "tokenizer_config.json", "").get("chat_template"))
    return False


def _licence(folder: Path) -> str:
    """As a conversion noted it, or as the model card's first lines say."""
    with suppress(EngineError):
        return str(read_json(folder / "isentrope.json", "").get("licence", ""))
    with suppress(OSError), open_plain(folder / "README.md", found=False) as card:
        head = card.read(16_384).decode("utf-8", "replace").splitlines()[:60]
        return next((line.removeprefix("license:").strip()[:80] for line in head if line.startswith("license:")), "")
    return ""


def _number(config: Mapping[str, Any], *names: str) -> int:
    for name in names:
        value = config.get(name)
        if isinstance(value, int) and 0 <= value <= 2**40:  # no honest number is larger
            return value
    return 0
