"""Which cells share a chart: few enough to tell their lines apart, the baseline always among them.

Bare algorithms stand together. The cells that are compared with a baseline are divided by method if they are many: a
method's variants stay together, methods without variants share a chart, and so do combinations. What is drawn where
depends on the plan alone, so that a chart keeps its name when runs are added.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import pairwise

from isentrope.study.cells import Cell

MOST = 6  # lines beside the baseline
_ALGORITHM, _METHOD, _NO_METHOD, _JOINED = "algorithm", "method", "none", "+"


@dataclass(frozen=True)
class Family:
    name: str
    base: str  # the baseline, empty where there is none
    cells: tuple[Cell, ...]
    least: int = 1  # lines without which there is nothing to see


def families(cells: Sequence[Cell]) -> Iterator[Family]:
    against = {cell.against for cell in cells}
    bases = [cell for cell in cells if cell.name in against]
    together = list(_algorithms([cell for cell in cells if cell.name in against or _is_bare(cell)], against))
    yield from together
    for base in bases:
        parts = _parts([cell for cell in cells if cell.against == base.name])
        for name, part in parts:
            yield Family(base.name if len(parts) == 1 else f"{base.name}: {name}", base.name, (base, *part))
    shown = {*against, *(cell.name for family in together for cell in family.cells)}
    for name, part in _parts([cell for cell in cells if not cell.against and cell.name not in shown]):
        yield Family(name, "", tuple(part))


def _is_bare(cell: Cell) -> bool:
    return not cell.against and cell.tags.get(_METHOD, _NO_METHOD) == _NO_METHOD


def _algorithms(bare: Sequence[Cell], against: Set[str]) -> Iterator[Family]:
    """Bare cells that differ in their algorithm alone. One with which nothing is compared has no other chart."""
    alike: dict[str, list[Cell]] = {}
    for base in (cell for cell in bare if _ALGORITHM in cell.tags):
        tags = {_METHOD: _NO_METHOD, **base.tags}
        rest = [f"{key} {tags[key]}" for key in tags if key != _ALGORITHM and (key, tags[key]) != (_METHOD, _NO_METHOD)]
        alike.setdefault(", ".join(["algorithms", *rest]), []).append(base)
    for name, group in alike.items():
        if len(group) > 1:
            for title, part in _numbered(name, group):
                yield Family(title, "", tuple(part), least=2 if all(cell.name in against for cell in part) else 1)


def _parts(cells: Sequence[Cell]) -> list[tuple[str, list[Cell]]]:
    """A name for each part, and its cells. Two parts may have the same: a method may be called `others`."""
    if 0 < len(cells) <= MOST:
        return [("all", list(cells))]
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(_kind(cell), []).append(cell)
    single = {kind: group for kind, group in groups.items() if len(group) == 1 and _JOINED not in kind}
    joined = {kind: group for kind, group in groups.items() if len(group) == 1 and _JOINED in kind}
    found = [part for kind, group in groups.items() if len(group) > 1 for part in _numbered(kind, group)]
    found += _numbered("others" if len(single) > 1 else "".join(single), _all(single))
    return found + _numbered("combined" if len(joined) > 1 else "".join(joined), _all(joined))


def _kind(cell: Cell) -> str:
    """Its method; in a study that varies something else, all tags but the last, which is what changes fastest."""
    if cell.tags.get(_METHOD, _NO_METHOD) != _NO_METHOD:
        return cell.tags[_METHOD]
    values = [value for key, value in cell.tags.items() if key != _METHOD]
    return " ".join(values[:-1] or values)


def _numbered(name: str, group: Sequence[Cell]) -> list[tuple[str, list[Cell]]]:
    """As many equal parts as it takes."""
    count = -(-len(group) // MOST)
    ends = [round(number * len(group) / count) for number in range(count + 1)] if count else []
    parts = [list(group[start:end]) for start, end in pairwise(ends)]
    return [(name if count == 1 else f"{name} ({n})", part) for n, part in enumerate(parts, start=1)]


def _all(groups: Mapping[str, list[Cell]]) -> list[Cell]:
    return [cell for group in groups.values() for cell in group]
