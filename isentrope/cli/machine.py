"""What works on this machine and in this installation, for `isentrope doctor` without a run. No check may raise."""

from __future__ import annotations

import importlib
import importlib.util
import os
import platform
import shlex
import shutil
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import typer
from packaging.requirements import Requirement

from isentrope import __version__
from isentrope.cli.options import terminal
from isentrope.core.process import usable_cores
from isentrope.core.text import shown

if TYPE_CHECKING:
    from rich.console import Console

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
    "site": "the documentation as a site",
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
    return Sign(name, "ok", version) if version else Sign(name, "broken", "not installed", f"{_install()} {name}")


def _extras() -> list[Sign]:
    try:
        return [_extra(name, purpose) for name, purpose in PURPOSES.items()]
    except Exception as error:  # a pyproject.toml or an installation that cannot be read
        return [Sign("extras", "warning", f"cannot be looked up: {error}"[:200])]


def _extra(name: str, purpose: str) -> Sign:
    versions = {one.name: _version(one.name) for one in asked_for(name)}
    missing, wrong = [package for package, version in versions.items() if version is None], unfit(name)
    if wrong:
        return Sign(f"[{name}]", "warning", "; ".join(wrong), install_command(name))
    if missing:
        lacking = ", ".join(missing[:NAMED]) + (", …" if missing[NAMED:] else "")
        return Sign(f"[{name}]", "missing", f"for {purpose}; not here: {lacking}", install_command(name))
    here = ", ".join([f"{package} {version}" for package, version in versions.items()][:NAMED])
    return Sign(f"[{name}]", "ok", here + (f" and {len(versions) - NAMED} more" if len(versions) > NAMED else ""))


def _install() -> str:
    """How packages are installed into this Python, as it can be copied: by uv where its environment has no pip."""
    python = "python" if _is_this_python(shutil.which("python")) else shlex.quote(sys.executable)
    if importlib.util.find_spec("pip") is None and shutil.which("uv"):
        return f"uv pip install --python {python}"
    return f"{python} -m pip install"


def _is_this_python(found: str | None) -> bool:
    """Whether it starts this environment's Python: the same folder, as a link alone may lead to another environment."""
    return found is not None and Path(found).parent == Path(sys.executable).parent


def install_command(extra: str) -> str:
    """pip knows this package as the folder of its sources, where it is run from them."""
    if SOURCES.is_file():
        return f"{_install()} -e {shlex.quote(f'{SOURCES.parent}[{extra}]')}"
    return f"{_install()} 'isentrope[{extra}]'"


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
        advice = f"{_install()} --force-reinstall torch"
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


# -- what is shown


NOT_FOR_USERS = ("[dev]", "[verl]")  # extras for work on the package itself
USEFUL = ("hf", "watch")  # which the example of a command names if they are missing


def look_at_machine() -> None:
    """What works first, then what is wrong with a remedy each, then the optional parts that are not here."""
    signs, console = examine(), terminal()
    signs["Extras"] = [sign for sign in signs["Extras"] if sign.name not in NOT_FOR_USERS]
    found = [sign for group in signs.values() for sign in group]
    broken = [sign for sign in found if sign.state == "broken"]
    verdict = "Training cannot work here." if broken else "Training works here."
    console.print(shown(verdict, "bold red" if broken else "bold green"))
    _show_what_works(signs, console)
    wrong = [*broken, *(sign for sign in found if sign.state == "warning")]
    if wrong:
        console.print(shown("\nTo look at", "bold"))
    for name, state, detail, advice in wrong:
        console.print(shown(f"  {name}: {detail}", "red" if state == "broken" else "yellow"))
        _show_command(advice, console)
    _show_what_is_missing(signs, console)
    if broken:
        raise typer.Exit(1)


def _show_what_works(signs: dict[str, list[Sign]], console: Console) -> None:
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    for title, group in signs.items():
        fine = [sign for sign in group if sign.state == "ok"]
        if title == "Extras":
            told = " ".join(sign.name.strip("[]") for sign in fine)
        elif title == "Programs":
            told = ", ".join(sign.name for sign in fine)
        else:
            told = ", ".join(f"{sign.name} {sign.detail}" for sign in fine)
        if told:
            table.add_row("", shown(title.lower()), shown(told))
    console.print(table)


def _show_what_is_missing(signs: dict[str, list[Sign]], console: Console) -> None:
    """A line for each optional part, and one command for all of them."""
    from rich.table import Table

    names = [sign.name.strip("[]") for sign in signs["Extras"] if sign.state == "missing"]
    programs = [sign for sign in signs["Programs"] if sign.state == "missing"]
    if not names and not programs:
        return
    console.print(shown("\nOptional, not here", "bold"))
    table = Table.grid(padding=(0, 2))
    for name in names:
        table.add_row("", shown(name, "cyan"), shown(PURPOSES.get(name, "")))
    for sign in programs:
        table.add_row("", shown(sign.name, "cyan"), shown(sign.detail))
    console.print(table)
    if names:
        wanted = next((name for name in USEFUL if name in names), names[0])
        others = "" if len(names) == 1 else ", and the others by their names (several with commas)"
        console.print(shown(f"\nTo install {wanted}{others}:"))
        _show_command(install_command(wanted), console)
    if programs:
        console.print(shown("\nPrograms are the system's, on Debian and Ubuntu:"))
        _show_command("apt-get install " + " ".join(sign.advice.split()[-1] for sign in programs), console)


def _show_command(command: str, console: Console) -> None:
    """In one piece whatever the width, so that it can be copied."""
    if command:
        console.print(shown(f"  {command}"), soft_wrap=True)
