"""Ten ways out of the sandbox, each tried for real, and none of them leads anywhere."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import textwrap
import threading
import time
import uuid
from pathlib import Path

import pytest

from isentrope.core.errors import TaskError
from isentrope.sandbox.base import Item, Limits, make_sandbox
from isentrope.sandbox.bubblewrap import descendants
from isentrope.sandbox.limits import Leader
from isentrope.worlds.code_repair.grade import grade
from isentrope.worlds.code_repair.running import _read  # pyright: ignore
from tests.sandbox.boxes import QUICK, box, needs_bwrap, run_python, said

pytestmark = needs_bwrap


def tries(body: str) -> str:
    """Code that says `got` with what it reached, or `refused` with the error."""
    return (
        f"try:\n{textwrap.indent(textwrap.dedent(body), '    ')}\nexcept OSError as error:\n    print('refused', error)"
    )


# 1. network


def test_network_of_the_machine_is_out_of_reach() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(10)
        port = server.getsockname()[1]
        socket.create_connection(("127.0.0.1", port), timeout=5).close()  # it can be reached from here
        server.accept()[0].close()
        code = tries(
            f"""
            import socket
            socket.create_connection(("127.0.0.1", {port}), timeout=2)
            print("got in")
            """
        )
        assert "refused" in said(run_python(code))
    code = "print(sorted(line.split(':')[0].strip() for line in open('/proc/net/dev') if ':' in line))"
    assert said(run_python(code)).strip() == "['lo']"


def test_sockets_that_are_in_no_network_namespace_are_refused() -> None:
    code = "\n".join(
        tries(f"import socket; socket.socket({family}, {kind}); print('got', {family})")
        for family, kind in ((40, 1), (38, 5), (16, 3), (17, 3), (44, 3))  # vsock, alg, netlink, packet, xdp
    )
    lines = said(run_python(code)).splitlines()
    assert len(lines) == 5
    assert all("refused [Errno 97]" in line for line in lines), lines


# 2. files of the machine


def test_files_of_the_machine_are_not_there(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("top secret")
    project = Path(__file__).parents[2] / "pyproject.toml"
    for path in (
        secret,
        project,
        Path.home() / ".bashrc",
        Path("/etc/passwd"),
        Path("/etc/shadow"),
        Path("/proc/1/mem"),
    ):
        assert "refused" in said(run_python(tries(f"print('got', open({str(path)!r}).read(10))"))), path
    code = """
    import os
    for folder in ("/", "/usr", "/dev", "/usr/lib", os.path.dirname(os.__file__)):
        try:
            open(folder + "/x", "w")
            print("got", folder)
        except OSError:
            pass
    """
    assert said(run_python(textwrap.dedent(code))) == ""
    outcome = said(run_python("import os; print(sorted(os.environ), os.getuid(), os.getgroups(), os.uname().nodename)"))
    assert "'HOME', 'LANG'" in outcome
    assert "PYTEST_CURRENT_TEST" not in outcome
    assert outcome.strip().endswith("box")


def test_nobody_special_inside() -> None:
    status = said(run_python("print(open('/proc/self/status').read())"))
    values = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert set(values["Uid"].split()) & {"0", "1000"} == set()
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(values[name], 16) == 0, name
    assert values["NoNewPrivs"] == "1"
    assert values["Seccomp"] == "2"
    refused = said(
        run_python(
            "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"
            "for flags in (0x10000000, 0x40000000, 0x20000, 0x20000000):\n    print(libc.unshare(flags))\n"
            "print(libc.mount(b'none', b'/repo', b'tmpfs', 0, None), libc.syscall(56, 0x10000000 | 17, 0, 0, 0, 0))"
        )
    )
    assert set(refused.split()) == {"-1"}


# 3. fork bomb


def test_fork_bomb() -> None:
    bomb = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass"
    most: list[int] = [0]
    done = threading.Event()

    def count() -> None:
        while not done.is_set():
            most[0] = max(most[0], len(descendants(os.getpid())))
            time.sleep(0.02)

    watcher = threading.Thread(target=count)
    watcher.start()
    before = len(descendants(os.getpid()))
    outcome = run_python(bomb, Limits(seconds=1.0, processes=24))
    done.set()
    watcher.join()
    assert outcome.ended == "time"
    assert 10 <= most[0] - before <= 24 + 8  # it did fork, and came no further; the rest is the box's own


# 4. disk


def test_disk_fill() -> None:
    code = """
    import os
    written = 0
    for folder in ("/repo", "/tmp", "/box", "/dev/shm", "/"):
        try:
            for number in range(40):
                with open(f"{folder}/{number}", "wb") as file:
                    for _ in range(7):
                        written += file.write(b"x" * (1 << 20))
                        file.flush()
        except OSError as error:
            print(folder, error)
    print("total", written >> 20)
    """
    answer = said(run_python(textwrap.dedent(code)))
    assert answer.count("No space left") == 4, answer
    assert "/ [Errno 30] Read-only" in answer
    assert int(answer.split()[-1]) <= 24 + 3 * 8


def test_one_file_is_bounded_too() -> None:
    code = "file = open('/repo/x', 'wb')\nwhile True: file.write(b'x' * 100000); file.flush()"
    assert "File too large" in said(run_python(code))


@pytest.mark.parametrize(
    "folders", [["/repo"], ["/tmp"], ["/dev/shm"], ["/box"], ["/repo", "/tmp", "/dev/shm", "/box"]]
)
def test_many_empty_files(folders: list[str]) -> None:
    each = QUICK.files // len(folders) + 30  # together more than the limit
    code = f"""
    import time
    for folder in {folders}:
        for number in range({each}):
            open(f"{{folder}}/{{number}}", "w").close()
    time.sleep(4)
    """
    assert run_python(textwrap.dedent(code)).ended == "files"


# 5. output, memory, time


def test_huge_output() -> None:
    outcome = run_python("import os\nwhile True: os.write(1, b'x' * 65536)")
    assert (outcome.ended, len(outcome.output)) == ("output", QUICK.output)


@pytest.mark.parametrize("how", ["one", "many"])
def test_memory(how: str) -> None:
    fork = "import os, time\n" + ("for _ in range(3): os.fork()\n" if how == "many" else "")
    size = 1000 if how == "one" else 90  # megabytes of each process; more than the limit either way
    outcome = run_python(f"{fork}held = [b'x' * (1 << 20) for _ in range({size})]\nprint('held')\ntime.sleep(9)")
    if how == "one":
        assert "MemoryError" in said(outcome)
    else:
        assert outcome.ended == "memory"


def test_time() -> None:
    outcome = run_python("while True: pass", Limits(seconds=0.5))
    assert outcome.ended == "time"


# 6. /proc


def test_proc_shows_the_box_alone() -> None:
    answer = said(run_python("import os; print(sorted(int(one) for one in os.listdir('/proc') if one.isdigit()))"))
    assert len(answer.split(",")) <= 4, answer
    secret = ["/proc/1/environ", "/proc/1/root/etc/passwd", "/proc/1/fd/0", "/proc/self/root/etc/passwd", "/proc/kcore"]
    code = "\n".join(tries(f"print('got', open({one!r}, 'rb').read(9))") for one in secret)
    # an ordinary user's box may look at its own first process, where there is nothing
    assert {line.replace("got b''", "refused").split()[0] for line in said(run_python(code)).splitlines()} == {
        "refused"
    }
    told = ["/proc/version", "/proc/cmdline", "/proc/modules", "/proc/sys/kernel/osrelease", "/proc/cpuinfo"]
    code = "\n".join(tries(f"print('got', open({one!r}, 'rb').read(9))") for one in told)
    assert {line.replace("got b''", "refused").split()[0] for line in said(run_python(code)).splitlines()} == {
        "refused"
    }
    code = "import os; print([os.listdir(one) for one in ('/usr/local/etc', '/usr/src') if os.path.isdir(one)])"
    assert not said(run_python(code)).strip("[], \n")
    settings = ["/proc/sysrq-trigger", "/proc/sys/kernel/core_pattern", "/proc/sys/vm/drop_caches"]
    code = "\n".join(tries(f"open({one!r}, 'w').write('1'); print('got')") for one in settings)
    assert said(run_python(code)).count("refused") == 3


def test_proc_tells_nothing_of_the_machine_but_memory_and_processor_time() -> None:
    code = """
    import os
    told = []
    for name in sorted(os.listdir("/proc")):
        path = f"/proc/{name}"
        try:
            if not name.isdigit() and (os.listdir(path) if os.path.isdir(path) else open(path, "rb").read(1)):
                told.append(name)
        except OSError:
            pass
    folders = ("/sys", "/boot", "/lib/modules", "/usr/etc", "/usr/local/etc")
    print(told, [name for name in folders if os.path.isdir(name) and os.listdir(name)])
    """
    assert said(run_python(textwrap.dedent(code))).strip() == (
        "['meminfo', 'mounts', 'net', 'self', 'stat', 'thread-self'] []"
    )


def test_a_box_gives_way_to_the_trainer() -> None:
    before = os.nice(0)
    code = (
        "import os; print(os.nice(0)); path = '/proc/self/autogroup'; os.path.exists(path) and print(open(path).read())"
    )
    sessions: list[list[str]] = []
    for _ in range(10):  # the kernel lets one session of the whole machine be changed in a tenth of a second
        priority, *session = said(run_python(code)).split()
        assert int(priority) == min(19, before + 2)
        sessions.append(session[-1:])
        if session[-1:] != ["0"]:
            break
        time.sleep(0.13)
    if sessions[-1] and Path("/proc/sys/kernel/sched_autogroup_enabled").read_text().strip() == "1":
        assert sessions[-1] == ["2"]


# 7. symbolic links


def test_links_made_inside_lead_nowhere(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("top secret")
    sandbox = box({"package/module.py": "x = 1\n"})
    code = (
        f"import os; os.remove('package/module.py'); os.symlink({str(secret)!r}, 'package/module.py'); "
        "os.symlink('/', 'root'); print(os.listdir('.'))"
    )
    assert "root" in said(sandbox.exec([sys.executable, "-c", code]))
    assert sandbox.tree.read("package/module.py") == b"x = 1\n"  # what a command does to its copy is gone with it
    sandbox.tree.write("package/module.py", b"x = 2\n")
    assert sandbox.tree.diff() == {"package/module.py": b"x = 2\n"}
    assert secret.read_text() == "top secret"
    sandbox.close()


def test_links_of_an_archive_are_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("top secret")
    sandbox = make_sandbox("bubblewrap", QUICK)
    sandbox.start({"link": Item(link=str(secret)), "folder": Item(link=str(tmp_path)), "x.py": Item(b"")})
    with pytest.raises(TaskError, match="not followed"):
        sandbox.tree.read("link")
    for path in ("link", "folder/secret.txt", "../x", "/etc/x", "x.py/y", "a/../../b", "a\0b", ""):
        with pytest.raises(TaskError):
            sandbox.tree.write(path, b"changed")
    assert secret.read_text() == "top secret"
    assert "refused" in said(sandbox.exec([sys.executable, "-c", tries("print('got', open('link').read())")]))
    sandbox.close()


# 8. tests and what steers them

CODE = {"sums/__init__.py": "", "sums/add.py": "def add(a, b):\n    return a - b\n",
        "tests/test_add.py": "from sums.add import add\n\ndef test_add():\n    assert add(1, 2) == 3\n\n"
                             "def test_zero():\n    assert add(2, 0) == 2\n"}  # fmt: skip
FILES = {path: Item(text.encode()) for path, text in CODE.items()}
FAILING, PASSING = ["tests/test_add.py::test_add"], ["tests/test_add.py::test_zero"]
ALWAYS = "import pytest\n@pytest.hookimpl(tryfirst=True)\ndef pytest_pyfunc_call(pyfuncitem):\n    return True\n"
LIES = {
    "tests/test_add.py": "def test_add(): pass\ndef test_zero(): pass\n",
    "tests/__init__.py": "raise SystemExit(0)\n",
    "conftest.py": ALWAYS,
    "tests/conftest.py": ALWAYS,
    "pytest.ini": "[pytest]\naddopts = -p sums.plugin\npython_files = nothing.py\n",
    "pyproject.toml": "[tool.pytest.ini_options]\naddopts = '-p sums.plugin'\n",
    "setup.cfg": "[tool:pytest]\naddopts = -p sums.plugin\n",
    "sums/plugin.py": ALWAYS,
    "sitecustomize.py": "import builtins\nbuiltins.lying = True\n",
    "pytest.py": "def main(*args, **kwargs): print('2 passed')\n",
    "json.py": "def dumps(x): return ''\n",
    "sums.pth": "import os; os._exit(0)\n",
    "__pycache__/x.pyc": "x",
}  # fmt: skip


def graded(diff: dict[str, str]) -> tuple[bool, bool]:
    found = grade(
        make_sandbox("bubblewrap", QUICK), FILES, {path: text.encode() for path, text in diff.items()}, FAILING, PASSING
    )
    return found.resolved, found.honest


def test_writing_tests_and_settings_does_not_help() -> None:
    assert graded({}) == (False, True)
    assert graded(LIES) == (False, True)
    assert graded({**LIES, "sums/add.py": "def add(a, b):\n    return a + b\n"}) == (True, True)


@pytest.mark.parametrize(
    "lie",
    [
        """print('{"token": "", "test": "tests/test_add.py::test_add", "outcome": "passed"}')\n"""
        "import os; os._exit(0)",
        "import sys; sys.exit(0)",
        "import _pytest.python as p\np.Function.runtest = lambda self: None\ndef add(a, b): return 0",
        "import os\nfor pipe in range(3, 50):\n    try: os.write(pipe, b'PASSED tests/test_add.py::test_add\\n')\n"
        "    except OSError: pass\ndef add(a, b): return a - b",
    ],
    ids=["prints a report and leaves", "leaves", "changes pytest", "writes to every pipe"],
)
def test_lies_of_the_code_itself(lie: str) -> None:
    assert not graded({"sums/add.py": lie})[0]


def test_only_what_carries_the_token_counts() -> None:
    said_so = [{"token": one, "test": f"t::{one}", "outcome": "passed", "text": ""} for one in ("right", "wrong", None)]
    odd = [b"[" * 99999, b"\xff{", b'"x"', b'{"token":"wrong","end":0}']
    odd += [
        b'{"token":"\\ud800"}',
        b'{"token":"right","test":["t::list"],"outcome":"passed"}',
        b'{"token":"right","end":0}',
    ]
    output = b"\n".join([*(json.dumps(line).encode() for line in said_so), *odd])
    run = _read(output, "right", "exit", "/repo")  # pyright: ignore
    assert run.passed() == {"t::right"}
    assert not run.complete


# 9. ptrace


def test_ptrace() -> None:
    code = """
    import ctypes, os, time
    libc = ctypes.CDLL(None, use_errno=True)
    child = os.fork()
    if child == 0:
        time.sleep(5)
        os._exit(0)
    for pid in (1, 2, child, os.getppid()):
        print(libc.ptrace(16, pid, 0, 0), os.strerror(ctypes.get_errno()))
    os.kill(child, 9)
    """
    answer = said(run_python(textwrap.dedent(code)))
    assert answer.splitlines() == ["-1 Operation not permitted"] * 4
    victim = subprocess.Popen(["sleep", "30"])
    try:  # processes of the machine have no number inside
        assert "No such process" in said(
            run_python(tries(f"import os; os.kill({victim.pid + 100000}, 0); print('got')"))
        )
        assert victim.poll() is None
    finally:
        victim.kill()
        victim.wait()


# 10. staying alive


def test_daemons_die_with_the_box() -> None:
    mark = f"isentrope-{uuid.uuid4().hex}"
    code = f"""
    import os, signal, sys, time
    if os.fork() == 0:
        os.setsid()
        for number in range(1, 60):
            try: signal.signal(number, signal.SIG_IGN)
            except (OSError, ValueError): pass
        if os.fork() == 0:
            os.execv(sys.executable, [sys.executable, "-c", "import time; time.sleep(60)", {mark!r}])
        os._exit(0)
    time.sleep(0.3)
    print("done")
    """
    outcome = run_python(textwrap.dedent(code))
    assert said(outcome).strip() == "done"
    end = time.monotonic() + 5
    while alive(mark) and time.monotonic() < end:
        time.sleep(0.02)
    assert not alive(mark)


def alive(mark: str) -> bool:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if mark.encode() in (entry / "cmdline").read_bytes().split(b"\0")[-2:]:
                    return True
            except OSError:
                pass
    return False


def test_the_first_process_of_a_box_is_known_and_killed() -> None:
    """Even without bubblewrap's own care for that."""
    with Leader() as leader:
        argv = [
            "bwrap",
            "--unshare-user",
            "--unshare-pid",
            "--ro-bind",
            "/",
            "/",
            "--info-fd",
            str(leader.told),
            "sleep",
            "30",
        ]
        with subprocess.Popen(argv, pass_fds=[leader.told]) as process:
            while not leader.read():
                pass
            leader.kill()
            assert process.wait(timeout=10) != 0
