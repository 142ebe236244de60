"""Finds worlds by name, and tells what is missing to play them.

    world = make_world("household", {"rooms": "small"})
    world = make_world("my_package.my_module:MyWorld", {})      # your own

A world's class takes no argument, or one: its options, a dataclass made with `setting(...)`. The annotation of
that argument says which, so `[task.options]` is checked against it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, is_dataclass, replace
from typing import Any, cast, get_type_hints

from isentrope.config.convert import inside_optional, parse_section
from isentrope.config.parts import Parts
from isentrope.core.errors import TaskError
from isentrope.core.needs import NEEDS, NOTHING, Needs
from isentrope.worlds.contract import World


@dataclass(frozen=True)
class Known:
    """A world that comes with the package."""

    target: str  # module:Class
    summary: str
    needs: Needs = NOTHING
    docs: str = ""  # its page below tasks/, if that is not called after the world
    needs_of: Callable[[Mapping[str, Any]], Needs] | None = None  # where its options decide

    def page(self, name: str) -> str:
        return f"tasks/{self.docs or name}"


def _needs_of_search(options: Mapping[str, Any]) -> Needs:
    extra = {"bm25": "search", "dense": "dense"}.get(str(options.get("retriever", "bm25")))  # else a server has it all
    return NEEDS[extra] if extra else NOTHING


def _needs_of_repair(options: Mapping[str, Any]) -> Needs:
    boxed = options.get("sandbox", "bubblewrap") == "bubblewrap" and not options.get("tasks")  # SWE-bench's have images
    return NEEDS["code"] if boxed else NOTHING


def _needs_of_data(options: Mapping[str, Any]) -> Needs:
    rewards: Any = options.get("rewards", ())
    named = {str(name).strip() for name in (rewards.split(",") if isinstance(rewards, str) else rewards)}
    extra = NEEDS["math"] if "math" in named else NOTHING
    return replace(extra, programs=("bubblewrap",)) if "code" in named else extra


WORLDS: dict[str, Known] = {
    "household": Known(
        "isentrope.worlds.household.world:HouseholdWorld",
        "find, clean, heat, cool and bring things (ALFWorld's text games)",
    ),
    "scienceworld": Known(
        "isentrope.worlds.scienceworld.world:ScienceWorld",
        "thirty tasks of elementary science in a simulated house (ScienceWorld's simulator)",
        NEEDS["science"],
    ),
    "webshop": Known(
        "isentrope.worlds.webshop.world:WebShopWorld",
        "find a product in a shop, choose its options and buy it (WebShop's rules)",
        NEEDS["webshop"],
    ),
    "search_qa": Known(
        "isentrope.worlds.search_qa.world:SearchQAWorld",
        "answer questions with a search engine (HotpotQA, NQ and others, or an invented library)",
        NEEDS["search"],
        needs_of=_needs_of_search,
    ),
    "code_repair": Known(
        "isentrope.worlds.code_repair.world:CodeRepairWorld",
        "find and correct a bug in a package until its tests pass (SWE-bench's shape)",
        NEEDS["code"],
        needs_of=_needs_of_repair,
    ),
    "dataset": Known(
        "isentrope.worlds.dataset.world:DatasetWorld",
        "your own questions: JSONL, CSV or Parquet, and reward functions",
        needs_of=_needs_of_data,
    ),
    "gym": Known(
        "isentrope.worlds.adapters.gym:GymWorld",
        "any Gymnasium environment with discrete or text actions (MiniGrid and BabyAI in sentences)",
        NEEDS["gym"],
        "adapters",
    ),
    "textarena": Known(
        "isentrope.worlds.adapters.textarena:TextArenaWorld",
        "textarena's games, alone or against an opponent",
        NEEDS["textarena"],
        "adapters",
    ),
    "reasoning_gym": Known(
        "isentrope.worlds.adapters.reasoning_gym:ReasoningGymWorld",
        "reasoning-gym's data sets: one question, one answer",
        NEEDS["reasoning-gym"],
        "adapters",
    ),
    "openenv": Known(
        "isentrope.worlds.adapters.openenv:OpenEnvWorld",
        "an environment behind an OpenEnv server",
        NEEDS["openenv"],
        "adapters",
    ),
    "verifiers": Known(
        "isentrope.worlds.adapters.verifiers:VerifiersWorld",
        "environments of the verifiers package, one turn or several",
        NEEDS["verifiers"],
        "adapters",
    ),
}

PARTS = Parts("world", "isentrope.worlds", {name: known.target for name, known in WORLDS.items()}, TaskError)
Factory = Callable[..., World]


def world_needs(name: str, options: Mapping[str, Any]) -> Needs:
    """What a world of the package needs with these options; nothing is known of another's."""
    known = WORLDS.get(name)
    return NOTHING if known is None else known.needs_of(options) if known.needs_of else known.needs


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
