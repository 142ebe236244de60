"""Finds the folder that `policy.model` names; does not import torch."""

from __future__ import annotations

from pathlib import Path

from isentrope.config.suggest import nearest
from isentrope.core.errors import EngineError, RunError
from isentrope.models.sources.cache import expanded
from isentrope.models.sources.hub import cached_folder, download, hub_name
from isentrope.runs.checkpoints import best_step, kept_checkpoints
from isentrope.runs.layout import CHECKPOINTS, POLICY

_SETTING = "policy.model = "
POCKET = Path(__file__).parents[1] / "pocket"
OWN = ("pocket", "new", "smollm2")  # names that we give ourselves
EXPECTED = (
    "expected pocket, new, smollm2, a model folder with a config.json, a GGUF file, a run folder, or a name on the "
    "Hugging Face hub such as Qwen/Qwen2.5-0.5B-Instruct"
)


def find_folder(model: str, setting: str = _SETTING) -> Path:
    """The folder that `policy.model` means. What is not here yet is fetched and converted, once.

    `setting` stands before the model's name in errors: nothing where the name is a command's argument.
    """
    return present_folder(model, setting) or _fetched(model)


def present_folder(model: str, setting: str = _SETTING) -> Path | None:
    """The folder, if nothing has to be fetched or converted first; None if something has; an error if it is nothing."""
    if model == "pocket":
        return POCKET
    if model == "smollm2":
        from isentrope.models.sources.smollm2 import converted

        return converted()
    path = local_path(model)
    if path.is_file():
        return _converted(path, setting + repr(model))
    if path.is_dir():
        return _in_folder(path, setting + repr(model))
    name = hub_name(model)
    if name is None or model.endswith(".gguf"):
        guess = nearest(model, OWN) if "/" not in model else None
        hint = f"; did you mean {guess}?" if guess else ""
        raise EngineError(f"{setting}{model!r}: {EXPECTED}; there is no such file or folder{hint}")
    found, owner = cached_folder(*name), model.split("/")[0]
    if found is None and Path(owner).is_dir():  # a slip of the pen in a path must not become a download
        raise EngineError(
            f"{setting}{model!r}: there is no folder {model} here, though there is one called {owner}. If a "
            f"model on the hub is meant, fetch it from elsewhere first: cd / && isentrope models {model} --get"
        )
    return found


def local_path(model: str) -> Path:
    """`policy.model` as a path, whether anything is there or not."""
    path = expanded(model, "policy.model")
    try:
        path.is_file()
    except OSError as error:  # too long to be a path, or in a folder that may not be read
        raise EngineError(f"policy.model = {model[:200]!r}: {error.strerror}; {EXPECTED}") from error
    return path


def _fetched(model: str) -> Path:
    if model == "smollm2":
        from isentrope.models.sources.smollm2 import smollm2_folder

        return smollm2_folder()
    path, name = local_path(model), hub_name(model)
    if path.is_file() or name is None:
        from isentrope.models.sources.gguf import convert

        return convert(path)
    return download(*name)


def _converted(file: Path, named: str) -> Path | None:
    from isentrope.models.sources.gguf import NOTE, converted_folder

    if file.suffix.lower() != ".gguf":
        raise EngineError(f"{named} is a file; {EXPECTED}")
    folder = converted_folder(file)
    return folder if (folder / NOTE).is_file() else None


def _in_folder(folder: Path, named: str) -> Path:
    """A model folder itself, or a run's best or last checkpoint."""
    if (folder / "config.json").is_file() or (folder / "adapter_config.json").is_file():
        return folder
    checkpoints = folder / CHECKPOINTS
    if checkpoints.is_dir():
        try:
            steps, best = kept_checkpoints(checkpoints), best_step(checkpoints)
        except RunError as error:
            raise EngineError(str(error)) from error
        if not steps:
            raise EngineError(f"the run {folder} has no checkpoint yet")
        return steps[max(steps) if best is None else best] / POLICY
    packed = sorted(folder.glob("*.gguf"))
    if packed:
        raise EngineError(f"{named} is a folder of GGUF files: give one of them, e.g. {packed[0]}")
    raise EngineError(f"{named}: {EXPECTED}; that folder is none of these")
