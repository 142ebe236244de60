"""What several cells of a study file have in common, and how its tables are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from isentrope.config.suggest import did_you_mean

GROUP_KEYS = ("set", "tags", "seeds", "recipe", "warmup", "against", "rank")
_MOST_SEEDS = 10_000


@dataclass(frozen=True)
class Group:
    """What cells have in common."""

    settings: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    recipe: Path | None = None
    warmup: str = ""
    against: str = ""
    tags: Mapping[str, str] = field(default_factory=dict[str, str])
    rank: int = 0


def read_group(
    table: Mapping[str, Any], where: str, below: Group, folder: Path, problems: list[str], known: Sequence[str]
) -> Group:
    for key in table:
        if key not in known:
            problems.append(f"{where}.{key}: no such setting{did_you_mean(key, known)}")
    settings = list_of(table.get("set", []), f"{where}.set", problems)
    tags = table_of(table.get("tags", {}), f"{where}.tags", problems)
    if not all(isinstance(setting, str) for setting in settings):
        problems.append(f'{where}.set: expected settings such as "learn.lr=1e-5"')
    group = replace(
        below,
        settings=(*below.settings, *(str(setting) for setting in settings)),
        tags={**below.tags, **{key: str(value) for key, value in tags.items()}},
        warmup=str(table.get("warmup", below.warmup)),
        against=str(table.get("against", below.against)),
    )
    if "seeds" in table:
        group = replace(group, seeds=seed_list(table["seeds"], f"{where}.seeds", problems))
    if type(table.get("rank", 0)) is int:
        group = replace(group, rank=table.get("rank", group.rank))
    else:
        problems.append(f"{where}.rank: expected a whole number; lower ones are run first")
    if table.get("recipe"):
        group = replace(group, recipe=folder / str(table["recipe"]))
    return group


def seed_list(value: Any, where: str, problems: list[str]) -> tuple[int, ...]:
    """A list of seeds; a number n stands for 0 to n - 1."""
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _MOST_SEEDS:
        return tuple(range(value))
    seeds = cast("list[Any]", value) if isinstance(value, list) else []
    good = [seed for seed in seeds if isinstance(seed, int) and not isinstance(seed, bool) and seed >= 0]
    if not seeds or len(good) != len(seeds) or len(set(good)) != len(good):
        problems.append(f"{where} = {value!r:.60}: expected a number of seeds, or a list of different ones")
    return tuple(good)


def table_of(value: Any, where: str, problems: list[str]) -> dict[str, Any]:
    if not isinstance(value, dict):
        problems.append(f"{where}: expected a table")
        return {}
    return cast("dict[str, Any]", value)


def list_of(value: Any, where: str, problems: list[str]) -> list[Any]:
    if not isinstance(value, list):
        problems.append(f"{where}: expected a list")
        return []
    return cast("list[Any]", value)
