"""Plays an environment behind an OpenEnv server, through the package's own client.

isentrope play openenv --set task.options.url=http://127.0.0.1:8200

What is not known of a foreign environment is asked of the server: the form of its actions, and whether it has splits of
numbered tasks. Without those, game number i is a reset with the i-th seed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from isentrope.config.schema import setting
from isentrope.core.errors import TaskError
from isentrope.core.needs import require
from isentrope.net.client import Client, TooLarge, TooLate, Unreachable
from isentrope.worlds.adapters.seeded import SeededWorld, play_order
from isentrope.worlds.contract import Instance, Step, View

# what a server says about itself: what an action looks like, and its splits of tasks

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
        usual = {"object": "JSON object with the environment's fields", "integer": "whole number"}
        return "an action is text" if self.kind == "string" else f"an action is a {usual.get(self.kind, self.kind)}"

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
    else:
        required = [name for name in cast("list[str]", schema.get("required") or []) if name in fields]
        texts = [name for name, kind in fields.items() if kind == "string"]
        only = [names for names in (required, list(fields), texts) if len(names) == 1 and set(required) <= set(names)]
        field = only[0][0] if only else ""
    kind = fields.get(field, "string") if field else "object"
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
    except (_Refused, AttributeError, KeyError, TypeError, ValueError):  # 404 and 501: it has no such thing
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


RULES = "You act in an environment, one action at a time, and are told what comes of it."
_TEXTS = ("text", "message", "prompt", "content", "output", "result", "board", "state")
_ACTIONS = ("admissible", "legal_actions", "valid_actions", "available_actions", "legal_moves", "valid_moves")
_APART = ("goal", "rules", "success", "valid", "truncated", "metadata", "reward", "done", *_ACTIONS)


@dataclass(frozen=True)
class OpenEnvOptions:
    url: str = setting("http://127.0.0.1:8000", "address of the server")
    field: str = setting("", "the field of an action that takes the agent's text; empty: as the server's schema says")
    text: str = setting("", "the field of an observation that the agent reads; empty: a usual one, else all fields")
    goal: str = setting("", "the task in words; empty: the observation's goal, if it has one")
    rules: str = setting("", "what the agent is told about the world; empty: the observation's rules, if it has any")
    success_at: float = setting(
        1.0, "an episode is solved that ends with this much reward in all, unless it says itself"
    )
    reward_scale: float = setting(1.0, "the server's rewards are multiplied by this", above=0)
    seconds: float = setting(30.0, "how long to wait for the server's answer", above=0)


class OpenEnvWorld(SeededWorld):
    name = "openenv"
    kinds = ("openenv",)

    def __init__(self, options: OpenEnvOptions | None = None) -> None:
        self.options = options or OpenEnvOptions()
        self.package = require("openenv.core", "openenv", "the openenv world")
        self.action = action_form(self.options.url, self.options.field, self.options.seconds)
        self._sizes = split_sizes(self.options.url, self.options.seconds)

    def splits(self) -> Sequence[str]:
        return tuple(self._sizes) or super().splits()

    def size(self, split: str) -> int | None:
        self.check(split, 0)
        return self._sizes.get(split)

    def check(self, split: str, index: int) -> None:
        if not self._sizes:
            super().check(split, index)
        elif split not in self._sizes:
            raise TaskError(f"{self.options.url} has no split {split!r}; it has {', '.join(self._sizes)}")
        elif index < 0 or ((size := self._sizes[split]) is not None and index >= size):
            raise TaskError(f"the split {split} of {self.options.url} has no task {index}")

    def fingerprint(self, instance: Instance) -> tuple[str, int]:
        return instance.split, instance.index

    def selection(self, instance: Instance) -> dict[str, Any]:
        """What a reset has to be told for this instance."""
        self.check(instance.split, instance.index)
        if self._sizes:
            return {"split": instance.split, "index": instance.index}
        return {"seed": self.seed(instance)}

    def open(self) -> OpenEnvTask:
        return OpenEnvTask(self)


class OpenEnvTask:
    """One session with the server."""

    def __init__(self, world: OpenEnvWorld) -> None:
        self._world, self._form = world, world.action
        self._client: Any = None
        self._playing = False

    def start(self, instance: Instance) -> View:
        selection, options = self._world.selection(instance), self._world.options
        try:
            if self._client is None:
                client = self._world.package.GenericEnvClient(base_url=options.url, message_timeout_s=options.seconds)
                self._client = client.sync()
            result = self._client.reset(**selection)
        except Exception as error:
            self.close()
            raise TaskError(f"{options.url} could not start {selection}: {error!s:.300}") from error
        seen, words = _fields(result.observation), self._form.words
        self._goal = options.goal or str(seen.get("goal") or "")
        self._rules = options.rules or str(seen.get("rules") or f"{RULES} {words[0].upper()}{words[1:]}.")
        self._total, self._playing = 0.0, True
        self._view = self._read(seen)
        return self._view

    def step(self, action: str) -> Step:
        play_order(self._playing)
        payload = self._form.payload(action)
        if payload is None:
            return Step(replace(self._view, text=f"That is not an action here: {self._form.words}."), valid=False)
        try:
            result = self._client.step(payload)
        except RuntimeError as error:  # the server answered: it did not take the action
            return Step(replace(self._view, text=f"{error!s:.300}"), valid=False)
        except Exception as error:
            self.close()
            raise TaskError(
                f"{self._world.options.url} did not answer a step: {type(error).__name__}: {error!s:.200}"
            ) from error
        return self._step(result)

    def _step(self, result: Any) -> Step:
        seen, options = _fields(result.observation), self._world.options
        reward = float(result.reward or 0.0) * options.reward_scale
        self._total += reward
        truncated = bool(result.done) and bool(seen.get("truncated"))
        terminated = bool(result.done) and not truncated
        solved = seen.get("success")
        success = terminated and (solved if isinstance(solved, bool) else self._total >= options.success_at)
        self._playing = not result.done
        self._view = self._read(seen)
        valid = seen.get("valid") is not False
        return Step(self._view, reward, terminated, truncated, success, valid, {"score": self._total})

    def close(self) -> None:
        client, self._client, self._playing = self._client, None, False
        if client is not None:
            client.close()

    def _read(self, seen: Mapping[str, Any]) -> View:
        listed: Any = next((seen[name] for name in _ACTIONS if isinstance(seen.get(name), list)), None)
        admissible = None if listed is None else tuple(dict.fromkeys(str(action) for action in listed if str(action)))
        return View(self._text(seen), admissible, self._goal, self._rules)

    def _text(self, seen: Mapping[str, Any]) -> str:
        wanted = self._world.options.text
        if wanted and wanted not in seen:
            raise TaskError(f"task.options.text = {wanted!r}: observations have {', '.join(seen)}")
        if name := wanted or next((name for name in _TEXTS if isinstance(seen.get(name), str)), ""):
            return _plain(seen[name])
        return "\n".join(f"{name}: {_plain(value)}" for name, value in seen.items() if name not in _APART)


def _fields(observation: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", observation) if isinstance(observation, dict) else {"text": _plain(observation)}


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
