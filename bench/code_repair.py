"""What the sandbox and grading cost: commands, test runs and whole episodes, confined and not, in turn in one run.

    python bench/code_repair.py [--rounds 20] [--episodes 8] [--tasks 40]

The peer is a plain subprocess, which confines nothing: the same command, and the same tests of one of our own packages.
Times are medians. An episode is the expert's: two test runs, a look, an edit, and grading in a fresh sandbox. Grading
by calls is compared with running the tests whole, for the known repairs of shipped tasks; the first of a package also
asks what the known repair answers, and the first of a task where its bug shows.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from isentrope.sandbox.base import Limits, make_sandbox
from isentrope.worlds.code_repair.exams import GRADED_OUTPUT
from isentrope.worlds.code_repair.grade import Verdict, files_with_tests, grade
from isentrope.worlds.code_repair.problem import Repair, read_archive
from isentrope.worlds.code_repair.running import run_tests
from isentrope.worlds.code_repair.world import CodeRepairWorld

PACKAGE = "small:ledger"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--episodes", type=int, default=8)
    parser.add_argument("--tasks", type=int, default=40)
    given = parser.parse_args()
    files = read_archive(PACKAGE)
    sandbox = make_sandbox("bubblewrap", Limits())
    sandbox.start(files)
    with tempfile.TemporaryDirectory() as folder:
        for path, item in files.items():
            Path(folder, path).parent.mkdir(parents=True, exist_ok=True)
            Path(folder, path).write_bytes(item.data)
        targets = files_with_tests(files)
        pytest = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *targets]
        environment = {"PYTHONPATH": folder, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONDONTWRITEBYTECODE": "1"}

        def plain(argv: list[str]) -> None:
            subprocess.run(argv, cwd=folder, env=environment, capture_output=True, check=True)

        compare("a command (true)", given.rounds, lambda: sandbox.exec(["true"]), lambda: plain(["true"]))
        compare("a test run", given.rounds, lambda: run_tests(sandbox, targets), lambda: plain(pytest))
    gradings(given.tasks)
    for threads in (1, CodeRepairWorld().threads):
        print(f"episodes, {threads} at once: {episodes(given.episodes, threads):.2f}/s")


def compare(what: str, rounds: int, confined: Callable[[], object], plain: Callable[[], object]) -> None:
    times: dict[str, list[float]] = {"confined": [], "plain": []}
    for _ in range(rounds + 1):
        for name, call in (("confined", confined), ("plain", plain)):
            begin = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - begin)
    inside, outside = (statistics.median(values[1:]) for values in times.values())  # the first only warms up
    print(
        f"{what}: sandbox {1000 * inside:.1f} ms ({1 / inside:.1f}/s), subprocess {1000 * outside:.1f} ms, "
        f"ratio {inside / outside:.2f}, {1000 * (inside - outside):.1f} ms more"
    )


def gradings(count: int) -> None:
    problems = [one for split in CodeRepairWorld().problems.values() for one in split if isinstance(one, Repair)]
    chosen = problems[:: max(1, len(problems) // count)][:count]
    times: dict[str, list[float]] = {"whole": [], "calls": [], "first of a task": [], "first of a package": []}
    asked: set[str] = set()
    for repair in chosen:
        diff = {repair.mutant.file: repair.known()[repair.mutant.file].data}
        first = "first of a task" if repair.package in asked else "first of a package"
        asked.add(repair.package)

        def by_calls(repair: Repair = repair, diff: dict[str, bytes] = diff) -> Verdict:
            return repair.grade(lambda _: make_sandbox("bubblewrap", replace(Limits(), output=GRADED_OUTPUT)), diff)

        def whole(repair: Repair = repair, diff: dict[str, bytes] = diff) -> Verdict:
            tests = repair.fail_to_pass, repair.pass_to_pass
            return grade(make_sandbox("bubblewrap", Limits()), repair.files(), diff, *tests, repair.mutant.old)

        for name, call in ((first, by_calls), ("whole", whole), ("calls", by_calls)):
            begin = time.perf_counter()
            assert call().resolved
            times[name].append(time.perf_counter() - begin)
    for name, values in times.items():
        if values:
            print(f"grading, {name}: {1000 * statistics.median(values):.0f} ms, median of {len(values)}")


def episodes(count: int, threads: int) -> float:
    world = CodeRepairWorld()

    def play(index: int) -> None:
        task, expert, instance = world.open(), world.expert(0), world.instance("train", index)
        assert expert is not None
        view = task.start(instance)
        expert.start(view, instance)
        step = task.step(expert.act(view).action)
        while not step.terminated:
            step = task.step(expert.act(step.view).action)
        assert step.success
        task.close()

    begin = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(play, range(count)))
    return count / (time.perf_counter() - begin)


if __name__ == "__main__":
    main()
