"""Results side by side as the papers print them: a table for each split, a row for each method, success by task type.

The difference in success between two rows has the interval that what was recorded allows:

both have two seeds or more   Welch's interval over seeds: it holds for another training of both; not where all
                              seeds of a row came out alike, on both sides
both know the same games      paired by game: it holds for these weights on other games
else                          the two as independent samples of games
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from isentrope.analysis import result_table as column
from isentrope.analysis.measure import Evaluation, Outcome, SplitResult, ordered_kinds
from isentrope.analysis.result_table import Cell, ResultTable, TableRow, ordered_columns
from isentrope.analysis.rows import Row, Source, check_row, check_rows, differing, with_outcomes
from isentrope.analysis.success import Points, Window, best, converged_values
from isentrope.core.errors import ConfigError, RunError
from isentrope.core.stats import Difference, Share, correlation_of, difference_of, mean_and_std, share_of, welch, wilson


@dataclass(frozen=True)
class Choices:
    splits: tuple[str, ...] = ()  # empty: every split of any row
    at: str = "last"
    window: Window = field(default_factory=Window)
    against: str | None = None
    mixed: bool = False
    more: bool = False


def make_tables(rows: Sequence[Row], choices: Choices) -> list[ResultTable]:
    names = [row.name for row in rows]
    if choices.against is not None and choices.against not in names:
        raise ConfigError(f"--against {choices.against!r}: no row is called so; there are {', '.join(names)}")
    common = [note for row in rows for note in check_row(row, choices.mixed)] + check_rows(rows)
    splits = choices.splits or _splits(rows)
    tables = [_table(rows, split, choices, common) for split in splits]
    for split, table in zip(splits, tables, strict=True):
        if not table.rows:
            raise RunError(f"no row was evaluated on the split {split!r}; there are {', '.join(_splits(rows))}")
    return tables


def _splits(rows: Sequence[Row]) -> tuple[str, ...]:
    """All splits, in the order in which evaluations name them."""
    evaluations = [one for row in rows for source in row.sources for one in source.evaluations]
    return tuple(dict.fromkeys(split for one in evaluations for split in one.splits))


def _table(rows: Sequence[Row], split: str, choices: Choices, common: Sequence[str]) -> ResultTable:
    notes, made = list(common), list[TableRow]()
    played = {row.name: _played(row, split, choices.at) for row in rows}
    for row in rows:
        if played[row.name]:
            made.append(_row(row, played[row.name], split, choices, notes))
        else:
            notes.append(f"{row.name} was not evaluated on {split}")
    theirs = played[choices.against] if choices.against is not None else ()
    for number, row in enumerate(made if theirs else ()):
        if row.name != choices.against:  # how far its success over all games lies above the other's
            difference, how = compare(played[row.name], theirs, split)
            ends = difference.interval
            cell = Cell(100 * difference.value, None, 100 * ends.low, 100 * ends.high)
            made[number] = replace(row, cells=row.cells | {column.DIFFERENCE: cell})
            notes.append(f"{row.name} against {choices.against}: {how}")
    return ResultTable(split, ordered_columns(made), tuple(made), tuple(dict.fromkeys(notes)))


def shown_sources(row: Row) -> list[Source]:
    """Those whose success by type is shown: files of `isentrope eval` where there are any, else the runs."""
    return [source for source in row.sources if not source.is_run] or list(row.sources)


def curve_sources(row: Row) -> list[Source]:
    """Those whose checkpoints are compared: the runs where there are any, else files with several checkpoints."""
    runs = [source for source in row.sources if source.is_run]
    return runs or [source for source in row.sources if len(source.trained) > 1]


Played = Sequence[tuple[Source, Evaluation]]  # sources that were evaluated on a split, and what is shown of each


def _played(row: Row, split: str, at: str) -> Played:
    return [(source, one) for source in shown_sources(row) if (one := chosen(source, split, at)) is not None]


def _row(row: Row, picked: Played, split: str, choices: Choices, notes: list[str]) -> TableRow:
    known = [source.path for source, _ in picked]
    missing = [source.path for source in shown_sources(row) if source.path not in known]
    if missing and not choices.mixed:
        raise _mixed(row, f"splits: {missing[0]} was not evaluated on {split!r}, others were")
    notes += [f"{row.name}: {path} was not evaluated on {split} and is left out" for path in missing]
    results = [one.splits[split] for _, one in picked]
    games = {result.success.games for result in results}
    if len(games) > 1:
        counts = ", ".join(f"{source.path}: {r.success.games}" for (source, _), r in zip(picked, results, strict=True))
        if not choices.mixed:
            raise _mixed(row, f"numbers of {split} games ({counts})")
        notes.append(f"{row.name}: numbers of games differ ({counts})")
    notes += lost(row.name, split, results) + choice(row.name, picked)
    cells = _success_cells(results) | _curve_cells(row, split, choices.window, notes)
    if any(abs(r.means.get("score", r.success.value) - r.success.value) > 1e-9 for r in results) or choices.more:
        cells |= _mean_cells(results, ("score",))
    if choices.more:
        cells |= _mean_cells(results, column.MORE)
    return TableRow(row.name, len(results), min(games), cells)


def _mixed(row: Row, what: str) -> RunError:
    return RunError(f"the row {row.name!r} mixes {what}; give them rows of their own, or allow it with --mixed")


def _success_cells(results: Sequence[SplitResult]) -> dict[str, Cell]:
    kinds = set(results[0].kinds).intersection(*(result.kinds for result in results))
    shares = {column.KIND + kind: [result.kinds[kind] for result in results] for kind in ordered_kinds(kinds)}
    shares[column.ALL] = [result.success for result in results]
    cells = {name: cell_of([100 * share.value for share in several]) for name, several in shares.items()}
    if len(results) == 1:  # an interval over games; over seeds it is the deviation that counts
        for name, (share,) in shares.items():
            cells[name] = Cell(cells[name].value, None, 100 * share.low, 100 * share.high)
    known = [100 * result.average for result in results if result.average is not None]
    return cells | ({column.AVERAGE: cell_of(known)} if len(known) == len(results) else {})


def _curve_cells(row: Row, split: str, window: Window, notes: list[str]) -> dict[str, Cell]:
    sources = curve_sources(row)
    curves = [(curve_of(source, split), last_step(source)) for source in sources]
    bests = [value for curve, _ in curves if (value := best(*curve)) is not None]
    late = [values for curve, last in curves if (values := converged_values(*curve, last, window))]
    cells = {column.BEST: cell_of([100 * value for value in bests])} if bests else {}
    if late:
        cells[column.CONVERGED] = cell_of([100 * mean_and_std(values)[0] for values in late])
        counts = sorted({len(values) for values in late})
        often = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        notes.append(f"{row.name}: Succ. is the mean of the evaluations {window.words()}, {often} in each run")
    for source in sources:
        reached = max((one.step or 0 for one in source.evaluations), default=0)
        if reached < last_step(source):
            notes.append(f"{row.name}: {source.path} was evaluated up to step {reached} of {last_step(source)} only")
    seeds = max(len(sources), len(shown_sources(row)))
    if bests and len(bests) < seeds:
        notes.append(f"{row.name}: Succ.* is over {len(bests)} of {seeds} seeds; the others have no such evaluations")
    if bests and len(late) not in (0, len(sources)):
        notes.append(f"{row.name}: Succ. has {len(late)} of {len(sources)} runs; the others have not come so far")
    return cells


def _mean_cells(results: Sequence[SplitResult], names: Sequence[str]) -> dict[str, Cell]:
    cells: dict[str, Cell] = {}
    for name in names:
        values = [result.means[name] for result in results if name in result.means]
        if len(values) == len(results):
            cells[name] = cell_of([(100 if name in column.PERCENT_MEANS else 1) * value for value in values])
    return cells


def cell_of(values: Sequence[float]) -> Cell:
    return Cell(*mean_and_std(values))


# -- which evaluations of a run are looked at


def last_step(source: Source) -> int:
    """The run's last step: as its recipe says, else that of its last evaluation."""
    return source.steps or max((evaluation.step or 0 for evaluation in source.evaluations), default=0)


def curve_of(source: Source, split: str) -> Points:
    """Success after each step at which a split was evaluated, step 0 left out."""
    evaluations = [one for one in source.trained if split in one.splits]
    return [one.step or 0 for one in evaluations], [one.splits[split].success.value for one in evaluations]


def chosen(source: Source, split: str, at: str) -> Evaluation | None:
    """The evaluation that a row shows by type: the last one, or the one with the largest success (the later of two)."""
    evaluations = [one for one in source.trained or source.evaluations if split in one.splits]
    if at == "best":
        return max(evaluations, key=lambda one: (one.splits[split].success.value, one.step or 0), default=None)
    return evaluations[-1] if evaluations else None


# -- the difference between two rows


def compare(first: Played, second: Played, split: str) -> tuple[Difference, str]:
    """first - second on one split, and how the interval was made."""
    shares = [[one.splits[split].success for _, one in played] for played in (first, second)]
    if len(first) > 1 and len(second) > 1:
        difference = welch(*([share.value for share in several] for several in shares))
        if difference is not None:
            return difference, f"Welch's interval over {len(first)} and {len(second)} seeds"
    ours, theirs = _by_game(first, split), _by_game(second, split)
    kinds = [{game: kind for game, (_, _, kind) in (games or {}).items()} for games in (ours, theirs)]
    # of other worlds equal numbers are other games
    elsewhere = differing(first[0][0], second[0][0], ("task.world", "task.options"))
    if ours and theirs and kinds[0] == kinds[1] and not elsewhere:
        a, b = _pooled(ours), _pooled(theirs)
        related = correlation_of(_rates(ours), _rates(theirs), min(a.effective, b.effective))
        return difference_of(a, b, related), f"interval over {len(ours)} games, paired (correlation {related:.2f})"
    a, b = (_over_games(games, several) for games, several in zip((ours, theirs), shares, strict=True))
    return difference_of(a, b), "interval over games that were not the same, or not recorded one by one"


Games = dict[int, tuple[int, int, str]]  # wins, episodes and kind of each game, over all seeds


def _by_game(played: Played, split: str) -> Games | None:
    """All seeds' episodes of each game together; None unless every seed played the same games and recorded them."""
    seeds: list[dict[int, Outcome]] = []
    for source, evaluation in played:
        outcomes = with_outcomes(source, evaluation, split)
        if outcomes is None:
            return None
        seeds.append({one.game: one for one in outcomes})
    if any(one.keys() != seeds[0].keys() for one in seeds):
        return None
    return {
        game: (sum(one[game].wins for one in seeds), sum(one[game].episodes for one in seeds), first.kind)
        for game, first in seeds[0].items()
    }


def _rates(games: Games) -> dict[object, float]:
    return {game: wins / episodes for game, (wins, episodes, _) in games.items()}


def _pooled(games: Games) -> Share:
    return share_of([wins for wins, _, _ in games.values()], [episodes for _, episodes, _ in games.values()])


def _over_games(games: Games | None, shares: Sequence[Share]) -> Share:
    """Without the games one by one, several seeds count as no more games than one of them has."""
    if games is not None:
        return _pooled(games)
    mean, count = sum(share.value for share in shares) / len(shares), min(share.effective for share in shares)
    return Share(mean, wilson(mean * count, count), shares[0].games, shares[0].episodes, count)


# -- what to know of the results in a row, said below the table


def lost(name: str, split: str, results: Sequence[SplitResult]) -> list[str]:
    """Episodes that came out as they did for a reason outside the policy."""
    told = {
        "were lost to a fault and count as not solved": sum(result.failures for result in results),
        "were cut off by the clock (task.episode_seconds)": sum(result.cut.get("clock", 0) for result in results),
        "ended for want of context (agent.max_context)": sum(result.cut.get("context_limit", 0) for result in results),
    }
    return [f"{name}: {count} episodes on {split} {how}" for how, count in told.items() if count]


def choice(name: str, picked: Played) -> list[str]:
    """Checkpoints that were chosen by their success, or for want of another."""
    untrained = [source.path for source, one in picked if source.is_run and not one.step]
    notes = [f"{name}: {path} has no evaluation after step 0 yet: that one is shown" for path in untrained]
    at_best = [source.path for source, _ in picked if source.settings.get("eval.checkpoint") == "best"]
    return notes + [
        f"{name}: {path} is of the checkpoint that did best in its run's evaluations: where those played the same "
        "games, its success is too high (isentrope eval --checkpoint last)"
        for path in at_best
    ]
