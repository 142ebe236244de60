"""`isentrope models`: the models that are here, and all there is to know about one of them before it is loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from isentrope.cli.completion import complete_model
from isentrope.cli.options import terminal
from isentrope.core.command import command
from isentrope.core.errors import ConfigError
from isentrope.core.needs import install_command
from isentrope.core.text import shown

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console
    from rich.table import Table

    from isentrope.models.sources.catalogue import Facts

RANK = 16  # of the adapters in the tables
CACHED = 64 * 4096  # tokens in the engine's cache there
ITEMS = {
    "weights": "weights", "copies": "float32 copies", "moments": "moments", "gradients": "gradients",
    "engine": "the engine's copies", "cache": "cache", "passes": "the engine's passes", "activations": "activations",
    "layer": "one layer at work, or the head", "base": "CUDA itself",
}  # fmt: skip


def models(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL",
            help="What policy.model takes: a name, a folder, a GGUF file.",
            show_default=False,
            autocompletion=complete_model,
        ),
    ] = None,
    get: Annotated[bool, typer.Option("--get", help="Fetch and convert it now, if that is still to be done.")] = False,
) -> None:
    """List the models that are here, or show one.

    The list has those that need no network. With a MODEL: its shape and the memory that it takes.
    """
    console = terminal()
    if name is None:
        if get:
            raise ConfigError(f"--get wants a model: {command('models')} smollm2 --get")
        _show_all(console)
        return
    import torch

    from isentrope.models.memory import free_memory, memory_of
    from isentrope.models.sources.find import find_facts

    folder, facts, state = find_facts(name, get)
    console.print(shown(name, "bold"))
    console.print(_sheet(folder, facts, state))
    device = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    free = free_memory(device)
    console.print(_memory(facts, free))
    whole = _on_gpu(facts, free if device == "cuda" else None, memory_of(torch.device(device)))
    if whole is not None:
        console.print(whole)
    console.print(shown(_remarks(facts, free, device)))


def _show_all(console: Console) -> None:
    from rich.table import Table

    from isentrope.models.memory import FLOAT32, Need, gib, training_need
    from isentrope.models.sources.find import available, readers

    table = Table(title="Models", title_justify="left")
    table.add_column("policy.model", overflow="fold", min_width=12)
    table.add_column("state")
    for heading in ("parameters", "sample", f"LoRA {RANK}", "train all"):
        table.add_column(heading, justify="right", no_wrap=True)
    for one in available():
        facts = one.facts
        state = shown(f"cannot be used: {one.problem}", "red") if one.problem else shown(one.state)
        cells = [""] * 4
        if facts:
            sampling, training = Need(FLOAT32 * facts.parameters), training_need(facts, FLOAT32)
            needs = (sampling, training_need(facts, FLOAT32, RANK), training)
            cells = [_millions(facts.parameters), *(gib(need.certain) for need in needs)]
        table.add_row(shown(one.name, "cyan"), state, *cells)
    console.print(table)
    found = readers()
    line = f"can be read ({found})." if found else f"cannot be read: {install_command('hf')}"
    console.print(f"Hugging Face folders and GGUF files {line}", markup=False)
    console.print(shown(f"Memory is for float32, without activations. {command('models')} MODEL says more."))


def _millions(count: int) -> str:
    if count >= 1e9:
        return f"{count / 1e9:.2f} billion"
    return f"{count / 1e6:.0f} million" if count >= 1e7 else f"{count / 1e6:.2f} million"


def _sheet(folder: Path | None, facts: Facts, state: str) -> Table:
    from rich.table import Table

    from isentrope.models.memory import gib

    template = "yes" if facts.chat_template else "no: set policy.chat_template to a file, or to plain"
    if (facts.folder / "pocket_tokens.json").is_file():
        template = "not needed: its tokens are our own"
    rows = {
        "state": state,
        "folder": str(folder) if folder else "",
        "architecture": facts.architecture,
        "parameters": f"{_millions(facts.parameters)}, in {facts.layers} layers of width {facts.width}",
        "vocabulary": f"{facts.vocabulary:,} tokens",
        "context": f"{facts.context:,} tokens" if facts.context else "",
        "chat template": template,
        "rates by auto": _rates(facts),
        "licence": facts.licence or "not stated in its files",
        "on disk": gib(facts.disk) if facts.disk else "",
    }
    table = Table.grid(padding=(0, 2))
    for name, value in rows.items():
        if value:
            table.add_row(shown(name, "dim"), shown(value))
    return table


def _rates(facts: Facts) -> str:
    from isentrope.models.auto import rates

    (learn, sft), (adapters, adapters_sft) = rates(facts.parameters), rates(facts.parameters, adapters=True)
    return f"learn.lr {learn:g}, sft.lr {sft:g}; for adapters {adapters:g} and {adapters_sft:g}"


def _memory(facts: Facts, free: int | None) -> Table:
    from rich.table import Table

    from isentrope.models.memory import BFLOAT16, FLOAT32, Need, gib, training_need

    reference = "  with a reference (learn.kl > 0)"
    rows = [
        ("sample, float32", Need(FLOAT32 * facts.parameters)),
        ("sample, bfloat16", Need(BFLOAT16 * facts.parameters)),
        (f"LoRA of rank {RANK}, float32", training_need(facts, FLOAT32, RANK)),
        (f"LoRA of rank {RANK}, bfloat16", training_need(facts, BFLOAT16, RANK)),
        ("all weights, float32", training_need(facts, FLOAT32)),
        (reference, training_need(facts, FLOAT32, reference=True)),
        ("all weights, bfloat16, float32 copies", training_need(facts, BFLOAT16)),
        (reference, training_need(facts, BFLOAT16, reference=True)),
        ("  with learn.optimiser=adamw8", training_need(facts, BFLOAT16, eight_bits=True)),
    ]
    table = Table("memory")
    for heading in ("weights", "optimiser", "reference", "sum", "here"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, need in rows:
        parts = [gib(part) if part else "" for part in (need.weights, need.optimiser, need.reference, need.certain)]
        fits = "" if free is None else "[green]fits[/]" if need.certain <= free else "[red]too large[/]"
        table.add_row(name, *parts, fits)
    return table


def _on_gpu(facts: Facts, free: int | None, card: int) -> Table | None:
    """What a training run takes of a GPU, item by item, for models that the native engine and the compiled update know.
    `free`, and `card` in all: of a GPU that is here."""
    from rich.table import Table

    from isentrope.config.schema import LearnSettings
    from isentrope.models.memory import BFLOAT16, COMPILED, Need, Wanted

    if facts.architecture not in COMPILED:
        return None

    def need(rank: int, **settings: Any) -> Need:
        learn = LearnSettings(kl=0, **settings)
        return Wanted(facts, BFLOAT16, rank, learn, gpu=True, cache_tokens=CACHED, apart=True, card=card).need

    ways: dict[str, tuple[int, dict[str, Any]]] = {
        "all weights": (0, {}), "adamw8": (0, {"optimiser": "adamw8"}), "on host": (0, {"moments": "host"}),
        f"LoRA {RANK}": (RANK, {}),
    }  # fmt: skip
    table = Table("on a GPU in bfloat16, GiB")
    for way in ways:
        table.add_column(way, justify="right", no_wrap=True)
    plain = [need(rank, **settings) for rank, settings in ways.values()]
    twice = [need(rank, **settings, gradient_checkpointing=True) for rank, settings in ways.values()]
    for item, words in ITEMS.items():
        table.add_row(words, *(_number(getattr(one, item)) for one in plain))
    for words, needs in (("sum", plain), ("with gradient checkpointing", twice)):
        table.add_row(
            words, *(_number(one.total, one.total <= free if free else None) for one in needs), end_section=True
        )
    table.add_row("and main memory", *(_number(one.host) for one in plain))
    return table


def _number(count: int, fits: bool | None = None) -> str:
    color = {None: "", True: "[green]", False: "[red]"}[fits]
    return f"{color}{count / 2**30:.1f}" if count else ""


def _remarks(facts: Facts, free: int | None, device: str) -> str:
    from isentrope.models.memory import activations_per_token, gib

    kept, twice = (gib(1000 * activations_per_token(facts, flag)) for flag in (False, True))
    cache = gib(1000 * 4 * facts.layers * facts.kv_width)
    here = f"Free here, on {device}: {gib(free)}." if free is not None else f"What is free on {device} is not known."
    return (
        f"To this come, in float32 and per 1,000 tokens: {kept} for activations in training (an estimate; {twice} "
        "with learn.gradient_checkpointing), for learn.micro_tokens of them at a time; and "
        f"{cache} of cache in sampling, for all tokens of the conversations that are played at once. "
        f"The table for a GPU is for passes of 16,384 tokens and a cache for {CACHED:,}; on host is learn.moments=host."
        f"\n{here}"
    )
