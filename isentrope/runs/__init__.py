"""The run folder: written and read here only.

`isentrope.runs` is this package, and `isentrope.runs(folder)` lists the runs in a folder (api.py): the package can be
called.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from isentrope.api import Run


class _Package(ModuleType):
    def __call__(self, folder: str | Path = "runs") -> list[Run]:
        from isentrope.api import runs

        return runs(folder)


sys.modules[__name__].__class__ = _Package
