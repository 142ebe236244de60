"""Models by their name on the Hugging Face hub: `organisation/name`, or `organisation/name@revision`.

What was downloaded once is used without asking the hub again, so a run repeats offline. Only weights in safetensors,
settings and tokenizer files are fetched: no pickles, no code.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from isentrope.core.command import command
from isentrope.core.errors import EngineError
from isentrope.models.memory import gib
from isentrope.models.sources.cache import expanded, library
from isentrope.models.sources.catalogue import has_tokenizer, weight_shapes

WANTED = [
    "config.json", "generation_config.json", "*.safetensors", "*.safetensors.index.json", "tokenizer*", "vocab.*",
    "merges.txt", "special_tokens_map.json", "added_tokens.json", "chat_template*", "README.md", "LICENSE*",
]  # fmt: skip
SECONDS = 10  # to wait for the hub's first answer
_NAME = re.compile(r"([A-Za-z0-9][\w.-]{0,95}/[\w.-]{1,96})(?:@([\w./-]{1,200}))?")


def hub_name(text: str) -> tuple[str, str] | None:
    """(repository, revision) of a name on the hub; None where `text` cannot be one."""
    match = _NAME.fullmatch(text)
    return None if not match or ".." in text or "--" in text else (match[1], match[2] or "main")


def hub_cache() -> Path:
    """Where huggingface_hub keeps what it downloaded."""
    if os.environ.get("HF_HUB_CACHE"):
        return expanded(os.environ["HF_HUB_CACHE"], "HF_HUB_CACHE")
    home = os.environ.get("HF_HOME") or f"{os.environ.get('XDG_CACHE_HOME') or '~/.cache'}/huggingface"
    return expanded(home, "HF_HOME") / "hub"


def cached_folder(repository: str, revision: str) -> Path | None:
    """The downloaded copy, if it is whole."""
    base = hub_cache() / f"models--{repository.replace('/', '--')}"
    try:
        commit = (base / "refs" / revision).read_text().strip()
    except OSError:
        commit = revision  # a commit's own name has no entry under refs
    folder = base / "snapshots" / commit
    return folder if commit and _whole(folder) else None


def cached_models() -> Iterator[tuple[str, Path]]:
    """(name, folder) of every model that was downloaded whole: its main revision, or the one that is there."""
    for base in sorted(hub_cache().glob("models--*--*")):
        name = base.name.removeprefix("models--").replace("--", "/", 1)
        if main := cached_folder(name, "main"):
            yield name, main
            continue
        found = [folder for folder in sorted((base / "snapshots").glob("*")) if _whole(folder)]
        yield from ((f"{name}@{folder.name}", folder) for folder in found)


def _whole(folder: Path) -> bool:
    if not (folder / "config.json").is_file() or not has_tokenizer(folder):
        return False
    with suppress(EngineError):
        return bool(weight_shapes(folder))
    return False


def download(repository: str, revision: str, endpoint: str | None = None) -> Path:
    """Fetch a model into huggingface_hub's own cache, where other tools find it too."""
    hub = library("huggingface_hub", "models from the hub")
    name = repository if revision == "main" else f"{repository}@{revision}"
    try:
        asked = {"revision": revision, "files_metadata": True, "timeout": SECONDS}
        info = hub.HfApi(endpoint=endpoint).model_info(repository, **asked)
        sizes = {str(file.rfilename): int(file.size or 0) for file in info.siblings}
        _check_files(name, sizes)
        total = sum(size for file, size in sizes.items() if file.endswith(".safetensors"))
        print(f"downloading {name}, {gib(total)}, into {hub_cache()}", file=sys.stderr)
        place = {"cache_dir": hub_cache(), "etag_timeout": SECONDS, "endpoint": endpoint}
        return Path(hub.snapshot_download(repository, revision=revision, allow_patterns=WANTED, **place))
    except EngineError:
        raise
    except Exception as error:  # each of its versions has its own set of network errors
        raise EngineError(_explain(name, error)) from error


def _check_files(name: str, files: dict[str, int]) -> None:
    """Before gigabytes are fetched."""
    if any(file.endswith(".safetensors") for file in files):
        return
    if packed := [file for file in files if file.endswith(".gguf")]:
        raise EngineError(f"{name} holds GGUF files: download one, e.g. {packed[0]}, and give its path as policy.model")
    pickles = [file for file in files if file.endswith((".bin", ".pt", ".pth"))]
    reason = f"only as pickle ({pickles[0]}), which is not loaded" if pickles else "not at all"
    raise EngineError(f"{name} has its weights {reason}; expected *.safetensors: look for another copy of the model")


def _explain(name: str, error: Exception) -> str:
    kind, first = type(error).__name__, (str(error).strip().splitlines() or [""])[0]
    if "Gated" in kind:
        return f"{name} asks you to accept its licence: do so on its page, log in with `hf auth login`, and try again"
    if "RevisionNotFound" in kind:
        return f"{name}: there is no such revision on the hub"
    if "RepositoryNotFound" in kind:
        return (
            f"{name}: there is no such folder here, and the hub has no such model, or it is private: check the name, "
            "or log in with `hf auth login`"
        )
    return (
        f"there is no folder {name} here; {name} is not in {hub_cache()} and the hub could not be reached "
        f"({kind}: {first}); download it where there is a network, then give its folder in place of the name, "
        f"or see what is here: {command('models')}"
    )
