"""What `isentrope doctor` looks at. Every look is short, and none may raise."""

from __future__ import annotations

import importlib
import os
import platform
import shutil
import sys
from importlib import metadata
from pathlib import Path
from typing import Literal, NamedTuple

from isentrope import __version__
from isentrope.cli import extras

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
    return {
        "Installed": [Sign("isentrope", "ok", __version__), Sign("python", "ok", _python()), *map(_core, CORE)],
        "Extras": _extras(),
        "Machine": [_cores(), _memory(), _disk()],
        "Torch": _torch(),
        "Programs": [_program(name) for name in PROGRAMS],
    }


def _python() -> str:
    return f"{platform.python_version()} on {platform.system()} {platform.machine()}"


def _core(name: str) -> Sign:
    try:
        return Sign(name, "ok", metadata.version(name))
    except metadata.PackageNotFoundError:
        return Sign(name, "broken", "not installed", f"{_pip()} install {name}")


def _extras() -> list[Sign]:
    try:
        return [_extra(name, purpose) for name, purpose in extras.PURPOSES.items()]
    except Exception as error:  # a pyproject.toml or an installation that cannot be read
        return [Sign("extras", "warning", f"cannot be looked up: {error}"[:200])]


def _extra(name: str, purpose: str) -> Sign:
    install = f"{_pip()} install {_ourselves()}[{name}]'"
    missing, wrong = extras.absent(name), extras.unfit(name)
    if wrong:
        return Sign(f"[{name}]", "warning", "; ".join(wrong), install)
    if missing:
        lacking = ", ".join(missing[: extras.NAMED]) + (", …" if missing[extras.NAMED :] else "")
        return Sign(f"[{name}]", "missing", f"for {purpose}; not here: {lacking}", install)
    return Sign(f"[{name}]", "ok", extras.present(name))


def _pip() -> str:
    return f"{sys.executable} -m pip"


def _ourselves() -> str:
    """How pip knows this package: as the folder of its sources, where it is run from them."""
    sources = Path(__file__).parents[2]
    return f"-e '{sources}" if (sources / "pyproject.toml").is_file() else "'isentrope"


def available_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _cores() -> Sign:
    threads = os.environ.get("OMP_NUM_THREADS")
    detail = f"{available_cores()} usable" + (f", OMP_NUM_THREADS = {threads}" if threads else "")
    return Sign("cores", "ok", detail)


def _memory() -> Sign:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        kibibytes = {line.split(":")[0]: int(line.split()[1]) for line in lines if line.strip()}
        total, free = kibibytes["MemTotal"] / 2**20, kibibytes["MemAvailable"] / 2**20
    except (OSError, KeyError, ValueError, IndexError):
        return Sign("memory", "warning", "unknown on this system")
    if free < 2:
        return Sign(
            "memory",
            "warning",
            f"{free:.1f} of {total:.1f} GiB free",
            "close something: even small runs use 1 to 2 GiB",
        )
    return Sign("memory", "ok", f"{free:.1f} of {total:.1f} GiB free")


def _disk() -> Sign:
    free = shutil.disk_usage(".").free / 2**30
    if free < 1:
        return Sign("disk", "warning", f"{free:.1f} GiB free here", "choose another place with --out")
    return Sign("disk", "ok", f"{free:.1f} GiB free here")


def _torch() -> list[Sign]:
    try:
        torch = importlib.import_module("torch")
        load = importlib.import_module("isentrope.policy.load")
        device = load.choose_device("auto")
        dtype = "float32, bfloat16 for large models" if device.type == "cuda" else "float32"
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else "no GPU in use"
        signs = [
            Sign("device", "ok", f"{device} ({name}), {dtype}"),
            Sign("threads", "ok", str(torch.get_num_threads())),
        ]
        torch.manual_seed(0)
        left, right = torch.randn(2, 256, 256).unbind()
        difference = ((left.to(device) @ right.to(device)).cpu() - (left.double() @ right.double())).abs().max().item()
    except Exception as error:  # whatever is wrong with torch is what the user came here to learn
        return [
            Sign(
                "torch", "broken", f"{type(error).__name__}: {error}"[:200], f"{_pip()} install --force-reinstall torch"
            )
        ]
    fine = difference < 0.1  # TF32 on a GPU is off by about 0.02 here
    advice = "" if fine else "this torch computes wrongly on this machine: try another version, or run.device=cpu"
    return [*signs, Sign("matrix product", "ok" if fine else "broken", f"largest error {difference:.1e}", advice)]


def _program(name: str) -> Sign:
    commands, purpose = PROGRAMS[name]
    for command in commands:
        path = shutil.which(command)
        if path:
            return Sign(name, "ok", path)
    return Sign(
        name, "missing", f"only for {purpose}", f"apt-get install {'default-jre-headless' if name == 'java' else name}"
    )
