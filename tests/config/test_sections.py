from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from isentrope.config.convert import parse_section
from isentrope.config.describe import describe
from isentrope.config.schema import setting
from isentrope.core.errors import ConfigError


@dataclass(frozen=True)
class Inner:
    sizes: tuple[int, ...] = setting((1, 2), "some sizes", low=1)


@dataclass(frozen=True)
class Options:
    name: str = setting("a", "a name")
    share: float | None = setting(None, "a share", low=0, high=1)
    inner: Inner = field(default_factory=Inner)
    colours: tuple[str, ...] = setting((), "colours", choices=("red", "blue"))


@dataclass(frozen=True)
class Required:
    count: int = field(metadata={"doc": "how many", "low": 1})


def test_any_dataclass_can_be_parsed() -> None:
    table = {"share": 1, "inner": {"sizes": [3, 4]}, "colours": ["red"]}
    assert parse_section(Options, table, "task.options") == Options("a", 1.0, Inner((3, 4)), ("red",))
    assert parse_section(Options, {}, "task.options") == Options()


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"shar": 1}, "task.options.shar = 1: no such setting; did you mean task.options.share?"),
        ({"share": 2}, "task.options.share = 2: expected a number from 0 to 1"),
        ({"inner": {"sizes": [1, 0]}}, "task.options.inner.sizes[1] = 0: expected an integer of at least 1"),
        ({"inner": 3}, "task.options.inner = 3: expected a table"),
        ({"colours": ["rad"]}, 'task.options.colours[0] = "rad": expected one of red, blue; did you mean red?'),
        ({"name": "x", "zzz": 1}, "there is: task.options.name, task.options.share"),
    ],
)
def test_problems_have_the_full_path(table: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_section(Options, table, "task.options")
    assert words in str(caught.value)


def test_a_setting_without_default_has_to_be_given() -> None:
    with pytest.raises(ConfigError, match=r"x\.count: missing; expected an integer of at least 1"):
        parse_section(Required, {}, "x")


def test_describing_a_section() -> None:
    rows = {info.path: info for info in describe(Options, "method.epo")}
    assert rows["method.epo.share"][1:5] == ("float or none", "none", "a number from 0 to 1", "a share")
    assert rows["method.epo.inner.sizes"][1:4] == ("list of int", "[1, 2]", "a list of integers of at least 1")
    assert rows["method.epo.colours"].allowed == "a list of one of red, blue"
