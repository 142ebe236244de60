"""What a world needs that does not come with the package: Python packages of an extra, and programs.

bm25s = require("bm25s", "search", "the search of the webshop")
java = require_program("java", "ScienceWorld", "apt-get install openjdk-17-jre-headless")
"""

from __future__ import annotations

import importlib
import importlib.util
import shutil
from dataclasses import dataclass
from types import ModuleType

from isentrope.errors import TaskError


@dataclass(frozen=True)
class Needs:
    """Modules come with `pip install 'isentrope[extra]'`; programs are the system's."""

    extra: str = ""
    modules: tuple[str, ...] = ()
    programs: tuple[tuple[str, str], ...] = ()  # (program, how to get it)

    def missing(self) -> list[str]:
        """What is not here, each with the command that gets it. Nothing is imported."""
        modules = [module for module in self.modules if importlib.util.find_spec(module) is None]
        absent = [f"{', '.join(modules)}: {install_command(self.extra)}"] if modules else []
        return absent + [f"{program}: {how}" for program, how in self.programs if shutil.which(program) is None]


NOTHING = Needs()


def install_command(extra: str) -> str:
    return f"pip install 'isentrope[{extra}]'"


def require(module: str, extra: str, what: str) -> ModuleType:
    """The module, or an error that says how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise TaskError(
            f"{what} needs the package {module}, which is not here ({error}): {install_command(extra)}"
        ) from error


def require_program(program: str, what: str, how: str) -> str:
    """The program's path, or an error that says how to get it."""
    path = shutil.which(program)
    if path is None:
        raise TaskError(f"{what} needs the program {program}, which is not here: {how}")
    return path
