"""Builds the wheel, installs it into a fresh environment and runs pages of the docs in an empty folder.

    python tools/try_wheel.py                            # builds it first; quick start and tutorial
    python tools/try_wheel.py --wheel dist/*.whl --page quickstart

Of a page these blocks count, in their order: one that begins with `# NAME` is written to that file; other Python is
run, all of it in one process at the end; in a block without a language each line that begins with `isentrope ` is a
command. The environment variable TORCH says how torch is installed.
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
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TORCH = os.environ.get("TORCH", "torch==2.13.0")
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


def run(command: list[str], folder: Path, environment: dict[str, str]) -> None:
    """Runs it with nothing to read; says how long it took. What it printed is shown if it fails."""
    start = time.monotonic()
    done = subprocess.run(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    print(f"{time.monotonic() - start:7.1f} s  {shlex.join(command)}", flush=True)
    if done.returncode:
        sys.exit(f"{done.stdout.decode(errors='replace')[-4000:]}\nended with {done.returncode}")


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
    run([*pip, "install", *shlex.split(TORCH)], place, dict(os.environ))
    run([*pip, "install", f"{wheel.resolve()}[hf]"], place, dict(os.environ))
    return environment


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheel", type=Path, help="a wheel that was built before")
    parser.add_argument("--page", action="append", help="quickstart, tutorial (all if none is named)")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="isentrope-") as place:
        environment = installed(given.wheel, Path(place))
        for name in given.page or ("quickstart", "tutorial"):
            folder = Path(place) / name
            folder.mkdir()
            for command in commands_of(ROOT / "docs" / f"{name}.md", folder):
                command[0] = str(Path(environment["PATH"].split(os.pathsep)[0]) / command[0])
                run(command, folder, environment)
    print("All of it ran.")


if __name__ == "__main__":
    main()
