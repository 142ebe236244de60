"""`isentrope serve`, `serve-task`, `serve-openenv` and `retrieve`: a policy, a world or a retriever behind HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from isentrope.cli.completion import complete_model_or_run
from isentrope.cli.options import (
    HostOption,
    KeyOption,
    RecipeOption,
    SessionsOption,
    SetOption,
    TrustOption,
    Usual,
    WorldArgument,
    for_world,
    recipe_or_run,
    say_loading_by,
)


def serve_task(
    world: WorldArgument = None,
    recipe: RecipeOption = None,
    sets: SetOption = None,
    host: HostOption = "127.0.0.1",
    port: Annotated[int | None, Usual.serve_task.option] = None,
    sessions: SessionsOption = 256,
    idle: Annotated[
        float, typer.Option("--idle", min=1, help="Seconds after which an episode that nobody plays on is dropped.")
    ] = 600.0,
    key_env: KeyOption = "",
) -> None:
    """Serve a task world over HTTP, for trainers elsewhere.

    They play it with task.where=http://HOST:PORT. Tasks are played in worker processes with --set task.workers=N, else
    in this process.
    """
    config = for_world(recipe, world, sets)
    from isentrope.net.keys import server_key
    from isentrope.serving.tasks import running

    with running(
        config.task, host, Usual.serve_task.or_named(port), sessions, idle, server_key(host, key_env)
    ) as server:
        server.run_until_interrupted(f"{config.task.world} at {server.address}")


def serve_openenv(
    world: WorldArgument = None,
    recipe: RecipeOption = None,
    sets: SetOption = None,
    host: HostOption = "127.0.0.1",
    port: Annotated[int | None, Usual.serve_openenv.option] = None,
    sessions: SessionsOption = 256,
    to_others: Annotated[
        bool, typer.Option("--to-others", help="Listen at an address that others can reach, though there is no key.")
    ] = False,
) -> None:
    """Serve a task world by OpenEnv's protocol.

    Its clients reset it with a split and an index, or a seed. There is no key, so it listens on this machine only, and
    web pages from elsewhere are refused.
    """
    config = for_world(recipe, world, sets)
    from isentrope.worlds.adapters.openenv_server import open_server
    from isentrope.worlds.registry import make_world

    made = make_world(config.task.world, config.task.options)
    with open_server(made, host, Usual.serve_openenv.or_named(port), sessions, to_others) as server:
        typer.echo(f"{made.name} at {server.address} (OpenEnv). Ctrl-C ends it.")
        server.run()


def retrieve(
    corpus: Annotated[
        str, typer.Argument(metavar="CORPUS", help="A file of passages (.jsonl, .json, .zst, .gz), or generated.")
    ],
    retriever: Annotated[str, typer.Option("--retriever", help="bm25, by words; dense, by meaning.")] = "bm25",
    topk: Annotated[int, typer.Option("--topk", min=1, max=100, help="Passages, if a request does not say.")] = 3,
    host: HostOption = "127.0.0.1",
    port: Annotated[int | None, Usual.retrieve.option] = None,
    cache: Annotated[str, typer.Option("--cache", help="Folder for indexes; ~/.cache/isentrope if not given.")] = "",
) -> None:
    """Serve searches in a corpus over HTTP.

    For the search_qa world, and for any client of Search-R1's protocol. The index is built on the first start and kept;
    a second start takes moments. Whoever reaches the address can search: the protocol has no keys.
    """
    from isentrope.core.errors import ConfigError
    from isentrope.worlds.search_qa.retrievers import KINDS, open_corpus, over
    from isentrope.worlds.search_qa.server import open_server

    if retriever not in KINDS:
        raise ConfigError(f"--retriever {retriever}: expected one of {', '.join(KINDS)}")
    if corpus == "generated":
        from isentrope.worlds.search_qa.generated import library
        from isentrope.worlds.search_qa.world import SearchQAOptions

        found = over(library(SearchQAOptions().passages).passages, retriever)
    else:
        found = open_corpus(Path(corpus).expanduser(), retriever, cache)
    about = {"corpus": Path(corpus).name, "retriever": retriever, "passages": len(found)}
    with open_server(host, Usual.retrieve.or_named(port), found, about, topk) as server:
        server.run_until_interrupted(f"{about['passages']} passages at {server.address}/retrieve")


def serve(
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL_OR_RUN",
            help="A model's name or folder, or the folder of a run. Not needed where the recipe names one.",
            show_default=False,
            autocompletion=complete_model_or_run,
        ),
    ] = None,
    recipe: RecipeOption = None,
    sets: SetOption = None,
    trust: TrustOption = False,
    host: HostOption = "127.0.0.1",
    port: Annotated[int | None, Usual.serve.option] = None,
    key_env: KeyOption = "",
    name: Annotated[
        str, typer.Option("--name", help="The model's name for clients; its folder's name if not given.")
    ] = "",
) -> None:
    """Serve a model or a run by OpenAI's chat protocol.

    Of a run, its best checkpoint. Any client that speaks the protocol can use it.
    """
    if model is None and recipe is None and not sets:
        raise typer.BadParameter("name a model or a run, or give a --recipe", param_hint="MODEL_OR_RUN")
    run = Path(model) if model else None
    say_loading_by(recipe, run, sets, model)
    config = recipe_or_run(recipe, run, sets, trust)
    from isentrope.serving.server import serve as run_server

    run_server(config, model or config.policy.model, host, Usual.serve.or_named(port), key_env, name)
