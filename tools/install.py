"""Installs this checkout and what it needs into the Python that runs this file. The Makefile calls it.

    python tools/install.py run                    # from the locks: locks/build.txt, cpu.txt or torch.txt, run.txt
    python tools/install.py dev --torch "torch==2.13.0 --index-url URL"    # torch as it is said there
    python tools/install.py dev --newest           # no locks: the newest versions that fit

From the locks nothing is installed but files with a hash that is listed there. Packages without a wheel are built by
the locked setuptools, not by one that pip fetches. What is named last includes what comes before: run, site, dev.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOCKS = {"run": ["run"], "site": ["run", "site"], "dev": ["run", "site", "dev"], "audit": ["audit"]}
EXTRAS = {"run": "hf", "site": "hf,site", "dev": "dev"}
TORCH = "torch==2.13.0"


def pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments]
    if subprocess.run(command, cwd=ROOT, check=False).returncode:
        sys.exit(f"pip could not install this (see above): {shlex.join(arguments)}\nWithout the locks: make LOCK= ...")


def install_locked(name: str) -> None:
    """These files alone; they are complete, so that pip looks for nothing else."""
    listed = [part for lock in LOCKS[name] for part in ("-r", f"locks/{lock}.txt")]
    pip("--no-deps", "--require-hashes", "--no-build-isolation", "--use-pep517", *listed)


def install_torch() -> None:
    """The build without CUDA where an index has it, else PyPI's. A wrong hash is an error, not another build."""
    locked = ["--no-deps", "--require-hashes", "-r"]
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *locked]
    tried = subprocess.run([*command, "locks/cpu.txt"], cwd=ROOT, stderr=subprocess.PIPE, text=True, check=False)
    if tried.returncode == 0:
        return
    if "No matching distribution found for torch" not in tried.stderr:
        sys.exit(tried.stderr)
    pip(*locked, "locks/torch.txt")
    if wants_cuda():
        pip(*locked, "locks/cuda.txt")


def wants_cuda() -> bool:
    """Whether the torch that is here asks for packages with CUDA: PyPI's for Linux does."""
    return any(line.startswith(("nvidia", "cuda")) for line in metadata.requires("torch") or [])


def main() -> None:
    parser = argparse.ArgumentParser(description="Installs this checkout and what it needs.")
    parser.add_argument("what", choices=[*LOCKS])
    parser.add_argument("--torch", default="", help="how pip is told of another torch than the locked one")
    parser.add_argument("--newest", action="store_true", help="without the locks")
    given = parser.parse_args()
    if given.what == "audit":
        return install_locked("audit")
    if given.torch or given.newest:
        torch = given.torch or TORCH
        print(f"not from the locks: {torch if given.torch and not given.newest else 'all packages'}")
        pip(*shlex.split(torch))  # first and alone: resolved with the rest, pip may pick a build with gigabytes of CUDA
    if given.newest:
        return pip("-e", f".[{EXTRAS[given.what]}]")
    pip("--no-deps", "--require-hashes", "-r", "locks/build.txt")
    if not given.torch:
        install_torch()
    install_locked(given.what)
    return pip("--no-deps", "--no-build-isolation", "-e", ".")


if __name__ == "__main__":
    main()
