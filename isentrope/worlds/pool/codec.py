"""Writes and reads the results of tasks as JSON, for pipes and for HTTP.

JSON and not pickle: reading it runs no code, whoever wrote it. What is read is checked as if a task had given it, and
`Garbage` says what is wrong with it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from isentrope.worlds.contract import Instance, Step, View
from isentrope.worlds.pool.guarded import KINDS, Failure, Result
from isentrope.worlds.pool.sanitize import MAX_DETAIL, Garbage, checked_name, sanitize_step, sanitize_view

MAX_MESSAGE = 8 * 2**20  # bytes; a sanitized step with the worst text has about 3 MB

LARGEST_COUNT = 2**53  # of the games of a split
LIKE_PATHS = "/: +"  # kinds and worlds are called like ALE/Pong-v5 or my_package:World; no file is named by them

Table = dict[str, Any]


def pack(message: Mapping[str, Any]) -> bytes:
    return json.dumps(message, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def unpack(data: bytes) -> Table:
    """A JSON object, or Garbage."""
    try:
        found = json.loads(data.decode("utf-8"), parse_constant=_no_constant)
    except UnicodeDecodeError:
        raise Garbage("the answer is not UTF-8") from None
    except (ValueError, RecursionError) as error:
        raise Garbage(f"the answer is not JSON: {str(error)[:100]}") from None
    if not isinstance(found, dict):
        raise Garbage(f"the answer is JSON, but a {type(found).__name__} and not an object")
    return cast("Table", found)


def result_to_table(result: Result) -> Table:
    """{"view": ...}, {"step": ...} or {"failure": ...}."""
    if isinstance(result, Failure):
        return {"failure": vars(result)}
    if isinstance(result, View):
        return {"view": vars(result)}
    return {"step": vars(result) | {"view": vars(result.view)}}


def result_from_table(table: Table) -> Result:
    """The one result in `table`; Garbage if there is none, or if something in it is wrong."""
    if "step" in table:
        fields = _table(table["step"], "step")
        view = _view_from_table(_table(fields.pop("view", None), "view"))
        return sanitize_step(_made(Step, fields | {"view": view}))
    if "view" in table:
        return sanitize_view(_view_from_table(_table(table["view"], "view")))
    failure = _table(table.get("failure"), "failure")
    kind, detail = failure.get("kind"), failure.get("detail")
    if kind not in KINDS or not isinstance(detail, str):
        raise Garbage("the answer has neither a step nor a view nor a failure of a known kind")
    return Failure(kind, detail[:MAX_DETAIL].encode("utf-8", "replace").decode())


def instance_to_table(instance: Instance) -> Table:
    return {name: getattr(instance, name) for name in ("world", "split", "index", "kind")}


def instance_from_table(found: object) -> Instance:
    table = _table(found, "instance")
    index = table.get("index")
    if type(index) is not int or not 0 <= index < LARGEST_COUNT:
        raise Garbage(f"the index of an instance is {index!r:.40}, expected a number from 0 on")
    return Instance(
        checked_name(table.get("world"), "world", LIKE_PATHS),
        checked_name(table.get("split"), "split"),
        index,
        checked_name(table.get("kind"), "kind of game", LIKE_PATHS),
    )


def _view_from_table(table: Table) -> View:
    mended = table.get("mended", [])
    if not isinstance(mended, list):
        raise Garbage("the answer's view has a wrong list of what was mended")
    codes = tuple(code for code in cast("list[Any]", mended)[:10] if isinstance(code, str))
    return cast("View", _made(View, table | {"mended": codes}))


def _made(kind: type[Any], fields: Table) -> Any:
    try:
        return kind(**fields)
    except TypeError as error:  # a field too many, or one that is missing
        raise Garbage(f"the answer's {kind.__name__.lower()} is not one: {str(error)[:100]}") from None


def _table(found: object, name: str) -> Table:
    if not isinstance(found, dict):
        raise Garbage(f"the answer has no {name}")
    return dict(cast("Table", found))


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no number")
