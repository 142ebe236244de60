"""Reads the arguments of a command so that a recipe and a setting may be named as people try to name them.

`--lr 1e-4` and `lr=1e-4` are answered with `--set learn.lr=1e-4`. With every command a recipe may stand as the argument
or behind `--recipe`, whichever of the two the command has.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple, cast

import typer
from typer.core import TyperCommand

_USAGE_ERROR = cast("type[Exception]", typer.BadParameter.__base__)  # has no public name
_OWN_SECTION = {"sft": "sft", "rft": "sft", "eval": "eval"}  # command -> the section that it reads first
_MOST = 3  # settings that an answer names
_SHORT = 3  # letters: what is shorter says nothing
_RECIPE_ARGUMENTS = ("recipe", "file")  # parameters that are a recipe, a study's file among them


class Word(NamedTuple):
    place: int
    name: str  # of an unknown option; or an argument as it stands
    value: str | None


class Command(TyperCommand):
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        params, given = self.get_params(ctx), list(args)
        if ctx.resilient_parsing:  # for a shell that completes; an option whose value is to come would end the reading
            begun = bool(args) and any(args[-1] in param.opts and not _is_flag(param) for param in params)
            return super().parse_args(ctx, given[:-1] if begun else given)
        if not {"-h", "--help"} & set(args):
            _refuse_stray_settings(params, given, ctx)
            args = _with_recipe(params, given)
        try:
            return super().parse_args(ctx, list(args))  # which it empties
        except _USAGE_ERROR:
            told = [one for word in split(params, given)[0] if (one := _option_as_setting(params, word, ctx))]
            if not told:
                raise
        raise _told(told, ctx)


def split(params: Sequence[Any], args: Sequence[str]) -> tuple[list[Word], list[Word]]:
    """The options that no parameter has, each with what seems to be its value; and the arguments."""
    known = {name: param for param in params for name in (*param.opts, *param.secondary_opts) if name[0] == "-"}
    unknown: list[Word] = []
    arguments: list[Word] = []
    left = iter(range(len(args)))
    for place in left:
        word = args[place]
        if word == "--":
            arguments += [Word(at, args[at], None) for at in left]
        elif not _is_option(word):
            arguments.append(Word(place, word, None))
        else:
            name, equals, value = word.partition("=")
            param = known.get(name) or (known.get(word[:2]) if not word.startswith("--") else None)
            takes_next = not equals and place + 1 < len(args) and not _is_option(args[place + 1])
            if param is None:
                unknown.append(Word(place, name, value if equals else args[place + 1] if takes_next else None))
                if takes_next:
                    next(left)
            elif not equals and not _is_flag(param) and name in known:
                next(left, None)
    return unknown, arguments


def _is_flag(param: Any) -> bool:
    return bool(getattr(param, "is_flag", False))


def _is_option(word: str) -> bool:
    return len(word) > 1 and word[0] == "-" and not word[1].isdigit() and word[1] != "."


# -- settings


def _set_option(params: Sequence[Any]) -> Any | None:
    return next((param for param in params if "--set" in param.opts), None)


def _option_as_setting(params: Sequence[Any], word: Word, ctx: Any) -> str:
    """What to write instead of `--lr 1e-4`; empty if the option is nothing like a setting."""
    option = _set_option(params)
    if option is None:
        return ""
    name = word.name.lstrip("-").replace("-", "_")
    given = word.name if word.value is None else f"{word.name} {word.value}"
    if _sets_a_part(option):
        return _answer(given, [name], word.value, ctx)
    options = [name for param in params for name in (*param.opts, *param.secondary_opts)]
    if (paths := named_settings(name)) or not get_close_matches(word.name, options):
        return _answer(given, paths or like_settings(name), word.value, ctx)
    return ""


def _refuse_stray_settings(params: Sequence[Any], args: Sequence[str], ctx: Any) -> None:
    """`lr=1e-4` without --set would be taken for a recipe, a model or a world."""
    option = _set_option(params)
    told: list[str] = []
    arguments = split(params, args)[1] if option is not None else []
    for word in arguments:
        before = args[max(0, word.place - 2) : word.place]
        if len(before) == 2 and before[0] == "--set" and "=" not in before[1]:  # `--set learn.lr 1e-4`
            told += [f"  --set {before[1]} {word.name}: --set {shlex.quote(f'{before[1]}={word.name}')}"]
    for word in arguments:
        name, equals, value = word.name.partition("=")
        if equals and name and not Path(word.name).exists():
            paths = [name] if _sets_a_part(option) else named_settings(name)
            told += [_answer(word.name, paths, value, ctx)] if paths else []
    if told:
        raise _told(told, ctx)


def _told(answers: Sequence[str], ctx: Any) -> Exception:
    return cast("Any", _USAGE_ERROR)("\n".join(["Settings are changed with --set:", *answers]), ctx)


def _sets_a_part(option: Any) -> bool:
    """check-method's --set takes the options of a part, by their names alone."""
    return str(option.metavar).startswith("OPTION")


def _answer(given: str, paths: Sequence[str], value: str | None, ctx: Any) -> str:
    """One line; of several settings the one of the command's own section is named first."""
    if not paths:
        return ""
    own = f"{_OWN_SECTION.get(str(ctx.info_name), 'learn')}."
    first, *others = sorted(paths[:_MOST], key=lambda path: not path.startswith(own))
    written = value if value is not None else "true" if _is_switch(first) else "VALUE"
    also = f" (or {', '.join(others)})" if others else ""
    return f"  {given}: --set {shlex.quote(f'{first}={written}')}{also}"


def _is_switch(path: str) -> bool:
    from isentrope.config.describe import describe_settings

    return any(info.path == path and info.type == "bool" for info in describe_settings())


def named_settings(name: str) -> list[str]:
    """The settings of this full name, or with it as their last part."""
    from isentrope.config.describe import describe_settings

    paths = list(dict.fromkeys(info.path for info in describe_settings()))
    owned = name if name.startswith(("method.", "task.options.")) else ""  # known to methods and worlds alone
    whole = [path for path in paths if name in (path, path.removesuffix(".kind"), owned)]
    return [name] if whole or owned else [path for path in paths if path.rpartition(".")[2] == name]


def like_settings(name: str) -> list[str]:
    """Those whose last part is a word of the name, or nearly all of it; else those with its words in their meaning."""
    from isentrope.config.describe import describe_settings, find_settings

    lasts = {info.path.rpartition(".")[2] for info in describe_settings()}
    near = [word for word in name.split("_") if word in lasts]
    near = near or get_close_matches(name, sorted(lasts), n=1, cutoff=0.65)
    if near or len(name) < _SHORT:
        return [path for last in near for path in named_settings(last)]
    return [info.path for info in find_settings(name.replace("_", " "))]


# -- recipes


def _with_recipe(params: Sequence[Any], args: list[str]) -> list[str]:
    """The arguments with the recipe where this command has it."""
    if any("--recipe" in param.opts for param in params):
        return _argument_to_option(params, args)
    takes = any(param.param_type_name == "argument" and param.name in _RECIPE_ARGUMENTS for param in params)
    return list(_option_to_argument(args)) if takes else args


def _option_to_argument(args: Sequence[str]) -> Iterator[str]:
    for number, word in enumerate(args):
        if word.startswith("--recipe="):
            yield word.partition("=")[2]
        elif word != "--recipe" or number + 1 == len(args):
            yield word


def _argument_to_option(params: Sequence[Any], args: list[str]) -> list[str]:
    """`eval demo` as `eval --recipe demo`, if `demo` is a recipe and nothing else."""
    arguments = split(params, args)[1]
    if not arguments or any(word.split("=")[0] == "--recipe" for word in args):
        return args
    place, name, _ = arguments[0]
    if not _is_recipe(name) or (_is_world(name) and any(param.name == "world" for param in params)):
        return args
    typer.echo(f"{name} is a recipe: read as --recipe {name}", err=True)
    return [*args[:place], "--recipe", *args[place:]]


def _is_recipe(name: str) -> bool:
    from isentrope.config.recipes import recipe_names

    path = Path(name)
    return path.is_file() if path.suffix == ".toml" else not path.exists() and name in recipe_names()


def _is_world(name: str) -> bool:
    from isentrope.worlds.registry import PARTS

    return name in PARTS
