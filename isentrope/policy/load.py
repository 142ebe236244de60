"""Find a policy by name or folder, and put it on a device."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from isentrope.config.schema import PolicySettings, RunSettings
from isentrope.errors import ConfigError, EngineError
from isentrope.policy.llama import Llama, Shape
from isentrope.policy.pocket_tokens import PocketTokens
from isentrope.policy.policy import Policy
from isentrope.seeding import stream_key

POCKET = Path(__file__).parent / "pocket"
LARGE = 50_000_000  # parameters from which bfloat16 pays on a GPU


def choose_device(name: str) -> torch.device:
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"run.device = {name!r} cannot be used here ({reason}); try auto or cpu") from error
    return device


def choose_dtype(name: str, device: torch.device, parameters: int) -> torch.dtype:
    """Small models gain nothing from bfloat16 and lose precision, so auto keeps them in float32 everywhere."""
    if name == "auto":
        return torch.bfloat16 if device.type == "cuda" and parameters >= LARGE else torch.float32
    return {"float32": torch.float32, "bfloat16": torch.bfloat16}[name]


def find_folder(model: str) -> Path:
    """The folder that `policy.model` means: the shipped one, a model folder, or a run's best or last checkpoint."""
    folder = POCKET if model == "pocket" else Path(model)
    if (folder / "config.json").is_file():
        return folder
    checkpoints = folder / "checkpoints"
    if checkpoints.is_dir():
        best = checkpoints / "best.json"
        if best.is_file():
            return checkpoints / str(json.loads(best.read_text())["name"]) / "policy"
        steps = sorted(checkpoints.glob("step-*"))
        if steps:
            return steps[-1] / "policy"
        raise EngineError(f"the run {folder} has no checkpoint yet")
    raise EngineError(
        f"policy.model = {model!r}: expected pocket, new, a model folder with a config.json, or a run folder; "
        f"{'there is no such folder' if not folder.exists() else 'that folder has neither'}"
    )


def new_model(settings: PolicySettings, vocabulary: int, seed: int) -> Llama:
    """The pocket shape with random weights."""
    shape = Shape(
        vocabulary=vocabulary,
        width=settings.width,
        layers=settings.layers,
        heads=settings.heads,
        kv_heads=max(1, settings.heads // 2),
        inner=settings.width * 3,
    )
    model = Llama(shape)
    model.initialise(torch.Generator().manual_seed(stream_key(seed, "policy") % 2**63))
    return model


def load_policy(settings: PolicySettings, run: RunSettings) -> Policy:
    device = choose_device(run.device)
    if settings.model == "new":
        tokens = PocketTokens.load(POCKET)
        model = new_model(settings, tokens.size, run.seed)
        return _placed(model, tokens, device, run.dtype)
    return load_folder(find_folder(settings.model), device, run.dtype)


def load_folder(folder: Path, device: torch.device, dtype: str) -> Policy:
    if (folder / "pocket_tokens.json").is_file():
        return _placed(Llama.load(folder), PocketTokens.load(folder), device, dtype)
    from isentrope.policy.hf_tokens import ChatTokens
    from isentrope.policy.hugging_face import HuggingFaceModel

    return _placed(HuggingFaceModel.load(folder), ChatTokens.load(folder), device, dtype)


def _placed(model: torch.nn.Module, dialect: object, device: torch.device, dtype: str) -> Policy:
    model.to(device).eval()
    count = sum(p.numel() for p in model.parameters())
    return Policy(model, dialect, device, choose_dtype(dtype, device, count))  # type: ignore[arg-type]
