"""Hostile folders against every command: no traceback, no hang, no more than a gigabyte, no file outside of the folder
shown or overwritten.

    python -m tests.attack.folders                          # every family, with 7 seeds: 329 folders, every command
    python -m tests.attack.folders --seeds 1 --only bomb --commands report,watch
    python -m tests.attack.folders --real --seeds 1         # each command as a process of its own too: is it the same?
    python -m tests.attack.folders --planted                # commands with a fault: is each found?

Commands are forked from two processes that have imported what they need: one without torch, which commands that read
folders must not import, and one with it (tests/attack/children.py). What fails is printed with the family and its
seed, which make it again.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from tests.attack.children import COMMANDS, CPU_SECONDS, HEAVY, LIGHT, MEGABYTES, ROOT, End, Parent
from tests.attack.planted import PLANTED
from tests.builders.hostile import FAMILIES, SECRET, copy_base

SEEDS = 7
WALL_SECONDS = 45
SEARCHED = 50_000_000  # bytes of each written file, for what must not be in it


@dataclass(frozen=True)
class Outcome:
    family: str
    seed: int
    command: str
    problems: tuple[str, ...]
    end: End
    said: str


# -- one folder


Marks = dict[str, tuple[int, ...]]


def marks_of(folder: Path) -> Marks:
    """What changes with any change of a file: kind, size, times, number."""
    found: Marks = {}
    waiting = [str(folder)]
    while waiting:
        for entry in os.scandir(waiting.pop()):
            told = entry.stat(follow_symlinks=False)
            found[entry.path] = (told.st_mode, told.st_size, told.st_mtime_ns, told.st_ctime_ns, told.st_ino)
            if stat.S_ISDIR(told.st_mode):
                waiting.append(entry.path)
    return found


class Place:
    """A hostile folder, made again when a command has changed it."""

    def __init__(self, base: Path, work: Path) -> None:
        self.folder, self.work = work / "place", work
        self._base, self._made, self._marks = base, ("", 0), Marks()

    def make(self, family: str, seed: int) -> None:
        shutil.rmtree(self.work / "tmp", ignore_errors=True)
        (self.work / "tmp").mkdir()
        if self._made == (family, seed) and marks_of(self.folder) == self._marks:
            return
        shutil.rmtree(self.folder, ignore_errors=True)
        copy_base(self._base, self.folder)
        FAMILIES[family](Random(f"{family}/{seed}"), self.folder)
        self._made, self._marks = (family, seed), marks_of(self.folder)

    def written(self) -> list[Path]:
        """Plain files that are new, or not as they were made."""
        now = marks_of(self.folder)
        return [Path(path) for path, mark in now.items() if stat.S_ISREG(mark[0]) and self._marks.get(path) != mark]


def attack(family: str, seed: int, name: str, place: Place, run: Callable[[str, Path, Path], End]) -> Outcome:
    place.make(family, seed)
    log = place.work / "said"
    log.unlink(missing_ok=True)
    end = run(name, place.folder, place.work)
    said = log.read_bytes().decode("utf-8", "replace") if log.exists() else ""
    trusted = "--trust" in COMMANDS.get(name, ())
    problems = tuple(problems_of(end, said, place.folder, place.written(), family, trusted))
    return Outcome(family, seed, name, problems, end, said)


def problems_of(
    end: End, said: str, folder: Path, written: Sequence[Path], family: str, trusted: bool
) -> Iterator[str]:
    if end.status is None or end.status in (-signal.SIGXCPU, -signal.SIGKILL) or end.seconds > CPU_SECONDS:
        yield "hangs"
    elif end.status < 0:
        yield f"killed by {signal.Signals(-end.status).name}"
    if end.megabytes > MEGABYTES:
        yield f"{end.megabytes:.0f} MB"
    if "Traceback (most recent call last)" in said:
        yield f"traceback: {said.strip().splitlines()[-1][:100]}"
    if "IMPORTED torch" in said:
        yield "imports torch"
    if "usage: " in said.lower():
        yield "wrong usage"
    precious = folder / "outside" / "precious"
    if precious.exists() and precious.read_text() != "precious":
        yield "overwrote a file outside"
    if family == "foreign_code" and not trusted and (folder / "outside" / "imported").exists():
        yield "ran code of the folder"
    if SECRET in said or any(holds(path, SECRET) for path in written):
        yield "shows a file outside"


def holds(path: Path, text: str) -> bool:
    with path.open("rb") as file:
        return text.encode() in file.read(SEARCHED)


# -- all of them


Case = tuple[str, int, str]


def attacks(cases: Sequence[Case], place: Place, parent: Parent, options: argparse.Namespace) -> list[Outcome]:
    wall = float(options.wall)
    found: list[Outcome] = []
    began = time.monotonic()

    def forked(name: str, folder: Path, work: Path) -> End:
        return parent.fork(name, folder, work, wall)

    def started(name: str, folder: Path, work: Path) -> End:
        return parent.start(name, folder, work, wall)

    for number, case in enumerate(cases, start=1):
        one = attack(*case, place, forked)
        if options.real:
            one = compared(one, attack(*case, place, started))
        show(one, bool(options.verbose))
        found.append(replace(one, said=""))
        if number % 500 == 0:
            bad = sum(bool(one.problems) for one in found)
            print(f"  {number} of {len(cases)}, {bad} with problems, {time.monotonic() - began:.0f} s", flush=True)
    return found


def compared(forked: Outcome, real: Outcome) -> Outcome:
    """What differs is a problem."""
    more: list[str] = []
    if forked.end.status != real.end.status:
        more.append(f"differs: ends with {forked.end.status} and {real.end.status}")
    kinds = [tuple(re.sub(r"\d+", "n", problem) for problem in one.problems) for one in (forked, real)]
    if kinds[0] != kinds[1]:
        more.append(f"differs: {forked.problems} and {real.problems}")
    ours, theirs = (plain(one.said) for one in (forked, real))
    if ours != theirs:
        same = (a == b for a, b in zip(ours, theirs, strict=False))
        place = next((number for number, one in enumerate(same) if not one), min(len(ours), len(theirs)))
        some = [text[max(0, place - 80) : place + 80] for text in (ours, theirs)]
        more.append(f"differs: says {some[0]!r} and {some[1]!r}")
    if forked.end.megabytes < real.end.megabytes:
        more.append(f"differs: {forked.end.megabytes:.0f} MB and {real.end.megabytes:.0f}")
    return replace(forked, problems=(*forked.problems, *more))


def plain(said: str) -> str:
    """Without what differs from process to process."""
    said = re.sub(r'\d+(\.\d+)? ?(ms|s|KB|kB|MB|GB|GiB)\b|"age": \d+', "N", said)
    return re.sub(r"0x[0-9a-f]+|tmp\w+", "X", said)


def planted(place: Place, parent: Parent, options: argparse.Namespace) -> bool:
    """Whether each fault was found, in a forked child and in a process of its own."""
    good = True
    chosen_ones = [name for name in PLANTED if not options.commands or name in options.commands.split(",")]
    for name, fault in ((name, PLANTED[name]) for name in chosen_ones):
        if name == "planted-torch" and "torch" in sys.modules:
            continue  # of the process without it
        for run, how in ((parent.fork, "forked"), (parent.start, "started")):
            one = attack(fault.family, 0, name, place, lambda *told, run=run: run(*told, float(options.wall)))
            found = any(problem.startswith(fault.problem) for problem in one.problems)
            good &= found
            print(f"{name} {how}: {'found' if found else 'NOT FOUND'} {'; '.join(one.problems)}", flush=True)
    return good


def make_base(folder: Path) -> Path:
    """In a process of its own: a run has to be trained, which needs torch."""
    if not folder.exists():
        subprocess.run([sys.executable, "-m", "tests.attack.base", str(folder)], cwd=ROOT, check=True)
    return folder


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n\n")[0])
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--only", default="", help="families, with commas between")
    parser.add_argument("--commands", default="", help="likewise")
    parser.add_argument("--rotate", type=int, default=0, help="so many commands a folder instead of all, in turn")
    parser.add_argument("--every", type=int, default=1, help="one of so many cases")
    parser.add_argument("--wall", type=float, default=WALL_SECONDS)
    parser.add_argument("--base", type=Path, default=None)
    parser.add_argument("--kind", default="", choices=("", "light", "heavy"))
    parser.add_argument("--real", action="store_true", help="each also in a process of its own; tells what differs")
    parser.add_argument("--planted", action="store_true", help="commands with faults instead")
    parser.add_argument("--verbose", action="store_true")
    return parser.parse_args(arguments)


def chosen(options: argparse.Namespace, commands: Sequence[str]) -> list[Case]:
    families = [name for name in FAMILIES if not options.only or name in options.only.split(",")]
    names: list[str] = [name for name in commands if not options.commands or name in options.commands.split(",")]
    cases: list[Case] = []
    for seed in range(int(options.first), int(options.first) + int(options.seeds)):
        for place, family in enumerate(families):
            turn = (place + seed) * int(options.rotate)
            count = int(options.rotate) or len(names)
            some = [names[(turn + n) % len(names)] for n in range(count)] if names else []
            cases += [(family, seed, name) for name in some]
    return cases[:: int(options.every)]


def main() -> None:
    options = parsed()
    if "OMP_NUM_THREADS" not in os.environ:  # threads of a library would be missing in what is forked
        command = [sys.executable, "-m", "tests.attack.folders", *sys.argv[1:]]
        os.execve(sys.executable, command, {**os.environ, "OMP_NUM_THREADS": "1"})
    began, found, good = time.monotonic(), list[Outcome](), True
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        base = make_base(options.base or work / "base")
        place = Place(base, work)
        for kind, commands in (("light", LIGHT), ("heavy", HEAVY)):  # light first: torch stays once it is imported
            cases = chosen(options, list(commands)) if options.kind in ("", kind) else []
            names = list(commands) if options.planted else list(dict.fromkeys(name for _, _, name in cases))
            if not names or options.kind not in ("", kind):
                continue
            place.make("whole", 0)
            parent = Parent(names, place.folder, work)
            print(f"{kind}: {len(cases)} commands, from a process of {parent.megabytes:.0f} MB", flush=True)
            if options.planted:
                good &= planted(place, parent, options)
            else:
                found += attacks(cases, place, parent, options)
    if options.planted:
        sys.exit(0 if good else 1)
    sys.exit(1 if summary(found, time.monotonic() - began) else 0)


def summary(found: Sequence[Outcome], seconds: float) -> int:
    bad = [one for one in found if one.problems]
    folders = len({(one.family, one.seed) for one in found})
    print(f"{folders} folders, {len(found)} commands, {len(bad)} with problems, {seconds:.0f} s")
    for name in {one.command: 0 for one in found}:
        ends = [one.end for one in found if one.command == name]
        most, longest = max(end.megabytes for end in ends), max(end.seconds for end in ends)
        whole = sum(end.seconds for end in ends)
        print(f"  {name}: {len(ends)} times, at most {most:.0f} MB and {longest:.1f} s; {whole:.0f} s in all")
    for family, count in Counter(one.family for one in bad).most_common():
        kinds = Counter(problem.split(":")[0] for one in bad if one.family == family for problem in one.problems)
        told = ", ".join(f"{kind} {times}" for kind, times in kinds.most_common(6))
        print(f"  {family}: {count} ({told})")
    return len(bad)


def show(one: Outcome, verbose: bool) -> None:
    if one.problems:
        told = "; ".join(one.problems)
        print(f"{one.family}/{one.seed} {one.command}: {told} ({one.end.seconds:.1f} s)", flush=True)
        if verbose:
            print(one.said[-2500:], flush=True)


if __name__ == "__main__":
    main()
