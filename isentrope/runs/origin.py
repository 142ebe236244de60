"""Where and how a run was started: command line, machine and versions, an entry in run.json for each start.

Neither keys nor values of environment variables are recorded. What looks like a key is replaced by `[hidden]`, and a
run that another program started records the program's name alone: its arguments are not ours to know.
"""

from __future__ import annotations

import os
import platform
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, cast

from isentrope import __version__
from isentrope.core.process import memory_gib, processor, usable_cores

STARTS = "starts"  # the entry's name in run.json
IMPORTED = "imported"  # likewise, of a run that another program made
_MOST_STARTS = 20  # that are kept: the first, and the last ones
_MOST_LETTERS = 2000  # of a command
_PACKAGES = ("torch", "transformers", "numpy", "vllm", "triton")
_HIDDEN = "[hidden]"
_KINDS = "key|token|secret|passw(?:or)?d|credentials?"
_NAMES = rf"(?<![A-Za-z0-9])(?:api|access|auth|client|private|secret)?[_-]?(?:{_KINDS})"
_SECRET_OPTION = re.compile(f"^-.*{_NAMES}$", re.I)
_ASSIGNED = re.compile(_NAMES + r"[\"']?\s*[=:]\s*(?P<value>\S.*)", re.I | re.S)
_SECRET_VARIABLE = re.compile(r"KEY|TOKEN|SECRET|PASS|CREDENTIAL|AUTH", re.I)
_LEAST_SECRET = 6  # letters from which a variable's value is looked for
_KEY_LIKE = re.compile(
    r"\b(?:sk|pk|rk)-[\w-]{12,}|\bhf_\w{12,}|\bgh[pousr]_\w{12,}|\bgithub_pat_\w{12,}|\bglpat-[\w-]{12,}|\bAKIA\w{12,}"
    r"|\bxox[abprs]-[\w-]{8,}|\beyJ[\w-]{10,}\.[\w.-]+|\b(?=\w*[a-z])(?=\w*[A-Z])(?=\w*[0-9])\w{32,}\b|\b[0-9a-f]{40,}\b"
)
_USER_IN_URL = re.compile(r"(?<=://)[^/@\s]+(?=@)")
_URL_PARAMETER = re.compile(r"([?&][\w.-]*(?:key|token|secret|sig|signature|password)[\w.-]*=)[^&\s]+", re.I)
_BEARER = re.compile(r"(\bbearer\s+)\S+", re.I)


@dataclass(frozen=True)
class Start:
    """One start of a run, as it was recorded. Untrusted: a run folder may come from anywhere."""

    at: str = ""
    command: str = ""
    machine: Mapping[str, str] = field(default_factory=dict[str, str])
    versions: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def machine_words(self) -> str:
        """`NVIDIA H200; AMD EPYC, 16 cores, 128 GiB; Linux x86_64`"""
        told = dict(self.machine)
        gpu, system, cores = (told.pop(name, "") for name in ("GPU", "system", "cores"))
        count = f"{cores} core{'s' if cores != '1' else ''}" if cores else ""
        parts = [told.pop("processor", ""), count, told.pop("memory", "")]
        others = [f"{name} {value}" for name, value in told.items()]
        return "; ".join(filter(None, (gpu, ", ".join(filter(None, parts)), system, *others)))

    @property
    def version_words(self) -> str:
        return ", ".join(f"{name} {version}" for name, version in self.versions.items())


@dataclass(frozen=True)
class Imported:
    """Where a run came from that another program made. Untrusted, as all of run.json. Our instruments may have watched
    it there (`watched`); else a log of it was read afterwards."""

    source: str = ""
    what: str = "a log"  # such as `TensorBoard event files`
    program: str = "another program"
    names: str = "none"  # the map by which its metrics have our names: trl, verl, isentrope or none
    at: str = ""
    command: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])  # what the importer was told of them
    problems: tuple[str, ...] = ()
    watched: bool = False


def imported_of(about: Mapping[str, Any]) -> Imported | None:
    """None for a run of our own."""
    entry = about.get(IMPORTED)
    if not isinstance(entry, dict):
        return None
    told = cast("dict[str, Any]", entry)
    texts = {name: str(told[key])[:200] for key, name in _IMPORTED_TEXTS.items() if isinstance(told.get(key), str)}
    settings, problems = told.get("settings"), told.get("problems")
    return Imported(
        **texts,
        settings=cast("dict[str, Any]", settings) if isinstance(settings, dict) else {},
        problems=tuple(str(text)[:500] for text in cast("list[Any]", problems)[:20])
        if isinstance(problems, list)
        else (),
        watched=told.get("watched") is True,
    )


_IMPORTED_TEXTS = {
    "from": "source",
    "what": "what",
    "program": "program",
    "names": "names",
    "at": "at",
    "command": "command",
}


def start_entry(at: str) -> dict[str, Any]:
    """What run.json says of a start that happens now."""
    return {"at": at, "command": command_line(sys.argv), "machine": machine(), "versions": versions()}


def with_start(about: Mapping[str, Any], entry: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of run.json with one more start."""
    known = about.get(STARTS)
    starts = [*(cast("list[Any]", known) if isinstance(known, list) else []), dict(entry)]
    return {**about, STARTS: starts[:1] + starts[1:][-(_MOST_STARTS - 1) :]}


def starts_of(about: Mapping[str, Any]) -> list[Start]:
    """The starts that run.json tells of; none where the folder is older than these entries."""
    known = about.get(STARTS)
    found: list[Start] = []
    for entry in cast("list[Any]", known)[:_MOST_STARTS] if isinstance(known, list) else []:
        if isinstance(entry, dict):
            told = cast("dict[str, Any]", entry)
            tables = (_texts(told.get(name)) for name in ("machine", "versions"))
            found.append(Start(str(told.get("at", ""))[:40], str(told.get("command", ""))[:_MOST_LETTERS], *tables))
    return found


def _texts(table: object) -> dict[str, str]:
    if not isinstance(table, dict):
        return {}
    return {str(key)[:40]: str(value)[:200] for key, value in list(cast("dict[Any, Any]", table).items())[:20]}


def machine() -> dict[str, str]:
    found = {
        "system": f"{platform.system()} {platform.machine()}",
        "processor": processor(),
        "cores": str(usable_cores()),
    }
    if (memory := memory_gib()) is not None:
        found["memory"] = f"{memory:.0f} GiB"
    torch: Any = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        count = torch.cuda.device_count()
        found["GPU"] = torch.cuda.get_device_name(0) + (f" × {count}" if count > 1 else "")
    return found


def versions() -> dict[str, str]:
    found = {"isentrope": __version__, "Python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def command_line(argv: Sequence[str], environment: Mapping[str, str] | None = None) -> str:
    """The command as it can be typed again, without what looks like a key."""
    program = Path(argv[0]) if argv and argv[0] else Path("python")
    ours = program.stem == "isentrope" or (program.name == "__main__.py" and program.parent.name == "isentrope")
    if not ours:
        return f"from Python ({program.name})"
    words = _without_secrets(argv[1:], os.environ if environment is None else environment)
    told = " ".join(["isentrope", *map(_quoted, words)])
    return told if len(told) <= _MOST_LETTERS else told[: _MOST_LETTERS - 1] + "…"


def _without_secrets(arguments: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    named = [text for name, text in environment.items() if _SECRET_VARIABLE.search(name)]
    secrets = sorted((text for text in named if len(text) >= _LEAST_SECRET), key=len, reverse=True)
    path = environment.get("HOME", "").rstrip("/")
    home = re.compile(rf"(?<![\w./-]){re.escape(path)}(?![^/])") if path else None
    kept: list[str] = []
    for number, argument in enumerate(arguments):
        if number and _SECRET_OPTION.search(arguments[number - 1]) and not argument.startswith("--"):
            kept.append(_HIDDEN)
            continue
        if found := _ASSIGNED.search(argument):
            argument = argument[: found.start("value")] + _HIDDEN
        for value in secrets:
            argument = argument.replace(value, _HIDDEN)
        argument = _KEY_LIKE.sub(_HIDDEN, _USER_IN_URL.sub(_HIDDEN, argument))
        for pattern in (_URL_PARAMETER, _BEARER):
            argument = pattern.sub(lambda match: match[1] + _HIDDEN, argument)
        kept.append(home.sub("~", argument) if home else argument)
    return kept


def _quoted(word: str) -> str:
    """For a shell, which knows the home folder only outside of quotes."""
    return f"~/{shlex.quote(word[2:])}" if word[:2] == "~/" and word[2:] else shlex.quote(word)
