"""Checks everything that a task returns, and cuts it to size or refuses it: nothing that comes from a task is trusted.

Text that is too long is cut, with a note at its end; characters that cannot be stored are replaced. Both are named in
`View.mended`, so that they are counted. What cannot be used at all (a reward that is no number, bytes instead of
text) raises `Garbage`. The results are made of plain types only, whatever clever subclasses the task returned.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar, cast

from isentrope.core.errors import TaskError
from isentrope.worlds.contract import Step, View

MAX_TEXT = 100_000  # characters of one observation, and of all its admissible actions together
MAX_DETAIL = 500
MAX_INFO = 100  # entries of Step.info
LARGEST_REWARD = 1e6  # in size, of one step: sums and squares over a group have to stay numbers in float32
_INT64 = 2**63

MENDED = ("text_cut", "actions_cut", "info_cut", "encoding")  # what may have been put right

R = TypeVar("R")


class Garbage(TaskError):
    """The task answered, but its answer cannot be used."""


def checked_name(name: object, what: str, also: str = "") -> str:
    """A name that a task server gives: of a split, which names files of the run, or of a kind of game. `also`: further
    characters that it may have."""
    if not isinstance(name, str) or not re.fullmatch(rf"[\w.{re.escape(also)}-]{{1,64}}", name):
        raise Garbage(f"the name of a {what} is {name!r:.80}, expected 1 to 64 letters, digits, . _ and -")
    return name


def in_words(error: BaseException) -> str:
    try:
        text = f"{type(error).__name__}: {error}"
    except Exception:  # an error whose own text raises
        text = type(error).__name__
    return _valid_unicode(text[:MAX_DETAIL])


def _guarded(read: Callable[[Any], R]) -> Callable[[Any], R]:
    """Reading an attribute may run the task's code (a property), which may raise anything."""

    def sanitize(found: Any) -> R:
        try:
            return read(found)
        except Garbage:
            raise
        except Exception as error:
            raise Garbage(f"the task's answer could not be read: {in_words(error)}") from error

    return sanitize


@_guarded
def sanitize_view(view: Any) -> View:
    """The view with everything of the right type and within bounds."""
    if not isinstance(view, View):
        raise Garbage(f"the task gave a {type(view).__name__} where a View was expected")
    mended = {code for code in view.mended if code in MENDED} if view.mended else set[str]()
    text, admissible = _text(view.text, mended), _actions(view.admissible, mended)
    return View(text, admissible, _text(view.goal, mended), _text(view.rules, mended), _in_order(mended))


@_guarded
def sanitize_step(step: Any) -> Step:
    if not isinstance(step, Step):
        raise Garbage(f"the task gave a {type(step).__name__} where a Step was expected")
    view = sanitize_view(step.view)
    mended = set(view.mended)
    info = _info(step.info, mended)
    if len(mended) > len(view.mended):
        view = replace(view, mended=_in_order(mended))
    return Step(
        view, _reward(step.reward), _flag(step.terminated, "terminated"), _flag(step.truncated, "truncated"),
        _flag(step.success, "success"), _flag(step.valid, "valid"), info,
    )  # fmt: skip


def _in_order(mended: set[str]) -> tuple[str, ...]:
    return tuple(code for code in MENDED if code in mended) if mended else ()


def _reward(value: Any) -> float:
    if isinstance(value, str | bytes):  # float("1") is a number; a reward in quotes is still a mistake
        raise Garbage(f"the task gave a {type(value).__name__} as the reward")
    reward = float.__add__(float(value), 0.0)
    if not abs(reward) <= LARGEST_REWARD:  # NaN compares with nothing
        raise Garbage(f"the task gave the reward {reward}, expected a number of at most {LARGEST_REWARD:,.0f} in size")
    return reward


def _flag(value: Any, name: str) -> bool:
    if value is None or isinstance(value, str | bytes | list | tuple | dict):  # "false" would be true
        raise Garbage(f"the task gave a {type(cast('object', value)).__name__} as {name}, expected true or false")
    return bool(value)


def _text(text: Any, mended: set[str]) -> str:
    if type(text) is str and len(text) <= MAX_TEXT and text.isascii():
        return text  # nearly always
    if not isinstance(text, str):
        raise Garbage(f"the task gave a {type(text).__name__} where text was expected")
    length = str.__len__(text)  # a subclass of str may lie about itself
    if length > MAX_TEXT:
        mended.add("text_cut")
        note = f"\n[cut here: {length:,} characters in all]"
        text = str.__getitem__(text, slice(MAX_TEXT - len(note))) + note
    return _plain_text(str.__getitem__(text, slice(None)), mended)


def _actions(actions: Any, mended: set[str]) -> tuple[str, ...] | None:
    if actions is None:
        return None
    if isinstance(actions, str | bytes):
        raise Garbage(f"the task gave a {type(actions).__name__} where a list of actions was expected")
    if type(actions) in (tuple, list) and set(map(type, actions)) <= {str}:
        together = "\n".join(actions)
        if together.isascii() and len(together) < MAX_TEXT:
            return tuple(actions)  # nearly always
    kept: list[str] = []
    total = 0
    for action in actions:
        if not isinstance(action, str):
            raise Garbage(f"the task gave a {type(action).__name__} where an action was expected")
        total += str.__len__(action) + 1
        if total > MAX_TEXT:
            mended.add("actions_cut")
            break
        kept.append(_plain_text(str.__getitem__(action, slice(None)), mended))
    return tuple(kept)


def _info(info: Any, mended: set[str]) -> dict[str, str | float | bool]:
    if not isinstance(info, dict):
        raise Garbage(f"the task gave a {type(info).__name__} where a dict of info was expected")
    kept: dict[str, str | float | bool] = {}
    for key, value in cast("dict[Any, Any]", info).items():
        if len(kept) >= MAX_INFO:
            mended.add("info_cut")
            break
        kept[_short(key, 100, mended)] = _info_value(value, mended)
    return kept


def _info_value(value: Any, mended: set[str]) -> str | float | bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, int) and -_INT64 <= int.__add__(value, 0) < _INT64:
        return int.__add__(value, 0)
    if isinstance(value, float) and math.isfinite(float.__add__(value, 0.0)):
        return float.__add__(value, 0.0)
    if isinstance(value, int):
        mended.add("info_cut")
        return "a number of more than 64 bits"
    return _short(value, MAX_DETAIL, mended)


def _short(value: Any, most: int, mended: set[str]) -> str:
    text = value if isinstance(value, str) else str(value)
    if str.__len__(text) > most:
        mended.add("info_cut")
    return _plain_text(str.__getitem__(text, slice(most)), mended)


def _plain_text(text: str, mended: set[str]) -> str:
    valid = _valid_unicode(text)
    if valid != text:
        mended.add("encoding")
    return valid


def _valid_unicode(text: str) -> str:
    """Lone surrogates replaced: they can be neither tokenised nor stored."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
