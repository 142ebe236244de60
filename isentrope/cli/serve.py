"""`isentrope serve`: a model behind OpenAI's chat protocol."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from isentrope.cli.loading import say_loading
from isentrope.cli.options import RecipeOption, SetOption
from isentrope.cli.settings import recipe_or_run


def serve(
    model: Annotated[str, typer.Argument(metavar="MODEL_OR_RUN", help="A model or the folder of a run.")],
    recipe: RecipeOption = None,
    sets: SetOption = None,
    host: Annotated[str, typer.Option("--host", help="Address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port to listen at; 0: any free one.")] = 8000,
    key_env: Annotated[
        str, typer.Option("--key-env", metavar="NAME", help="Environment variable with the key that clients must send.")
    ] = "",
    name: Annotated[
        str, typer.Option("--name", help="The model's name for clients; its folder's name if not given.")
    ] = "",
) -> None:
    """Serve a model or a run's best checkpoint to any client that speaks OpenAI's chat protocol."""
    say_loading(model)
    config = recipe_or_run(recipe, Path(model), sets)
    from isentrope.serve.start import serve as run_server

    run_server(config, model, host, port, key_env, name)
