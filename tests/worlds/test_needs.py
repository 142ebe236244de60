from __future__ import annotations

import sys

import pytest

from isentrope.core.errors import TaskError
from isentrope.core.needs import Needs, install_command, require, require_program


def test_what_is_there_is_not_missing() -> None:
    assert Needs("search", ("json",), ("python3", "sh")).missing() == []
    assert require("json", "search", "x") is sys.modules["json"]
    assert require_program("sh", "x").endswith("/sh")


def test_what_is_missing_is_named_with_the_command_that_gets_it() -> None:
    needs = Needs("search", ("json", "no_such_package"), ("no-such-program",))
    assert needs.missing() == [
        f"no_such_package: {install_command('search')}",
        "no-such-program: apt-get install no-such-program",
    ]
    with pytest.raises(TaskError, match=r"the shop needs the package no_such_package.*install.*\[search\]'"):
        require("no_such_package", "search", "the shop")
    with pytest.raises(TaskError, match=r"the shop needs the program no-such-program.*apt-get install no-such-program"):
        require_program("no-such-program", "the shop")
