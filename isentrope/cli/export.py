"""`isentrope export`: a trained policy as a standard Hugging Face folder."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from isentrope.cli.completion import complete_run
from isentrope.cli.options import say_loading
from isentrope.core.text import shown


class ExportDtype(StrEnum):
    bfloat16 = "bfloat16"
    float16 = "float16"
    float32 = "float32"


def export(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="RUN_OR_FOLDER",
            help="The folder of a run (its best checkpoint), or of a model.",
            autocompletion=complete_run,
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FOLDER", help="The new folder; must not be there yet.")],
    dtype: Annotated[ExportDtype, typer.Option("--dtype", help="Precision of the weights.")] = ExportDtype.bfloat16,
    step: Annotated[int | None, typer.Option("--step", min=0, help="Take the checkpoint of this step.")] = None,
) -> None:
    """Write a model as a standard Hugging Face folder.

    For transformers, vLLM and others, with adapters merged.
    """
    say_loading(str(source))
    from rich.console import Console

    from isentrope.loop.export import export as write

    made = write(source, out, dtype.value, step)
    console = Console()
    console.print(shown(f"{made.folder}: {made.parameters / 1e6:.1f} million parameters, {dtype.value}"))
    console.print(shown(f"made of {made.source}"))
    if not made.has_tokenizer:
        console.print(
            "Its tokenizer is Isentrope's own: other programs load the weights, but have no tokenizer for it."
        )
