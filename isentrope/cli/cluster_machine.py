"""What processes on this machine can do together, for `isentrope doctor --cluster`. No check may raise.

A run with several samplers starts processes, sends them orders through pipes and weights through shared memory, and
opens no port. Everything here is about one machine.
"""

from __future__ import annotations

import mmap
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import typer

from isentrope import __version__
from isentrope.cli.machine import Sign
from isentrope.cli.options import Usual, terminal
from isentrope.core.process import usable_cores
from isentrope.core.text import shown

SENT = 256 * 2**20  # bytes of a trial
CHILD_SECONDS = 60.0
SLOW = 0.2e9  # bytes a second of a pipe: less than that is a machine at its limit
_SAYS = "import isentrope, sys, torch; print(isentrope.__version__, torch.__version__, sys.version.split()[0])"
_READS = f"""
import sys
left = {SENT}
while left > 0:
    left -= len(sys.stdin.buffer.read(1 << 20))
print("ok")
"""


def look_at_cluster(folder: Path) -> None:
    """Each check with what it found, and what to do where something is wrong."""
    checks: dict[str, Callable[[], Sign]] = {
        "started process": _child, "pipe": _pipe, "shared memory": _shared_memory, "/dev/shm": _dev_shm,
        "cards": _cards, "cores": _cores, "folder": lambda: _folder(folder), "ports": _ports,
    }  # fmt: skip
    console, broken = terminal(), False
    for name, check in checks.items():
        try:
            sign = check()
        except Exception as error:  # whatever it is, the user came here to learn it
            sign = Sign(name, "broken", f"{type(error).__name__}: {error}"[:200])
        broken |= sign.state == "broken"
        color = {"broken": "red", "warning": "yellow"}.get(sign.state, "")
        console.print(shown(f"{name:16}{sign.detail}", color))
        if sign.advice:
            console.print(shown(f"{'':16}{sign.advice}"))
    works = "Samplers in processes of their own work here (cluster.kind=processes). Several machines do not work yet."
    console.print(shown("Samplers in processes of their own cannot work here." if broken else works, "bold"))
    if broken:
        raise typer.Exit(1)


def _child() -> Sign:
    """As a sampler is started: the same Python, which has to find the same package."""
    name, begin = "started process", time.perf_counter()
    done = subprocess.run([sys.executable, "-c", _SAYS], capture_output=True, text=True, timeout=CHILD_SECONDS)
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        return Sign(name, "broken", said[:200], "run isentrope doctor: torch or the package cannot be imported")
    ours, torch, python = done.stdout.split()
    detail = f"isentrope {ours}, torch {torch}, Python {python}, ready in {time.perf_counter() - begin:.1f} s"
    if ours != __version__:
        return Sign(name, "broken", f"{detail}; here it is {__version__}", "two installations: see python -m pip list")
    return Sign(name, "ok", detail)


def _pipe() -> Sign:
    """From this process into another one."""
    part = bytes(1 << 20)
    with subprocess.Popen([sys.executable, "-c", _READS], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(part)  # it runs now
        child.stdin.flush()
        begin = time.perf_counter()
        for _ in range(SENT // len(part) - 1):
            child.stdin.write(part)
        child.stdin.flush()
        child.stdout.readline()
        rate = SENT / (time.perf_counter() - begin)
    detail = f"{rate / 1e9:.1f} GB/s from process to process"
    if rate < SLOW:
        return Sign("pipe", "warning", detail, "the cores are busy, or very slow")
    return Sign("pipe", "ok", detail)


def _shared_memory() -> Sign:
    """Memory without a name, written once and read once, as weights are on a CPU."""
    if not hasattr(os, "memfd_create"):
        return Sign("shared memory", "ok", "no memory without a name on this system: a temporary file instead")
    fd = os.memfd_create("isentrope-doctor", os.MFD_CLOEXEC)
    try:
        os.ftruncate(fd, SENT)
        with mmap.mmap(fd, SENT) as memory:
            part, begin = bytes(range(256)) * (1 << 12), time.perf_counter()
            for at in range(0, SENT, len(part)):
                memory[at : at + len(part)] = part
            rate = SENT / (time.perf_counter() - begin)
            if memory[SENT - 1] != 255:
                return Sign("shared memory", "broken", "what was written is not there")
    finally:
        os.close(fd)
    return Sign("shared memory", "ok", f"{rate / 1e9:.1f} GB/s written")


def _dev_shm() -> Sign:
    if not Path("/dev/shm").is_dir():
        return Sign("/dev/shm", "ok", "not here; it is not needed")
    usage = shutil.disk_usage("/dev/shm")
    room = f"{usage.free / 2**30:.1f} of {usage.total / 2**30:.1f} GiB free"
    return Sign("/dev/shm", "ok", f"{room}; weights do not need it")


def _cards() -> Sign:
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not count:
        return Sign("cards", "ok", "no GPU in use: samplers share the cores")
    names = sorted({torch.cuda.get_device_name(number) for number in range(count)})
    more = "; a run uses one of them, and its samplers the same one" if count > 1 else "; the samplers share it"
    return Sign("cards", "ok", f"{count} × {', '.join(names)}{more}")


def _cores() -> Sign:
    cores = usable_cores()
    if cores < 2:
        return Sign("cores", "warning", "1 usable", "on one core several samplers gain nothing")
    return Sign("cores", "ok", f"{cores} usable; each sampler wants one at least")


def _folder(folder: Path) -> Sign:
    """What a run does in its folder: write, rename, lock."""
    above = folder
    while not above.is_dir() and above != above.parent:
        above = above.parent
    if not above.is_dir():
        return Sign("folder", "broken", f"{folder} is not there, nor anything above it", "choose another --folder")
    try:
        with tempfile.TemporaryDirectory(prefix=".isentrope-doctor-", dir=above) as place:
            part, whole = Path(place) / "part", Path(place) / "whole"
            with part.open("wb") as opened:
                opened.write(b"isentrope")
                opened.flush()
                os.fsync(opened.fileno())
            part.rename(whole)
            if whole.read_bytes() != b"isentrope":
                return Sign("folder", "broken", f"{above}: what was written is not there", "choose another --folder")
            if not _locks(whole):
                detail = f"{above}: two writers can hold one lock there"
                return Sign("folder", "warning", detail, "never start a run twice in it, or choose another disk")
    except ImportError:
        return Sign("folder", "broken", "this system has no file locks of POSIX", "Linux, macOS, or WSL 2 on Windows")
    except OSError as error:
        return Sign("folder", "broken", f"{above}: {error.strerror or error}", "choose another --folder, or its owner")
    free = shutil.disk_usage(above).free / 2**30
    return Sign("folder", "ok", f"{above} can be written, renamed in and locked; {free:.1f} GiB free")


def _locks(file: Path) -> bool:
    """Whether a second lock on it is refused."""
    import fcntl  # not there on Windows

    with file.open("rb") as first, file.open("rb") as second:
        fcntl.flock(first, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


def _ports() -> Sign:
    from isentrope.core.errors import ConfigError
    from isentrope.net.server import listen

    free, taken = list[str](), list[str]()
    for usual in Usual:
        try:
            listen("127.0.0.1", usual.value).close()
            free.append(str(usual.value))
        except ConfigError:
            taken.append(str(usual.value))
    told = f"free: {', '.join(free) or 'none'}" + (f"; taken: {', '.join(taken)}" if taken else "")
    return Sign("ports", "ok", f"samplers open none; of those of serve, watch and the others {told}")
