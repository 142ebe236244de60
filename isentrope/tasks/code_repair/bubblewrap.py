"""Boxes made by bubblewrap: a few milliseconds each, no daemon, no image, no rights needed.

A box sees /usr and the Python installation (read-only), its own /proc and /dev, and two folders in memory, /repo and
/box, of limited size. It has no network but its own loopback, no capability and no way to gain one, and user and
process ids of its own. If we are root ourselves, the box is set up as root and its command gets a user id that nobody
else has: root's id in disguise, which a user namespace would give it, is exempt from the kernel's limit on processes.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache, partial
from pathlib import Path, PurePosixPath

from isentrope.errors import TaskError
from isentrope.tasks.code_repair.bounded import run_bounded
from isentrope.tasks.code_repair.leader import Leader
from isentrope.tasks.code_repair.sandbox import Limits, Outcome
from isentrope.tasks.code_repair.seccomp import filter_program
from isentrope.tasks.code_repair.tree import Item, Tree
from isentrope.tasks.code_repair.watch import passed_limit

HOW_TO_GET = "apt-get install bubblewrap"
WORK = "/repo"
FOLDERS = (WORK, "/box", "/tmp", "/dev/shm")  # where a box can write, all in memory
_NOBODY = 65534
_STRANGERS = range(1_000_000_000, 2_000_000_000)  # user ids that no machine gives to people
_UNPACK = 'tar -x -f - -C / --no-same-owner --no-same-permissions && exec "$@" </dev/null'
ENVIRONMENT = {
    "PATH": "/usr/bin:/bin", "HOME": WORK, "LANG": "C.UTF-8", "TZ": "UTC", "COLUMNS": "100", "NO_COLOR": "1",
    "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
}  # fmt: skip


class Bubblewrap:
    work = WORK

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._tree: Tree | None = None

    def start(self, files: Mapping[str, Item]) -> None:
        check_works()
        self._tree = Tree(files)

    def exec(self, command: Sequence[str], extra: Mapping[str, bytes] | None = None) -> Outcome:
        packed = self._open.as_tar(WORK, extra or {})
        with tempfile.TemporaryFile() as program, Leader() as leader:
            program.write(filter_program())
            program.seek(0)
            argv = box_command(self._limits, command, program.fileno(), leader.told)
            watch = partial(passed_limit, limits=self._limits, folders=FOLDERS)
            return run_bounded(argv, packed, self._limits, watch, (program.fileno(), leader.told), leader)

    def write(self, path: str, data: bytes) -> None:
        self._open.write(path, data)

    def read(self, path: str) -> bytes:
        return self._open.read(path)

    def restore(self, path: str) -> None:
        self._open.restore(path)

    def diff(self) -> dict[str, bytes]:
        return self._open.diff()

    def close(self) -> None:
        self._tree = None

    @property
    def _open(self) -> Tree:
        if self._tree is None:
            raise TaskError("the sandbox is not started")
        return self._tree


def box_command(limits: Limits, command: Sequence[str], seccomp_fd: int, info_fd: int = 1) -> list[str]:
    """The whole command line: bubblewrap's options, then, inside, limits, the tree and the command."""
    program = shutil.which("bwrap")
    if program is None:
        raise TaskError(f"code repair runs code in a sandbox, which needs the program bwrap: {HOW_TO_GET}")
    argv = [program, *_apart(), "--clearenv"]
    for name, value in ENVIRONMENT.items():
        argv += ["--setenv", name, value]
    argv += ["--proc", "/proc", "--dev", "/dev"]
    for folder in FOLDERS:
        argv += ["--perms", "1777", "--size", str(limits.disk if folder == WORK else limits.file), "--tmpfs", folder]
    argv += _visible()  # last: a Python may be installed below one of the folders above
    argv += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", WORK]
    argv += ["--seccomp", str(seccomp_fd), "--info-fd", str(info_fd), "--"]
    return [*argv, *_lowered(), *_limited(limits), "/bin/sh", "-c", _UNPACK, "box", *command]


def _apart() -> list[str]:
    """Namespaces and rights. The box dies with us, whatever it has started."""
    kept = ["--new-session", "--die-with-parent", "--hostname", "box", "--cap-drop", "ALL"]
    if os.geteuid() != 0:
        own = ["--unshare-user", "--unshare-all", "--disable-userns", "--uid", str(_NOBODY), "--gid", str(_NOBODY)]
        return own + kept
    spaces = ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"]
    needed = ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID", "--cap-add", "CAP_SETPCAP"]
    return spaces + kept + needed


def _lowered() -> list[str]:
    """Root becomes a stranger, for good. Each box gets an id of its own, so that none counts another's processes."""
    if os.geteuid() != 0:
        return []
    stranger = str(random.SystemRandom().choice(_STRANGERS))
    return [
        "/usr/bin/setpriv", "--reuid", stranger, "--regid", stranger, "--clear-groups", "--bounding-set=-all",
        "--inh-caps=-all", "--no-new-privs", "--",
    ]  # fmt: skip


def _limited(limits: Limits) -> list[str]:
    """Set inside: outside they would count the user's other processes too."""
    values = {
        "nproc": limits.processes, "as": limits.memory, "fsize": limits.file, "cpu": max(1, round(limits.seconds)),
        "nofile": 256, "core": 0, "memlock": 65536, "msgqueue": 0,
    }  # fmt: skip
    return ["/usr/bin/prlimit", *(f"--{name}={value}:{value}" for name, value in values.items()), "--"]


@cache
def _visible() -> tuple[str, ...]:
    """What a box sees of this machine, read-only: /usr, and the Python that runs us with its packages."""
    options = ["--ro-bind", "/usr", "/usr"]
    for name in ("/bin", "/lib", "/lib32", "/lib64", "/libx32"):
        if os.path.islink(name):
            options += ["--symlink", os.readlink(name), name]
        elif os.path.isdir(name):
            options += ["--ro-bind", name, name]
    options += ["--perms", "0755", "--dir", "/etc"]
    for name in ("/etc/ld.so.cache", "/etc/alternatives"):
        options += ["--ro-bind-try", name, name]
    made: set[str] = set()
    for prefix in python_folders():
        for parent in reversed(PurePosixPath(prefix).parents):
            if str(parent) not in ("/", "/tmp", WORK, *made):
                options += ["--perms", "0755", "--dir", str(parent)]
                made.add(str(parent))
        options += ["--ro-bind", prefix, prefix]
    return tuple(options)


def python_folders() -> list[str]:
    """Folders of the running interpreter that /usr does not hold, outer ones first."""
    folders = {str(Path(folder).resolve()) for folder in (sys.base_prefix, sys.prefix)} | {sys.prefix, sys.base_prefix}
    outside = sorted(folder for folder in folders if not folder.startswith("/usr/") and folder not in ("/usr", "/"))
    return [one for one in outside if not any(one.startswith(other + "/") for other in outside)]


@cache
def check_works() -> None:
    """Try a box once. What cannot be confined is not run."""
    with tempfile.TemporaryFile() as program:
        program.write(filter_program())
        program.seek(0)
        argv = box_command(Limits(), ["true"], program.fileno())
        tried = subprocess.run(
            argv, input=Tree({}).as_tar(WORK, {}), capture_output=True, timeout=30, pass_fds=(program.fileno(),), env={}
        )
    if tried.returncode != 0:
        said = tried.stderr.decode("utf-8", "replace").strip()[:300]
        raise TaskError(
            f"the sandbox of code repair does not work here: bwrap says {said!r}. It needs bubblewrap 0.8 or newer "
            f"({HOW_TO_GET}), util-linux, tar, and user namespaces if you are not root (sysctl "
            "kernel.unprivileged_userns_clone=1; Ubuntu: kernel.apparmor_restrict_unprivileged_userns=0)"
        )
