"""Which models can be a policy, told from their config.json alone.

Asked twice: before a folder is loaded, and once more of the loaded model's settings, which have the values that the
file left out.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from typing import Any, cast

_CAUSAL = ("ForCausalLM", "LMHeadModel")
_FULL = "full_attention"
# Rotary frequencies that depend on the longest conversation of a batch: a sample would depend on its neighbours.
_MOVING_ROPE = {"dynamic", "longrope", "su"}


def unsupported(config: Mapping[str, Any]) -> str | None:
    """Why a model with this config.json cannot be used; None where nothing speaks against it."""
    for name in ("architectures", "layer_types"):
        if not isinstance(config.get(name) or [], list | tuple):
            return f"{name} in config.json is {str(config[name])[:40]!r}; expected a list of names: copy the file again"
    names = architectures(config)
    if names and not any(name.endswith(_CAUSAL) for name in names):
        return f"a {', '.join(names)} is no causal language model (…ForCausalLM)"
    if config.get("quantization_config"):
        return "its weights are quantised and cannot be trained; take the full model, or its GGUF file"
    if config.get("transformers_weights"):
        return "config.json has the weights in a file of another name (transformers_weights), which is not loaded"
    for name in ("final_logit_softcapping", "logit_scale", "logits_scaling"):
        if config.get(name) not in (None, 1, 1.0):
            return f"{_title(config)}: logits changed by {name} are not supported"
    return _attention(config) or _rope(config)


def _attention(config: Mapping[str, Any]) -> str | None:
    kinds = set(map(str, config.get("layer_types") or []))
    if kinds and kinds != {_FULL}:
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


def _rope(config: Mapping[str, Any]) -> str | None:
    kinds = {str(kind) for table in _rope_tables(config) for kind in (table.get("rope_type"), table.get("type"))}
    moving = sorted(kinds & _MOVING_ROPE)
    if not moving:
        return None
    return f"{_title(config)}: positions of type {moving[0]} change with the length of the longest conversation"


def _rope_tables(config: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    """Under its old name and its new one, which may have a table for each type of layer."""
    for name in ("rope_scaling", "rope_parameters"):
        table: object = config.get(name)
        if isinstance(table, Mapping):
            settings = cast("Mapping[str, Any]", table)
            yield settings
            yield from (cast("Mapping[str, Any]", inner) for inner in settings.values() if isinstance(inner, Mapping))


def needs_foreign_code(config: Mapping[str, Any]) -> str | None:
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


def architectures(config: Mapping[str, Any]) -> list[str]:
    named: object = config.get("architectures")
    return [str(name) for name in cast("list[object]", named)] if isinstance(named, list | tuple) else []


def _title(config: Mapping[str, Any]) -> str:
    return ", ".join(architectures(config)) or str(config.get("model_type", "the model"))
