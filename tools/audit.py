"""Audits what Isentrope is installed from and ships with: `make audit`.

    python -m tools.audit                       # what can be told offline
    python -m tools.audit --tools .venv-audit/bin    # and the index: versions, hashes, known holes

Offline: every requirement of pyproject.toml is locked, by hash; torch by both of its builds; what is installed here is
what is locked; every licence is known, and what the wheel brings may be passed on; the list of parts is made from the
locks; two builds of the wheel are equal. The exit status is 0 if all holds, 1 if something does not, and 2 if all else
holds but the index could not say whether holes are known.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools.lock import FILES, LOCKS, ROOT, hashes_of, read
from tools.sbom import LICENCED, LICENCES, SBOM, as_toml, find_licence, sbom, split

BUILT_FROM = ("isentrope", "docs", "recipes", "bench", "locks", "pyproject.toml", "README.md", "LICENSE", "NOTICE")
_COPYLEFT = re.compile(r"\b(A?GPL|SSPL|BUSL|CC-BY-NC)")
_CPU = "cpu"


def requirements(extra: str, project: dict[str, Any]) -> Iterator[Requirement]:
    """What an extra of pyproject.toml asks for, extras of our own written out; with "" what is always needed."""
    lines = project["optional-dependencies"][extra] if extra else project["dependencies"]
    for requirement in map(Requirement, lines):
        if canonicalize_name(requirement.name) == project["name"]:
            for inner in sorted(requirement.extras):
                yield from requirements(inner, project)
        else:
            yield requirement


def unlocked(root: Path = ROOT) -> list[str]:
    """Requirements of pyproject.toml that no pin of their lock keeps."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pins = {lock: list(map(split, read(lock, root / "locks"))) for lock in FILES}
    problems: list[str] = []
    for extra, locks in (("", "torch build run"), ("hf", "torch build run"), ("site", "build run site"),
                         ("dev", "torch build run site dev")):  # fmt: skip
        there = [pin for lock in locks.split() for pin in pins[lock]]
        for wanted in requirements(extra, project):
            versions = [version for name, version in there if name == canonicalize_name(wanted.name)]
            if not versions or not all(wanted.specifier.contains(one, prereleases=True) for one in versions):
                problems.append(f"{wanted} is asked for, {', '.join(versions) or 'nothing'} is locked: make lock")
    return sorted(set(problems))


def unhashed(folder: Path = LOCKS) -> list[str]:
    """Pins without a hash, lines that are no pins, and a torch that lacks one of its builds."""
    problems: list[str] = []
    for lock in FILES:
        blocks = read(lock, folder)
        problems += [f"locks/{lock}.txt: {pin} has no SHA-256" for pin, block in blocks.items() if not hashes_of(block)]
        text = (folder / f"{lock}.txt").read_text(encoding="utf-8")
        rest = [
            line
            for line in text.splitlines()
            if line and not re.match(r"#|[a-z0-9][\w.\-]*==|    --hash=sha256:", line)
        ]
        problems += [f"locks/{lock}.txt: {line[:80]!r} is no pin with hashes" for line in rest]
    builds = [*read("torch", folder), *read(_CPU, folder)]
    if len(builds) != 2 or builds[1] != f"{builds[0]}+cpu":
        problems.append(f"torch is locked as {builds}: expected one version, from PyPI and with +cpu")
    return problems


def not_as_locked() -> list[str]:
    """What is installed here in another version than the locked one; nothing where the locks were not used."""
    pins: dict[str, set[str]] = {}
    for lock in ("build", "torch", _CPU, "run", "site", "dev"):
        for pin in read(lock):
            name, version = split(pin)
            pins.setdefault(name, set()).add(version)
    here = {canonicalize_name(one.metadata["Name"]): one.version for one in metadata.distributions()}
    return [
        f"{name} {version} is installed, {' or '.join(sorted(pins[name]))} is locked: make clean .venv"
        for name, version in sorted(here.items())
        if name in pins and version not in pins[name]
    ]


def licence_problems() -> list[str]:
    known: dict[str, str] = tomllib.loads(LICENCES.read_text(encoding="utf-8"))
    names = {split(pin)[0] for lock in LICENCED for pin in read(lock)}
    problems = [f"{name}: no licence in locks/licences.toml" for name in sorted(names - set(known))]
    problems += [f"{name}: in locks/licences.toml, in no lock" for name in sorted(set(known) - names)]
    brought = {split(pin)[0] for lock in ("build", "torch", "run") for pin in read(lock)}
    return problems + [
        f"{name}: {known[name]}, which the wheel may not ask for"
        for name in sorted(brought & set(known))
        if _COPYLEFT.search(known[name]) or known[name].startswith("not said")
    ]


def old_lists() -> list[str]:
    """Lists that are not what the locks and the installed packages say."""
    known: dict[str, str] = tomllib.loads(LICENCES.read_text(encoding="utf-8"))
    now = {name: find_licence(name, known) for name in known}
    wrong = [
        f"{name} says {now[name]!r}, locks/licences.toml {known[name]!r}" for name in known if now[name] != known[name]
    ]
    wrong += [] if LICENCES.read_text("utf-8") == as_toml(known) else ["locks/licences.toml was written by hand"]
    same = SBOM.read_text(encoding="utf-8") == sbom(known)
    return wrong + ([] if same else [f"{SBOM.name} is not what the locks say: python -m tools.sbom"])


def wheel_of(sources: Path, place: Path) -> str:
    """The sum of a wheel built there."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(place)]
    subprocess.run(command, cwd=sources, check=True, capture_output=True)
    (wheel,) = place.glob("*.whl")
    return hashlib.sha256(wheel.read_bytes()).hexdigest()


def unequal_wheels(root: Path = ROOT) -> list[str]:
    """Built here, and from a copy in another folder with other times and other rights."""
    with tempfile.TemporaryDirectory() as place:
        copy = Path(place) / "copy"
        copy.mkdir()
        for name in BUILT_FROM:
            take = shutil.copytree if (root / name).is_dir() else shutil.copy
            take(root / name, copy / name)
        for path in copy.rglob("*"):
            os.utime(path, (1, 1))
            path.chmod(0o700 if path.stat().st_mode & 0o100 else 0o600)  # whether it is a program counts
        sums = wheel_of(root, Path(place) / "first"), wheel_of(copy, Path(place) / "second")
    return [] if len(set(sums)) == 1 else [f"two builds of the wheel differ: {sums[0][:16]}, {sums[1][:16]}"]


OFFLINE: dict[str, Callable[[], list[str]]] = {
    "every requirement is locked": unlocked,
    "every pin has its hashes, torch of both builds": unhashed,
    "what is installed is what is locked": not_as_locked,
    "every licence is known": licence_problems,
    "the lists are made from the locks": old_lists,
    "two builds of the wheel are equal": unequal_wheels,
}


def index_agrees(tools: Path) -> list[str]:
    done = subprocess.run([tools / "python", "tools/lock.py", "--check"], cwd=ROOT, capture_output=True, text=True)
    return [] if done.returncode == 0 else [done.stderr.strip() or done.stdout.strip()]


def schema_problems(tools: Path) -> list[str]:
    code = (
        "import sys; from cyclonedx.schema import SchemaVersion\n"
        "from cyclonedx.validation.json import JsonStrictValidator\n"
        "sys.exit(str(JsonStrictValidator(SchemaVersion.V1_6).validate_str(sys.stdin.read()) or ''))"
    )
    done = subprocess.run([tools / "python", "-c", code], input=SBOM.read_text("utf-8"), capture_output=True, text=True)
    return [done.stderr.strip()[:400]] if done.stderr.strip() else []


def known_holes(tools: Path) -> tuple[list[str], int, int]:
    """Holes that the index knows of, and of how many packages it told and could not tell anything."""
    holes: list[str] = []
    told = silent = 0
    for lock in FILES:
        command = [tools / "pip-audit", "--progress-spinner", "off", "--no-deps", "--disable-pip", "-f", "json"]
        done = subprocess.run([*command, "-r", LOCKS / f"{lock}.txt"], capture_output=True, text=True)
        try:
            answer = json.loads(done.stdout)["dependencies"]
        except (ValueError, KeyError):
            silent += len(read(lock))
            continue
        told += sum("skip_reason" not in one for one in answer)
        silent += sum("skip_reason" in one for one in answer)
        holes += [f"{one['name']} {one['version']}: {hole['id']}" for one in answer for hole in one.get("vulns", [])]
    return holes, told, silent


def say(what: str, problems: list[str]) -> bool:
    print(f"{'no ' if problems else 'yes'}  {what}", *(f"     {problem}" for problem in problems), sep="\n", flush=True)
    return bool(problems)


def main() -> int:
    parser = argparse.ArgumentParser(description="Audits what Isentrope is installed from and ships with.")
    parser.add_argument("--tools", type=Path, help="the folder of programs that `make audit` installs")
    tools = parser.parse_args().tools
    failed = [say(what, check()) for what, check in OFFLINE.items()]
    if tools is None:
        print("?    the index was not asked: --tools was not given")
        return 1 if any(failed) else 2
    tools = tools.resolve()
    failed.append(say("the list of parts keeps CycloneDX's schema", schema_problems(tools)))
    failed.append(say("the index has these versions and hashes", index_agrees(tools)))
    holes, told, silent = known_holes(tools)
    failed.append(say(f"no hole is known in the {told} packages that the index told of", holes))
    if silent:
        print(f"?    of {silent} packages the index could not say whether holes are known: ask again where it can")
    return 1 if any(failed) else 2 if silent else 0


if __name__ == "__main__":
    sys.exit(main())
