"""`isentrope doctor`: diagnoses runs, or checks this machine and this installation. No check may raise."""

from __future__ import annotations

import importlib
import os
import platform
import shutil
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import typer
from packaging.requirements import Requirement

from isentrope import __version__
from isentrope.cli.options import terminal
from isentrope.core.process import usable_cores
from isentrope.core.text import plain, shown

# -- extras of the package

PURPOSES = {
    "hf": "models in Hugging Face's format, GGUF files, adapters",
    "smollm2": "policy.model=smollm2",
    "alfworld": "the original ALFWorld, to compare with",
    "science": "the world scienceworld",
    "webshop": "the world webshop",
    "search": "the world search_qa",
    "dense": "dense retrieval in search_qa",
    "watch": "isentrope watch",
    "figures": "isentrope figures",
    "wandb": "run.track=wandb",
    "mlflow": "run.track=mlflow",
    "trackio": "run.track=trackio",
    "code": "the world code_repair",
    "swebench": "SWE-bench's own evaluation",
    "gym": "Gymnasium and MiniGrid worlds",
    "openenv": "OpenEnv worlds",
    "textarena": "TextArena worlds",
    "reasoning-gym": "Reasoning Gym worlds",
    "verifiers": "worlds of the verifiers library",
    "verl": "tests that compare with verl",
    "worlds": "all worlds at once",
    "dev": "tests and checks of this package",
}
# imported to see that they work: quick ones, and those that are known to break with a torch that does not fit
IMPORTED = ("transformers", "textworld", "alfworld", "starlette", "uvicorn", "bm25s")
SOURCES = Path(__file__).parents[2] / "pyproject.toml"
NAMED = 4  # packages that a line names


def asked_for(extra: str) -> list[Requirement]:
    """What an extra installs, extras of our own that it names included; empty if this package has no such extra."""
    found: dict[str, Requirement] = {}
    left, seen = [extra], {extra}
    while left:
        for requirement in _declared().get(left.pop(), []):
            if requirement.name != "isentrope":
                found.setdefault(requirement.name, requirement)
                continue
            left += sorted(requirement.extras - seen)
            seen |= requirement.extras
    return list(found.values())


def _declared() -> dict[str, list[Requirement]]:
    """By extra: as the sources say where it is run from them, else as it was installed."""
    if SOURCES.is_file():
        project: dict[str, Any] = tomllib.loads(SOURCES.read_text(encoding="utf-8"))["project"]
        extras: dict[str, list[str]] = project["optional-dependencies"]
        return {name: [Requirement(line) for line in lines] for name, lines in extras.items()}
    found: dict[str, list[Requirement]] = {}
    for requirement in map(Requirement, metadata.requires("isentrope") or []):
        for extra in PURPOSES:
            if requirement.marker and requirement.marker.evaluate({"extra": extra}):
                found.setdefault(extra, []).append(requirement)
    return found


def unfit(extra: str) -> list[str]:
    """What is installed in another version than the extra asks for, or does not import."""
    found: list[str] = []
    for one in asked_for(extra):
        version = _version(one.name)
        if version is None:
            continue
        if not one.specifier.contains(version, prereleases=True):
            found.append(f"{one.name} {version} is installed, {one.specifier} is asked for")
        elif one.name in IMPORTED:
            try:
                importlib.import_module(one.name)
            except Exception as error:  # whatever it is, the user came here to learn it
                found.append(f"{one.name} {version} does not import: {error}"[:200])
    return found


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


# -- checks of the machine

CORE = ("numpy", "torch", "safetensors", "typer", "rich", "pyarrow", "tensorboard")
PROGRAMS = {
    "chromium": (("chromium", "chromium-browser", "google-chrome"), "tests of the pages"),
    "bubblewrap": (("bwrap",), "sandboxed tasks"),
    "java": (("java",), "worlds that run on a JVM"),
}


class Sign(NamedTuple):
    name: str
    state: Literal["ok", "missing", "warning", "broken"]
    detail: str = ""
    advice: str = ""


def examine() -> dict[str, list[Sign]]:
    python = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    return {
        "Installed": [Sign("isentrope", "ok", __version__), Sign("python", "ok", python), *map(_core, CORE)],
        "Extras": _extras(),
        "Machine": [_cores(), _memory(), _disk()],
        "Torch": _torch(),
        "Programs": [_program(name) for name in PROGRAMS],
    }


def _core(name: str) -> Sign:
    version = _version(name)
    return Sign(name, "ok", version) if version else Sign(name, "broken", "not installed", f"{_pip()} install {name}")


def _extras() -> list[Sign]:
    try:
        return [_extra(name, purpose) for name, purpose in PURPOSES.items()]
    except Exception as error:  # a pyproject.toml or an installation that cannot be read
        return [Sign("extras", "warning", f"cannot be looked up: {error}"[:200])]


def _extra(name: str, purpose: str) -> Sign:
    # pip knows this package as the folder of its sources, where it is run from them
    install = f"{_pip()} install " + (f"-e '{SOURCES.parent}" if SOURCES.is_file() else "'isentrope") + f"[{name}]'"
    versions = {one.name: _version(one.name) for one in asked_for(name)}
    missing, wrong = [package for package, version in versions.items() if version is None], unfit(name)
    if wrong:
        return Sign(f"[{name}]", "warning", "; ".join(wrong), install)
    if missing:
        lacking = ", ".join(missing[:NAMED]) + (", …" if missing[NAMED:] else "")
        return Sign(f"[{name}]", "missing", f"for {purpose}; not here: {lacking}", install)
    here = ", ".join([f"{package} {version}" for package, version in versions.items()][:NAMED])
    return Sign(f"[{name}]", "ok", here + (f" and {len(versions) - NAMED} more" if len(versions) > NAMED else ""))


def _pip() -> str:
    return f"{sys.executable} -m pip"


def _cores() -> Sign:
    threads = os.environ.get("OMP_NUM_THREADS")
    detail = f"{usable_cores()} usable" + (f", OMP_NUM_THREADS = {threads}" if threads else "")
    return Sign("cores", "ok", detail)


def _memory() -> Sign:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        kibibytes = {line.split(":")[0]: int(line.split()[1]) for line in lines if line.strip()}
        total, free = kibibytes["MemTotal"] / 2**20, kibibytes["MemAvailable"] / 2**20
    except (OSError, KeyError, ValueError, IndexError):
        return Sign("memory", "warning", "unknown on this system")
    detail = f"{free:.1f} of {total:.1f} GiB free"
    if free < 2:
        return Sign("memory", "warning", detail, "close something: even small runs use 1 to 2 GiB")
    return Sign("memory", "ok", detail)


def _disk() -> Sign:
    free = shutil.disk_usage(".").free / 2**30
    state, advice = ("warning", "choose another place with --out") if free < 1 else ("ok", "")
    return Sign("disk", state, f"{free:.1f} GiB free here", advice)


def _torch() -> list[Sign]:
    try:
        torch = importlib.import_module("torch")
        load = importlib.import_module("isentrope.models.load")
        device = load.choose_device("auto")
        dtype = "float32, bfloat16 for large models" if device.type == "cuda" else "float32"
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else "no GPU in use"
        threads = Sign("threads", "ok", str(torch.get_num_threads()))
        torch.manual_seed(0)
        left, right = torch.randn(2, 256, 256).unbind()
        difference = ((left.to(device) @ right.to(device)).cpu() - (left.double() @ right.double())).abs().max().item()
    except Exception as error:  # whatever is wrong with torch is what the user came here to learn
        advice = f"{_pip()} install --force-reinstall torch"
        return [Sign("torch", "broken", f"{type(error).__name__}: {error}"[:200], advice)]
    fine = difference < 0.1  # TF32 on a GPU is off by about 0.02 here
    advice = "" if fine else "this torch computes wrongly on this machine: try another version, or run.device=cpu"
    product = Sign("matrix product", "ok" if fine else "broken", f"largest error {difference:.1e}", advice)
    return [Sign("device", "ok", f"{device} ({name}), {dtype}"), threads, product]


def _program(name: str) -> Sign:
    commands, purpose = PROGRAMS[name]
    found = next(filter(None, map(shutil.which, commands)), None)
    package = "default-jre-headless" if name == "java" else name
    return (
        Sign(name, "ok", found) if found else Sign(name, "missing", f"only for {purpose}", f"apt-get install {package}")
    )


# -- the command


def doctor(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(metavar="RUNS", help="Run folders; none: look at the machine.", show_default=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings about the runs as JSON.")] = False,
) -> None:
    """Say what happened in a run and what to try; without a run, what works on this machine.

    A run is told from its metrics.jsonl, config.toml, events.jsonl and episodes, as far as they are there. Nothing is
    written. Exit code 1 only if no run was given and training cannot work here.
    """
    if runs:
        _look_at_runs(runs, as_json)
    else:
        _look_at_machine()


def _look_at_runs(runs: list[Path], as_json: bool) -> None:
    import json
    from textwrap import wrap

    from isentrope.core.errors import RunError
    from isentrope.diagnosis.doctor import Diagnosis, diagnose
    from isentrope.diagnosis.remedies import Finding
    from isentrope.report.story import open_run

    found: list[Diagnosis] = []
    for run in runs:
        try:
            found.append(diagnose(open_run(run)))
        except RunError as error:
            if len(runs) == 1:
                raise
            found.append(Diagnosis(run.name, "unknown", (Finding("state/unreadable", f"{error}.", "bad"),)))
    if as_json:
        typer.echo(json.dumps([diagnosis.data() for diagnosis in found], indent=2))
        return
    console = terminal()
    for number, (run, diagnosis) in enumerate(zip(runs, found, strict=True)):
        if number:
            console.print()
        console.print(shown(str(run), "bold"))
        # a number and its percent sign stay on one line
        lines = wrap(plain(diagnosis.words()).replace(" %", "\u00a0%"), min(100, console.width))
        typer.echo("\n".join(lines))


def _look_at_machine() -> None:
    from rich.table import Table

    styles = {"ok": "green", "missing": "yellow", "warning": "yellow", "broken": "bold red"}
    table = Table("", "", "", "what to do", box=None, show_header=False)
    broken = False
    for title, signs in examine().items():
        table.add_row(shown(title, "bold"))
        for name, state, detail, advice in signs:
            table.add_row(shown(f"  {name}"), shown(state, styles[state]), shown(detail), shown(advice))
            broken = broken or state == "broken"
    terminal().print(table)
    if broken:
        raise typer.Exit(1)
