"""Which model a set of adapters stands on, and whether it is still the same one."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from torch import nn

from isentrope.errors import EngineError

FILE = "base.json"


@dataclass(frozen=True)
class Base:
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
