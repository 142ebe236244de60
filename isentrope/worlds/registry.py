"""Finds worlds by name, and tells what is missing to play them.

    world = make_world("household", {"rooms": "small"})
    world = make_world("my_package.my_module:MyWorld", {})      # your own

A world's class takes no argument, or one: its options, a dataclass made with `setting(...)`. The annotation of
that argument says which, so `[task.options]` is checked against it.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, is_dataclass
from types import ModuleType
from typing import Any, cast, get_type_hints

from isentrope.config.convert import inside_optional, parse_section
from isentrope.config.parts import Parts
from isentrope.core.errors import TaskError
from isentrope.worlds.contract import World


@dataclass(frozen=True)
class Needs:
    """What a world needs beyond the package: modules by `pip install 'isentrope[extra]'`, and system programs."""

    extra: str = ""
    modules: tuple[str, ...] = ()
    programs: tuple[tuple[str, str], ...] = ()  # (program, how to get it)

    def missing(self) -> list[str]:
        """What is not here, each with the command that gets it. Nothing is imported."""
        modules = [module for module in self.modules if importlib.util.find_spec(module) is None]
        absent = [f"{', '.join(modules)}: {install_command(self.extra)}"] if modules else []
        return absent + [f"{program}: {how}" for program, how in self.programs if shutil.which(program) is None]


NOTHING = Needs()


def install_command(extra: str) -> str:
    return f"pip install 'isentrope[{extra}]'"


def require(module: str, extra: str, what: str) -> ModuleType:
    """The module, or an error that says how to install it."""
    if module.split(".")[0] == "bm25s":
        os.environ.setdefault("JAX_PLATFORMS", "cpu")  # it starts JAX, which would take most of a GPU's memory
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise TaskError(
            f"{what} needs the package {module}, which is not here ({error}): {install_command(extra)}"
        ) from error


def require_program(program: str, what: str, how: str) -> str:
    """The program's path, or an error that says how to get it."""
    path = shutil.which(program)
    if path is None:
        raise TaskError(f"{what} needs the program {program}, which is not here: {how}")
    return path


@dataclass(frozen=True)
class Known:
    """A world that comes with the package."""

    target: str  # module:Class
    summary: str
    needs: Needs = NOTHING
    docs: str = ""  # its page below tasks/, if that is not called after the world

    def page(self, name: str) -> str:
        return f"tasks/{self.docs or name}"


WORLDS: dict[str, Known] = {
    "household": Known(
        "isentrope.worlds.household.world:HouseholdWorld",
        "find, clean, heat, cool and bring things (ALFWorld's text games)",
    ),
    "scienceworld": Known(
        "isentrope.worlds.scienceworld.world:ScienceWorld",
        "thirty tasks of elementary science in a simulated house (ScienceWorld's simulator)",
        Needs("science", ("scienceworld", "py4j"), (("java", "apt-get install openjdk-17-jre-headless"),)),
    ),
    "webshop": Known(
        "isentrope.worlds.webshop.world:WebShopWorld",
        "find a product in a shop, choose its options and buy it (WebShop's rules)",
        Needs("webshop", ("bm25s", "Stemmer", "regex", "rapidfuzz", "textblob", "ijson")),
    ),
    "search_qa": Known(
        "isentrope.worlds.search_qa.world:SearchQAWorld",
        "answer questions with a search engine (HotpotQA, NQ and others, or an invented library)",
        Needs("search", ("bm25s", "Stemmer")),
    ),
    "code_repair": Known(
        "isentrope.worlds.code_repair.world:CodeRepairWorld",
        "find and correct a bug in a package until its tests pass (SWE-bench's shape)",
        Needs("code", ("pytest",), (("bwrap", "apt-get install bubblewrap"),)),
    ),
    "gym": Known(
        "isentrope.worlds.adapters.gym:GymWorld",
        "any Gymnasium environment with discrete or text actions (MiniGrid and BabyAI in sentences)",
        Needs("gym", ("gymnasium", "minigrid")),
        "adapters",
    ),
    "textarena": Known(
        "isentrope.worlds.adapters.textarena:TextArenaWorld",
        "textarena's games, alone or against an opponent",
        Needs("textarena", ("textarena",)),
        "adapters",
    ),
    "reasoning_gym": Known(
        "isentrope.worlds.adapters.reasoning_gym:ReasoningGymWorld",
        "reasoning-gym's data sets: one question, one answer",
        Needs("reasoning-gym", ("reasoning_gym",)),
        "adapters",
    ),
    "openenv": Known(
        "isentrope.worlds.adapters.openenv:OpenEnvWorld",
        "an environment behind an OpenEnv server",
        Needs("openenv", ("openenv",)),
        "adapters",
    ),
    "verifiers": Known(
        "isentrope.worlds.adapters.verifiers:VerifiersWorld",
        "environments of the verifiers package, one turn or several",
        Needs("verifiers", ("verifiers",)),
        "adapters",
    ),
}

PARTS = Parts("world", "isentrope.worlds", {name: known.target for name, known in WORLDS.items()}, TaskError)
Factory = Callable[..., World]


def make_world(name: str, options: Mapping[str, Any] | None = None) -> World:
    """The world of that name (or "module:Class"), set up with its `[task.options]`."""
    factory, options_class = world_factory(name), world_options(name)
    if options_class is None:
        if options:
            raise TaskError(f"the world {name} has no options, but task.options sets {', '.join(options)}")
        return factory()
    return factory(parse_section(options_class, options or {}, "task.options"))


def world_options(name: str) -> type[Any] | None:
    """The dataclass of a world's options, or None if it has none."""
    factory = world_factory(name)
    parameters = list(inspect.signature(factory).parameters.values())
    if not parameters:
        return None
    first, others = parameters[0], parameters[1:]
    kind = get_type_hints(factory.__init__ if inspect.isclass(factory) else factory).get(first.name)
    kind = inside_optional(kind) or kind
    if not is_dataclass(kind) or any(other.default is inspect.Parameter.empty for other in others):
        raise TaskError(f"the class of the world {name} must take one argument: its options, a dataclass")
    return cast("type[Any]", kind)


def world_factory(name: str) -> Factory:
    found = PARTS.load(name)
    if not callable(found):
        raise TaskError(f"{name} is a {type(found).__name__}, not a world's class")
    return cast(Factory, found)
