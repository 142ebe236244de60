"""LoRA: a model whose weights stay as they are, and small matrices beside its linear layers that learn (PEFT).

The adapters are always float32, whatever the base is held in: they are a hundredth of the weights, so it costs next to
no memory, small updates are not lost in them, and what a checkpoint holds is exactly what learns.

A folder with adapters has PEFT's own two files and `base.json`, which says on which model they stand:
    adapter_config.json   adapter_model.safetensors   base.json   and the tokenizer
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from safetensors import SafetensorError
from safetensors.torch import load_file  # pyright: ignore[reportUnknownVariableType]
from torch import Tensor, nn

from isentrope.config.schema import PolicySettings
from isentrope.core.errors import ConfigError, EngineError
from isentrope.models.lora.model import (
    CONFIG,
    LEARNING,
    REFERENCE,
    WEIGHTS,
    Base,
    LoraModel,
    ReferenceView,
    peft,
    root_of,
)
from isentrope.models.policy import Backbone, Policy


def is_adapter(folder: Path) -> bool:
    return (folder / CONFIG).is_file()


def with_adapters(policy: Policy, settings: PolicySettings, seed: int, base: Base) -> Policy:
    """The policy with adapters as the settings ask for: new ones, or those that it has already, which learn on."""
    if isinstance(policy.model, LoraModel):
        _must_match(policy.model, settings)
        return policy
    names = _linear_layers(policy.model)
    targets = sorted(settings.lora_targets) or names
    unknown = [name for name in targets if name not in names]
    if unknown:
        raise ConfigError(
            f"policy.lora_targets: the model has no linear layer called {', '.join(unknown)}; it has {', '.join(names)}"
        )
    config = peft().LoraConfig(
        r=settings.lora_rank, lora_alpha=settings.lora_alpha, lora_dropout=0.0, bias="none", target_modules=targets
    )
    model = LoraModel(policy.model, config, base.of(policy.module))
    model.draw(seed)
    model.eval()
    return replace(policy, model=model)


def load_adapter(folder: Path, policy: Policy) -> Policy:
    """The adapters of a folder on their base, which has been loaded as `policy`."""
    base = Base.load(folder)
    base.must_be(policy.module)
    config, weights = _read(folder)
    model = LoraModel(policy.model, config, base)
    _fill(model, LEARNING, weights, folder)
    model.eval()
    return replace(policy, model=model)


def reference_of(policy: Policy, folder: Path) -> Policy:
    """The reference of a run that learns adapters: the model with those that the run began with, kept in `folder`.
    Where they had learnt nothing yet, that is the model without any."""
    model = policy.model
    assert isinstance(model, LoraModel)
    config, weights = _read(folder)
    if any(bool(weight.any()) for name, weight in weights.items() if "lora_B" in name):
        model.tuner.add_adapter(REFERENCE, config)
        _fill(model, REFERENCE, weights, folder)
        model.tuner.set_adapter(LEARNING)
        model.settle()
        model.eval()
    return replace(policy, model=cast("Backbone", ReferenceView(model)))


def merged(policy: Policy) -> Policy:
    """The policy with its adapters added to the weights, as one plain model; one without adapters stays as it is."""
    model = policy.model
    if not isinstance(model, LoraModel):
        return policy
    model.tuner.merge_and_unload()
    cast("nn.Module", model.inner).requires_grad_(True)
    return replace(policy, model=model.inner)


def _linear_layers(model: Backbone) -> list[str]:
    """The names, each without its path, of the layers that may get adapters: all linear ones but the head."""
    head, found = model.head_weight(), set[str]()
    for name, layer in cast("Iterable[tuple[str, nn.Module]]", root_of(model).named_modules()):
        if (isinstance(layer, nn.Linear) or type(layer).__name__ == "Conv1D") and layer.weight is not head:
            found.add(name.rsplit(".", 1)[-1])
    return sorted(found)


def _must_match(model: LoraModel, settings: PolicySettings) -> None:
    config = model.tuner.peft_config[LEARNING]
    targets = set(settings.lora_targets) or set(config.target_modules)
    have = {"lora_rank": config.r, "lora_alpha": float(config.lora_alpha), "lora_targets": set(config.target_modules)}
    want = {"lora_rank": settings.lora_rank, "lora_alpha": settings.lora_alpha, "lora_targets": targets}
    for name, value in have.items():
        if value != want[name]:
            raise ConfigError(
                f"policy.{name} = {want[name]}, but policy.model has adapters with {value}, which would learn on. Set "
                f"the same, or add them to the weights first with `isentrope export` and begin new ones on the result"
            )


def _read(folder: Path) -> tuple[Any, dict[str, Tensor]]:
    try:
        config = peft().LoraConfig.from_pretrained(str(folder))
        config.inference_mode, config.base_model_name_or_path = False, None
        return config, load_file(folder / WEIGHTS)
    except (OSError, ValueError, TypeError, KeyError, SafetensorError) as error:
        raise EngineError(f"cannot read the adapters in {folder}: {error}") from error


def _fill(model: LoraModel, name: str, weights: dict[str, Tensor], folder: Path) -> None:
    have = model.adapters(name)
    if {key: value.shape for key, value in have.items()} != {key: value.shape for key, value in weights.items()}:
        raise EngineError(f"the adapters in {folder} do not fit their base model {model.base.name}")
    for key, value in have.items():
        value.data.copy_(weights[key])
    model.settle()
