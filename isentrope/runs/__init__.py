"""The run folder: written and read here only.

`isentrope.runs` is this package, and `isentrope.runs(folder)` lists the runs in a folder: the package can be called, as
the public function of this name (api.py).
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import isentrope


class _Package(ModuleType):
    def __call__(self, folder: str | Path = "runs") -> list[Any]:
        return isentrope.__getattr__("runs")(folder)


sys.modules[__name__].__class__ = _Package
