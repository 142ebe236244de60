"""Trains a toy for long while things go wrong, with its page open, and notes what processes and folders hold.

    with Soak(place, settings, faults) as soak:
        soak.run()
    soak.samples, soak.happened, numbers_of(soak.run_folder)

Games break as tests/worlds/pool/faulty_toys.py says. From outside, each when the run has come to a step (`plan_of`):

stop     a task worker is stopped (SIGSTOP) and goes on half a second later
term     the trainer is asked to end (SIGTERM) within its grace; it is resumed
full     the disk is full until the trainer has ended; it is resumed
kill     a task worker is killed (SIGKILL). That costs an episode, so other numbers come out: all of these lie between a
         checkpoint and a crash, after which the run goes on from that checkpoint
crash    the trainer is killed, the last line of its metrics is torn; it is resumed --from-step that checkpoint

So the numbers of the run are those of a run without faults from outside, bit for bit.

    python -m tests.loop.soak     reads lines of JSON, [LOG, ARGUMENT, ...]; answers with the process id of an
                                  `isentrope` with these arguments, and when it has ended with its exit code
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import queue
import random
import re
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

from isentrope.core.signals import ASKED_TO_END
from isentrope.runs.checkpoints import latest_checkpoint
from isentrope.runs.layout import BEST, CHECKPOINTS, EVENTS, METRICS, SETTINGS, SUMS
from tests.watch.visitor import Visitor

ROOT = Path(__file__).parents[2]
PATIENCE = 300.0  # seconds without a step, or for an end, after which the soak is broken off
LOOK = 0.02  # seconds between two looks at the run
MEGABYTES = 300  # of the disk of its own
_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICK = os.sysconf("SC_CLK_TCK")


class Fault(NamedTuple):
    step: int
    kind: str
    back_to: int = 0  # crash: the checkpoint


def plan_of(steps: int, cycle: int, every: int, seed: int, stops: int = 8, kills: int = 5) -> list[Fault]:
    """In each `cycle` of steps, which ends with `every` steps between two checkpoints: stops of workers and a full disk
    or, every other time, a request to end; then kills of workers and a crash."""
    chance, faults = random.Random(f"soak/{seed}"), list[Fault]()
    for number, begin in enumerate(range(0, steps - cycle + 1, cycle)):
        last = begin + cycle - every
        places = chance.sample(range(begin + 2, last), stops + 1)
        kinds = ["stop"] * stops + [("full", "term")[number % 2]]
        faults += [Fault(step, kind) for step, kind in zip(places, kinds, strict=True)]
        crash = last + max(2, every * 7 // 10)
        faults += [Fault(chance.randrange(last + 1, crash), "kill") for _ in range(kills)]
        faults.append(Fault(crash, "crash", last))
    return sorted(faults)


@dataclass(frozen=True)
class Sample:
    """What there was when the run came to a step. Memory in MB."""

    step: int
    life: int  # of the trainer: the how manieth process
    age: int  # steps of that process
    seconds: float
    trainer_memory: float
    trainer_descriptors: int
    trainer_cpu: float  # seconds since the process began
    workers: int
    workers_memory: float
    workers_descriptors: int
    watch_memory: float
    watch_descriptors: int
    watch_cpu: float
    processes: int  # all that were begun by the soak and are there
    run_files: int
    run_megabytes: float
    checkpoint_files: int  # of all checkpoints
    checkpoint_kilobytes: float  # of the last one
    temporary_files: int
    shared_memory_files: int


# -- processes


def memory_of(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE / 1e6


def descriptors_of(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def processor_seconds_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK


def processes_of(temporary: Path) -> dict[int, tuple[int, str]]:
    """Those with this folder for temporary files, whoever their parent is by now: id -> parent, command line."""
    mark, found = f"TMPDIR={temporary}".encode(), dict[int, tuple[int, str]]()
    for entry in os.scandir("/proc"):
        with suppress(OSError, ValueError, IndexError):
            pid = int(entry.name)
            if pid != os.getpid() and mark in Path(entry.path, "environ").read_bytes().split(b"\0"):
                stat = Path(entry.path, "stat").read_text().rpartition(")")[2].split()
                if stat[0] != "Z":
                    found[pid] = (int(stat[1]), Path(entry.path, "cmdline").read_bytes().decode().replace("\0", " "))
    return found


def files_below(folder: Path) -> tuple[int, int]:
    """How many, and their bytes."""
    count = size = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                size += os.lstat(os.path.join(place, name)).st_size
                count += 1
    return count, size


class Disk:
    """A file system of its own, so that it can be full. Who may not mount one: a file that may not grow."""

    def __init__(self, folder: Path, megabytes: int, mount: bool = True) -> None:
        folder.mkdir()
        self.folder, self._ballast = folder, folder / "ballast"
        command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)]
        self.mounted = mount and os.geteuid() == 0 and subprocess.run(command, capture_output=True).returncode == 0

    def fill(self, trainer: int, log: Path) -> None:
        if not self.mounted:
            hard = resource.prlimit(trainer, resource.RLIMIT_FSIZE)[1]
            resource.prlimit(trainer, resource.RLIMIT_FSIZE, (log.stat().st_size, hard))
            return
        with self._ballast.open("wb") as file:
            for size in (1 << 24, 1 << 20, 1 << 12):
                with suppress(OSError):  # no room for so much
                    while True:
                        os.posix_fallocate(file.fileno(), os.fstat(file.fileno()).st_size, size)

    def free(self) -> None:
        self._ballast.unlink(missing_ok=True)

    def close(self) -> None:
        if self.mounted:
            subprocess.run(["umount", "-l", str(self.folder)], check=True)


# -- the soak


class Soak:
    def __init__(
        self, place: Path, recipe: str, faults: Sequence[Fault], every: int, pause: float = 2.0, mount: bool = True,
        end: threading.Event | None = None,
    ) -> None:  # fmt: skip
        self.place, self.every, self.pause = place, every, pause
        self.samples: list[Sample] = []
        self.happened: Counter[str] = Counter()  # faults, and how the trainer's processes ended
        self.problems: list[str] = []
        self.life = 0
        self._faults, self._end = deque(faults), end or threading.Event()
        self._recipe, self.log, self.temporary = place / "recipe.toml", place / "said.log", place / "tmp"
        self.temporary.mkdir()
        self._recipe.write_text(recipe)
        self._disk = Disk(place / "disk", MEGABYTES, mount)
        self.run_folder = self._disk.folder / "run"
        self._began, self._born_at, self._next, self._moved = time.monotonic(), 0, every, time.monotonic()
        self._last = self._left = 0
        self._answers: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._chance = random.Random("workers")

    def __enter__(self) -> Self:
        environment = {**os.environ, "TMPDIR": str(self.temporary), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        pipe, python = subprocess.PIPE, sys.executable
        self._launcher = subprocess.Popen(
            [python, "-m", "tests.loop.soak"], cwd=ROOT, env=environment, stdin=pipe, stdout=pipe, text=True,
            preexec_fn=_dies_with_its_parent,
        )  # fmt: skip
        threading.Thread(target=self._hear, daemon=True).start()
        watch, out = [python, "-m", "isentrope", "watch", str(self._disk.folder), "--port", "0"], subprocess.STDOUT
        self._watch = subprocess.Popen(
            watch, cwd=ROOT, env=environment, stdout=pipe, stderr=out, text=True, preexec_fn=_dies_with_its_parent
        )
        assert self._watch.stdout is not None
        found = re.search(r"http://127\.0\.0\.1:\d+/", self._watch.stdout.readline())
        assert found, "isentrope watch did not say its address"
        self._said: list[str] = []
        threading.Thread(target=self._said.extend, args=(self._watch.stdout,), daemon=True).start()
        self.visitor = Visitor(found[0], self.pause)
        self.visitor.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self.visitor.ended.set()
        self.visitor.join(60)
        self._watch.send_signal(signal.SIGINT)
        try:
            self._watch.wait(30)
        except subprocess.TimeoutExpired:
            self._watch.kill()
        assert self._launcher.stdin is not None
        self._launcher.stdin.close()
        with suppress(subprocess.TimeoutExpired):  # it ends when the trainer has
            self._launcher.wait(5)
        self._launcher.kill()
        self._launcher.wait()
        time.sleep(0.5)
        for pid, (_, command) in processes_of(self.temporary).items():
            self.problems.append(f"left behind: {command[:200]}")
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.problems += [f"watch: {problem}" for problem in self.visitor.problems]
        if any("Traceback" in line for line in self._said):
            self.problems.append("watch: " + "".join(self._said)[-2000:])
        said = self.log.read_text(errors="replace")
        if "Traceback" in said:
            self.problems.append(f"the trainer: {said[said.index('Traceback') :][:3000]}")

    def close(self) -> None:
        """Give the disk back: what the run wrote is gone."""
        self._disk.close()

    def run(self) -> None:
        self._start("train", str(self._recipe), "--out", str(self.run_folder))
        while (code := self._ended()) is None:
            step = self.step()
            if self._faults and step >= self._faults[0].step and self._has_begun():
                self._inject(self._faults.popleft())
            elif step >= self._next and self._has_begun():
                self._take_sample(step)
            if self._end.is_set():
                return self._break_off(step)
            if time.monotonic() - self._moved > PATIENCE:
                raise TimeoutError(f"no step after step {step} for {PATIENCE:g} s; see {self.log}")
            time.sleep(LOOK)
        self.happened[f"ended with {code}"] += 1
        if code != 0:
            self.problems.append(f"the trainer ended by itself with exit code {code}: {self._last_words()}")

    def _break_off(self, step: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.trainer, signal.SIGKILL)
        self._ended(PATIENCE)
        self.happened[f"broken off at step {step}"] += 1

    # the trainer

    def _hear(self) -> None:
        assert self._launcher.stdout is not None
        for line in self._launcher.stdout:
            self._answers.put(int(line))

    def _start(self, *arguments: str) -> None:
        assert self._launcher.stdin is not None
        self._launcher.stdin.write(json.dumps([str(self.log), *arguments]) + "\n")
        self._launcher.stdin.flush()
        self.trainer = self._answers.get(timeout=PATIENCE)
        self.life, self._moved, self._left = self.life + 1, time.monotonic(), self._metrics_size()

    def _has_begun(self) -> bool:
        """Whether the trainer has written metrics, or removed those that it computes again."""
        return self._metrics_size() != self._left

    def _metrics_size(self) -> int:
        path = self.run_folder / METRICS
        return path.stat().st_size if path.exists() else 0

    def _resume(self, *more: str) -> None:
        self._start("train", "--resume", "--out", str(self.run_folder), "--trust", *more)
        steps = [checkpoint for checkpoint in [latest_checkpoint(self.run_folder / CHECKPOINTS)] if checkpoint]
        self._born_at = int(more[1]) if more else int(steps[0].name.rpartition("-")[2]) if steps else 0

    def _ended(self, patience: float = 0.0) -> int | None:
        try:
            return self._answers.get(timeout=patience) if patience else self._answers.get_nowait()
        except queue.Empty:
            return None

    def step(self) -> int:
        """The last step of which there are metrics."""
        try:
            with (self.run_folder / METRICS).open("rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - 16_384))
                lines = re.findall(rb'^\{"step": (\d+)', file.read(), re.MULTILINE)
        except OSError:
            return 0
        step = int(lines[-1]) if lines else 0
        if step != self._last:
            self._last, self._moved = step, time.monotonic()
        return step

    def _workers(self) -> list[int]:
        return [
            pid for pid, (parent, command) in processes_of(self.temporary).items()
            if parent == self.trainer and "spawn_main" in command
        ]  # fmt: skip

    # faults

    def _inject(self, fault: Fault) -> None:
        self.happened[fault.kind] += 1
        if fault.kind in ("stop", "kill"):
            return self._to_a_worker(fault.kind)
        if fault.kind == "full":
            self._disk.fill(self.trainer, self.run_folder / METRICS)
        else:
            os.kill(self.trainer, signal.SIGTERM if fault.kind == "term" else signal.SIGKILL)
        code = self._ended(PATIENCE)
        self._disk.free()
        self.happened[f"{fault.kind}: ended with {code}"] += 1
        if code != {"term": ASKED_TO_END, "crash": -signal.SIGKILL}.get(fault.kind, code) or code in (0, None):
            self.problems.append(f"{fault}: the trainer ended with {code}: {self._last_words()}")
        if fault.kind != "crash":
            return self._resume()
        path = self.run_folder / METRICS
        last = path.read_bytes().rstrip(b"\n").rpartition(b"\n")[2]
        os.truncate(path, path.stat().st_size - len(last) // 2)
        self._resume("--from-step", str(fault.back_to))

    def _last_words(self) -> str:
        return self.log.read_text(errors="replace")[-1500:]

    def _to_a_worker(self, kind: str) -> None:
        workers = sorted(self._workers())
        if not workers:
            return
        worker = self._chance.choice(workers)
        with suppress(ProcessLookupError):
            os.kill(worker, signal.SIGKILL if kind == "kill" else signal.SIGSTOP)
            if kind == "stop":
                time.sleep(0.5)
                os.kill(worker, signal.SIGCONT)

    # samples

    def _take_sample(self, step: int) -> None:
        try:
            self.samples.append(self._sample(step))
            self._next = (step // self.every + 1) * self.every
        except (FileNotFoundError, ProcessLookupError):
            pass  # a process ended meanwhile: at the next look

    def _sample(self, step: int) -> Sample:
        workers = self._workers()
        run_files, run_bytes = files_below(self.run_folder)
        return Sample(
            step, self.life, step - self._born_at, time.monotonic() - self._began,
            memory_of(self.trainer), descriptors_of(self.trainer), processor_seconds_of(self.trainer),
            len(workers), sum(map(memory_of, workers)), sum(map(descriptors_of, workers)),
            memory_of(self._watch.pid), descriptors_of(self._watch.pid), processor_seconds_of(self._watch.pid),
            len(processes_of(self.temporary)), run_files, run_bytes / 1e6,
            files_below(self.run_folder / CHECKPOINTS)[0],
            self._last_checkpoint() / 1e3, files_below(self.temporary)[0], len(os.listdir("/dev/shm")),
        )  # fmt: skip

    def _last_checkpoint(self) -> int:
        last = latest_checkpoint(self.run_folder / CHECKPOINTS)
        return files_below(last)[1] if last else 0


def numbers_of(run: Path, until: int | None = None) -> dict[str, str]:
    """What must come out the same however often the run was broken off, of its steps up to `until`: metrics, events but
    those of recoveries, stored episodes; of all steps, the last checkpoint and the choice of the best too."""
    logs = [run / name for name in (METRICS, EVENTS) if (run / name).exists()]
    lines = [line for log in logs for line in log.read_text().splitlines(True) if line.endswith("\n")]
    records = [(json.loads(line), line) for line in lines]
    ours = [line for told, line in records if told["kind"] not in ("recovery", "stop")]
    paths = [path for path in run.glob("episodes/*") if until is None or int(path.stem.split("-")[1]) <= until]
    if until is None:
        last = latest_checkpoint(run / CHECKPOINTS)
        assert last is not None
        paths += [path for path in last.rglob("*") if path.is_file() and path.name not in (SUMS, SETTINGS)]
        paths.append(run / CHECKPOINTS / BEST)
    else:
        ours = [line for line in ours if json.loads(line)["step"] <= until]
    found = {str(path.relative_to(run)): path.read_bytes() for path in sorted(paths)} | {
        "logs": "\n".join(ours).encode()
    }
    return {name: hashlib.sha256(data).hexdigest() for name, data in found.items()}


# -- the process that forks the trainers: what a first run imports and prepares takes as long as a hundred steps


_prctl = ctypes.CDLL(None).prctl


def _dies_with_its_parent() -> None:
    _prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def main() -> None:
    import torch
    import torch.utils.tensorboard  # pyright: ignore[reportUnusedImport]

    from isentrope.cli.main import main as isentrope
    from isentrope.loop.train import train
    from tests.builders.toy_runs import WARM_MODEL, toy_config

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        train(toy_config(WARM_MODEL, "run.steps=1"), Path(place) / "first", quiet=True)
    for line in sys.stdin:
        log, *arguments = json.loads(line)
        child = os.fork()
        if child == 0:
            _dies_with_its_parent()
            stream = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            for number, where in ((0, os.open(os.devnull, os.O_RDONLY)), (1, stream), (2, stream)):
                os.dup2(where, number)
            sys.argv = ["isentrope", *arguments]
            isentrope()
            sys.exit(0)
        print(child, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
