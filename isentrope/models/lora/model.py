"""A model with LoRA adapters inside its linear layers; the reference is the same model without them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
from safetensors.torch import save  # pyright: ignore[reportUnknownVariableType]
from torch import Tensor, nn

from isentrope.core.errors import EngineError, writing
from isentrope.core.seeding import stream_key
from isentrope.models.policy import Backbone

FILE = "base.json"


@dataclass(frozen=True)
class Base:
    """The model that a set of adapters stands on, and whether it is still the same one."""

    name: str  # as policy.model named it
    folder: str  # where it was found
    fingerprint: str = ""

    def of(self, model: nn.Module) -> Base:
        return replace(self, fingerprint=fingerprint(model))

    def save(self, folder: Path) -> None:
        (folder / FILE).write_text(json.dumps(asdict(self), indent=2) + "\n")

    @classmethod
    def load(cls, folder: Path) -> Base:
        try:
            record = json.loads((folder / FILE).read_text())
            return cls(str(record["name"]), str(record["folder"]), str(record["fingerprint"]))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise EngineError(
                f"{folder} has adapters, but its {FILE}, which says on which model they stand, cannot be read: {error}"
            ) from error

    def must_be(self, model: nn.Module) -> None:
        if fingerprint(model) != self.fingerprint:
            raise EngineError(
                f"the adapters were trained on {self.name} ({self.folder}), whose weights are not the same any more; "
                "adapters mean nothing on another model: put the old weights back"
            )


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


LEARNING, REFERENCE = "default", "reference"  # names of the adapters within the model
WEIGHTS = "adapter_model.safetensors"
CONFIG = "adapter_config.json"


class LoraModel(nn.Module):
    """A backbone with adapters inside of its linear layers."""

    def __init__(self, inner: Backbone, config: Any, base: Base) -> None:
        super().__init__()
        self.inner, self.base = inner, base
        self.hidden, self.head_weight, self.compute_twice = inner.hidden, inner.head_weight, inner.compute_twice
        self.new_cache, self.extend = inner.new_cache, inner.extend
        with torch.random.fork_rng(devices=[]):  # PEFT draws numbers of its own, which are replaced
            self.tuner: Any = peft().get_peft_model(root_of(inner), config)
        self.settle()

    def settle(self) -> None:
        """Adapters on the device of the model, in float32; only those that learn have a gradient."""
        for name, parameter in self.named_parameters():
            if "lora_" in name:
                parameter.data = parameter.data.to(self.head_weight().device, torch.float32)
            parameter.requires_grad_(f".{LEARNING}." in name and "lora_" in name)

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

    def hidden(
        self, ids_BT: Tensor, positions_BT: Tensor, segments_BT: Tensor, parents_BT: Tensor | None = None
    ) -> Tensor:
        if torch.is_grad_enabled():
            raise EngineError("the reference shares the policy's weights: it can be scored, not trained")
        with self.model.as_reference():
            return self.model.hidden(ids_BT, positions_BT, segments_BT, parents_BT)

    def __getattr__(self, name: str) -> Any:  # the rest is the model's
        return getattr(self.model, name)


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
    try:
        import peft as library
    except ImportError as error:
        raise EngineError("adapters (policy.lora_rank) need PEFT: pip install 'isentrope[hf]'") from error
    return library
