from __future__ import annotations

import tomllib
from dataclasses import fields, replace
from datetime import date, datetime, time
from typing import Any, get_args, get_origin

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isentrope.config.convert import field_kinds
from isentrope.config.kinds import KINDS
from isentrope.config.load import config_from_table
from isentrope.config.schema import Choice, RunConfig
from isentrope.config.text import config_to_toml, table_to_toml
from isentrope.core.errors import ConfigError

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
plain = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | text
values = st.recursive(
    plain.filter(lambda value: value is not None) | st.dates() | st.times() | st.datetimes(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=8,
)
tables = st.dictionaries(text, values, max_size=4)


def leaf(kind: Any, limits: Any) -> st.SearchStrategy[Any]:
    """Any value that the setting takes."""
    low, high, above = (limits.get(name) for name in ("low", "high", "above"))
    floor = low if low is not None else above
    if kind is bool:
        return st.booleans()
    if kind is int:
        return st.integers(int(floor) if floor is not None else -(2**62), int(high) if high is not None else 2**62)
    if kind is float:
        found = st.floats(floor if floor is not None else -1e299, high if high is not None else 1e299)
        return found.filter(lambda value: above is None or value > above)
    if kind is str:
        return st.sampled_from(limits["choices"]) if limits.get("choices") else text
    if get_origin(kind) is tuple:
        return st.lists(leaf(get_args(kind)[0], limits), max_size=3).map(tuple)
    return tables


@st.composite
def parts(draw: st.DrawFn, path: str) -> Choice:
    """A kind with all its options, as a run records it."""
    kind = draw(st.sampled_from(sorted(KINDS[path])))
    options = KINDS[path][kind]
    kinds = field_kinds(options)
    drawn = {item.name: draw(leaf(kinds[item.name], item.metadata)) for item in fields(options)}
    return Choice(kind, drawn | ({"key_env": "SOME_KEY"} if "key_env" in drawn else {}))


@st.composite
def configs(draw: st.DrawFn) -> RunConfig:
    """Every leaf anything within its limits, apart from those that `check.py` ties together."""
    config = RunConfig()
    for section in ("run", "task", "agent", "learn", "rollout", "critic", "sft", "eval", "instruments"):
        old = getattr(config, section)
        kinds = field_kinds(type(old))
        new = {
            item.name: draw(
                parts(f"{section}.{item.name}") if kinds[item.name] is Choice else leaf(kinds[item.name], item.metadata)
            )
            for item in fields(old)
        }
        tied = {"device", "world", "mini_batches", "group_size", "max_response", "max_context", "beta1", "beta2"}
        tied |= {"where", "key_env", "action_tags", "on_alarm", "track"}
        tied |= {"epochs", "warmup", "source", "mismatch", "ahead"}
        config = replace(config, **{section: replace(old, **{k: v for k, v in new.items() if k not in tied})})
    names = draw(st.lists(text, max_size=3, unique=True))
    config = replace(config, engine=draw(parts("engine")))
    return replace(config, methods=tuple(names), method={name: draw(tables) for name in names})


@given(configs())
def test_every_config_round_trips(config: RunConfig) -> None:
    assert config_from_table(tomllib.loads(config_to_toml(config))) == config


@given(tables)
def test_every_table_round_trips(table: dict[str, Any]) -> None:
    assert tomllib.loads(table_to_toml(table)) == table


def test_it_reads_well() -> None:
    table = {"a": {"b": {}, "c": 1e-6}, "d": [{"e": True}], "f g": 'x"\n\x00', "h": date(2024, 1, 2)}
    assert table_to_toml(table) == (
        'd = [{e = true}]\n"f g" = "x\\"\\n\\u0000"\nh = 2024-01-02\n\n[a]\nc = 1e-06\n\n[a.b]\n'
    )
    assert tomllib.loads(table_to_toml({"t": time(1, 2), "d": datetime(2024, 1, 2, 3)}))["t"] == time(1, 2)


@pytest.mark.parametrize("value", [object(), b"x", None, [None], "\ud800"])
def test_what_toml_cannot_hold_is_refused(value: object) -> None:
    with pytest.raises(ConfigError):
        table_to_toml({"a": value})
