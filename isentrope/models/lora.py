"""LoRA: a model whose weights stay as they are, and small matrices beside its linear layers that learn (PEFT).

The adapters are always float32, whatever the base is held in: they are a hundredth of the weights, so it costs next to
no memory, small updates are not lost in them, and what a checkpoint holds is exactly what learns. The reference is the
same model without them.

A folder with adapters has PEFT's own two files and `base.json`, which says on which model they stand:
    adapter_config.json   adapter_model.safetensors   base.json   and the tokenizer
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save  # pyright: ignore[reportUnknownVariableType]
from torch import Tensor, nn

from isentrope.config.schema import PolicySettings
from isentrope.core.errors import ConfigError, EngineError, writing
from isentrope.core.limits import NOTE_BYTES, check_is_file, read_json
from isentrope.core.seeding import stream_key
from isentrope.models.policy import Backbone, Policy
from isentrope.models.sources.cache import library

LEARNING, REFERENCE = "default", "reference"  # names of the adapters within the model
FILE, WEIGHTS, CONFIG = "base.json", "adapter_model.safetensors", "adapter_config.json"


@dataclass(frozen=True)
class Base:
    """The model that a set of adapters stands on, and what tells whether it is still the same one."""

    name: str  # as policy.model named it
    folder: str  # where it was found
    fingerprint: str = ""

    def save(self, folder: Path) -> None:
        (folder / FILE).write_text(json.dumps(asdict(self), indent=2) + "\n")

    @classmethod
    def load(cls, folder: Path) -> Base:
        try:
            record = read_json(folder / FILE, NOTE_BYTES, found=False)
            return cls(str(record["name"]), str(record["folder"]), str(record["fingerprint"]))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise EngineError(
                f"{folder} has adapters, but its {FILE}, which says on which model they stand, cannot be read: {error}"
            ) from error


@torch.no_grad()
def fingerprint(model: nn.Module) -> str:
    """Of names, shapes and values as bfloat16 has them: the same in whatever precision and on whatever device the
    model is held. Of each tensor the sum of all bits, which no single change leaves as it was, and a sample."""
    digest = hashlib.sha256()
    for name, parameter in sorted(model.named_parameters()):
        bits = parameter.detach().to(torch.bfloat16).flatten().view(torch.int16)
        sample = bits[:: max(1, len(bits) // 1024)].cpu().numpy().tobytes()
        digest.update(f"{name} {tuple(parameter.shape)} {int(bits.sum(dtype=torch.int64))}".encode() + sample)
    return digest.hexdigest()


class LoraModel(nn.Module):
    """A backbone with adapters inside of its linear layers."""

    def __init__(self, inner: Backbone, config: Any, base: Base) -> None:
        super().__init__()
        self.inner, self.base = inner, base
        self.hidden, self.head_weight = inner.hidden, inner.head_weight
        self.compute_twice = inner.compute_twice
        self.extend, self.extend_all = inner.extend, inner.extend_all
        with torch.random.fork_rng(devices=[]):  # PEFT draws numbers of its own, which are replaced
            self.tuner: Any = peft().get_peft_model(root_of(inner), config)
        self.adapter: str | None = LEARNING  # what model_adapter.py takes for the layers' own
        self.settle()

    @property
    def computes_twice(self) -> bool:
        return self.inner.computes_twice

    def settle(self) -> None:
        """Adapters on the device of the model, in float32; only those that learn have a gradient."""
        for name, parameter in self.named_parameters():
            if "lora_" in name:
                parameter.data = parameter.data.to(self.head_weight().device, torch.float32)
            parameter.requires_grad_(f".{LEARNING}." in name and "lora_" in name)
        self.eval()

    def adapters(self, name: str = LEARNING) -> dict[str, Tensor]:
        """The adapter's weights by PEFT's names."""
        return peft().get_peft_model_state_dict(self.tuner, adapter_name=name, save_embedding_layers=False)

    def draw(self, seed: int) -> None:
        """Begin: A uniform within ±1/√inputs, B zero, so that the model is at first what it was without them."""
        generator = torch.Generator().manual_seed(stream_key(seed, "lora") % 2**63)
        for name, weight in sorted(self.adapters().items()):
            new = torch.zeros(weight.shape)
            if "lora_A" in name:
                new.uniform_(-(weight.shape[1] ** -0.5), weight.shape[1] ** -0.5, generator=generator)
            weight.data.copy_(new)

    def fill(self, name: str, weights: dict[str, Tensor], folder: Path) -> None:
        """Give an adapter the weights that were read from a folder."""
        have = self.adapters(name)
        if {key: value.shape for key, value in have.items()} != {key: value.shape for key, value in weights.items()}:
            raise EngineError(f"the adapters in {folder} do not fit their base model {self.base.name}")
        for key, value in have.items():
            value.data.copy_(weights[key])
        self.settle()

    @contextmanager
    def as_reference(self) -> Generator[None]:
        """Within this the model is the one that the run began with."""
        if REFERENCE not in self.tuner.peft_config:
            with self.tuner.disable_adapter():
                yield
            return
        self.tuner.set_adapter(REFERENCE)
        try:
            yield
        finally:
            self.tuner.set_adapter(LEARNING)
            self.settle()

    def save(self, folder: Path) -> None:
        config: dict[str, Any] = self.tuner.peft_config[LEARNING].to_dict()
        plain = {key: sorted(cast("set[str]", v)) if isinstance(v, set) else v for key, v in config.items()}
        plain |= {"inference_mode": True, "base_model_name_or_path": self.base.folder}
        weights = {name: weight.detach().cpu().contiguous() for name, weight in sorted(self.adapters().items())}
        with writing(folder):
            (folder / CONFIG).write_text(json.dumps(plain, indent=2, default=str) + "\n")
            (folder / WEIGHTS).write_bytes(save(weights, metadata={"format": "pt"}))
            self.base.save(folder)


class ReferenceView:
    """The policy's own model as it was at the beginning of the run: no second copy of its weights."""

    def __init__(self, model: LoraModel) -> None:
        self.model = model

    @property
    def adapter(self) -> str | None:
        """The adapters that the run began with, or none. Who asks is about to compute with the layers' parts."""
        _must_not_learn()
        return REFERENCE if REFERENCE in self.model.tuner.peft_config else None

    def hidden(self, *rows: Tensor) -> Tensor:
        _must_not_learn()
        with self.model.as_reference():
            return self.model.hidden(*rows)

    def __reduce__(self) -> tuple[Any, ...]:  # before it has a model, there is nothing to ask for the rest
        return ReferenceView, (self.model,)

    def __getattr__(self, name: str) -> Any:  # the rest is the model's
        return getattr(self.model, name)


def _must_not_learn() -> None:
    if torch.is_grad_enabled():
        raise EngineError("the reference shares the policy's weights: it can be scored, not trained")


@torch.no_grad()
def plain_weights(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Names and weights as a model without adapters has them, adapters added on the way: one matrix at a time."""
    from peft.tuners.lora import Linear

    for name, parameter in model.named_parameters():
        if "lora_" in name:
            continue
        if name.endswith(".base_layer.weight"):
            layer = model.get_submodule(name.removesuffix(".base_layer.weight"))
            assert isinstance(layer, Linear)
            whole = parameter.float() + layer.get_delta_weight(LEARNING)
            yield name.replace(".base_layer.", "."), whole.to(parameter.dtype)
        else:
            yield name.replace(".base_layer.", "."), parameter


def root_of(model: Backbone) -> nn.Module:
    """Where PEFT begins: the transformers model inside, which gives adapters the names that others expect."""
    return cast("nn.Module", getattr(model, "lm", model))


def peft() -> Any:
    return library("peft", "adapters (policy.lora_rank)", "PEFT")


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
    model = LoraModel(policy.model, config, replace(base, fingerprint=fingerprint(policy.module)))
    model.draw(seed)
    return replace(policy, model=model)


def load_adapter(folder: Path, policy: Policy) -> Policy:
    """The adapters of a folder on their base, which has been loaded as `policy`."""
    base = Base.load(folder)
    if fingerprint(policy.module) != base.fingerprint:
        raise EngineError(
            f"the adapters were trained on {base.name} ({base.folder}), whose weights are not the same any more; "
            "adapters mean nothing on another model: put the old weights back"
        )
    config, weights = _read(folder)
    _check_fit(policy.model, config, weights, folder)
    model = LoraModel(policy.model, config, base)
    model.fill(LEARNING, weights, folder)
    return replace(policy, model=model)


def reference_of(policy: Policy, folder: Path) -> Policy:
    """The reference of a run that learns adapters: the model with those that the run began with, kept in `folder`.
    Where they had learnt nothing yet, that is the model without any."""
    model = policy.model
    assert isinstance(model, LoraModel)
    config, weights = _read(folder)
    if any(bool(weight.any()) for name, weight in weights.items() if "lora_B" in name):
        model.tuner.add_adapter(REFERENCE, config)
        model.fill(REFERENCE, weights, folder)
        model.tuner.set_adapter(LEARNING)
        model.settle()
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


# Settings of PEFT that change what is computed, name code, or take memory: ours have none of them.
_OTHER_KINDS = (
    "use_dora", "use_rslora", "use_qalora", "lora_bias", "rank_pattern", "alpha_pattern", "modules_to_save",
    "layer_replication", "megatron_config", "auto_mapping", "trainable_token_indices", "target_parameters",
    "arrow_config", "lora_dropout",
)  # fmt: skip


def _read(folder: Path) -> tuple[Any, dict[str, Tensor]]:
    """Settings and weights of adapters. Nothing but rank, scale and names is taken from the file: PEFT would import
    what it names."""
    try:
        check_is_file(folder / WEIGHTS, found=False)
        given: Any = read_json(folder / CONFIG, NOTE_BYTES, found=False)
        table = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
        weights = load_file(folder / WEIGHTS)
        others = [name for name in _OTHER_KINDS if table.get(name)]
        if others or table.get("peft_type") != "LORA" or table.get("bias", "none") != "none":
            raise ValueError(f"they are of a kind that is not made here ({', '.join(others) or 'no LoRA'})")
        rank: Any = table["r"]
        scale: Any = table["lora_alpha"]
        targets: Any = table["target_modules"]
        if not isinstance(targets, list) or not all(isinstance(name, str) for name in cast("list[object]", targets)):
            raise ValueError(f"target_modules is {str(cast('object', targets))[:40]!r}; expected a list of names")
        if rank not in {weight.shape[0] for name, weight in weights.items() if "lora_A" in name}:
            raise ValueError(f"r is {str(rank)[:40]}, which is not the rank of their weights")
        if isinstance(scale, bool) or not isinstance(scale, int | float) or not 0 < scale < 1e6:
            raise ValueError(f"lora_alpha is {str(scale)[:40]}; expected a number above 0")
        fan = bool(table.get("fan_in_fan_out"))
        how: dict[str, Any] = {"r": rank, "lora_alpha": scale, "target_modules": targets, "fan_in_fan_out": fan}
        return peft().LoraConfig(lora_dropout=0.0, bias="none", **how), weights
    except (OSError, ValueError, TypeError, LookupError, SafetensorError) as error:
        raise EngineError(f"cannot read the adapters in {folder}: {error}") from error


def _check_fit(model: Backbone, config: Any, weights: dict[str, Tensor], folder: Path) -> None:
    """The weights in the file are those of the layers that it names, before there is memory for more."""
    expected: dict[str, tuple[int, ...]] = {}
    for name, layer in cast("Iterable[tuple[str, nn.Module]]", root_of(model).named_modules()):
        weight: Any = getattr(layer, "weight", None)
        if name.rsplit(".", 1)[-1] in config.target_modules and isinstance(weight, Tensor):
            out, into = weight.shape if isinstance(layer, nn.Linear) else weight.shape[::-1]
            expected[f"base_model.model.{name}.lora_A.weight"] = (config.r, into)
            expected[f"base_model.model.{name}.lora_B.weight"] = (out, config.r)
    if expected != {name: tuple(weight.shape) for name, weight in weights.items()}:
        raise EngineError(f"the adapters in {folder} do not fit their base model")
