"""Runs commands in bubblewrap boxes: a few milliseconds each, no daemon, no image, no rights needed.

A box sees /usr and the Python installation (read-only), its own /proc and /dev, and two folders in memory, /repo and
/box, of limited size. It has no network but its own loopback, no capability and no way to gain one, and user and
process ids of its own. If we are root ourselves, the box is set up as root and its command gets a user id that nobody
else has: root's id in disguise, which a user namespace would give it, is exempt from the kernel's limit on processes.
"""

from __future__ import annotations

import errno
import os
import platform
import random
import shutil
import site
import struct
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path, PurePosixPath

from isentrope.core.errors import TaskError
from isentrope.core.needs import program_command
from isentrope.sandbox.base import Limits, Outcome, Sandbox, Tree
from isentrope.sandbox.limits import Leader, run_bounded

# System calls that untrusted code does without. Namespaces already keep the box apart. This shuts what they leave open:
# sockets that are in no network namespace (vsock leads from a virtual machine to its host), namespaces inside the box,
# other people's keys, memory that no limit counts, and the parts of the kernel that most exploits begin with. A
# forbidden call fails with EPERM.
# Names with their numbers on x86_64 and aarch64 (None: the call does not exist there)
_FORBIDDEN: dict[str, tuple[int | None, int | None]] = {
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "pidfd_getfd": (438, 438), "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "umount2": (166, 39),
    "pivot_root": (155, 41), "chroot": (161, 51), "open_tree": (428, 428), "move_mount": (429, 429),
    "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433),
    "mount_setattr": (442, 442), "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282), "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426), "io_uring_register": (427, 427), "memfd_create": (319, 279),
    "memfd_secret": (447, 447), "shmget": (29, 194), "msgget": (68, 186), "mq_open": (240, 180),
    "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265), "init_module": (175, 105),
    "finit_module": (313, 273), "delete_module": (176, 106), "kexec_load": (246, 104), "kexec_file_load": (320, 294),
    "syslog": (103, 116), "acct": (163, 89), "quotactl": (179, 60), "swapon": (167, 224), "swapoff": (168, 225),
    "reboot": (169, 142), "iopl": (172, None), "ioperm": (173, None), "modify_ldt": (154, None),
    "fanotify_init": (300, 262), "lookup_dcookie": (212, 18), "vmsplice": (278, 75),
}  # fmt: skip
_SOCKET, _CLONE, _CLONE3 = (41, 198), (56, 220), (435, 435)
_AUDIT_ARCH = (0xC000003E, 0xC00000B7)
_FAMILIES = (1, 2, 10)  # unix, inet, inet6: the last two end at the box's own loopback
_NEW_NAMESPACE = 0x7E020080  # CLONE_NEW…: user, pid, net, ipc, uts, cgroup, mount, time
_X32 = 0x40000000

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCH, _FIRST_ARGUMENT = 0, 4, 16  # offsets in struct seccomp_data
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000


def filter_program(machine: str = "") -> bytes:
    """The filter of system calls for this kind of processor, as an array of struct sock_filter."""
    machine = machine or platform.machine()
    if machine not in ("x86_64", "aarch64"):
        raise TaskError(f"the sandbox knows the system calls of x86_64 and aarch64 processors, not of {machine}")
    column = 0 if machine == "x86_64" else 1
    refuse = _instruction(_RETURN, _ERRNO | errno.EPERM)
    program = [_instruction(_LOAD, _ARCH), _instruction(_EQUAL, _AUDIT_ARCH[column], 1, 0)]
    program += [_instruction(_RETURN, _KILL), _instruction(_LOAD, _NUMBER)]
    if machine == "x86_64":  # the same calls under other numbers
        program += [_instruction(_AT_LEAST, _X32, 0, 1), refuse]
    for numbers in _FORBIDDEN.values():
        number = numbers[column]
        if number is not None:
            program += [_instruction(_EQUAL, number, 0, 1), refuse]
    # clone3 hides its flags in memory: the C library falls back to clone
    program += [_instruction(_EQUAL, _CLONE3[column], 0, 1), _instruction(_RETURN, _ERRNO | errno.ENOSYS)]
    program += [_instruction(_EQUAL, _CLONE[column], 0, 4), _instruction(_LOAD, _FIRST_ARGUMENT)]
    program += [_instruction(_ANY_BIT, _NEW_NAMESPACE, 0, 1), refuse, _instruction(_RETURN, _ALLOW)]
    program += [_instruction(_EQUAL, _SOCKET[column], 0, 2 + len(_FAMILIES)), _instruction(_LOAD, _FIRST_ARGUMENT)]
    program += [_instruction(_EQUAL, family, len(_FAMILIES) - place, 0) for place, family in enumerate(_FAMILIES)]
    program += [_instruction(_RETURN, _ERRNO | errno.EAFNOSUPPORT), _instruction(_RETURN, _ALLOW)]
    return b"".join(program)


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def passed_limit(pid: int, limits: Limits, folders: Sequence[str]) -> str:
    """`memory` or `files` if the box whose outermost process is `pid` takes more than it may; else nothing. Read from
    /proc: no limit of the kernel's own sums that up per box."""
    family, pages = descendants(pid), 0
    for member in family:
        with suppress(OSError, IndexError):  # it has ended meanwhile
            pages += int(Path(f"/proc/{member}/statm").read_bytes().split()[1])
    if pages * os.sysconf("SC_PAGE_SIZE") > limits.memory:
        return "memory"
    if family and _files_made(family[-1], folders) > limits.files:
        return "files"
    return ""


def descendants(pid: int) -> list[int]:
    """All processes below `pid`. Orphans of a box go to its first process, so none gets away."""
    family = [pid]
    for member in family:  # which grows meanwhile
        with suppress(OSError):  # it has ended meanwhile
            for thread in os.listdir(f"/proc/{member}/task"):
                family += map(int, Path(f"/proc/{member}/task/{thread}/children").read_bytes().split())
    return family[1:]


def _files_made(pid: int, folders: Sequence[str]) -> int:
    """Files in the box's own folders, each a file system. The box cannot move them: its root is read-only.

    As a box is being set up its process still sees the machine's /tmp, which does not count.
    """
    made = 0
    for folder in folders:
        inside = f"/proc/{pid}/root{folder}"
        with suppress(OSError):  # not there yet, or not any more
            if not os.path.exists(folder) or os.stat(inside).st_dev != os.stat(folder).st_dev:
                room = os.statvfs(inside)
                made += room.f_files - room.f_ffree
    return made


HOW_TO_GET = program_command("bubblewrap")
WORK = "/repo"
FOLDERS = (WORK, "/box", "/tmp", "/dev/shm")  # where a box can write, all in memory
_NOBODY = 65534
_STRANGERS = range(1_000_000_000, 2_000_000_000)  # user ids that no machine gives to people
UNPACK = 'tar -x -f - -C / --no-same-owner --no-same-permissions && exec "$@" </dev/null'
ENVIRONMENT = {
    "PATH": "/usr/bin:/bin", "HOME": WORK, "LANG": "C.UTF-8", "TZ": "UTC", "COLUMNS": "100", "NO_COLOR": "1",
    "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
}  # fmt: skip


class Bubblewrap(Sandbox):
    work = WORK
    python = sys.executable

    def __init__(self, limits: Limits) -> None:
        self._limits = limits

    def _check_works(self) -> None:
        check_works()

    def exec(self, command: Sequence[str], extra: Mapping[str, bytes] | None = None) -> Outcome:
        packed = self.tree.as_tar(WORK, extra or {})
        with tempfile.TemporaryFile() as program, Leader() as leader:
            program.write(filter_program())
            program.seek(0)
            hidden = copies_of(self.tree.paths())
            argv = box_command(self._limits, command, program.fileno(), leader.told, hidden)
            watch = partial(passed_limit, limits=self._limits, folders=FOLDERS)
            return run_bounded(argv, packed, self._limits, watch, (program.fileno(), leader.told), leader)


def box_command(
    limits: Limits, command: Sequence[str], seccomp_fd: int, info_fd: int = 1, hidden: Sequence[str] = ()
) -> list[str]:
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
    argv += [option for path in _outermost((*_covered(), *hidden)) for option in _cover(path)]
    argv += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", WORK]
    argv += ["--seccomp", str(seccomp_fd), "--info-fd", str(info_fd), "--"]
    return [*argv, *_lowered(), *_limited(limits), "/bin/sh", "-c", UNPACK, "box", *command]


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
    return [
        "/bin/sh",
        "-c",
        _POLITE,
        "box",
        "/usr/bin/prlimit",
        *(f"--{name}={value}:{value}" for name, value in values.items()),
        "--",
    ]


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


# What says which machine and which kernel this is, and what a repair must not be copied from
_TELLTALE = ("/usr/local/etc", "/usr/etc", "/usr/src", "/usr/lib/modules")
# Of what /proc tells besides processes: what is the box's own, and what the C library asks for
_TOLD = {"self", "thread-self", "mounts", "net", "meminfo", "stat"}
# The box gives way to the trainer, but little: its time is limited by the clock. Where the kernel shares time out by
# sessions, its session does; else its processes.
_POLITE = '{ echo 2 > /proc/self/autogroup; } 2> /dev/null; exec /usr/bin/nice -n 2 "$@"'
_RUNNER = {"pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments", "exceptiongroup", "tomli", "py"}
# What a folder of a Python holds that it runs with; anything else there is something that somebody left in it
_PYTHONS_OWN = {"bin", "lib", "lib32", "lib64", "libexec", "include", "share", "etc", "ssl", "pyvenv.cfg"}
_PACKAGES = ("lib*/python3*/*-packages", "local/lib/python3*/*-packages")
_LENT = ("*/*vendor*", "*/*/*vendor*", "*/extern*", "*/third_party")  # where packages keep copies of other packages
_WHEELS = ("lib*/python3*/ensurepip/_bundled/*.whl", "share/python-wheels/*.whl")


@cache
def _covered() -> tuple[str, ...]:
    """What a box has no business with, and gets something empty for; this package too, which holds known repairs."""
    ours = Path(__file__).resolve().parents[1]
    checkout = [] if ours.parent.name.endswith("-packages") else [str(ours.parent)]
    kernel = sorted(f"/proc/{name}" for name in os.listdir("/proc") if not name.isdigit() and name not in _TOLD)
    paths = [*_TELLTALE, *kernel, *([str(ours)] if _is_seen(str(ours)) else [])]
    paths += [*_installed("isentrope"), *_unused_packages()]
    paths += _left_there([*_prefixes(), *filter(_is_seen, checkout)], {ours.parent})
    return tuple(paths)


@cache
def _outermost(paths: tuple[str, ...]) -> list[str]:
    """By all the names that a box knows them by, and nothing that lies in another one: it is not there any more."""
    named = sorted({name for path in paths for name in _names_in_a_box(path)})
    return [one for one in named if not any(str(above) in named for above in PurePosixPath(one).parents)]


def _names_in_a_box(path: str) -> set[str]:
    """A Python folder that is reached by a link is seen under both names."""
    real = Path(path).resolve()
    tops = [(Path(top), Path(top).resolve()) for top in _seen()]
    return {path} | {str(top / real.relative_to(at)) for top, at in tops if real.is_relative_to(at) and real != at}


def _cover(path: str) -> list[str]:
    if os.path.islink(path) or not os.path.exists(path):
        return []
    return ["--tmpfs", path, "--remount-ro", path] if os.path.isdir(path) else ["--ro-bind", "/dev/null", path]


def _is_seen(path: str) -> bool:
    return any(path.startswith(folder + "/") for folder in _seen())


def _seen() -> list[str]:
    return ["/usr", *python_folders()]


def _unused_packages() -> list[str]:
    """Packages of other Pythons than the running one: of the one that a venv was made from, and of the system's."""
    used = {Path(folder).resolve() for folder in (*sys.path, *site.getsitepackages())}
    found = {one.resolve() for top in _seen() for shape in _PACKAGES for one in Path(top).glob(shape)}
    return sorted(map(str, found - used))


def _left_there(folders: Sequence[str], but: set[Path]) -> list[str]:
    """What lies in these folders and is no part of a Python, nor leads to one or to packages that it imports: sources
    with their history, where a checkout lies in a venv or a venv is made in one."""
    prefixes = {Path(one) for one in _prefixes()}
    needed = prefixes | {path for path in map(Path, sys.path) if path.is_dir()} - but
    found: list[str] = []
    left = [Path(one) for one in folders]
    for folder in left:  # which grows meanwhile
        for one in sorted(folder.iterdir() if folder.is_dir() else ()):
            if (folder in prefixes and one.name in _PYTHONS_OWN) or one in needed:
                continue
            if any(one in path.parents for path in needed):
                left.append(one)
            else:
                found.append(str(one))
    return found


def copies_of(paths: Sequence[str]) -> list[str]:
    """Where the packages of a tree are installed on this machine as well, in the original: a repaired package could
    import it. What runs the tests stays."""
    names = {path.removeprefix("src/").partition("/")[0].removesuffix(".py") for path in paths if path.endswith(".py")}
    return [path for name in sorted(names) if name.isidentifier() for path in _installed(name)]


@cache
def _installed(name: str) -> tuple[str, ...]:
    """Among the packages of the running Python, among those that they have taken in, and in wheels."""
    shapes = (name, f"{name}.py", f"{name}.*.so", f"__pycache__/{name}.*.pyc")
    folders = [folder for folder in _package_folders() if name not in _RUNNER]
    found = [path for folder in folders for shape in shapes for path in sorted(folder.glob(shape))]
    found += [path for folder in _lent_folders() for shape in shapes for path in sorted(folder.rglob(shape))]
    return tuple(map(str, dict.fromkeys(found))) + tuple(wheel for wheel, held in _wheels().items() if name in held)


@cache
def _package_folders() -> tuple[Path, ...]:
    """Where the running Python finds packages; of others a box sees none."""
    folders = {*sys.path, *site.getsitepackages()}
    return tuple(Path(folder) for folder in sorted(folders) if folder.endswith("-packages") and _is_seen(folder))


@cache
def _lent_folders() -> tuple[Path, ...]:
    found = {one.resolve() for folder in _package_folders() for shape in _LENT for one in folder.glob(shape)}
    return tuple(one for one in sorted(found) if one.is_dir() and not found & {*one.parents})


@cache
def _wheels() -> dict[str, set[str]]:
    """The wheels that a Python brings along, and the names in each."""
    held: dict[str, set[str]] = {}
    for path in (one for top in _seen() for shape in _WHEELS for one in sorted(Path(top).glob(shape))):
        with suppress(OSError, zipfile.BadZipFile), zipfile.ZipFile(path) as wheel:
            held[str(path)] = {part.removesuffix(".py") for name in wheel.namelist() for part in name.split("/")}
    return held


def _prefixes() -> list[str]:
    """Folders of the running interpreter, by all their names; those below /usr are left to the system."""
    named = {sys.base_prefix, sys.prefix}
    return sorted(
        one for one in named | {str(Path(one).resolve()) for one in named} if not f"{one}/".startswith("/usr/")
    )


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
