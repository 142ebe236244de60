"""Where a model is: `policy.model` as a folder. Torch is not needed to find out."""

from __future__ import annotations

import json
from pathlib import Path

from isentrope.errors import EngineError
from isentrope.policy.hub import cached_folder, download, hub_name

POCKET = Path(__file__).parent / "pocket"
EXPECTED = (
    "expected pocket, new, smollm2, a model folder with a config.json, a GGUF file, a run folder, or a name on the "
    "Hugging Face hub such as Qwen/Qwen2.5-0.5B-Instruct"
)


def find_folder(model: str) -> Path:
    """The folder that `policy.model` means. What is not here yet is fetched and converted, once."""
    return present_folder(model) or _fetched(model)


def present_folder(model: str) -> Path | None:
    """The folder, if nothing has to be fetched or converted first; None if something has; an error if it is nothing."""
    if model == "pocket":
        return POCKET
    if model == "smollm2":
        from isentrope.policy.smollm2 import converted

        return converted()
    path = Path(model).expanduser()
    if path.is_file():
        return _converted(path, model)
    if path.is_dir():
        return _in_folder(path, model)
    name = hub_name(model)
    if name is None or model.endswith(".gguf"):
        raise EngineError(f"policy.model = {model!r}: {EXPECTED}; there is no such file or folder")
    return cached_folder(*name)


def _fetched(model: str) -> Path:
    if model == "smollm2":
        from isentrope.policy.smollm2 import smollm2_folder

        return smollm2_folder()
    path, name = Path(model).expanduser(), hub_name(model)
    if path.is_file() or name is None:
        from isentrope.policy.gguf import convert

        return convert(path)
    return download(*name)


def _converted(file: Path, model: str) -> Path | None:
    from isentrope.policy.gguf import NOTE, converted_folder

    if file.suffix.lower() != ".gguf":
        raise EngineError(f"policy.model = {model!r} is a file; {EXPECTED}")
    folder = converted_folder(file)
    return folder if (folder / NOTE).is_file() else None


def _in_folder(folder: Path, model: str) -> Path:
    """A model folder itself, or a run's best or last checkpoint."""
    if (folder / "config.json").is_file() or (folder / "adapter_config.json").is_file():
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
    packed = sorted(folder.glob("*.gguf"))
    if packed:
        raise EngineError(f"policy.model = {model!r} is a folder of GGUF files: give one of them, e.g. {packed[0]}")
    raise EngineError(f"policy.model = {model!r}: {EXPECTED}; that folder is none of these")
