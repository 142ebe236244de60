"""`isentrope tasks`: the task worlds, what each of them needs, and all there is to know about one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from isentrope.cli.options import SetOption, WorldArgument, for_world, table_of_names, terminal
from isentrope.core.command import command, page
from isentrope.core.text import shown

if TYPE_CHECKING:
    from rich.console import Console

    from isentrope.worlds.contract import World

LONG = 1500  # characters of an example: enough to see what it is like


def tasks(name: WorldArgument = None, sets: SetOption = None) -> None:
    """List the task worlds, or show one.

    The list says what each world needs. With a WORLD: its splits, kinds, options, rules and an example.
    """
    if name is None:
        _list(terminal())
    else:
        _show(name, sets, terminal())


def _list(console: Console) -> None:
    from isentrope.worlds.registry import WORLDS

    table = table_of_names("world", "what it is", "here")
    for name, known in WORLDS.items():
        missing = known.needs.missing()
        here = shown("\n".join(f"needs {one}" for one in missing), "yellow") if missing else shown("yes", "green")
        table.add_row(shown(name, "cyan"), shown(f"{known.summary}\n{page(known.page(name))}"), here)
    console.print(table)
    console.print(
        shown(
            f"{command('tasks')} WORLD says more, {command('play')} WORLD plays it. Your own: {page('tasks/your-own')}"
        ),
        soft_wrap=True,
    )


def _show(name: str, sets: list[str] | None, console: Console) -> None:
    from isentrope.cli.listing import show_settings
    from isentrope.config.describe import describe
    from isentrope.core.errors import TaskError
    from isentrope.worlds.pool.guarded import close_world
    from isentrope.worlds.registry import WORLDS, make_world, world_factory, world_options

    world_factory(name)  # a name that does not exist is an error; a package that is missing is not
    known = WORLDS.get(name)
    console.print(shown(name, "bold"))
    if known is not None:
        console.print(shown(f"{known.summary[0].upper()}{known.summary[1:]}. Page: {page(known.page(name))}"))
        for missing in known.needs.missing():
            console.print(shown(f"Needs {missing}", "yellow"), soft_wrap=True)
    options = world_options(name)
    rows = list(describe(options)) if options is not None else []
    if rows:
        console.print(shown("Options: --set task.options.NAME=VALUE, or [task.options] in a recipe"))
    show_settings(console, [(info, info.default) for info in rows], ("default",))
    if not rows:
        console.print(shown("It has no options."))
    try:
        world = make_world(name, for_world(None, name, sets).task.options)
        _show_world(world, console)
        close_world(world)
    except TaskError as error:  # what it needs is not here, or has to be given: the rest can be told all the same
        console.print(shown(f"It cannot be opened as it stands: {error}", "yellow"))


def _show_world(world: World, console: Console) -> None:
    def say(title: str, text: str) -> None:
        console.print(shown(title, "bold"), shown(text))

    def shortened(text: str) -> str:
        return text if len(text) <= LONG else f"{text[:LONG]} … ({len(text)} characters)"

    sizes = {split: world.size(split) for split in world.splits()}
    told = [f"{split} ({'as many as asked for' if size is None else size})" for split, size in sizes.items()]
    say("Splits:", ", ".join(told))
    say("Kinds:", shortened(", ".join(world.kinds)))
    say("Expert:", "no" if world.expert(0) is None else "yes, so isentrope sft can warm a model up")
    task = world.open()
    view = task.start(world.instance(world.splits()[0], 0))
    task.close()
    say("Rules:", view.rules)
    say("Goal:", shortened(view.goal))
    say("First observation:", shortened(view.text))
    actions = view.admissible
    say("Actions:", shortened("; ".join(actions)) if actions else "free text, as the rules say")
