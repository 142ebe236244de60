"""Writes what is shown of the studies that are kept under docs/runs: `python -m tools.study_docs`.

All of it comes from a study's compact file alone:

docs/runs/NAME/tables.md       the tables, as `isentrope study docs/runs/NAME --tables --format md` prints them
docs/runs/NAME/curves/*.svg    success and entropy
docs/runs/NAME/README.md       what stands between <!-- results --> and <!-- /results -->; the rest is written by hand
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from isentrope.analysis.tables import markdown_safe, one_line
from isentrope.charts.grid import grid_file
from isentrope.charts.svg import picture
from isentrope.charts.text import filled
from isentrope.core.errors import RunError
from isentrope.runs.atomic import write_atomically
from isentrope.study.curves import VALID, Drawn, charts
from isentrope.study.grid import PICTURE, TITLE, as_table, make_grid
from isentrope.study.read import COMPACT, DONE, StudyData, read_study
from isentrope.study.results import markdown_notes, markdown_table, render
from isentrope.study.tables import make_tables, state

KEPT = Path(__file__).resolve().parents[1] / "docs" / "runs"
PAGE, TABLES, CURVES = "README.md", "tables.md", "curves"
MOST_CELLS = 40  # of which a page has the tables; longer ones stand by themselves
# Of a study that would have dozens of charts: the families that its page shows, by baseline ("" for the algorithms).
SHOWN = {"household": ("", "grpo", "grpo-forms", "grpo-long", "grpo-turns-long", "gigpo-long")}


def kept_studies(kept: Path = KEPT) -> list[Path]:
    return sorted(path.parent for path in kept.glob(f"*/{COMPACT}"))


def page_of(folder: Path) -> str:
    """Its README as it is; of a study that has just come, one to begin with."""
    path = folder / PAGE
    page = path.read_text(encoding="utf-8") if path.is_file() else ""
    return page or f"# {folder.name}\n\n<!-- results -->\n<!-- /results -->\n"


def made(data: StudyData, folder: Path, page: str) -> dict[str, str]:
    """The files of a kept study by their path below its folder. `page` is its README, whose results are put in."""
    drawn, grid = list(shown(data)), make_grid(data)
    try:
        readme = filled(page, {"results": _results(data, drawn, grid is not None)})
    except ValueError as error:
        told = f"{folder / PAGE} needs one <!-- results --> on a line of its own, and <!-- /results --> after it"
        raise RunError(told) from error
    files = {PAGE: readme, TABLES: render(data, "md")}
    if grid is not None:
        files[f"{CURVES}/{PICTURE}"] = grid_file(as_table(grid))
    return files | {_file(one): picture(one.chart) for one in drawn}


def _file(drawn: Drawn) -> str:
    return f"{CURVES}/{drawn.name}.svg"


def shown(data: StudyData) -> Iterator[Drawn]:
    """The charts that its page has."""
    bases = SHOWN.get(data.name)
    return charts(data, lambda family, key: key != VALID and (bases is None or family.base in bases))


def _results(data: StudyData, drawn: list[Drawn], has_grid: bool) -> str:
    blocks = [f"{state(data)}{_missing(data)}{_when(data)}"]
    if has_grid:
        blocks.append(f"![{TITLE}]({CURVES}/{PICTURE})")
    if len(data.study.cells) <= MOST_CELLS:
        blocks += [markdown_table(table) for table in make_tables(data) if table.key == "results"]
        blocks += [markdown_notes(data), f"Entropy, eruptions, degeneracy and cost: [all tables]({TABLES})."]
    else:
        blocks.append(f"Success of every cell, entropy, eruptions, degeneracy and cost: [all tables]({TABLES}).")
    rows: dict[str, list[str]] = {}
    for one in drawn:
        rows.setdefault(one.family.name, []).append(f"![{markdown_safe(one_line(one.chart.title))}]({_file(one)})")
    return "\n\n".join([*blocks, *("\n".join(row) for row in rows.values())]) + "\n"


def _missing(data: StudyData) -> str:
    """Where cells without a finished run belong, as long as there are other cells with one."""
    done = {run.cell for run in data.runs if run.status == DONE}
    left = Counter(cell.against or cell.name for cell in data.study.cells if cell.name not in done)
    told = ", ".join(f"{count} of {name}" for name, count in left.items())
    return f" Still without one, by baseline: {told}." if told and done else ""


def _when(data: StudyData) -> str:
    begun = sorted(run.begun for run in data.runs if run.status == DONE and run.begun)
    if not begun:
        return ""
    first, last = (markdown_safe(one_line(f"{time[:10]} {time[11:16]}")) for time in (begun[0], begun[-1]))
    return f" The first was begun {first} UTC, the last {last} UTC."


def write(folder: Path) -> list[Path]:
    """Charts that there no longer are go."""
    files = made(read_study(folder / COMPACT), folder, page_of(folder))
    for old in (folder / CURVES).glob("*.svg"):
        if f"{CURVES}/{old.name}" not in files:
            old.unlink()
    for name, text in files.items():
        write_atomically(folder / name, text.encode())
    return [folder / name for name in files]


if __name__ == "__main__":
    for study in kept_studies():
        print(f"{study}: {len(write(study))} files")
