"""Was the bug repaired? Asked in a fresh sandbox, with nothing of the agent's but the part of its diff that counts."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from isentrope.tasks.code_repair.protect import graded_part
from isentrope.tasks.code_repair.running import TestRun, run_tests
from isentrope.tasks.code_repair.sandbox import Sandbox
from isentrope.tasks.code_repair.tree import Item

# A test that must fail. Code that makes every test pass, by changing the test runner under way, makes it pass too.
_CANARY = b"def test_fails():\n    assert 1 + 1 == 3\n"


@dataclass(frozen=True)
class Verdict:
    fixed: int  # fail-to-pass tests that pass now
    to_fix: int
    kept: int  # pass-to-pass tests that still pass
    to_keep: int
    honest: bool = True  # the canary failed, as it must

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
) -> Verdict:
    """`files` as the agent got them, tests included; `sandbox` is fresh and is closed here."""
    wanted = {*fail_to_pass, *pass_to_pass}
    counted = graded_part(diff, files, new_files=False)
    repaired = {**files, **{path: Item(data, files[path].executable) for path, data in counted.items()}}
    canary = f"test_canary_{secrets.token_hex(8)}.py"
    repaired[canary] = Item(_CANARY)
    try:
        sandbox.start(repaired)
        # each file once; parameters of a test may hold anything, so whole files are asked for
        run = run_tests(sandbox, [*sorted({test.partition("::")[0] for test in wanted}), canary])
    finally:
        sandbox.close()
    honest = run.outcomes.get(f"{canary}::test_fails") == "failed" and run.complete
    return verdict(run.passed(), fail_to_pass, pass_to_pass, honest)


def summary(run: TestRun) -> str:
    """One line: how many passed and failed."""
    counts = {word: sum(value == word for value in run.outcomes.values()) for word in ("passed", "failed", "skipped")}
    words = [f"{count} {word}" for word, count in counts.items() if count or word == "passed"]
    words += [f"{len(run.broken)} files could not be loaded"] if run.broken else []
    return ", ".join(words)
