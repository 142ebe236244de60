"""The extras of the package: what each is for, and whether what it asks for is here and fits."""

from __future__ import annotations

import importlib
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

PURPOSES = {
    "hf": "models in Hugging Face's format, GGUF files, adapters",
    "smollm2": "policy.model=smollm2",
    "alfworld": "the original ALFWorld, to compare with",
    "science": "the world scienceworld",
    "webshop": "the world webshop",
    "search": "the world search_qa",
    "dense": "dense retrieval in search_qa",
    "watch": "isentrope watch",
    "figures": "isentrope figures",
    "wandb": "run.track=wandb",
    "mlflow": "run.track=mlflow",
    "trackio": "run.track=trackio",
    "code": "the world code_repair",
    "swebench": "SWE-bench's own evaluation",
    "gym": "Gymnasium and MiniGrid worlds",
    "openenv": "OpenEnv worlds",
    "textarena": "TextArena worlds",
    "reasoning-gym": "Reasoning Gym worlds",
    "verifiers": "worlds of the verifiers library",
    "verl": "tests that compare with verl",
    "worlds": "all worlds at once",
    "dev": "tests and checks of this package",
}
# Imported to see that they work: quick ones, and those that are known to break with a torch that does not fit.
IMPORTED = ("transformers", "textworld", "alfworld", "starlette", "uvicorn", "bm25s")
SOURCES = Path(__file__).parents[2] / "pyproject.toml"
NAMED = 4  # packages that a line names


def asked_for(extra: str) -> list[Requirement]:
    """What an extra installs, extras of our own that it names included; empty if this package has no such extra."""
    found: dict[str, Requirement] = {}
    left, seen = [extra], {extra}
    while left:
        for requirement in _declared().get(left.pop(), []):
            if requirement.name != "isentrope":
                found.setdefault(requirement.name, requirement)
                continue
            left += sorted(requirement.extras - seen)
            seen |= requirement.extras
    return list(found.values())


def _declared() -> dict[str, list[Requirement]]:
    """By extra: as the sources say where it is run from them, else as it was installed."""
    if SOURCES.is_file():
        project: dict[str, Any] = tomllib.loads(SOURCES.read_text(encoding="utf-8"))["project"]
        extras: dict[str, list[str]] = project["optional-dependencies"]
        return {name: [Requirement(line) for line in lines] for name, lines in extras.items()}
    found: dict[str, list[Requirement]] = {}
    for requirement in map(Requirement, metadata.requires("isentrope") or []):
        for extra in PURPOSES:
            if requirement.marker and requirement.marker.evaluate({"extra": extra}):
                found.setdefault(extra, []).append(requirement)
    return found


def absent(extra: str) -> list[str]:
    return [one.name for one in asked_for(extra) if _version(one) is None]


def unfit(extra: str) -> list[str]:
    """What is installed in another version than the extra asks for, or does not import."""
    found: list[str] = []
    for one in asked_for(extra):
        version = _version(one)
        if version is None:
            continue
        if not one.specifier.contains(version, prereleases=True):
            found.append(f"{one.name} {version} is installed, {one.specifier} is asked for")
        elif one.name in IMPORTED:
            try:
                importlib.import_module(one.name)
            except Exception as error:  # whatever it is, the user came here to learn it
                found.append(f"{one.name} {version} does not import: {error}"[:200])
    return found


def present(extra: str) -> str:
    here = [f"{one.name} {_version(one)}" for one in asked_for(extra)]
    more = f" and {len(here) - NAMED} more" if len(here) > NAMED else ""
    return ", ".join(here[:NAMED]) + more


def _version(requirement: Requirement) -> str | None:
    try:
        return metadata.version(requirement.name)
    except metadata.PackageNotFoundError:
        return None
