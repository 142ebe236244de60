"""Error types, one for each boundary, and a context manager that turns OSError into RunError.

Whatever goes wrong reaches the user as one of these, with a sentence that gives the value, what was
expected and what to do. The command line prints them without a traceback.
"""

from __future__ import annotations

import errno
from collections.abc import Generator
from contextlib import contextmanager


class IsentropeError(Exception):
    """Base of every error that we raise on purpose."""


class ConfigError(IsentropeError):
    """A recipe, a `--set` or a combination of values that cannot be run."""


class TaskError(IsentropeError):
    """A task world that is missing, broken or misused."""


class EngineError(IsentropeError):
    """A policy that cannot be loaded, sampled or scored."""


class TrainError(IsentropeError):
    """An update that cannot go on."""


class RankLost(TrainError):
    """One of the processes that learn is gone. The run can go on from its last checkpoint."""


class RunError(IsentropeError):
    """A run folder that cannot be read, written or resumed."""


@contextmanager
def writing(path: object) -> Generator[None]:
    """Turn the operating system's refusals while writing `path` into a RunError that says what to do."""
    try:
        yield
    except OSError as error:
        if isinstance(error, IsADirectoryError):
            advice = "name a file in it"
        elif isinstance(error, FileNotFoundError | PermissionError) or error.errno == errno.EROFS:
            advice = "choose a folder you may write to with --out"
        elif error.errno in (errno.ENOSPC, errno.EDQUOT):
            advice = "free some space, then continue with --resume; the last complete checkpoint is intact"
        else:
            advice = "see whether the folder is still there and writable"
        raise RunError(f"could not write {path}: {error.strerror or error}; {advice}") from error
