"""What an OpenEnv server says about itself: what an action looks like, and its splits of tasks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from isentrope.core.errors import TaskError
from isentrope.net.client import Client, TooLarge, TooLate, Unreachable

ENDLESS = 2**31 - 1  # how a server says that a split makes up as many tasks as are asked for
_MAX_ANSWER = 1_000_000  # bytes


class _Refused(Exception):
    """An answer with a status like 404."""


@dataclass(frozen=True)
class ActionForm:
    """How the agent's text becomes an action: as one field of it, or, without a field, as a JSON object."""

    field: str
    kind: str  # string, integer, number, boolean, or object

    @property
    def words(self) -> str:
        if self.kind == "object":
            return "an action is a JSON object with the environment's fields"
        return {"string": "an action is text", "integer": "an action is a whole number"}.get(
            self.kind, f"an action is a {self.kind}"
        )

    def payload(self, text: str) -> dict[str, Any] | None:
        """The action for that text, or None if the text is none."""
        clean = text.encode("utf-8", "replace").decode("utf-8")
        if self.kind == "string":
            return {self.field: clean}
        try:
            value = json.loads(clean)
        except (ValueError, RecursionError):
            return None
        if self.kind == "object":
            return cast("dict[str, Any]", value) if isinstance(value, dict) else None
        kinds = {"integer": int, "number": (int, float), "boolean": bool}
        fits = isinstance(value, kinds[self.kind]) and (self.kind == "boolean" or not isinstance(value, bool))
        return {self.field: value} if fits else None


def action_form(url: str, field: str, seconds: float) -> ActionForm:
    """From the server's schema: the field that was asked for, the only required one, or the only one of text."""
    try:
        schema = cast("dict[str, Any]", _ask(url, "/schema", seconds).get("action") or {})
    except (_Refused, AttributeError) as error:
        raise TaskError(f"what answers at {url} is no OpenEnv server: it has no /schema ({error})") from error
    fields = {
        name: str(cast("dict[str, Any]", one).get("type", ""))
        for name, one in cast("dict[str, Any]", schema.get("properties") or {}).items()
        if name != "metadata"
    }
    if field:
        if fields and field not in fields:
            raise TaskError(f"task.options.field = {field!r}: an action of {url} has {', '.join(fields)}")
        return _form(field, fields.get(field, "string"))
    required = [name for name in cast("list[str]", schema.get("required") or []) if name in fields]
    texts = [name for name, kind in fields.items() if kind == "string"]
    for names in (required, list(fields), texts):
        if len(names) == 1 and set(required) <= set(names):
            return _form(names[0], fields[names[0]])
    return ActionForm("", "object")


def _form(field: str, kind: str) -> ActionForm:
    return ActionForm(field, kind) if kind in ("string", "integer", "number", "boolean") else ActionForm("", "object")


def split_sizes(url: str, seconds: float) -> dict[str, int | None]:
    """The splits of a server with numbered tasks; empty if it has none. A split of `ENDLESS` tasks has None."""
    try:
        names = cast("list[str]", _ask(url, "/list_environments", seconds))
        name = names[0] if names else ""
        splits: Any = _ask(url, f"/{name}/splits", seconds) if name else []
        found = [str(split["name"]) for split in splits]
        asked = {split: _ask(url, f"/{name}/num_tasks", seconds, {"split": split}) for split in found}
        counts = {split: int(answer["num_tasks"]) for split, answer in asked.items()}
        return {split: count if count < ENDLESS else None for split, count in counts.items()}
    except (
        _Refused,
        AttributeError,
        KeyError,
        TypeError,
        ValueError,
    ):  # 404 and 501: it has no such thing
        return {}


def _ask(url: str, path: str, seconds: float, body: Mapping[str, Any] | None = None) -> Any:
    """One answer in JSON. A server that does not answer at all is an error; a status like 404 is _Refused."""
    if not url.startswith(("http://", "https://")):
        raise TaskError(f"task.options.url = {url!r}: expected an address that begins with http:// or https://")
    data = None if body is None else json.dumps(body).encode()
    try:
        answer = Client(url, _MAX_ANSWER, {"Content-Type": "application/json"}).ask(path, data, seconds)
        if not answer.success:
            raise _Refused(f"status {answer.status}")
        return json.loads(answer.body)
    except (TooLate, TooLarge, Unreachable, ValueError, RecursionError) as error:
        raise TaskError(
            f"no OpenEnv server answers at {url}: {error}. Start one there (isentrope serve-openenv household serves "
            "a world of this package), or set task.options.url"
        ) from error
