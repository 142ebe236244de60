"""`python -m tools.config_docs` rewrites docs/configuration.md from the schema."""

from __future__ import annotations

from pathlib import Path

from isentrope.config.describe import SettingInfo, describe_settings

PAGE = Path(__file__).parents[1] / "docs" / "configuration.md"

_INTRODUCTION = """\
# Configuration

<!-- Written by `python -m tools.config_docs`; change isentrope/config/schema.py instead. -->

A recipe is a TOML file; it holds only what differs from the defaults below:

```toml
extends = "demo"               # optional: start from another recipe, a file beside this one or one of ours by name

[learn]
lr = 1e-5
```

Any setting can be changed on the command line, with `--set section.name=value`, as often as needed:

```
isentrope train recipe.toml --out runs/first --set learn.lr=1e-5 --set methods=epo,aem
```

The value is read as TOML; quotes may be left out where the setting is text. A name that does not exist, a
value of the wrong type or out of its limits, and combinations that cannot be run are refused, all at once, before
anything starts. `isentrope config RECIPE` shows what a recipe comes to; a run folder's `config.toml` has every value.

A recipe laid over another merges table by table, with four exceptions that keep recipes short: a layer that changes
`task.world` drops the options of the world before, one that changes the `kind` of a part the settings of the kind
before, one that sets `methods` the tables of methods no longer listed, and one that changes `learn.algorithm` the
values that were the old algorithm's own. So `--set methods=[]` turns any recipe into its baseline, and
`--set learn.algorithm=dapo` a recorded GRPO run into DAPO.

`[learn.advantage]`, `[learn.loss]`, `[engine]` and `[task.sampler]` name a part of the run, their `kind`, beside the
settings that this kind reads; `--set learn.loss=sequence` sets the kind alone. A kind is one of ours, one that an
installed package offers, or `package.module:Class` for your own.

`learn.algorithm` lays the defaults of that algorithm under the recipe ([algorithms](algorithms/README.md)): what is
set beside it wins.

`"auto"` follows the model: what it comes to is said when a run begins and stands in its `config.toml`
([the table of rates](training-models.md#learning-rates)).

`isentrope recipes` lists our recipes; `isentrope recipes demo --copy mine.toml` copies one, and the copy works in any
folder.

`[task.options]` belongs to the world and `[method.NAME]` to the method. `isentrope config --world NAME` lists the
options of a world, `isentrope methods NAME` those of a method; `isentrope config RECIPE` and a run's `config.toml` show
them all, those left at their defaults too.
"""


def render() -> str:
    parts = [_INTRODUCTION]
    sections: dict[str, list[SettingInfo]] = {}
    for info in describe_settings():
        sections.setdefault(_section(info), []).append(info)
    for section, rows in sections.items():
        parts.append(f"\n## {f'[{section}]' if section else 'Top level'}\n\n| setting | default | allowed | meaning |")
        parts.append("|---|---|---|---|")
        parts += [_row(info) for info in rows]
    return "\n".join(parts) + "\n"


def _section(info: SettingInfo) -> str:
    return info.path.rpartition(".")[0]


def _row(info: SettingInfo) -> str:
    cells = (f"`{info.path}`", f"`{info.default}`", info.allowed, info.doc)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def main() -> None:
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(render(), encoding="utf-8")
    print(f"wrote {PAGE}")


if __name__ == "__main__":
    main()
