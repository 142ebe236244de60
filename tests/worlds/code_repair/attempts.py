"""Tries texts in place of a task's files and says how they are graded; from Python, and by hand:

    python -m tests.worlds.code_repair.attempts --package ledger --function Account.deposit forged.py
    python -m tests.worlds.code_repair.attempts --split test --index 3 forged.py
    python -m tests.worlds.code_repair.attempts --split test --index 3 --behind line.py

The text replaces the file with the bug (`--file` names another one); with `--behind` it is put behind it.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

from isentrope.sandbox.base import Limits, Sandbox, make_sandbox
from isentrope.worlds.code_repair.exams import GRADED_OUTPUT
from isentrope.worlds.code_repair.grade import Verdict
from isentrope.worlds.code_repair.problem import Repair
from isentrope.worlds.code_repair.world import CodeRepairWorld

LIMITS = replace(Limits(), output=GRADED_OUTPUT)


@cache
def shipped() -> tuple[Repair, ...]:
    """All tasks that come with Isentrope, by package and place."""
    problems = [one for split in CodeRepairWorld().problems.values() for one in split]
    repairs = [one for one in problems if isinstance(one, Repair)]
    return tuple(sorted(repairs, key=lambda one: (one.package, one.fingerprint)))


def shipped_with(package: str, function: str) -> Repair:
    return next(one for one in shipped() if (one.package, one.mutant.function) == (package, function))


def attempt(repair: Repair, texts: Mapping[str, str], limits: Limits = LIMITS, seed: int = 0) -> Verdict:
    """How these texts are graded in place of the files of the same paths."""
    diff = {path: text.encode("utf-8", "surrogateescape") for path, text in texts.items()}

    def make(patience: float) -> Sandbox:
        if patience == 1.0:  # it is for the texts
            return make_sandbox("bubblewrap", limits)
        return make_sandbox("bubblewrap", replace(LIMITS, seconds=patience * LIMITS.seconds))

    return repair.grade(make, diff, seed)


def buggy_text(repair: Repair) -> str:
    return repair.files()[repair.mutant.file].data.decode()


def known_text(repair: Repair) -> str:
    return repair.known()[repair.mutant.file].data.decode()


def in_words(found: Verdict) -> str:
    return (
        f"reward {float(found.resolved)}: of the failing tests {found.fixed} of {found.to_fix} pass, of the others "
        f"{found.kept} of {found.to_keep}; {found.right} of {found.hidden} hidden inputs are right; "
        f"honest: {found.honest}; graded by: {found.grading}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path, help="the file with the text")
    parser.add_argument("--split", default="train")
    parser.add_argument("--index", type=int, default=0)
    parser.add_argument("--package", default="")
    parser.add_argument("--function", default="")
    parser.add_argument("--file", default="", help="the path in the package; the file with the bug if empty")
    parser.add_argument("--behind", action="store_true", help="put the text behind the file's own")
    parser.add_argument("--seed", type=int, default=0, help="task.options.hidden_seed")
    given = parser.parse_args()
    world = CodeRepairWorld()
    repair = world.problem(world.instance(given.split, given.index))
    if given.package:
        repair = shipped_with(given.package, given.function)
    assert isinstance(repair, Repair)
    path = given.file or repair.mutant.file
    before = repair.files()[path].data.decode() + "\n\n" if given.behind else ""
    print(f"{repair.package}, {repair.mutant.function} in {repair.mutant.file}: {repair.mutant.old!r} was replaced by "
          f"{repair.mutant.new!r}")  # fmt: skip
    print(in_words(attempt(repair, {path: before + given.text.read_text()}, seed=given.seed)))


if __name__ == "__main__":
    main()
