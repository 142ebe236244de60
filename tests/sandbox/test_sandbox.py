"""The protocol, its refusals, and the docker back-end as far as it can be tried without docker."""

from __future__ import annotations

import os
import struct
import sys
from itertools import pairwise
from pathlib import Path

import pluggy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isentrope.core.errors import TaskError
from isentrope.sandbox import bubblewrap
from isentrope.sandbox.base import Item, Limits, Tree, clean_path, make_sandbox
from isentrope.sandbox.bubblewrap import filter_program
from isentrope.sandbox.docker import Docker, container_command
from isentrope.worlds.code_repair.world import CodeRepairWorld
from tests.sandbox.boxes import QUICK, box, needs_bwrap, said


@needs_bwrap
def test_protocol() -> None:
    sandbox = box({"a.py": "print('a')\n", "b/c.txt": "old"})
    assert said(sandbox.exec([sys.executable, "a.py"])) == "a\n"
    sandbox.tree.write("b/c.txt", b"new")
    sandbox.tree.write("b/d.txt", b"more")
    sandbox.tree.write("a.py", b"print('a')\n")  # written but not changed
    assert sandbox.tree.diff() == {"b/c.txt": b"new", "b/d.txt": b"more"}
    assert sandbox.tree.read("b/c.txt") == b"new"
    assert said(sandbox.exec(["/bin/cat", "b/c.txt", "b/d.txt"])) == "newmore"
    assert sandbox.exec(["/bin/sh", "-c", "exit 7"]).code == 7
    assert said(sandbox.exec(["/bin/cat", "/box/x"], {"x": b"extra"})) == "extra"
    assert "not found" in said(sandbox.exec(["no-such-program"]))
    sandbox.exec(["/bin/sh", "-c", "echo changed > a.py; rm b/c.txt"])
    assert said(sandbox.exec(["/bin/cat", "a.py", "b/c.txt"])) == "print('a')\nnew"
    sandbox.close()
    for call in (lambda: sandbox.exec(["true"]), lambda: sandbox.tree):
        with pytest.raises(TaskError, match="not started"):
            call()


@needs_bwrap
def test_large_trees_and_early_ends() -> None:
    data = os.urandom(3 << 20)
    sandbox = make_sandbox("bubblewrap", QUICK)
    sandbox.start({"big": Item(data), "run": Item(b"#!/bin/sh\necho ran\n", executable=True)})
    assert said(sandbox.exec(["/bin/sh", "-c", "./run; wc -c < big"])).split() == ["ran", str(len(data))]
    sandbox.start({"big": Item(bytes(30 << 20))})  # more than the work folder holds
    outcome = sandbox.exec(["echo", "ran"])
    assert outcome.code != 0
    assert "ran" not in said(outcome).split()


@needs_bwrap
def test_what_a_repair_could_be_copied_from_is_covered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A package of the same name that is installed, and this package with its known repairs."""

    def imported(name: str, tree: str = "x.py") -> str:
        sandbox = box({tree: ""})
        code = f"import {name}; print('got', getattr({name}, '__file__', None))"
        return said(sandbox.exec([sys.executable, "-I", "-c", code]))

    assert imported("pluggy").startswith("got /")
    assert imported("pluggy", "pluggy/core.py").startswith("got /")  # the tests cannot be run without it
    assert imported("hypothesis").startswith("got /")
    assert imported("hypothesis", "hypothesis/core.py") == "got None\n"  # an empty folder
    assert imported("hypothesis", "src/hypothesis/core.py") == "got None\n"
    monkeypatch.setattr(bubblewrap, "__file__", str(Path(pluggy.__file__).parent / "sandbox" / "bubblewrap.py"))
    bubblewrap._covered.cache_clear()  # pyright: ignore
    try:
        assert "got None" in imported("pluggy")
    finally:
        bubblewrap._covered.cache_clear()  # pyright: ignore


@needs_bwrap
@pytest.mark.parametrize("name", ["idna", "packaging"])
def test_no_package_has_a_copy_in_a_box(name: str) -> None:
    """Not in the Python that a venv was made from, nor in what other packages have taken in, nor in a wheel."""
    code = f"""
import glob, os, site, sys, zipfile
tops = [*glob.glob("/usr/lib*/python3*"), *glob.glob("/usr/local/lib/python3*"), sys.prefix, sys.base_prefix]
used = [one + "/{name}" for one in site.getsitepackages()]
for top in tops:
    for folder, folders, names in os.walk(top):
        for one in [one for one in folders + names if one.endswith((".whl", "{name}", "{name}.py"))]:
            path = folder + "/" + one
            taken = "vendor" in os.path.basename(folder) or folder.endswith("-packages")
            size = len(os.listdir(path)) if os.path.isdir(path) else os.path.getsize(path)
            if one in ("{name}", "{name}.py") and taken and size and path not in used:
                print(path)
            if one.endswith(".whl") and os.path.getsize(path):
                if any("{name}" in held.split("/") for held in zipfile.ZipFile(path).namelist()):
                    print(path)
"""
    sandbox = box({f"{name}/core.py": ""})
    assert said(sandbox.exec([sys.executable, "-I", "-c", code])) == ""


def test_what_is_covered_is_covered_by_all_its_names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A venv that is reached by a link is seen twice; and what lies in something covered is covered with it."""
    (tmp_path / "real" / "lib").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "link"))
    found = bubblewrap._outermost((f"{tmp_path}/link/lib", f"{tmp_path}/link/lib/x", "/proc/version"))  # pyright: ignore
    assert found == ["/proc/version", f"{tmp_path}/link/lib", f"{tmp_path}/real/lib"]


def test_what_was_left_in_a_python_is_covered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Packages of the Python below a venv, and a checkout that lies in the venv or that the venv was made in."""
    base, venv = tmp_path / "base", tmp_path / "venv"
    for folder in ("base/lib/python3.11/site-packages", "base/bin", "base/pkgs", "venv/lib/python3.11/site-packages",
                   "venv/bin", "venv/src/isentrope/.git", "venv/src/mine/mine", "venv/.git", "venv/tests"):  # fmt: skip
        (tmp_path / folder).mkdir(parents=True)
    own = f"{venv}/lib/python3.11/site-packages"
    monkeypatch.setattr(sys, "base_prefix", str(base))
    monkeypatch.setattr(sys, "prefix", str(venv))
    monkeypatch.setattr(sys, "path", [own, f"{venv}/src/isentrope", f"{venv}/src/mine"])
    monkeypatch.setattr("site.getsitepackages", lambda: [own])
    others = bubblewrap._unused_packages()  # pyright: ignore
    assert [one for one in others if not one.startswith("/usr/")] == [f"{base}/lib/python3.11/site-packages"]
    left = bubblewrap._left_there([str(base), str(venv)], {venv / "src" / "isentrope"})  # pyright: ignore
    assert sorted(left) == [f"{base}/pkgs", f"{venv}/.git", f"{venv}/src/isentrope", f"{venv}/tests"]


def test_no_sandbox_no_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    world = CodeRepairWorld()
    with pytest.raises(TaskError, match="apt-get install bubblewrap"):
        bubblewrap.check_works.__wrapped__()
    bubblewrap.check_works.cache_clear()
    with pytest.raises(TaskError, match="apt-get install bubblewrap"):
        world.open().start(world.instance("train", 0))
    sandbox = make_sandbox("bubblewrap", QUICK)
    sandbox._tree = Tree({})  # pyright: ignore  # even if it got that far
    with pytest.raises(TaskError, match="apt-get install bubblewrap"):
        sandbox.exec(["/bin/sh", "-c", f"touch {tmp_path}/ran"])
    assert not (tmp_path / "ran").exists()


def test_a_broken_sandbox_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\necho 'No permissions to create a new namespace' >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    bubblewrap.check_works.cache_clear()
    with pytest.raises(TaskError, match=r"No permissions to create.*unprivileged_userns_clone"):
        make_sandbox("bubblewrap", QUICK).start({})
    bubblewrap.check_works.cache_clear()


def test_docker_is_refused_where_it_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="needs an image"):
        make_sandbox("docker", QUICK)
    with pytest.raises(TaskError, match="not the name of an image"):
        make_sandbox("docker", QUICK, "--privileged")
    monkeypatch.setenv("PATH", str(tmp_path))
    sandbox = make_sandbox("docker", QUICK, "python:3.11")
    with pytest.raises(TaskError, match=r"no docker here.*never run unconfined"):
        sandbox.start({})
    with pytest.raises(TaskError, match="choose one of bubblewrap, docker"):
        make_sandbox("none", QUICK)


def test_the_command_line_of_a_container() -> None:
    argv = container_command("docker", "name", "image:1", "/testbed", Limits(memory=5, processes=7), ["pytest", "-rA"])
    pairs = list(pairwise(argv))
    for pair in [("--network", "none"), ("--memory", "5"), ("--memory-swap", "5"), ("--pids-limit", "7"),
                 ("--cap-drop", "ALL"), ("--security-opt", "no-new-privileges"), ("--user", "65534:65534"),
                 ("--workdir", "/testbed"), ("--ipc", "none"), ("--entrypoint", "/bin/sh")]:  # fmt: skip
        assert pair in pairs, pair
    assert {"--read-only", "--rm", "--init"} <= set(argv)
    assert not {"--privileged", "--volume", "-v", "--mount", "--device", "--cap-add"} & set(argv)
    assert any(one.startswith("/testbed:rw,exec,nosuid,nodev,size=67108864,nr_inodes=") for one in argv)
    assert argv[argv.index("image:1") + 1] == "-c"
    assert argv[-2:] == ["pytest", "-rA"]


def test_docker_is_driven_through_its_command_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A stand-in for the docker program that runs what comes after the image: the pipes, the tar and the clean-up."""
    work = tmp_path / "testbed"
    work.mkdir()
    fake = tmp_path / "docker"
    fake.write_text(
        f"#!/bin/sh\necho \"$1\" >> {tmp_path}/calls\n[ \"$1\" = run ] || exit 0\n"
        "while [ \"$1\" != image:1 ]; do shift; done\nshift\ncd /\nexec /bin/sh \"$@\"\n"
    )  # fmt: skip
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    sandbox = Docker(QUICK, "image:1", str(work))
    sandbox.start({"a.txt": Item(b"hello")})
    assert said(sandbox.exec(["/bin/cat", f"{work}/a.txt"])) == "hello"
    assert (tmp_path / "calls").read_text().split() == ["run", "rm"]


@given(st.text(alphabet="ab/.\0 \n", max_size=12) | st.text(max_size=30))
def test_paths_stay_inside(path: str) -> None:
    clean = clean_path(path)
    if clean is not None:
        assert not clean.startswith("/")
        assert ".." not in clean.split("/")
        assert "\0" not in clean
        assert clean_path(clean) == clean


@settings(max_examples=50)
@given(st.dictionaries(st.sampled_from(["a", "b/c", "b/d", "e/f/g"]), st.binary(max_size=20)), st.binary(max_size=20))
def test_a_tree_is_its_base_and_its_diff(base: dict[str, bytes], data: bytes) -> None:
    files = {path: Item(content) for path, content in base.items()}
    tree = Tree(files)
    tree.write("b/c", data)
    assert {**{path: item.data for path, item in files.items()}, **tree.diff()} == {
        path: tree.read(path) for path in tree.paths()
    }
    assert (tree.diff() == {}) == (base.get("b/c") == data)


@pytest.mark.parametrize(("machine", "ptrace", "socket_"), [("x86_64", 101, 41), ("aarch64", 117, 198)])
def test_the_filter_means_what_it_says(machine: str, ptrace: int, socket_: int) -> None:
    """Interpreted by hand, call by call."""
    arch = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}[machine]
    program = [
        struct.unpack("=HBBI", filter_program(machine)[at : at + 8]) for at in range(0, len(filter_program(machine)), 8)
    ]

    def decide(number: int, argument: int = 0, kind: int = arch) -> int:
        place = accumulator = 0
        while True:
            code, true, false, value = program[place]
            if code == 0x06:
                return value
            if code == 0x20:
                accumulator = {0: number, 4: kind, 16: argument}[value]
                place += 1
            else:
                holds = {0x15: accumulator == value, 0x35: accumulator >= value, 0x45: bool(accumulator & value)}[code]
                place += 1 + (true if holds else false)

    allow, refuse = 0x7FFF0000, 0x00050001
    clone = 56 if machine == "x86_64" else 220
    assert decide(ptrace) == refuse
    assert decide(0) == allow
    assert decide(ptrace, kind=1) == 0x80000000
    assert [decide(socket_, family) for family in (1, 2, 10)] == [allow] * 3
    assert {decide(socket_, family) for family in (0, 3, 16, 17, 38, 40)} == {0x00050061}
    assert decide(clone, 17) == allow
    assert decide(clone, 0x10000011) == decide(clone, 0x20000) == refuse
    assert decide(435) == 0x00050026
    if machine == "x86_64":
        assert decide(0x40000000) == refuse


def test_other_processors_are_refused() -> None:
    with pytest.raises(TaskError, match="not of riscv64"):
        filter_program("riscv64")
