"""Writes the locks: every package that `make` installs, by version and SHA-256. `make lock` runs it.

    python tools/lock.py             # keep the versions that are locked, add what is new
    python tools/lock.py --upgrade   # the newest versions
    python tools/lock.py --check     # would anything change? Nothing is written

Each file in locks/ lists what the ones before it do not, for Linux, macOS and Windows and every Python from 3.11 on:

    build    what builds this package, and those that have no wheel
    cpu      torch built without CUDA, for indexes that have it
    torch    torch as PyPI has it
    cuda     what that needs besides on Linux
    run      this package with models in Hugging Face's format: make demo
    site     the docs as a site: make site
    dev      tests and every world: make test
    audit    the tools of make lock and make audit, in an environment of their own

Versions are chosen by uv, from the index that UV_DEFAULT_INDEX names (else PyPI).
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOCKS = ROOT / "locks"
TORCH = "torch==2.13.0"
BUILD = ("hatchling", "editables", "setuptools")  # editables: hatchling's, for pip install -e
AUDIT = ("uv", "pip-audit", "cyclonedx-python-lib[json-validation]")
SETS = {"run": ("hf",), "site": ("hf", "site"), "dev": ("dev",)}  # by the extras that they install
FILES = ("build", "cpu", "torch", "cuda", "run", "site", "dev", "audit")

# torch 2.13.0+cpu is on PyTorch's own index alone, https://download.pytorch.org/whl/cpu. The first hash was computed
# from the file; all four are the same in the public locks of several other projects.
TORCH_CPU = {
    "cp311-cp311-manylinux_2_28_x86_64": "6746dbcbeb526eb61330b76b41ff1b4eb848951103a892eeb080dfa2b264667b",
    "cp311-cp311-manylinux_2_28_aarch64": "84453b69508ec79902f899c5ed9495acb9e2bbe9fda5f1d5d6f19e3c3842e1a7",
    "cp312-cp312-manylinux_2_28_x86_64": "4ca4a9394b0c771238a4f73590fdbbc4debad85ed0fa63d026ae1b085da7d6e2",
    "cp312-cp312-manylinux_2_28_aarch64": "6f307c2c32d764ffc6ff6893b801fad6d4752f3e67966cb8abf1843427c02604",
}
HEAD = "# {name}: {about}. Written by `make lock`; do not edit.\n"

Pins = Mapping[str, str]
"""Requirements with their hashes, as they stand in a file, by `name==version`; one name may have several versions."""


def pins_of(text: str) -> dict[str, str]:
    """The requirements of a lock, by name and version."""
    blocks = re.findall(r"^(?P<pin>[a-z0-9][\w.\-]*==[^\s;\\]+)(?P<rest>.*(?:\n[ \t]+.*)*)", text, re.MULTILINE)
    return {pin: (pin + rest).strip() for pin, rest in blocks}


def read(name: str, folder: Path = LOCKS) -> dict[str, str]:
    return pins_of((folder / f"{name}.txt").read_text(encoding="utf-8"))


def hashes_of(block: str) -> list[str]:
    return re.findall(r"--hash=sha256:([0-9a-f]{64})\b", block)


def is_cuda(pin: str) -> bool:
    return pin.startswith(("nvidia-", "cuda-", "triton=="))


def resolve(arguments: Iterable[str], chosen: str = "", requirements: str = "") -> str:
    """What uv answers; `chosen` holds versions that it has to take."""
    import uv  # of the environment for audits

    with tempfile.TemporaryDirectory() as place:
        given, constraints = Path(place, "given.in"), Path(place, "constraints.txt")
        given.write_text(requirements, encoding="utf-8")
        constraints.write_text(chosen, encoding="utf-8")
        command = [
            uv.find_uv_bin(), "pip", "compile", "--quiet", "--no-config", "--universal", "--python-version", "3.11",
            "--no-header", "--no-annotate", "--generate-hashes", "--emit-build-options", "--constraint",
            str(constraints), *arguments, *([str(given)] if requirements else ["pyproject.toml"]),
        ]  # fmt: skip
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"uv found no set of versions:\n{done.stderr.strip()}")
    return done.stdout


def locked_versions(folder: Path = LOCKS) -> str:
    """As constraints, each with its own condition."""
    blocks = [
        block
        for name in FILES
        if (folder / f"{name}.txt").is_file() and name != "cpu"
        for block in read(name, folder).values()
    ]
    return "".join(sorted({re.split(r"\s*\\", block)[0] + "\n" for block in blocks}))


def make_locks(kept: str) -> dict[str, str]:
    """Contents by name of the file. `kept` are versions to keep where they still fit."""
    everything = pins_of(resolve(["--extra", "dev"], f"{TORCH}\n{kept}"))
    versions = "".join(re.split(r"\s*\\", block)[0] + "\n" for block in everything.values())
    build = pins_of(resolve([], versions + kept, "\n".join(BUILD)))
    sets: dict[str, Pins] = {"build": build}
    taken = set(build)
    for name, extras in SETS.items():
        wanted = pins_of(resolve([part for extra in extras for part in ("--extra", extra)], versions))
        new = {pin: everything[pin] for pin in wanted if pin not in taken and not pin.startswith("torch==")}
        sets[name] = {pin: block for pin, block in new.items() if not is_cuda(pin)}
        taken |= set(sets[name])
    sets["cuda"] = {pin: block for pin, block in everything.items() if is_cuda(pin)}
    triton = {pin: block for pin, block in everything.items() if pin.startswith("triton==")}
    sets["dev"] = dict(sorted({**sets["dev"], **triton}.items()))  # the kernels' tests want it beside any torch
    sets["audit"] = pins_of(resolve([], kept, "\n".join(AUDIT)))
    sets["torch"] = {TORCH: everything[TORCH]}
    sets["cpu"] = {
        f"{TORCH}+cpu": " \\\n".join([f"{TORCH}+cpu", *(f"    --hash=sha256:{one}" for one in TORCH_CPU.values())])
    }
    about = dict(re.findall(r"^    (\w+) {2,}(.+)$", __doc__ or "", re.MULTILINE))
    return {
        name: HEAD.format(name=name, about=about[name])
        + "".join(f"{block}\n" for _, block in sorted(sets[name].items()))
        for name in FILES
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Writes the locks.")
    parser.add_argument("--upgrade", action="store_true", help="take the newest versions")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if anything would change")
    given = parser.parse_args()
    made = make_locks("" if given.upgrade else locked_versions())
    LOCKS.mkdir(exist_ok=True)
    paths = {LOCKS / f"{name}.txt": text for name, text in made.items()}
    changed = [path for path, text in paths.items() if not path.is_file() or path.read_text("utf-8") != text]
    if given.check and changed:
        sys.exit(f"{', '.join(path.name for path in changed)}: pyproject.toml and the index say otherwise; make lock")
    for path in changed:
        path.write_text(paths[path], encoding="utf-8")
    print(f"{sum(len(pins_of(text)) for text in made.values())} packages; " + (
        f"written: {', '.join(path.name for path in changed)}" if changed else "nothing has changed"))  # fmt: skip


if __name__ == "__main__":
    main()
