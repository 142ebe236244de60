"""Writes the list of parts (SBOM) of the wheel, and of licences: `make lock` runs it after tools/lock.py.

    python -m tools.sbom            # locks/licences.toml and locks/isentrope.cdx.json
    python -m tools.sbom --check    # would anything change? Nothing is written

In CycloneDX's JSON: the packages that the wheel with the extra [hf] installs, from the locks, and the files of others
that it ships or fetches. The same locks give the same bytes: there is no date and no random number in it. Licences are
what packages say in their metadata; one that is not installed here is asked from the index.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
import tomllib
import urllib.request
from collections.abc import Iterable
from email.message import Message
from importlib import metadata
from pathlib import Path
from typing import Any

from isentrope import __version__
from isentrope.models.sources import smollm2
from isentrope.worlds.search_qa import minilm
from tools.lock import LOCKS, ROOT, read

OF_THE_WHEEL = ("run", "torch", "cuda")
LICENCED = ("build", "torch", "cuda", "run", "site", "dev")
LICENCES, SBOM = LOCKS / "licences.toml", LOCKS / "isentrope.cdx.json"
UPLOT = ROOT / "isentrope" / "watch" / "static" / "vendor"
POCKET = ROOT / "isentrope" / "models" / "pocket" / "model.safetensors"

# what metadata says in words, as SPDX has it
_SPDX = {
    "apache": "Apache-2.0", "apache 2.0": "Apache-2.0", "apache license 2.0": "Apache-2.0", "mit license": "MIT",
    "apache license, version 2.0": "Apache-2.0", "apache 2.0 license": "Apache-2.0", "mit": "MIT",
    "apache software license": "Apache-2.0", "isc license": "ISC", "isc license (iscl)": "ISC", "psfl": "PSF-2.0",
    "3-clause bsd license": "BSD-3-Clause", "python software foundation license": "PSF-2.0",
    "mozilla public license 2.0 (mpl 2.0)": "MPL-2.0", "gpl-3.0+": "GPL-3.0-or-later", "lgpl v2.1": "LGPL-2.1-only",
    "the unlicense (unlicense)": "Unlicense", "bsd": "BSD (which one is not said)",
    "bsd license": "BSD (which one is not said)",
}  # fmt: skip
# where metadata says nothing of use: what the package's own licence file says
_READ = {
    "zss": "BSD-3-Clause", "openai-harmony": "Apache-2.0", "prime-pydantic-config": "Apache-2.0",
    "protobuf-py-ext": "not said", "cuda-toolkit": "not said (NVIDIA)", "nvidia-cudnn-cu13": "not said (NVIDIA)",
    "nvidia-nccl-cu13": "not said (NVIDIA)", "nvidia-nvshmem-cu13": "not said (NVIDIA)",
}  # fmt: skip


def split(pin: str) -> tuple[str, str]:
    name, _, version = pin.partition("==")
    return name, version


def licence_of(said: Message | dict[str, Any]) -> str:
    """One line from a package's metadata, or nothing."""
    get = said.get
    if expression := get("License-Expression") or get("license_expression"):
        return str(expression)
    kinds = said.get_all("Classifier") if isinstance(said, Message) else get("classifiers")
    named = [kind.split(" :: ")[-1] for kind in kinds or [] if re.match("License :: (?!OSI Approved$)", kind)]
    first = str(get("License") or get("license") or "").strip().partition("\n")[0].strip()
    short = first if len(first) < 60 and not re.match("unknown|copyright|license agreement|=", first.lower()) else ""
    if short.lower() in ("", "bsd") and named:
        return " AND ".join(dict.fromkeys(_SPDX.get(one.lower(), one) for one in named))
    return _SPDX.get(short.lower(), short)


def find_licence(name: str, known: dict[str, str]) -> str:
    if name in _READ:
        return _READ[name]
    try:
        found = licence_of(metadata.metadata(name))  # pyright: ignore[reportArgumentType]
    except metadata.PackageNotFoundError:
        found = known.get(name) or licence_of(_from_index(name))
    return found or known.get(name, "")


def _from_index(name: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"https://pypi.org/pypi/{name}/json", timeout=60) as answer:
        return json.load(answer)["info"]


def licences() -> dict[str, str]:
    known = tomllib.loads(LICENCES.read_text(encoding="utf-8")) if LICENCES.is_file() else {}
    names = {split(pin)[0] for lock in LICENCED for pin in read(lock)}
    return {name: find_licence(name, known) for name in sorted(names)}


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def parts_of_others() -> list[dict[str, Any]]:
    """What the wheel ships, or fetches when asked to, and pip knows nothing of."""
    version = re.search(r"\(v([\d.]+)\)", (UPLOT / "uPlot.iife.min.js").read_text(encoding="utf-8")[:200])
    assert version is not None
    uplot = f"pkg:npm/uplot@{version[1]}"
    minilm_sums, model = [minilm.SHA256["model.safetensors"]], "machine-learning-model"
    return [
        _part("library", "uPlot", version[1], "MIT", [sha256(UPLOT / "uPlot.iife.min.js")], uplot),
        _part(model, "pocket", __version__, "Apache-2.0", [sha256(POCKET)]),
        _part(model, "SmolLM2-135M-Instruct", smollm2.PACKAGE, "Apache-2.0", [smollm2.SHA256], optional=True),
        _part(model, "all-MiniLM-L6-v2", minilm.PACKAGE, "Apache-2.0", minilm_sums, optional=True),
    ]


def _part(
    kind: str,
    name: str,
    version: str,
    licence: str,
    digests: Iterable[str] = (),
    purl: str = "",
    optional: bool = False,
) -> dict[str, Any]:
    ref = purl or f"{name}@{version}"
    said = {"expression": licence} if re.fullmatch(r"[\w.\-+]+( (AND|OR|WITH) [\w.\-+]+)*", licence) else None
    part: dict[str, Any] = {"type": kind, "bom-ref": ref, "name": name, "version": version}
    part["licenses"] = [said or {"license": {"name": licence}}]
    if optional:
        part["scope"] = "optional"
    if digests:
        part["hashes"] = [{"alg": "SHA-256", "content": digest} for digest in digests]
    return part | ({"purl": purl} if purl else {})


def sbom(said: dict[str, str]) -> str:
    """As it stands in the file."""
    pins = sorted({pin: lock for lock in OF_THE_WHEEL for pin in read(lock)}.items())
    parts: list[dict[str, Any]] = []
    for pin, lock in pins:
        name, version = split(pin)
        part = _part("library", name, version, said[name], purl=f"pkg:pypi/{name}@{version}")
        parts.append(part | {"properties": [{"name": "isentrope:lock", "value": f"locks/{lock}.txt"}]})
    ours = _part("library", "isentrope", __version__, "Apache-2.0", purl=f"pkg:pypi/isentrope@{__version__}")
    whole = {
        "bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
        "metadata": {"component": ours}, "components": [*parts_of_others(), *parts],
    }  # fmt: skip
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def as_toml(said: dict[str, str]) -> str:
    head = "# What each locked package says its licence is. Written by `python -m tools.sbom`.\n"
    return head + "".join(f"{name} = {json.dumps(licence)}\n" for name, licence in said.items())


def main() -> None:
    parser = argparse.ArgumentParser(description="Writes the list of parts and of licences.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if anything would change")
    check = parser.parse_args().check
    said = licences()
    if unknown := [name for name, licence in said.items() if not licence]:
        sys.exit(f"no licence is known of {', '.join(unknown)}: read it, and name it in tools/sbom.py")
    texts = {LICENCES: as_toml(said), SBOM: sbom(said)}
    changed = [path for path, text in texts.items() if not path.is_file() or path.read_text("utf-8") != text]
    if check and changed:
        sys.exit(f"{', '.join(path.name for path in changed)}: the locks say otherwise; run python -m tools.sbom")
    for path in changed:
        path.write_text(texts[path], encoding="utf-8")


if __name__ == "__main__":
    main()
