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
from isentrope.worlds.pool.sanitize import MAX_DETAIL, Garbage, sanitize_step, sanitize_view

MAX_MESSAGE = 8 * 2**20  # bytes; a sanitized step with the worst text has about 3 MB

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
    texts = [table.get(name) for name in ("world", "split", "kind")]
    index = table.get("index")
    if not isinstance(index, int) or isinstance(index, bool) or not all(isinstance(text, str) for text in texts):
        raise Garbage("an instance of the answer lacks its world, split, index or kind")
    world, split, kind = (str(text)[:1000].encode("utf-8", "replace").decode() for text in texts)
    return Instance(world, split, index, kind)


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
