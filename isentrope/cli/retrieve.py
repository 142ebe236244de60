"""`isentrope retrieve`: a corpus behind Search-R1's retrieval protocol."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

GENERATED = "generated"


def retrieve(
    corpus: Annotated[
        str, typer.Argument(metavar="CORPUS", help=f"A file of passages (.jsonl, .json, .zst, .gz), or {GENERATED}.")
    ],
    retriever: Annotated[str, typer.Option("--retriever", help="bm25, by words; dense, by meaning.")] = "bm25",
    topk: Annotated[int, typer.Option("--topk", min=1, max=100, help="Passages, if a request does not say.")] = 3,
    host: Annotated[str, typer.Option("--host", help="Address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port to listen at; 0: any free one.")] = 8000,
    cache: Annotated[str, typer.Option("--cache", help="Folder for indexes; ~/.cache/isentrope if not given.")] = "",
) -> None:
    """Serve searches in a corpus over HTTP, for the search_qa world and for any client of Search-R1's protocol.

    The index is built on the first start and kept; a second start takes moments. Whoever reaches the address can
    search: the protocol has no keys.
    """
    from isentrope.errors import ConfigError
    from isentrope.tasks.search_qa.retrievers import KINDS, open_corpus, over
    from isentrope.tasks.search_qa.server import Server

    if retriever not in KINDS:
        raise ConfigError(f"--retriever {retriever}: expected one of {', '.join(KINDS)}")
    if corpus == GENERATED:
        from isentrope.tasks.search_qa.generated import library
        from isentrope.tasks.search_qa.world import SearchQAOptions

        found = over(library(SearchQAOptions().passages).passages, retriever)
    else:
        found = open_corpus(Path(corpus).expanduser(), retriever, cache)
    about = {"corpus": Path(corpus).name, "retriever": retriever, "passages": len(found)}
    with Server((host, port), found, about, topk) as server:
        # The port may have been 0, for any that is free.
        address = f"http://{host}:{server.server_address[1]}"
        typer.echo(f"{about['passages']} passages at {address}/retrieve, until interrupted (Ctrl-C)")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            typer.echo("Stopped.")
