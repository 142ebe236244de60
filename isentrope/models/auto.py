"""Settings that follow the model: what `auto` comes to once it is known which model learns.

Facts come from the headers of the model's files, so nothing is loaded for it. A run records what `auto` came to, and a
run that is resumed takes that, whatever the rule says by then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

from isentrope.config.schema import Auto, RunConfig
from isentrope.config.validate import impossible
from isentrope.core.errors import ConfigError
from isentrope.models.sources.catalogue import Facts, read_facts
from isentrope.models.sources.find import POCKET, base_folder, find_folder


class Rates(NamedTuple):
    """Learning rates for models up to a size, all of whose weights learn."""

    up_to: float  # parameters
    learn: float
    sft: float
    models: str
    source: str


RATES = (
    Rates(20e6, 1e-4, 1e-3, "up to 20 million", "the pocket model: docs/runs/setting, isentrope docs demo"),
    Rates(300e6, 3e-5, 1e-4, "up to 300 million", "SmolLM2-135M: docs/runs/alfworld-smollm2"),
    Rates(1e9, 2e-6, 2e-5, "up to 1 billion", "Qwen2.5-Coder-0.5B: docs/runs/alfworld-smollm2"),
    Rates(float("inf"), 1e-6, 1e-5, "larger", "the papers' 1e-6 to 5e-6 at 1.5 to 8 billion: recipes/papers"),
)
ADAPTERS = 10.0
"""Adapters learn at so many times the rate of all weights of their model, bounded by the rates below."""
ADAPTERS_LEARN, ADAPTERS_SFT = 3e-4, 1e-3

POCKET_RESPONSE, POCKET_CONTEXT = 32, 1536  # of the demo: what the pocket model writes and has read
RESPONSE, CONTEXT = 512, 4096


@dataclass(frozen=True)
class Size:
    """What `auto` has to know of a model."""

    pocket: bool  # whether it reads and writes the pocket model's tokens
    parameters: int
    context: int = 0  # positions; 0: not known

    @classmethod
    def of(cls, facts: Facts) -> Size:
        return cls((facts.folder / "pocket_tokens.json").is_file(), facts.parameters, facts.context)


def follow_model(config: RunConfig, recorded: RunConfig | None = None) -> RunConfig:
    """The settings with a value for every `auto`: that of the run that goes on (`recorded`), else the model's."""
    waiting = autos(config)
    if not waiting:
        return config
    if recorded is not None:
        return _with(config, {path: _at(plain_defaults(recorded), path) for path in waiting})
    return follow_size(config, size_of(config))


def follow_size(config: RunConfig, size: Size) -> RunConfig:
    """The same for a model of which only the size is known."""
    chosen = _with(config, values(size, bool(config.policy.lora_rank)))
    if problems := impossible(chosen):
        raise ConfigError("\n".join(problems))
    return chosen


def plain_defaults(config: RunConfig) -> RunConfig:
    """The same for a model behind a server, of which nothing is known: the values for a large language model."""
    return _with(config, {path: _at(config, path).plain() for path in autos(config)})


def size_of(config: RunConfig) -> Size:
    """Of the model that policy.model names, which is fetched if it is not here."""
    policy = config.policy
    if policy.model != "new":
        return Size.of(read_facts(base_folder(find_folder(policy.model))))
    pocket = read_facts(POCKET)
    layer = policy.width * policy.width * 12  # attention with half as many keys and values, an inner size of three
    return Size(True, policy.layers * layer + pocket.vocabulary * policy.width, pocket.context)


def values(size: Size, adapters: bool) -> dict[str, Any]:
    """What each setting comes to for a model of this size."""
    learn, sft = rates(size.parameters, adapters)
    context = min(size.context or CONTEXT, POCKET_CONTEXT if size.pocket else CONTEXT)
    return {
        "agent.prompt": "brief" if size.pocket else "full",
        "agent.max_response": min(POCKET_RESPONSE if size.pocket else RESPONSE, context // 2),
        "agent.max_context": context,
        "learn.lr": learn,
        "sft.lr": sft,
    }


def rates(parameters: int, adapters: bool = False) -> tuple[float, float]:
    """learn.lr and sft.lr for a model of so many parameters, all of which learn or carry adapters that do."""
    known = next(row for row in RATES if parameters <= row.up_to)
    if not adapters:
        return known.learn, known.sft
    return min(ADAPTERS * known.learn, ADAPTERS_LEARN), min(ADAPTERS * known.sft, ADAPTERS_SFT)


def autos(config: RunConfig) -> list[str]:
    """Full names of the settings that are `auto`."""
    found: list[str] = []
    for section in fields(config):
        inner = getattr(config, section.name)
        names = [item.name for item in fields(inner)] if hasattr(inner, "__dataclass_fields__") else []
        found += [f"{section.name}.{name}" for name in names if isinstance(getattr(inner, name), Auto)]
    return found


def _at(config: RunConfig, path: str) -> Any:
    section, name = path.split(".")
    return getattr(getattr(config, section), name)


def _with(config: RunConfig, chosen: Mapping[str, Any]) -> RunConfig:
    """`chosen` in the place of every `auto`; what the user said stays."""
    changes: dict[str, dict[str, Any]] = {}
    for path, value in chosen.items():
        if isinstance(_at(config, path), Auto):
            section, name = path.split(".")
            changes.setdefault(section, {})[name] = value
    sections: dict[str, Any] = {name: replace(getattr(config, name), **new) for name, new in changes.items()}
    return replace(config, **sections)
