"""Does a world keep the contract? Run over every world of the package, and made for your own:

    from isentrope.tasks.conformance import assert_conforms

    def test_my_world():
        assert_conforms(MyWorld())

or, on the command line, `isentrope check-task my_package.my_module:MyWorld`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from isentrope.errors import TaskError
from isentrope.tasks.conformance_checks import CHECKS
from isentrope.tasks.conformance_play import Broken, Sample, Skipped
from isentrope.tasks.contract import World
from isentrope.tasks.tidy import in_words

OTHER_PROCESS = "in another process"

Watch = Callable[[str, int, int], None]
"""Told the name of the check, how many games it has looked at, and of how many."""


@dataclass(frozen=True)
class Finding:
    """What one check found."""

    name: str
    ok: bool
    detail: str = ""
    skipped: bool = False  # the world says itself that this is not for it


def check_world(world: World, games: int = 5, max_turns: int = 100, seed: int = 0) -> list[Finding]:
    """Every check, on the first `games` instances of each split; episodes are cut off after `max_turns`."""
    return list(iter_findings(world, games, max_turns, seed))


def iter_findings(
    world: World,
    games: int = 5,
    max_turns: int = 100,
    seed: int = 0,
    remake: tuple[str, Mapping[str, Any]] | None = None,
    watch: Watch = lambda name, done, total: None,
) -> Iterator[Finding]:
    """As `check_world`, one at a time, for a progress display.

    `remake`: the world's name (or module:Class) and options; with them it is also played in another process.
    """
    checks = dict(CHECKS)
    if remake is not None:
        from isentrope.tasks.conformance_process import check_other_process

        checks[OTHER_PROCESS] = lambda sample: check_other_process(sample, *remake)
    for name, check in checks.items():
        watch(name, 0, 0)
        sample = Sample(world, games, max_turns, seed, lambda done, total, name=name: watch(name, done, total))
        try:
            detail = check(sample)
        except Skipped as reason:
            yield Finding(name, True, str(reason), skipped=True)
        except Broken as problem:
            yield Finding(name, False, str(problem))
        except (Exception, SystemExit) as error:  # a broken world may raise anything: that is a finding too
            yield Finding(name, False, f"raised {in_words(error)}")
        else:
            yield Finding(name, True, detail)


def assert_conforms(
    world: World,
    games: int = 5,
    max_turns: int = 100,
    seed: int = 0,
    remake: tuple[str, Mapping[str, Any]] | None = None,
) -> None:
    """Raise a TaskError that lists whatever does not hold."""
    broken = [finding for finding in iter_findings(world, games, max_turns, seed, remake) if not finding.ok]
    if broken:
        lines = "\n".join(f"- {finding.name}: {finding.detail}" for finding in broken)
        raise TaskError(f"the world {getattr(world, 'name', world)!r} does not keep the contract\n{lines}")
