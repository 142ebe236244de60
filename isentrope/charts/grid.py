"""A heat map of differences: above zero blue, below zero orange."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap

from isentrope.charts.axes import LETTER
from isentrope.charts.style import PALETTE
from isentrope.charts.svg import document, element
from isentrope.charts.text import clipped, safe, signed

_STRONGEST = 10.0  # points: more is no darker, or the smaller ones would all look white
_UP, _DOWN, _DARKEST = (66, 133, 201), (224, 122, 42), 0.75
_FRAME = PALETTE["ink"][0]  # cells are as bright on a dark page
_NOTE_LETTER = 6.4  # width of a letter of the note
_HEAD = 92  # above the first row
_COLUMN, _ROW, _LAST, _MOST_NAME = 84, 26, 170, 34


@dataclass(frozen=True)
class Row:
    name: str
    cells: Mapping[str, tuple[float, int]]  # points and the number of pairs, by column
    overall: str
    bold: bool  # the last cell
    clear: Collection[str] = ()  # columns whose cells are framed: their interval leaves zero out


@dataclass(frozen=True)
class Table:
    title: str
    note: str
    columns: Sequence[str]
    rows: Sequence[Row]

    @property
    def left(self) -> float:
        """Room for the rows' names."""
        return 26 + 0.95 * LETTER * max(len(_shown(row)) for row in self.rows)

    @property
    def size(self) -> tuple[int, int]:
        return round(self.left) + _COLUMN * len(self.columns) + _LAST, _HEAD + _ROW * len(self.rows) + 14


def grid_file(table: Table) -> str:
    """As an SVG file."""
    width, height = table.size
    head = f'<text class="h" x="14" y="24">{safe(table.title)}</text>'
    for number, line in enumerate(wrap(table.note, round((width - 28) / _NOTE_LETTER))[:3]):
        head += f'<text x="14" y="{40 + 14 * number}">{safe(line)}</text>'
    style = f".chart .tinted{{fill:{PALETTE['ink'][0]}}}.chart .few{{font-size:10px}}"
    inside = f'<g class="chart">{head}{_cells(table)}</g>'
    return document(inside, width, height, table.title, round(width / 96, 3), style)


def grid_in_page(table: Table) -> str:
    """Without title and note, which a page has beside it."""
    width, height = table.size
    return element(_cells(table), width, height - _HEAD + 30, table.title, top=_HEAD - 30)


def _cells(table: Table) -> str:
    heads = [
        f'<text x="{table.left + _COLUMN * (n + 0.5):.1f}" y="{_HEAD - 10}" text-anchor="middle">'
        f"{safe(clipped(name, _COLUMN // 7))}</text>"
        for n, name in enumerate(table.columns)
    ]
    heads.append(f'<text x="{table.size[0] - 14}" y="{_HEAD - 10}" text-anchor="end">over all</text>')
    return "".join([*heads, *(_row(row, table, _HEAD + _ROW * n) for n, row in enumerate(table.rows))])


def _shown(row: Row) -> str:
    return clipped(row.name.replace("_", " "), _MOST_NAME)


def _row(row: Row, table: Table, top: float) -> str:
    base = top + 0.66 * _ROW
    parts = [f'<text x="{table.left - 12:.1f}" y="{base:.1f}" text-anchor="end">{safe(_shown(row))}</text>']
    for number, column in enumerate(table.columns):
        if column in row.cells:
            parts.append(_cell(*row.cells[column], table.left + _COLUMN * number, top, column in row.clear))
    weight = ' font-weight="650"' if row.bold else ""
    place = f'x="{table.size[0] - 14}" y="{base:.1f}"'
    parts.append(f'<text class="tick" {place} text-anchor="end"{weight}>{safe(row.overall)}</text>')
    return "".join(parts)


def _cell(points: float, pairs: int, x: float, top: float, clear: bool) -> str:
    share = _DARKEST * min(1.0, abs(points) / _STRONGEST)
    fill = "#" + "".join(f"{round(255 + share * (part - 255)):02x}" for part in (_UP if points > 0 else _DOWN))
    frame = f' stroke="{_FRAME}" stroke-width="1.5"' if clear else ""
    text = f'y="{top + 0.66 * _ROW:.1f}" text-anchor="end">'
    return (
        f'<rect x="{x + 1:.1f}" y="{top + 1:.1f}" width="{_COLUMN - 2}" height="{_ROW - 2}" rx="3" '
        f'fill="{fill}"{frame}/>'
        f'<text class="tick tinted" x="{x + 0.62 * _COLUMN:.1f}" {text}{signed(points)}</text>'
        f'<text class="tick tinted few" x="{x + _COLUMN - 10:.1f}" {text}{pairs}</text>'
    )
