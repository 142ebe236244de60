"""One command on one folder, in a process that may take 10 seconds of a core and 3 GB of addresses.

Forked from a process that has imported what the commands import (`Parent`), or started as a new one, as a user's is:

    python -P -m tests.attack.children NAME MAPPED PEAK      # in the folder; writes its largest memory to PEAK

To import torch and what comes with it takes seconds, the commands mostly a tenth of one. So that a forked child is
judged as a process of its own would be, its memory is all that the parent holds and what the child took beyond that.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.attack.planted import PLANTED
from tests.builders.hostile import PAYLOADS
from tests.builders.hostile_logs import LOGS
from tests.loop.soak import processor_seconds_of

ROOT = Path(__file__).parents[2]
CPU_SECONDS, MEGABYTES = 10, 1000
ADDRESSES = 3 << 30  # that a child may map beyond its imports: a bomb must not take the machine along
BUSY = 0.5  # seconds of a core by which a child has not been waiting
_PAGE = os.sysconf("SC_PAGE_SIZE")

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
COMMANDS = LIGHT | HEAVY


# -- what a command does


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


def run_command(name: str) -> None:
    from isentrope.cli.completion import complete_run
    from isentrope.net.server import Server

    Server.run_until_interrupted = lambda *_: None  # type: ignore[method-assign]
    if name in PLANTED:
        return PLANTED[name].act()
    if name == "watch":
        return look_through(Path.cwd())
    if name.startswith("import-"):
        return import_and_look(COMMANDS[name])
    if name == "completion":
        return print([*complete_run("r"), *complete_run("run/"), *complete_run("")])
    from isentrope.cli.main import main

    sys.argv = ["isentrope", *COMMANDS[name]]
    main()


def limited(name: str, mapped: int) -> int:
    """Its exit code."""
    code = 1
    try:
        tempfile.tempdir = None
        resource.setrlimit(resource.RLIMIT_AS, (mapped + ADDRESSES, mapped + ADDRESSES))
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 1))
        run_command(name)
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        if (name in LIGHT or name == "planted-torch") and "torch" in sys.modules:
            print("IMPORTED torch")
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
    return code


# -- its process


@dataclass(frozen=True)
class End:
    status: int | None  # None: killed at the deadline
    seconds: float  # of a core
    megabytes: float


def environment(temporary: Path) -> dict[str, str]:
    return {"COLUMNS": "120", "NO_COLOR": "1", "HF_HUB_OFFLINE": "1", "TMPDIR": str(temporary)}


class Parent:
    """This process, once it has imported what a command on a whole folder imports, for each of `names`."""

    def __init__(self, names: Sequence[str], whole: Path, work: Path) -> None:
        for name in names:
            told = work / "modules"
            self._fork(name, whole, work, 120.0, told)
            for module in json.loads(told.read_text()):
                if module.partition(".")[0] not in PAYLOADS:  # those are to be found in the folders, if at all
                    with suppress(Exception):
                        importlib.import_module(module)
        if "torch" in sys.modules:
            importlib.import_module("torch").set_num_threads(1)
        if "isentrope.papers.registry" in sys.modules:
            importlib.import_module("isentrope.papers.registry").present()  # a second of a core, once a process
        gc.collect()
        gc.freeze()
        self.mapped, resident = _mapped_and_resident()
        self.megabytes = resident / 1e6
        self._inherited = self._fork("", whole, work, 120.0).megabytes

    def fork(self, name: str, folder: Path, work: Path, wall: float) -> End:
        end = self._fork(name, folder, work, wall)
        beyond = max(0.0, end.megabytes - self._inherited)
        return End(end.status, end.seconds, self.megabytes + beyond)

    def _fork(self, name: str, folder: Path, work: Path, wall: float, modules: Path | None = None) -> End:
        deadline = time.monotonic() + wall
        mapped = _mapped_and_resident()[0]
        child = os.fork()
        if child == 0:
            code = 1
            try:
                _enter(folder, work)
                os.environ |= environment(work / "tmp")
                code = limited(name, mapped) if name else 0
                if modules:
                    modules.write_text(json.dumps(list(sys.modules)))
            finally:
                os._exit(code)
        status, usage = waited(child, deadline, wall)
        return End(status, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024 / 1e6)

    def start(self, name: str, folder: Path, work: Path, wall: float) -> End:
        """As a process of its own."""
        deadline, peak = time.monotonic() + wall, work / "peak"
        peak.unlink(missing_ok=True)
        command = [sys.executable, "-P", "-m", "tests.attack.children", name, str(self.mapped), str(peak)]
        told = {**os.environ, **environment(work / "tmp"), "PYTHONPATH": str(ROOT)}
        child = os.fork()
        if child == 0:
            try:
                _enter(folder, work)
                os.execve(command[0], command, told)
            finally:
                os._exit(1)
        status, usage = waited(child, deadline, wall)
        # what wait4 says counts this process's memory too, until exec
        megabytes = int(peak.read_text()) * 1024 / 1e6 if peak.exists() else usage.ru_maxrss * 1024 / 1e6
        return End(status, usage.ru_utime + usage.ru_stime, megabytes)


def waited(child: int, deadline: float, more: float = 0.0) -> tuple[int | None, resource.struct_rusage]:
    """Its exit status and what it used; None if it had to be killed at the deadline. What it began is ended. One that
    has used a core since the last deadline has `more` seconds: on a busy machine its limit of processor time counts."""
    status: int | None = None
    used = 0.0
    while True:
        pid, ended, usage = os.wait4(child, os.WNOHANG)
        if pid:
            status = os.waitstatus_to_exitcode(ended)
            break
        if time.monotonic() > deadline and more and (now := processor_seconds_of(child)) > used + BUSY:
            used, deadline = now, time.monotonic() + more
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            usage = os.wait4(child, 0)[2]
            break
        time.sleep(0.003)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    return status, usage


def _enter(folder: Path, work: Path) -> None:
    os.setsid()
    os.chdir(folder)
    said = os.open(work / "said", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream, number in ((os.open(os.devnull, os.O_RDONLY), 0), (said, 1), (said, 2)):
        os.dup2(stream, number)


def _mapped_and_resident() -> tuple[int, int]:
    pages = Path("/proc/self/statm").read_text().split()
    return int(pages[0]) * _PAGE, int(pages[1]) * _PAGE


def main() -> None:
    name, mapped, peak = sys.argv[1:]
    code = limited(name, int(mapped))
    with suppress(OSError):
        Path(peak).write_text(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
    os._exit(code)


if __name__ == "__main__":
    main()
