"""Settings as earlier versions recorded them."""

from __future__ import annotations

import tomllib
from typing import Any

from isentrope.config.kinds import ClipOptions, GaeOptions, GigpoOptions, GpuOptions, ServerOptions
from isentrope.config.text import as_table, table_to_toml


def in_older_words(text: str) -> str:
    """A config.toml of today, in the words of the version before parts had tables of their own: in [learn] and [engine]
    stood the settings of all kinds, whichever one was chosen."""
    table: dict[str, Any] = tomllib.loads(text)
    learn = table["learn"]
    for name, kinds in (("advantage", (GigpoOptions, GaeOptions)), ("loss", (ClipOptions,))):
        part = learn.pop(name)
        flat = {key: value for kind in kinds for key, value in as_table(kind()).items()}
        learn |= {name: part.pop("kind"), **flat, **part}
    table["engine"] = as_table(GpuOptions()) | as_table(ServerOptions()) | table["engine"]
    for name in ("sampler", "reward"):
        table["task"].pop(name)
    return table_to_toml(table)
