from __future__ import annotations

import sys

import pytest

from isentrope.core.errors import TaskError
from isentrope.worlds.registry import Needs, require, require_program


def test_what_is_there_is_not_missing() -> None:
    assert Needs("search", ("json",), (("python3", "-"), ("sh", "-"))).missing() == []
    assert require("json", "search", "x") is sys.modules["json"]
    assert require_program("sh", "x", "-").endswith("/sh")


def test_what_is_missing_is_named_with_the_command_that_gets_it() -> None:
    needs = Needs("search", ("json", "no_such_package"), (("no-such-program", "apt-get install it"),))
    assert needs.missing() == [
        "no_such_package: pip install 'isentrope[search]'",
        "no-such-program: apt-get install it",
    ]
    with pytest.raises(TaskError, match=r"the shop needs the package no_such_package.*isentrope\[search\]"):
        require("no_such_package", "search", "the shop")
    with pytest.raises(TaskError, match=r"the shop needs the program no-such-program.*apt-get install it"):
        require_program("no-such-program", "the shop", "apt-get install it")
