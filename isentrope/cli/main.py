"""The `isentrope` command and the table of its subcommands. Nothing here may import torch: `--help` has to be quick."""

from __future__ import annotations

import functools
import importlib
import inspect
import logging
from collections.abc import Callable
from typing import Annotated, ParamSpec, TypeVar

import typer

from isentrope import __version__
from isentrope.cli.arguments import Command
from isentrope.cli.completion import run_completed
from isentrope.core.command import command
from isentrope.core.errors import EngineError, IsentropeError
from isentrope.core.signals import ASKED_TO_END, Interrupted, second_interrupt_ends_at_once

P = ParamSpec("P")
R = TypeVar("R")

_TITLES = {
    "ConfigError": "Settings",
    "TaskError": "Task world",
    "EngineError": "Policy",
    "TrainError": "Training",
    "RunError": "Run folder",
}
_TO_SAVE_MEMORY = (
    "To need less memory: a smaller learn.micro_tokens or learn.gradient_checkpointing=true (both may be changed with "
    "--resume), a smaller rollout.batch or agent.max_context, or adapters (policy.lora_rank)"
)


def guarded(function: Callable[P, R]) -> Callable[P, R]:
    """Our own errors as one panel and exit code 2, Ctrl-C as one line and 130, what a signal asked to end as 143; a bug
    keeps its traceback."""

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except IsentropeError as error:
            show_error(error)
            raise typer.Exit(2) from None
        except RuntimeError as error:
            if type(error).__name__ != "OutOfMemoryError":  # torch's, which is not imported here
                raise
            first_sentence = str(error).split("\n")[0].split(". ")[0]
            show_error(
                EngineError(f"{first_sentence}. {_TO_SAVE_MEMORY}; {command('models')} MODEL says what a model takes")
            )
            raise typer.Exit(2) from None
        except Interrupted:  # who was interrupted has said so
            raise typer.Exit(ASKED_TO_END) from None
        except KeyboardInterrupt:
            hint = " The run continues with --resume." if "resume" in inspect.signature(function).parameters else ""
            typer.echo(f"Stopped.{hint}", err=True)
            raise typer.Exit(130) from None

    return run


def show_error(error: IsentropeError) -> None:
    from rich.console import Console
    from rich.panel import Panel

    from isentrope.core.text import shown

    title = _TITLES.get(type(error).__name__, "Error")
    Console(stderr=True).print(Panel(shown(str(error)), title=title, title_align="left", border_style="red"))


app = typer.Typer(
    name="isentrope",
    help="Reinforcement learning for multi-turn LLM agents, with the policy's entropy in view and under control.",
    epilog="Start with: isentrope doctor, then isentrope play, then isentrope train demo --out runs/first",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)

# command -> (its group in --help, module:function in isentrope/cli, examples), in the order of --help
_COMMANDS: dict[str, tuple[str, str, str]] = {
    "train": ("Train", "train:train",
        "isentrope train demo --out runs/first\n\n"
        "isentrope train demo --out runs/bonus --set methods=entropy_bonus --set run.steps=50"),
    "sft": ("Train", "train:sft",
        "isentrope sft demo --out runs/warm --set sft.games=24\n\n"
        "isentrope train demo --out runs/rl --set policy.model=runs/warm"),
    "rft": ("Train", "train:rft",
        "isentrope rft demo --out runs/rft --set policy.model=runs/warm --set sft.games=48"),
    "study": ("Train", "study:study",
        "isentrope study studies/quick\n\n"
        "isentrope study studies/quick --dry-run\n\n"
        "isentrope study studies/quick --tables"),
    "report": ("Look at runs", "report:report",
        "isentrope report runs/first --open\n\n"
        "isentrope report runs/grpo-* runs/seal-* --out compared.html"),
    "watch": ("Look at runs", "watch:watch",
        "isentrope watch runs\n\n"
        "isentrope watch runs/grpo-* --open"),
    "doctor": ("Look at runs", "doctor:doctor",
        "isentrope doctor\n\n"
        "isentrope doctor --cluster\n\n"
        "isentrope doctor runs/first\n\n"
        "isentrope doctor runs/* --json"),
    "metrics": ("Look at runs", "metrics:metrics",
        "isentrope metrics --find entropy\n\n"
        "isentrope metrics runs/first\n\n"
        "isentrope metrics runs/first --find success --csv"),
    "import": ("Look at runs", "import_run:import_run",
        "isentrope import trl-output/checkpoint-500 --out runs/trl\n\n"
        "isentrope import tensorboard_log/project/run --map success/all=val/solved\n\n"
        "isentrope import wandb/offline-run-20261119_185316-d19xkljc --set rollout.group_size=8"),
    "analyze": ("Look at runs", "analyze:analyze",
        "isentrope analyze runs/first\n\n"
        "isentrope analyze runs/first --out again.jsonl\n\n"
        "isentrope analyze runs/first --judge http://127.0.0.1:8000/v1 --judge-episodes 16"),
    "eval": ("Evaluate and compare", "evaluate:evaluate",
        "isentrope eval runs/first\n\n"
        "isentrope eval models/small --recipe household --split unseen --games 128 --out eval.json"),
    "table": ("Evaluate and compare", "table:table",
        "isentrope table react.json --row 'GRPO=runs/grpo-*' --against GRPO\n\n"
        "isentrope table --row 'GRPO=runs/grpo-*' --rows papers/rows --paper aem --format latex"),
    "figures": ("Evaluate and compare", "report:figures",
        "isentrope figures runs/grpo-* runs/seal-* --out figures --metric entropy/token\n\n"
        "isentrope figures runs/first --out figures --format pdf"),
    "claims": ("Evaluate and compare", "claims:claims",
        "isentrope claims\n\n"
        "isentrope claims docs/runs/household\n\n"
        "isentrope claims --explain S3"),
    "tasks": ("Worlds and tasks", "tasks:tasks",
        "isentrope tasks\n\n"
        "isentrope tasks household\n\n"
        "isentrope tasks my_package.my_module:MyWorld"),
    "play": ("Worlds and tasks", "play:play",
        "isentrope play\n\n"
        "isentrope play household --split unseen --index 7"),
    "check-task": ("Worlds and tasks", "check_task:check_task",
        "isentrope check-task household\n\n"
        "isentrope check-task my_package.my_module:MyWorld --games 20\n\n"
        "isentrope check-task scienceworld --games 1 --max-turns 20"),
    "build-repairs": ("Worlds and tasks", "build_repairs:build_repairs",
        "isentrope build-repairs toolz-1.2.0.tar.gz boltons-26.2.0.tar.gz --out repairs.jsonl --count 200"),
    "models": ("Models and methods", "models:models",
        "isentrope models\n\n"
        "isentrope models smollm2 --get\n\n"
        "isentrope models Qwen/Qwen2.5-0.5B-Instruct"),
    "methods": ("Models and methods", "methods:methods",
        "isentrope methods\n\n"
        "isentrope methods epo\n\n"
        "isentrope train demo --out runs/epo --set methods=epo"),
    "check-method": ("Models and methods", "check_method:check_method",
        "isentrope check-method epo --set alpha=0.05\n\n"
        "isentrope check-method my_package.my_module:MyMethod"),
    "export": ("Models and methods", "export:export",
        "isentrope export runs/first --out models/first\n\n"
        "isentrope export runs/first --step 40 --dtype float32 --out models/first-40"),
    "serve": ("Serve", "serve:serve",
        "isentrope serve runs/first\n\n"
        "isentrope eval --recipe demo --set engine.kind=openai --set engine.url=http://127.0.0.1:8000/v1"),
    "serve-task": ("Serve", "serve:serve_task",
        "isentrope serve-task household --set task.workers=4\n\n"
        "isentrope train demo --out runs/far --set task.where=http://127.0.0.1:8100"),
    "serve-openenv": ("Serve", "serve:serve_openenv",
        "isentrope serve-openenv household\n\n"
        "isentrope play openenv --set task.options.url=http://127.0.0.1:8200"),
    "retrieve": ("Serve", "serve:retrieve",
        "isentrope retrieve corpus.jsonl\n\n"
        "isentrope play search_qa -s task.options.data=questions.jsonl "
        "-s task.options.retriever=http://127.0.0.1:8300"),
    "docs": ("Pages, settings and this machine", "docs:docs",
        "isentrope docs\n\n"
        "isentrope docs engines\n\n"
        "isentrope docs training-models learning rates\n\n"
        "isentrope docs --find rate"),
    "recipes": ("Pages, settings and this machine", "recipes:recipes",
        "isentrope recipes\n\n"
        "isentrope recipes demo\n\n"
        "isentrope recipes demo --copy mine.toml"),
    "config": ("Pages, settings and this machine", "config:config",
        "isentrope config learn\n\n"
        "isentrope config --find rate\n\n"
        "isentrope config household --set learn.lr=1e-5 --toml"),
    "plan": ("Pages, settings and this machine", "plan:plan",
        "isentrope plan alfworld --gpus 1,8 --set policy.model=qwen2.5-1.5b\n\n"
        "isentrope plan alfworld --gpus 8,64 --card h100 --set policy.model=qwen2.5-7b --turns 14 --plot step.svg\n\n"
        "isentrope plan demo --measure here.json"),
    "bench": ("Pages, settings and this machine", "bench:bench",
        "isentrope bench --list\n\n"
        "isentrope bench --quick\n\n"
        "isentrope bench growth --out results/bench"),
}  # fmt: skip

for _name, (_group, _place, _examples) in _COMMANDS.items():
    _module, _function = _place.split(":")
    _command = getattr(importlib.import_module(f"isentrope.cli.{_module}"), _function)
    app.command(_name, epilog=f"Examples:\n\n{_examples}", rich_help_panel=_group, cls=Command)(guarded(_command))


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
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(message)s"))
    logging.getLogger("isentrope").addHandler(handler)
    second_interrupt_ends_at_once()
    run_completed(app)
