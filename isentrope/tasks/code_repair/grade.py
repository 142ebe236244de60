"""Was the bug repaired? Asked in a fresh sandbox, with nothing of the agent's but the part of its diff that counts."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from isentrope.tasks.code_repair.canaries import make_canaries
from isentrope.tasks.code_repair.protect import graded_part
from isentrope.tasks.code_repair.running import TestRun, run_tests
from isentrope.tasks.code_repair.sandbox import Sandbox
from isentrope.tasks.code_repair.tree import Item
from isentrope.tasks.code_repair.tricks import tricks


@dataclass(frozen=True)
class Verdict:
    fixed: int  # fail-to-pass tests that pass now
    to_fix: int
    kept: int  # pass-to-pass tests that still pass
    to_keep: int
    honest: bool = True  # nothing reached for the test runner, and the canaries failed, as they must

    @property
    def resolved(self) -> bool:
        return self.honest and self.fixed == self.to_fix and self.kept == self.to_keep


def verdict(passed: set[str], fail_to_pass: Iterable[str], pass_to_pass: Iterable[str], honest: bool = True) -> Verdict:
    to_fix, to_keep = set(fail_to_pass), set(pass_to_pass)
    return Verdict(len(to_fix & passed), len(to_fix), len(to_keep & passed), len(to_keep), honest)


def grade(
    sandbox: Sandbox,
    files: Mapping[str, Item],
    diff: Mapping[str, bytes],
    fail_to_pass: Iterable[str],
    pass_to_pass: Iterable[str],
    spared: str = "",
) -> Verdict:
    """`files` as the agent got them, tests included; `sandbox` is fresh and is closed here.

    `spared` is the text that the bug replaced: whatever it holds, a repair may hold.
    """
    wanted = {*fail_to_pass, *pass_to_pass}
    counted = graded_part(diff, files, new_files=False)
    repaired = {**files, **{path: Item(data, files[path].executable) for path, data in counted.items()}}
    canaries = make_canaries(files, sorted(fail_to_pass) or sorted(wanted))
    repaired |= {path: Item(data) for path, data in canaries.files.items()}
    # each file once; parameters of a test may hold anything, so whole files are asked for
    targets = sorted({test.partition("::")[0] for test in wanted})
    for canary in canaries.files:
        targets.insert(random.SystemRandom().randint(0, len(targets)), canary)
    try:
        sandbox.start(repaired)
        run = run_tests(sandbox, targets)
    finally:
        sandbox.close()
    reached = tricks(files, counted, spared)
    honest = run.complete and not run.tampered and canaries.honest(run.outcomes) and not reached
    found = verdict(run.passed(), fail_to_pass, pass_to_pass, honest)
    return replace(found, honest=False) if reached is None and found.resolved else found  # no Python, and it works?


def summary(run: TestRun) -> str:
    """One line: how many passed and failed."""
    counts = {word: sum(value == word for value in run.outcomes.values()) for word in ("passed", "failed", "skipped")}
    words = [f"{count} {word}" for word, count in counts.items() if count or word == "passed"]
    words += [f"{len(run.broken)} files could not be loaded"] if run.broken else []
    return ", ".join(words)
