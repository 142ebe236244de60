"""Builds the wheel, installs it into a fresh environment and runs pages of the docs in an empty folder.

    python tools/try_wheel.py                            # builds it first; quick start and tutorial
    python tools/try_wheel.py --wheel dist/*.whl --page quick-start
    python tools/try_wheel.py --place FOLDER             # leaves all that came out there

Installed is what the quick start says (its lines of `pip install`), with the wheel in the place of the name. Of a page
these blocks count, in their order: one that begins with `# NAME` is written to that file; other Python is run, all of
it in one process at the end; in a block without a language each line that begins with `isentrope ` is a command. One
that serves is asked for a page and ended. The environment variable TORCH says how torch is installed.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
import urllib.request
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = ("quick-start", "tutorial")
SERVING = {"watch": "/", "serve": "/models"}  # commands that do not end, and what they are asked for
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
FILE = re.compile(r"# (\w+\.(?:py|toml))\n")


def commands_of(page: Path, folder: Path) -> list[list[str]]:
    """Writes the page's files into `folder`; gives its commands, its Python as the last one."""
    commands: list[list[str]] = []
    python = ""
    for language, text in BLOCK.findall(page.read_text(encoding="utf-8")):
        if named := FILE.match(text):
            (folder / named[1]).write_text(text, encoding="utf-8")
        elif language == "python":
            python += text
        elif not language:
            lines = text.replace("\\\n", " ").splitlines()
            commands += [shlex.split(line, comments=True) for line in lines if line.startswith("isentrope ")]
    if python:
        (folder / "page.py").write_text(python, encoding="utf-8")
        commands.append(["python", "page.py"])
    return commands


def install_lines(page: Path) -> list[list[str]]:
    """What the page says to install, as arguments of `pip install`, torch first."""
    lines = [line for language, text in BLOCK.findall(page.read_text(encoding="utf-8")) if language == "sh"
             for line in text.splitlines()]  # fmt: skip
    return [shlex.split(line, comments=True)[2:] for line in lines if line.startswith("pip install ")]


def run(command: list[str], folder: Path, environment: dict[str, str]) -> None:
    """Runs it with nothing to read and says how long it took. What it prints goes to output.log; shown if it fails."""
    start, before = time.monotonic(), os.times()
    done = subprocess.run(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    after = os.times()
    computed = after.children_user + after.children_system - before.children_user - before.children_system
    print(f"{time.monotonic() - start:7.1f} s, {computed:6.1f} of a core  {shlex.join(command)}", flush=True)
    with (folder / "output.log").open("ab") as log:
        log.write(f"$ {shlex.join(command)}\n".encode() + done.stdout + b"\n")
    if done.returncode:
        sys.exit(f"{done.stdout.decode(errors='replace')[-4000:]}\nended with {done.returncode}")


def ask(command: list[str], folder: Path, environment: dict[str, str]) -> None:
    """Starts a server, asks it once at the address that it tells, and ends it."""
    start = time.monotonic()
    with subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            address = next((found[0] for line in server.stdout if (found := re.search(r"http://[\w.:/]+", line))), None)
            if address is None:
                sys.exit(f"{shlex.join(command)} told no address and ended with {server.wait()}")
            with urllib.request.urlopen(address.rstrip("/") + SERVING[command[1]], timeout=60) as answer:
                size = len(answer.read())
        finally:
            server.terminate()
    print(f"{time.monotonic() - start:7.1f} s  {shlex.join(command)}: {size:,} bytes from {address}", flush=True)


def installed(wheel: Path | None, place: Path) -> dict[str, str]:
    """The environment variables of a newcomer who has installed the wheel: no home, no checkout."""
    venv.create(place / "venv", with_pip=True)
    home = place / "home"
    home.mkdir()
    binaries = place / "venv" / ("Scripts" if os.name == "nt" else "bin")
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "ISENTROPE", "VIRTUAL"))
    }
    environment = {**kept, "HOME": str(home), "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}"}
    pip = [str(binaries / "python"), "-m", "pip", "--quiet", "--disable-pip-version-check"]
    if wheel is None:
        run([*pip, "wheel", "--no-deps", "--wheel-dir", str(place), str(ROOT)], place, dict(os.environ))
        (wheel,) = place.glob("*.whl")
    for what in install_lines(DOCS / "quick-start.md"):
        if what[0].startswith("torch") and "TORCH" in os.environ:
            what = shlex.split(os.environ["TORCH"])
        what = [part.replace("isentrope", str(wheel.resolve()), 1) for part in what]
        run([*pip, "install", *what], place, dict(os.environ))
    return environment


@contextmanager
def workplace(named: Path | None) -> Iterator[Path]:
    """The folder of that name, which is kept, or one that goes again."""
    if named is not None:
        named.mkdir(parents=True)
        yield named.resolve()
        return
    with tempfile.TemporaryDirectory(prefix="isentrope-") as place:
        yield Path(place)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheel", type=Path, help="a wheel that was built before")
    parser.add_argument("--page", action="append", help=f"{', '.join(PAGES)} (all if none is named)")
    parser.add_argument("--place", type=Path, help="a new folder, which is left with what came out")
    given = parser.parse_args()
    with workplace(given.place) as place:
        environment = installed(given.wheel, place)
        for name in given.page or PAGES:
            folder = place / name
            folder.mkdir()
            for command in commands_of(DOCS / f"{name}.md", folder):
                serves = command[0] == "isentrope" and command[1] in SERVING
                command[0] = str(Path(environment["PATH"].split(os.pathsep)[0]) / command[0])
                (ask if serves else run)(command, folder, environment)
    print("All of it ran.")


if __name__ == "__main__":
    main()
