"""Hostile folders against every command: no traceback, no hang, no more than a gigabyte, no file outside of the folder
shown or overwritten.

    python -m tests.attack.folders                          # every family, with 7 seeds: 329 folders, every command
    python -m tests.attack.folders --seeds 1 --only bomb --commands report,watch

Commands are forked from two processes that have imported what they need: one without torch, which commands that read
folders must not import, and one with it. What fails is printed with the family and its seed, which make it again.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tests.builders.hostile import FAMILIES, SECRET, copy_base
from tests.builders.hostile_logs import LOGS

ROOT = Path(__file__).parents[2]
SEEDS = 7
CPU_SECONDS, WALL_SECONDS, MEGABYTES = 10, 45, 1000
ADDRESSES = 3 << 30  # that a child may map beyond its parent: a bomb must not take the machine along

# What a user types in a folder that holds run/, study/, compact/, logs/, eval.json and recipe.toml
LIGHT: dict[str, tuple[str, ...]] = {
    "report": ("report", "run"),
    "report-two": ("report", "run", "study/a/seed-0", "--out", "two.html"),
    "doctor": ("doctor", "run"),
    "doctor-json": ("doctor", "run", "study/a/seed-0", "--json"),
    "metrics": ("metrics", "run"),
    "metrics-csv": ("metrics", "run", "--csv"),
    "table": ("table", "run"),
    "table-file": ("table", "eval.json", "--format", "csv"),
    "figures": ("figures", "run", "--out", "figures"),
    "study-tables": ("study", "study", "--tables"),
    "study-compact": ("study", "study", "--compact", "made"),
    "compact-tables": ("study", "compact", "--tables"),
    "watch": ("watch", "."),
    "completion": ("report", "r"),
    **{f"import-{log}": ("import", f"logs/{name}", "--out", "imported") for log, name in LOGS.items()},
}
HEAVY: dict[str, tuple[str, ...]] = {
    "models": ("models", "run"),
    "config-run": ("config", "run/config.toml"),
    "config": ("config", "recipe.toml", "--toml"),
    "claims-compact": ("claims", "compact", "--no-computed"),
    "claims": ("claims", "study", "--no-computed"),
    "analyze": ("analyze", "run"),
    "eval": ("eval", "run", "--games", "1", "--trust"),
    "train": ("train", "--resume", "--out", "run", "--set", "run.steps=2", "--trust"),
    "sft": ("sft", "--resume", "--out", "run", "--trust"),
    "rft": ("rft", "--resume", "--out", "run", "--trust"),
    "eval-untrusted": ("eval", "run", "--games", "1"),
    "train-untrusted": ("train", "--resume", "--out", "run", "--set", "run.steps=2"),
    "sft-untrusted": ("sft", "--resume", "--out", "run"),
    "serve-untrusted": ("serve", "run", "--port", "0"),
    "export": ("export", "run", "--out", "exported"),
    "serve": ("serve", "run", "--port", "0", "--trust"),
}


@dataclass(frozen=True)
class Outcome:
    family: str
    seed: int
    command: str
    problems: tuple[str, ...]
    seconds: float
    megabytes: float
    told: str  # the end of what it said


def look_through(place: Path) -> None:
    """All that the live page asks for."""
    from isentrope.core.errors import RunError
    from isentrope.watch.answers import Answers, wanted_from
    from isentrope.watch.runs import Runs

    answers = Answers(Runs([place]))

    def ask(question: Callable[[], object]) -> object:
        try:
            found = question()
        except RunError as error:
            found = str(error)
        text = found if isinstance(found, bytes) else json.dumps(found, allow_nan=False).encode("utf-8", "replace")
        print(text[:20_000])
        return found

    answers.runs()
    listed = answers.runs()
    ask(lambda: listed)
    names = [run["id"] for run in listed["runs"]][:50]
    keys = [entry["key"] for entry in answers.keys()["keys"]][:400]
    ask(answers.keys)
    wants = [f"{run['id']}:{run['begun']}:0:1000000:0:1000000" for run in listed["runs"]][:50]
    ask(lambda: answers.series(wants, keys))
    ask(lambda: answers.events(names))
    ask(lambda: answers.configs(names))
    for filters in ({}, {"text": "one"}, {"duplicated": "1"}, {"high": "1"}):
        page = answers.episodes(names, wanted_from(filters), "")
        ask(lambda page=page: page)
        for row in page["rows"][::4][:8]:
            where = (row["run"], row["file"], row["number"])
            ask(lambda where=where: answers.episode(*where, 0))
            ask(lambda where=where: answers.difference(where[0], where[1], where[2], 0))


def import_and_look(words: Sequence[str]) -> None:
    """A log as a run folder, and what is said of that."""
    from isentrope.cli.main import main

    for command in (words, ("doctor", "imported"), ("report", "imported")):
        if command is words or Path("imported").is_dir():
            sys.argv = ["isentrope", *command]
            with suppress(SystemExit):
                main()


def run_command(name: str, words: Sequence[str]) -> None:
    from isentrope.cli.completion import complete_run
    from isentrope.net.server import Server

    Server.run_until_interrupted = lambda *_: None  # type: ignore[method-assign]
    if name == "watch":
        return look_through(Path.cwd())
    if name.startswith("import-"):
        return import_and_look(words)
    if name == "completion":
        return print([*complete_run("r"), *complete_run("run/"), *complete_run("")])
    from isentrope.cli.main import main

    sys.argv = ["isentrope", *words]
    main()


def in_child(name: str, words: Sequence[str], folder: Path, log: Path) -> None:
    """The rest of this process is the command."""
    code = 1
    try:
        os.setsid()
        os.chdir(folder)
        streams = (os.open(os.devnull, os.O_RDONLY), os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC))
        for stream, number in ((streams[0], 0), (streams[1], 1), (streams[1], 2)):
            os.dup2(stream, number)
        os.environ |= {"COLUMNS": "120", "NO_COLOR": "1", "HF_HUB_OFFLINE": "1"}
        mapped = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (mapped + ADDRESSES, mapped + ADDRESSES))
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 1))
        run_command(name, words)
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        if name in LIGHT and "torch" in sys.modules:
            print("IMPORTED torch")
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def attack(family: str, seed: int, name: str, base: Path, work: Path, wall: float) -> Outcome:
    folder, log = work / "place", work / "said"
    shutil.rmtree(folder, ignore_errors=True)
    copy_base(base, folder)
    FAMILIES[family](Random(f"{family}/{seed}"), folder)
    before = time.monotonic()
    child = os.fork()
    if child == 0:
        in_child(name, {**LIGHT, **HEAVY}[name], folder, log)
    status, usage = waited(child, before + wall)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    seconds, megabytes = usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024
    said = log.read_bytes().decode("utf-8", "replace") if log.exists() else ""
    trusted = "--trust" in {**LIGHT, **HEAVY}[name]
    problems = list(problems_of(status, seconds, megabytes, said, folder, family, trusted))
    return Outcome(family, seed, name, tuple(problems), seconds, megabytes, said[-2500:])


def waited(child: int, deadline: float) -> tuple[int | None, resource.struct_rusage]:
    """Its exit status and what it used; None if it had to be killed at the deadline."""
    while True:
        pid, status, usage = os.wait4(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status), usage
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            return None, os.wait4(child, 0)[2]
        time.sleep(0.005)


def problems_of(
    status: int | None, seconds: float, megabytes: float, said: str, folder: Path, family: str, trusted: bool
) -> Iterator[str]:
    if status is None or status in (-signal.SIGXCPU, -signal.SIGKILL) or seconds > CPU_SECONDS:
        yield "hangs"
    elif status < 0:
        yield f"killed by {signal.Signals(-status).name}"
    if megabytes > MEGABYTES:
        yield f"{megabytes:.0f} MB"
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
    pages = [path for path in (*folder.glob("*.html"), *folder.glob("run/*.html")) if path.is_file()]
    if SECRET in said or any(SECRET in page.read_text(errors="replace") for page in pages):
        yield "shows a file outside"


def attacks(
    cases: Sequence[tuple[str, int, str]], base: Path, wall: float, say: Callable[[Outcome], None]
) -> list[Outcome]:
    found: list[Outcome] = []
    with tempfile.TemporaryDirectory() as work:
        for family, seed, name in cases:
            found.append(attack(family, seed, name, base, Path(work), wall))
            say(found[-1])
    return found


def prepare(kind: str) -> None:
    """Import once what the children need."""
    modules = ["rich.console", "rich.table", "isentrope.cli.main", "isentrope.report.compare", "isentrope.report.page"]
    modules += [
        "isentrope.watch.answers",
        "isentrope.net.server",
        "isentrope.study.read",
        "isentrope.metrics.recompute",
    ]
    if kind == "heavy":
        modules += ["torch", "transformers", "isentrope.loop.train", "isentrope.loop.imitate", "tests.toys"]
    for module in modules:
        importlib.import_module(module)
    if kind == "heavy":
        importlib.import_module("torch").set_num_threads(1)


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
    parser.add_argument("--wall", type=float, default=WALL_SECONDS)
    parser.add_argument("--base", type=Path, default=None)
    parser.add_argument("--kind", default="", choices=("", "light", "heavy"))
    parser.add_argument("--verbose", action="store_true")
    return parser.parse_args(arguments)


def chosen(options: argparse.Namespace, commands: Sequence[str]) -> list[tuple[str, int, str]]:
    families = [name for name in FAMILIES if not options.only or name in options.only.split(",")]
    names: list[str] = [name for name in commands if not options.commands or name in options.commands.split(",")]
    cases: list[tuple[str, int, str]] = []
    for seed in range(int(options.first), int(options.first) + int(options.seeds)):
        for place, family in enumerate(families):
            turn = (place + seed) * int(options.rotate)
            count = int(options.rotate) or len(names)
            some = [names[(turn + n) % len(names)] for n in range(count)] if names else []
            cases += [(family, seed, name) for name in some]
    return cases


def main() -> None:
    options = parsed()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        base = make_base(options.base or Path(place) / "base")
        found: list[Outcome] = []
        for kind, commands in (("light", LIGHT), ("heavy", HEAVY)):  # light first: torch stays once it is imported
            cases = chosen(options, list(commands)) if options.kind in ("", kind) else []
            if cases:
                prepare(kind)
                found += attacks(cases, base, options.wall, lambda one: show(one, options.verbose))
    bad = [one for one in found if one.problems]
    folders = len({(one.family, one.seed) for one in found})
    print(f"{folders} folders, {len(found)} commands, {len(bad)} with problems, {time.monotonic() - began:.0f} s")
    for name in {one.command: 0 for one in found}:
        some = [one for one in found if one.command == name]
        most, longest = max(one.megabytes for one in some), max(one.seconds for one in some)
        print(f"  {name}: {len(some)} times, at most {most:.0f} MB and {longest:.1f} s")
    for family, count in Counter(one.family for one in bad).most_common():
        kinds = Counter(problem.split(":")[0] for one in bad if one.family == family for problem in one.problems)
        told = ", ".join(f"{kind} {times}" for kind, times in kinds.most_common(6))
        print(f"  {family}: {count} ({told})")
    sys.exit(1 if bad else 0)


def show(one: Outcome, verbose: bool) -> None:
    if one.problems:
        print(f"{one.family}/{one.seed} {one.command}: {'; '.join(one.problems)} ({one.seconds:.1f} s)", flush=True)
        if verbose:
            print(one.told, flush=True)


if __name__ == "__main__":
    main()
