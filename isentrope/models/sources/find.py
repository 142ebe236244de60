"""Finds the folder that `policy.model` names, and lists the models that can be used here; does not import torch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from isentrope.config.suggest import nearest
from isentrope.core.command import command
from isentrope.core.errors import EngineError, RunError
from isentrope.core.needs import NOTHING, Needs, install_command
from isentrope.models.sources import smollm2
from isentrope.models.sources.cache import cache_folder, expanded
from isentrope.models.sources.catalogue import Facts, has_tokenizer, read_config, read_facts, unsupported
from isentrope.models.sources.gguf import NOTE, convert, converted_folder, gguf_facts
from isentrope.models.sources.hub import cached_folder, cached_models, download, hub_name
from isentrope.runs.checkpoints import best_step, kept_checkpoints
from isentrope.runs.layout import CHECKPOINTS, CONFIG, POLICY

_SETTING = "policy.model = "
POCKET = Path(__file__).parents[1] / "pocket"
OWN_FOLDERS = ("runs", "models")  # where runs and models are kept, as all examples have it
OWN = ("pocket", "new", "smollm2")  # names that we give ourselves
EXPECTED = (
    "expected pocket, new, smollm2, a model folder with a config.json, a GGUF file, a run folder, or a name on the "
    "Hugging Face hub such as Qwen/Qwen2.5-0.5B-Instruct"
)
READY = "ready"


def find_folder(model: str, setting: str = _SETTING) -> Path:
    """The folder that `policy.model` means. What is not here yet is fetched and converted, once.

    `setting` stands before the model's name in errors: nothing where the name is a command's argument.
    """
    if found := present_folder(model, setting):
        return found
    if model == "smollm2":
        return smollm2.smollm2_folder()
    path, name = local_path(model), hub_name(model)
    return convert(path) if path.is_file() or name is None else download(*name)


def present_folder(model: str, setting: str = _SETTING) -> Path | None:
    """The folder, if nothing has to be fetched or converted first; None if something has; an error if it is nothing."""
    if model == "pocket":
        return POCKET
    if model == "smollm2":
        return smollm2.converted()
    path, named = local_path(model), setting + repr(model)
    if path.is_file():
        if path.suffix.lower() != ".gguf":
            raise EngineError(f"{named} is a file; {EXPECTED}")
        folder = converted_folder(path)
        return folder if (folder / NOTE).is_file() else None
    if path.is_dir():
        return _in_folder(path, named)
    name = hub_name(model)
    if name is None or model.endswith(".gguf"):
        here = [path.name for path in sorted(Path().glob("*")) if (path / CONFIG).is_file()]  # runs
        guess = nearest(model, [*OWN, *here]) if "/" not in model else None
        hint = f"; did you mean {guess}?" if guess else ""
        raise EngineError(f"{named}: {EXPECTED}; there is no such file or folder{hint}")
    found, owner = cached_folder(*name), model.split("/")[0]
    if found is None and (Path(owner).is_dir() or owner in OWN_FOLDERS):
        # a slip of the pen in a path must not become a download
        beside = [path.as_posix() for path in sorted(Path(owner).glob("*")) if path.is_dir()]
        guess = nearest(model, beside) if beside else None
        there = f"though there is one called {owner}" if Path(owner).is_dir() else f"and none called {owner}"
        raise EngineError(
            f"{named}: there is no folder {model} here, {there}{f'; did you mean {guess}?' if guess else '.'} A model "
            f"on the hub that has this name is fetched from another folder: {command('models', model, '--get')}"
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


def base_folder(folder: Path) -> Path:
    """The model that adapters stand on; a model folder is its own."""
    if not (folder / "adapter_config.json").is_file():
        return folder
    from isentrope.models.lora import Base

    base = Base.load(folder)
    try:
        found = Path(base.folder) if Path(base.folder).is_dir() else present_folder(base.name)
    except (OSError, ValueError) as error:  # no path at all
        raise EngineError(f"{folder} has adapters on {base.folder[:80]!r}, which is no folder ({error})") from error
    if found is None:  # the word of a folder is not enough to fetch something
        get = command("models", base.name, "--get")
        raise EngineError(f"{folder} has adapters on {base.name}, which is not here; if you trust it, fetch it: {get}")
    if (found / "adapter_config.json").is_file():
        raise EngineError(f"{folder} has adapters that stand on other adapters, {found}; only a model can carry them")
    return found


@dataclass(frozen=True)
class Entry:
    name: str  # as policy.model takes it
    state: str
    facts: Facts | None
    problem: str = ""


def available() -> Iterator[Entry]:
    """Everything that is found without a network; a broken folder is listed with what is wrong with it."""
    yield _entry("pocket", POCKET)
    yield Entry("new", "random weights", None)
    ours = smollm2.converted()
    yield _entry("smollm2", ours) if ours else Entry("smollm2", _smollm2_state(), smollm2.FACTS)
    for folder in sorted((cache_folder() / "converted").glob("[!.]*")):
        if folder != ours and (folder / NOTE).is_file():
            yield _entry(str(folder), folder)
    for name, folder in cached_models():
        yield _entry(name, folder)


def _entry(name: str, folder: Path) -> Entry:
    try:
        return Entry(name, READY, read_facts(folder), _problem(folder))
    except EngineError as error:
        return Entry(name, "broken", None, str(error))


def _problem(folder: Path) -> str:
    """Why a folder that can be read cannot be a policy; empty if it can."""
    if not has_tokenizer(folder):
        return "it has no tokenizer; copy the model's tokenizer files into it"
    return unsupported(read_config(folder)) or ""


def find_facts(name: str, get: bool) -> tuple[Path | None, Facts, str]:
    """(folder, facts, state) of one model; with `get` it is fetched and converted first, else looked at as it is."""
    if name == "new":
        raise EngineError(
            "new is the pocket model's shape with random weights, made when a run begins: policy.layers, policy.width "
            "and policy.heads say how large; isentrope models pocket shows the shape it has by default"
        )
    folder = find_folder(name) if get else present_folder(name)
    if folder is not None:
        below = base_folder(folder)
        problem = _problem(below)
        state = f"cannot be used: {problem}" if problem else READY
        return folder, read_facts(below), state if below == folder else f"{state}; adapters on {below}"
    if name == "smollm2":
        return None, smollm2.FACTS, _smollm2_state()
    file = local_path(name)
    if file.is_file():
        return None, gguf_facts(file), "a GGUF file, converted on first use, or now with --get"
    raise EngineError(
        f"{name} is not in the Hugging Face cache, and there is no folder {name} here; "
        f"{command('models', name, '--get')} downloads it from the hub"
    )


def model_needs(model: str, adapters: bool = False) -> Needs:
    """What reading the model takes, before anything is fetched; nothing where it cannot be found, which its loader says
    if it needs it. `adapters` are to be learnt on it."""
    if model in ("pocket", "new"):
        return Needs("hf", ("peft",)) if adapters else NOTHING
    try:
        folder = present_folder(model)
    except EngineError:
        return NOTHING
    packed = folder is None and (model == "smollm2" or local_path(model).is_file())
    foreign = folder is None or not (folder / "pocket_tokens.json").is_file()
    modules = [*(["transformers"] if foreign else []), *(["gguf", "accelerate"] if packed else [])]
    on_adapters = folder is not None and (folder / "adapter_config.json").is_file()
    modules += ["peft"] if adapters or on_adapters else []
    return Needs("smollm2" if model == "smollm2" and not adapters else "hf", tuple(modules))


def _smollm2_state() -> str:
    if not readers():
        return f"needs {install_command('smollm2')}"
    return "here, converted on first use" if smollm2.installed_file() else "fetched on first use (94 MiB)"


def readers() -> str:
    """The packages that read real models, with their versions; empty if one is missing."""
    try:
        return ", ".join(f"{name} {metadata.version(name)}" for name in ("transformers", "gguf", "accelerate"))
    except metadata.PackageNotFoundError:
        return ""
