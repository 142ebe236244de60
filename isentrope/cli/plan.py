"""`isentrope plan`: how long a step would take on cards that are not here, and how to divide them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isentrope.cli.completion import complete_card
from isentrope.cli.options import RecipeArgument, SetOption, terminal
from isentrope.core.command import command
from isentrope.core.errors import ConfigError
from isentrope.core.text import shown

if TYPE_CHECKING:
    from rich.console import Console

    from isentrope.cluster.plan.choose import LengthsOf, Outcome
    from isentrope.cluster.plan.layouts import Memory, Task
    from isentrope.config.schema import RunConfig
    from isentrope.models.sources.catalogue import Facts

MOST_CARDS = 4096
PROMPT, READ = 450, 60  # tokens before the first response, and between two: ALFWorld's games in full prompts


def plan(
    recipe: RecipeArgument = None,
    gpus: Annotated[str, typer.Option("--gpus", metavar="N,N", help="Cards: one plan for each number.")] = "",
    card: Annotated[
        str, typer.Option("--card", metavar="NAME", help="Which card.", autocompletion=complete_card)
    ] = "h200",
    sets: SetOption = None,
    run: Annotated[
        Path | None, typer.Option("--run", metavar="RUN", help="Turns and lengths as in the episodes of this run.")
    ] = None,
    turns: Annotated[float, typer.Option("--turns", min=0, help="Mean turns; 0: all of task.max_turns.")] = 0.0,
    response: Annotated[
        float, typer.Option("--response", min=0, help="Mean tokens of a response; 0: all of agent.max_response.")
    ] = 0.0,
    prompt: Annotated[int, typer.Option("--prompt", min=1, help="Tokens before the first response.")] = PROMPT,
    read: Annotated[int, typer.Option("--read", min=0, help="Tokens between two responses.")] = READ,
    task_seconds: Annotated[
        float | None, typer.Option("--task-seconds", min=0, max=3600, help="Seconds that a task takes for a turn.")
    ] = None,
    ahead: Annotated[int, typer.Option("--ahead", min=1, max=8, help="Most steps that may be played ahead.")] = 1,
    rates: Annotated[
        Path | None, typer.Option("--rates", metavar="FILE", help="Rates from a file that --measure wrote.")
    ] = None,
    measure: Annotated[
        Path | None,
        typer.Option("--measure", metavar="FILE", help="Measure this machine's CPU first, and write its rates there."),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE.svg", help="Draw where the time of a step goes.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the plans as JSON.")] = False,
) -> None:
    """Foretell a training step on cards that are not here.

    A simulation from measured rates: seconds of a step and its parts, who waits for what, memory of each card, tokens
    an hour, the best split of the cards, and its settings. policy.model may be the name of a shape, e.g. qwen2.5-7b.
    Nothing is loaded. How close it comes: isentrope docs plan.
    """
    from isentrope.cluster.plan.choose import outcomes, recommended

    _check_options(plot, run, turns, response)
    counts = _counts(gpus or "1")
    config, facts = settings(recipe, sets)
    if measure is not None:
        _measure(recipe, sets, measure)
    task, kept = _task(config, facts, card, rates or measure, counts, task_seconds)
    lengths_of, told = _lengths(config, run, kept if not (turns or response) else None, turns, response, prompt, read)
    found = {count: outcomes(task, lengths_of, count, ahead) for count in counts}
    best = {count: recommended(some) for count, some in found.items()}
    if plot is not None:
        from isentrope.runs.atomic import write_atomically

        write_atomically(plot, picture(best[counts[-1]], config.policy.model).encode())
    if as_json:
        plans = [_data(task, some, best[count]) for count, some in found.items()]
        return _echo({"card": task.card.title, "lengths": told, "rates": task.rates.data(), "plans": plans})
    console = terminal()
    _show_head(task, lengths_of, told, console)
    for count, some in found.items():
        _show(task, some, best[count], console)
    _show_end(found, console, plot)


def _check_options(plot: Path | None, run: Path | None, turns: float | None, response: float | None) -> None:
    if plot is not None and plot.suffix.lower() != ".svg":
        raise ConfigError(f"--plot {plot}: expected a name that ends with .svg")
    if run is not None and (turns or response):
        raise ConfigError("--run has turns and lengths of its own: leave out --turns and --response")


def _echo(data: dict[str, Any]) -> None:
    import json

    typer.echo(json.dumps(data, indent=2))


# -- what is planned


def settings(recipe: Path | None, sets: list[str] | None) -> tuple[RunConfig, Facts]:
    """The settings for a model of which only the facts are looked at."""
    from isentrope.config.load import load_config
    from isentrope.config.suggest import nearest
    from isentrope.core.errors import EngineError
    from isentrope.models.auto import Size, follow_size
    from isentrope.models.sources.find import find_facts
    from isentrope.models.sources.shapes import SHAPES

    config = load_config(recipe, sets or ())
    if config.engine.kind not in ("auto", "fast", "torch"):
        raise ConfigError(
            f"engine.kind = {config.engine.kind}: only the rates of our own engines are known; plan with "
            "--set engine.kind=auto"
        )
    model = config.policy.model
    if model in SHAPES:
        facts = SHAPES[model].facts()
    else:
        try:
            facts = find_facts(model, False)[1]
        except EngineError as error:
            guess = nearest(model, SHAPES)
            shapes = f"did you mean {guess}?" if guess else f"known are {', '.join(SHAPES)}"
            raise ConfigError(f"{error}. It may also be the name of a shape: {shapes}") from error
    return follow_size(config, Size.of(facts)), facts


def _counts(text: str) -> list[int]:
    try:
        counts = [int(part) for part in text.split(",")]
    except ValueError:
        counts = [0]
    if not all(0 < count <= MOST_CARDS for count in counts):
        raise ConfigError(f"--gpus {text}: expected numbers of cards from 1 to {MOST_CARDS:,}, such as 8 or 8,64,512")
    return list(dict.fromkeys(counts))


def _measure(recipe: Path | None, sets: list[str] | None, out: Path) -> None:
    from isentrope.bench.rates import measure, write_measured
    from isentrope.cli.options import load, say_loading
    from isentrope.models.auto import follow_model
    from isentrope.models.sources.find import find_facts

    config = load(recipe, sets)
    say_loading(config.policy.model)
    config = follow_model(config)
    typer.echo("playing and learning from a few small steps …", err=True)
    write_measured(out, measure(config, find_facts(config.policy.model, False)[1]))


def _task(
    config: RunConfig, facts: Facts, name: str, file: Path | None, counts: list[int], seconds: float | None
) -> tuple[Task, list[Any]]:
    """And the steps that the rates were measured in, if they come from a file."""
    from isentrope.cluster.plan.cards import card_named, this_machine
    from isentrope.cluster.plan.layouts import Task
    from isentrope.cluster.plan.rates import rates_of, read_rates
    from isentrope.models.memory import free_memory

    if file is None:
        sheet = card_named(name)
        rates, kept = rates_of(sheet), []
    else:
        rates, kept = read_rates(file)
        sheet = this_machine(free_memory("cpu") or 0) if rates.together else card_named(name)
        if rates.together and counts != [1]:
            raise ConfigError(f"{file} has the rates of one machine's CPU: leave out --gpus")
    waits = rates.turn if seconds is None else seconds
    return Task(config, facts, sheet, rates, waits, not rates.together), kept


def _lengths(
    config: RunConfig, run: Path | None, kept: list[Any] | None, turns: float, response: float, prompt: int, read: int
) -> tuple[LengthsOf, str]:
    """The episodes of each step, and where they come from in words."""
    from functools import cache, partial

    from isentrope.cluster.plan.lengths import Assumed, resampled

    groups, size = config.rollout.groups, config.rollout.group_size
    if run is not None:
        kept = _of_run(run)
    if kept:
        told = f"as in {run}" if run else "as in the steps that were measured"
        return cache(partial(resampled, kept, groups, size)), told
    if turns > config.task.max_turns:
        raise ConfigError(f"--turns {turns:g}: task.max_turns is {config.task.max_turns}; expected no more than that")
    if response > config.agent.max_response:
        limit = config.agent.max_response
        raise ConfigError(f"--response {response:g}: agent.max_response is {limit}; expected no more than that")
    mean, long = turns or config.task.max_turns, response or config.agent.max_response
    if prompt + long > config.agent.max_context:
        raise ConfigError(
            f"--prompt {prompt} and a response of {long:g} tokens do not fit into agent.max_context = "
            f"{config.agent.max_context}"
        )
    window = config.agent.window if config.agent.context == "window" else -1
    limits = (config.task.max_turns, long, config.agent.max_response, prompt, read, config.agent.max_context, window)
    told = f"assumed: {mean:g} turns and {long:g} tokens a response at the mean, prompts of {prompt}, {read} between"
    return cache(Assumed(groups, size, mean, *limits).lengths), told


def _of_run(path: Path) -> list[Any]:
    from collections import Counter

    from isentrope.cluster.plan.lengths import played
    from isentrope.core.errors import RunError
    from isentrope.runs.folder import Run

    run = Run.open(path)
    kept = list[Any]()
    for step in sorted(file.step for file in run.episode_files if file.split is None)[-3:]:
        episodes = [episode for episode in run.episodes(step) if episode.turns]
        sizes = Counter(episode.group for episode in episodes)
        whole = len(set(sizes.values())) == 1
        if episodes:
            kept.append(played(episodes, len(episodes) // len(sizes) if whole else 1))
    if not kept:
        raise RunError(f"{path} has no stored episodes of training (run.store_episodes): leave out --run")
    return [lengths for lengths in kept if lengths.group_size == kept[-1].group_size]


# -- what is shown


def _show_head(task: Task, lengths_of: LengthsOf, told: str, console: Console) -> None:
    from isentrope.models.memory import COMPILED

    first, config = lengths_of(0), task.config
    console.print(shown(f"{config.policy.model}, {task.facts.parameters / 1e6:,.0f} million parameters", "bold"))
    console.print(shown(
        f"A step: {first.episodes} episodes, {first.turns.mean():.1f} turns, {first.written:,} tokens written and "
        f"{first.whole:,} in all ({told}; {task.task_seconds * 1e3:.3g} ms of a task for a turn)."
    ))  # fmt: skip
    console.print(shown(f"Rates of {task.card.title}: {task.rates.source}."))
    if task.gpu and task.facts.architecture not in COMPILED:
        console.print(shown(f"{task.facts.architecture} is not sampled by the native engine: it will take longer."))


def _show(task: Task, found: list[Outcome], best: Outcome, console: Console) -> None:
    from isentrope.analysis.tables import rich_table
    from isentrope.cluster.plan.choose import advice

    head = ("", "step", "rollout", "score", "update", "tokens an hour and card", "GiB")
    rows = [
        [("* " if one is best else "  ") + one.layout.name, *map("{:.2f} s".format, _seconds(one)),
         f"{one.tokens_per_card_hour:,.0f}", _memory(one.memory)]
        for one in found
    ]  # fmt: skip
    console.print()
    console.print(rich_table(head, rows, right=head[1:]))
    for name, shares in (("Sampling", best.steady.sampling), ("Learning", best.steady.learning)):
        parts = ", ".join(f"{kind} {share:.0%}".replace("%", " %") for kind, share in shares.items() if share >= 0.005)
        console.print(shown(f"{name} in *: {parts}"))
    if best.layout.learners > 1:
        console.print(shown("Learning cards have " + ("a share of the weights each." if best.layout.sharded else
                            "all of the weights and a share of the optimiser each.")))  # fmt: skip
    told = advice(task, best)
    for one in told.missing:
        console.print(shown(f"Not possible yet: {one}.", "yellow"))
    if told.settings:
        console.print("Settings of it that there are already:" if told.missing else "Its settings:")
        console.print(shown("  " + " ".join(f"--set {one}" for one in told.settings), "cyan"), soft_wrap=True)
    else:
        console.print("It needs no settings but those that were given.")


def _seconds(one: Outcome) -> tuple[float, ...]:
    return one.steady.step, one.steady.rollout, one.steady.score, one.steady.update


def _memory(memory: Memory) -> str:
    needs = [need for need in (memory.learner, memory.sampler) if need is not None]
    return " / ".join(f"{need.total / 2**30:.0f}" for need in needs)


def _show_end(found: dict[int, list[Outcome]], console: Console, plot: Path | None) -> None:
    most = max(found)
    few = found[most][0].slots / most
    if few < 8:
        console.print(shown(
            f"\n{found[most][0].slots} episodes are few for {most} cards: a card that samples a few conversations is "
            "hardly quicker than with many. More of them (rollout.groups) would use the cards."
        ))  # fmt: skip
    console.print(shown(
        "\nWithout storing, metrics, checkpoints and evaluation. Several cards are computed from datasheets: none were "
        f"tried. How close it comes: {command('docs', 'plan')}"
    ))  # fmt: skip
    if plot is not None:
        console.print(shown(f"\nThe step on {list(found)[-1]} as a picture: {plot}"))


def _data(task: Task, found: list[Outcome], best: Outcome) -> dict[str, Any]:
    from dataclasses import asdict

    from isentrope.cluster.plan.choose import advice

    layouts = [
        asdict(one.layout) | {"name": one.layout.name, "recommended": one is best, "seconds": asdict(one.steady)}
        | {"tokens_per_card_hour": one.tokens_per_card_hour, "memory": asdict(one.memory), "conversations": one.slots}
        for one in found
    ]  # fmt: skip
    return {"cards": best.layout.cards, "layouts": layouts, **asdict(advice(task, best))}


COLUMNS = 120  # of the picture


def picture(outcome: Outcome, model: str) -> str:
    """What the cards do over a step, as layers that sum to all of them."""
    from isentrope.charts.chart import Chart, Panel, Series
    from isentrope.charts.svg import picture as drawn
    from isentrope.cluster.plan.timeline import over_time

    middles, sampling, learning = over_time(outcome.happened, COLUMNS, outcome.layout.ahead)
    charts = list[Chart]()
    color = 0
    for name, parts in (("cards that sample", sampling), ("cards that learn", learning)):
        below, layers = [0.0] * COLUMNS, list[Series]()
        for kind, shares in parts.items():
            if max(shares) < 0.005:
                continue
            above = [min(1.0, low + share) for low, share in zip(below, shares, strict=True)]
            layers.append(Series(kind, middles, [*above], [*below], [*above], color))
            below, color = above, color + 1
        charts.append(Chart(name, [Panel(layers, "seconds", title=f"seconds; {name}")], shares=True, full=True))
    title = f"{model}: a step of {outcome.steady.step:.2f} s; {outcome.layout.name}"
    return drawn(*charts, title=title, inches=7.0)
