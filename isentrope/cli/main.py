"""The `isentrope` command: the list of its subcommands. Nothing here may import torch: `--help` has to be quick."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Annotated

import typer

from isentrope import __version__
from isentrope.cli.config import config
from isentrope.cli.doctor import doctor
from isentrope.cli.evaluate import evaluate
from isentrope.cli.export import export
from isentrope.cli.guard import guarded
from isentrope.cli.methods import methods
from isentrope.cli.models import models
from isentrope.cli.play import play
from isentrope.cli.report import report
from isentrope.cli.serve import serve
from isentrope.cli.table import table
from isentrope.cli.tasks import check_task
from isentrope.cli.train import rft, sft, train

app = typer.Typer(
    name="isentrope",
    help="Reinforcement learning for multi-turn LLM agents, with the policy's entropy in view and under control.",
    epilog="Start with: isentrope doctor, then isentrope play, then isentrope train recipes/demo.toml --out runs/first",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)

_COMMANDS: dict[str, tuple[Callable[..., None], str]] = {
    "train": (train, "isentrope train recipes/demo.toml --out runs/first\n\n"
              "isentrope train recipes/demo.toml --out runs/bonus --set methods=entropy_bonus --set run.steps=50"),
    "sft": (sft, "isentrope sft recipes/demo.toml --out runs/warm --set sft.games=24\n\n"
            "isentrope train recipes/demo.toml --out runs/rl --set policy.model=runs/warm"),
    "rft": (rft, "isentrope rft recipes/demo.toml --out runs/rft --set policy.model=runs/warm --set sft.games=48"),
    "eval": (evaluate, "isentrope eval runs/first\n\n"
             "isentrope eval models/small --recipe recipes/household.toml --split unseen --games 128 --out eval.json"),
    "table": (table, "isentrope table react.json --row 'GRPO=runs/grpo-*' --against GRPO\n\n"
              "isentrope table --row 'GRPO=runs/grpo-*' --rows recipes/papers/rows.toml --paper aem --format latex"),
    "serve": (serve, "isentrope serve runs/first --port 8000\n\n"
              "isentrope eval --recipe recipes/demo.toml --set engine.kind=openai "
              "--set engine.url=http://127.0.0.1:8000/v1"),
    "export": (export, "isentrope export runs/first --out models/first\n\n"
               "isentrope export runs/first --step 40 --dtype float32 --out models/first-40"),
    "report": (report, "isentrope report runs/first --open"),
    "play": (play, "isentrope play\n\nisentrope play household --split unseen --index 7"),
    "check-task": (check_task, "isentrope check-task household\n\n"
                   "isentrope check-task my_package.my_module:MyWorld --games 20"),
    "methods": (methods, "isentrope methods\n\nisentrope methods epo\n\n"
                "isentrope train recipes/demo.toml --out runs/epo --set methods=epo"),
    "models": (models, "isentrope models\n\nisentrope models smollm2 --get\n\n"
               "isentrope models Qwen/Qwen2.5-0.5B-Instruct"),
    "config": (config, "isentrope config\n\nisentrope config recipes/household.toml --set learn.lr=1e-5 --toml"),
    "doctor": (doctor, "isentrope doctor"),
}  # fmt: skip

for _name, (_function, _examples) in _COMMANDS.items():
    app.command(_name, epilog=f"Examples:\n\n{_examples}")(guarded(_function))


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"isentrope {__version__}")
        raise typer.Exit


@app.callback()
def isentrope(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print it.")
    ] = False,
) -> None:
    """Reinforcement learning for multi-turn LLM agents, with the policy's entropy in view and under control."""


def main() -> None:
    # a world of the user's own, named by module:Class, usually lies in the folder where the command is given;
    # at the end of the path, so that no file there can stand in for a library
    sys.path.append(os.getcwd())
    app()
