"""Results side by side as the papers print them: a table for each split, a row for each method, success by task type.

The difference in success between two rows has the interval that what was recorded allows:

both have two seeds or more   Welch's interval over seeds: it holds for another training of both; not where all
                              seeds of a row came out alike, on both sides
both know the same games      paired by game: it holds for these weights on other games
else                          the two as independent samples of games
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from isentrope.analysis.measure import Evaluation, Outcome, SplitResult, ordered_kinds
from isentrope.analysis.result_table import (
    ALL,
    AVERAGE,
    BEST,
    CONVERGED,
    DIFFERENCE,
    KIND,
    MORE,
    PERCENT_MEANS,
    Cell,
    ResultTable,
    TableRow,
    ordered_columns,
)
from isentrope.analysis.rows import Row, check_row, check_rows, differing
from isentrope.analysis.source import Source, with_outcomes
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
    return tuple(
        dict.fromkeys(
            split for row in rows for source in row.sources for one in source.evaluations for split in one.splits
        )
    )


def _table(rows: Sequence[Row], split: str, choices: Choices, common: Sequence[str]) -> ResultTable:
    notes, made = list(common), list[TableRow]()
    for row in rows:
        made_row = _row(row, split, choices, notes)
        if made_row is None:
            notes.append(f"{row.name} was not evaluated on {split}")
        else:
            made.append(made_row)
    if choices.against is not None and any(row.name == choices.against for row in made):
        present = [row for row in rows if any(one.name == row.name for one in made)]
        made = _with_differences(made, present, split, choices, notes)
    used = {column for row in made for column in row.cells}
    return ResultTable(split, ordered_columns(used), tuple(made), tuple(dict.fromkeys(notes)))


def shown_sources(row: Row) -> list[Source]:
    """Those whose success by type is shown: files of `isentrope eval` where there are any, else the runs."""
    return [source for source in row.sources if not source.is_run] or list(row.sources)


def curve_sources(row: Row) -> list[Source]:
    """Those whose checkpoints are compared: the runs where there are any, else files with several checkpoints."""
    runs = [source for source in row.sources if source.is_run]
    return runs or [source for source in row.sources if len(source.trained) > 1]


def _played(row: Row, split: str, at: str) -> list[Source]:
    return [source for source in shown_sources(row) if chosen(source, split, at) is not None]


def _row(row: Row, split: str, choices: Choices, notes: list[str]) -> TableRow | None:
    picked = [(source, chosen(source, split, choices.at)) for source in shown_sources(row)]
    missing = [source.path for source, one in picked if one is None]
    if len(missing) == len(picked):
        return None
    if missing and not choices.mixed:
        raise RunError(
            f"the row {row.name!r} mixes splits: {missing[0]} was not evaluated on {split!r}, others were; give them "
            "rows of their own, or allow it with --mixed"
        )
    notes += [f"{row.name}: {path} was not evaluated on {split} and is left out" for path in missing]
    picked = [(source, one) for source, one in picked if one is not None]
    results = [one.splits[split] for _, one in picked]
    games = {result.success.games for result in results}
    if len(games) > 1:
        counts = ", ".join(f"{source.path}: {r.success.games}" for (source, _), r in zip(picked, results, strict=True))
        if not choices.mixed:
            raise RunError(
                f"the row {row.name!r} mixes numbers of {split} games ({counts}); give them rows of their own, "
                "or allow it with --mixed"
            )
        notes.append(f"{row.name}: numbers of games differ ({counts})")
    notes += lost(row.name, split, results) + choice(row.name, picked)
    cells = _success_cells(results) | _curve_cells(row, split, choices.window, notes)
    if any(abs(r.means.get("score", r.success.value) - r.success.value) > 1e-9 for r in results) or choices.more:
        cells |= _mean_cells(results, ("score",))
    if choices.more:
        cells |= _mean_cells(results, MORE)
    return TableRow(row.name, len(results), min(games), cells)


def _success_cells(results: Sequence[SplitResult]) -> dict[str, Cell]:
    cells: dict[str, Cell] = {}
    kinds = set(results[0].kinds).intersection(*(result.kinds for result in results))
    for column, shares in (
        *((KIND + kind, [result.kinds[kind] for result in results]) for kind in ordered_kinds(kinds)),
        (ALL, [result.success for result in results]),
    ):
        cell = cell_of([100 * share.value for share in shares])
        if len(shares) == 1:  # an interval over games; over seeds it is the deviation that counts
            cell = Cell(cell.value, None, 100 * shares[0].low, 100 * shares[0].high)
        cells[column] = cell
    averages = [result.average for result in results]
    known = [100 * average for average in averages if average is not None]
    return cells | ({AVERAGE: cell_of(known)} if len(known) == len(results) else {})


def _curve_cells(row: Row, split: str, window: Window, notes: list[str]) -> dict[str, Cell]:
    sources = curve_sources(row)
    curves = [(curve_of(source, split), last_step(source)) for source in sources]
    bests = [value for curve, _ in curves if (value := best(*curve)) is not None]
    late = [values for curve, last in curves if (values := converged_values(*curve, last, window))]
    cells = {BEST: cell_of([100 * value for value in bests])} if bests else {}
    if late:
        cells[CONVERGED] = cell_of([100 * mean_and_std(values)[0] for values in late])
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
            cells[name] = cell_of([(100 if name in PERCENT_MEANS else 1) * value for value in values])
    return cells


def cell_of(values: Sequence[float]) -> Cell:
    mean, std = mean_and_std(values)
    return Cell(mean, std)


def _with_differences(
    made: Sequence[TableRow], rows: Sequence[Row], split: str, choices: Choices, notes: list[str]
) -> list[TableRow]:
    """Each row with how far its success over all games lies above the one named by --against."""
    base = next(row for row in rows if row.name == choices.against)
    done: list[TableRow] = []
    for shown, row in zip(made, rows, strict=True):
        if row is base:
            done.append(shown)
            continue
        ours, theirs = (_played(one, split, choices.at) for one in (row, base))
        difference, how = compare(ours, theirs, split, choices.at)
        ends = difference.interval
        cell = Cell(100 * difference.value, None, 100 * ends.low, 100 * ends.high)
        done.append(TableRow(shown.name, shown.seeds, shown.games, shown.cells | {DIFFERENCE: cell}))
        notes.append(f"{row.name} against {base.name}: {how}")
    return done


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
    if not evaluations:
        return None
    if at == "best":
        return max(evaluations, key=lambda one: (one.splits[split].success.value, one.step or 0))
    return evaluations[-1]


# -- the difference between two rows


def compare(first: Sequence[Source], second: Sequence[Source], split: str, at: str) -> tuple[Difference, str]:
    """first - second on one split, and how the interval was made."""
    if len(first) > 1 and len(second) > 1:
        values = [[_share(source, split, at).value for source in sources] for sources in (first, second)]
        difference = welch(*values)
        if difference is not None:
            return difference, f"Welch's interval over {len(first)} and {len(second)} seeds"
    ours, theirs = _by_game(first, split, at), _by_game(second, split, at)
    elsewhere = differing(first[0], second[0], ("task.world", "task.options"))  # then equal numbers are other games
    if ours and theirs and _kinds(ours) == _kinds(theirs) and not elsewhere:
        a, b = _pooled(ours), _pooled(theirs)
        related = correlation_of(_rates(ours), _rates(theirs), min(a.effective, b.effective))
        return difference_of(a, b, related), f"interval over {len(ours)} games, paired (correlation {related:.2f})"
    a, b = (_over_games(games, sources, split, at) for games, sources in ((ours, first), (theirs, second)))
    return difference_of(a, b), "interval over games that were not the same, or not recorded one by one"


Games = dict[int, tuple[int, int, str]]  # wins, episodes and kind of each game, over all seeds


def _by_game(sources: Sequence[Source], split: str, at: str) -> Games | None:
    """All seeds' episodes of each game together; None unless every seed played the same games and recorded them."""
    played: list[dict[int, Outcome]] = []
    for source in sources:
        evaluation = chosen(source, split, at)
        outcomes = None if evaluation is None else with_outcomes(source, evaluation, split)
        if outcomes is None:
            return None
        played.append({one.game: one for one in outcomes})
    if any(one.keys() != played[0].keys() for one in played):
        return None
    return {
        game: (sum(one[game].wins for one in played), sum(one[game].episodes for one in played), first.kind)
        for game, first in played[0].items()
    }


def _kinds(games: Games) -> dict[int, str]:
    return {game: kind for game, (_, _, kind) in games.items()}


def _rates(games: Games) -> dict[object, float]:
    return {game: wins / episodes for game, (wins, episodes, _) in games.items()}


def _pooled(games: Games) -> Share:
    return share_of([wins for wins, _, _ in games.values()], [episodes for _, episodes, _ in games.values()])


def _over_games(games: Games | None, sources: Sequence[Source], split: str, at: str) -> Share:
    """Without the games one by one, several seeds count as no more games than one of them has."""
    if games is not None:
        return _pooled(games)
    shares = [_share(source, split, at) for source in sources]
    mean, count = sum(share.value for share in shares) / len(shares), min(share.effective for share in shares)
    return Share(mean, wilson(mean * count, count), shares[0].games, shares[0].episodes, count)


def _share(source: Source, split: str, at: str) -> Share:
    evaluation = chosen(source, split, at)
    if evaluation is None:
        raise ValueError(f"{source.path} has no evaluation on {split}")
    return evaluation.splits[split].success


# -- what to know of the results in a row, said below the table


def lost(name: str, split: str, results: Sequence[SplitResult]) -> list[str]:
    """Episodes that came out as they did for a reason outside the policy."""
    broken = sum(result.failures for result in results)
    clock, context = (sum(result.cut.get(stop, 0) for result in results) for stop in ("clock", "context_limit"))
    notes = [f"{name}: {broken} episodes on {split} were lost to a fault and count as not solved"] if broken else []
    if clock:
        notes.append(f"{name}: {clock} episodes on {split} were cut off by the clock (task.episode_seconds)")
    if context:
        notes.append(f"{name}: {context} episodes on {split} ended for want of context (agent.max_context)")
    return notes


def choice(name: str, picked: Sequence[tuple[Source, Evaluation]]) -> list[str]:
    """Checkpoints that were chosen by their success, or for want of another."""
    untrained = [source.path for source, one in picked if source.is_run and not one.step]
    notes = [f"{name}: {path} has no evaluation after step 0 yet: that one is shown" for path in untrained]
    at_best = [source.path for source, _ in picked if source.settings.get("eval.checkpoint") == "best"]
    return notes + [
        f"{name}: {path} is of the checkpoint that did best in its run's evaluations: where those played the same "
        "games, its success is too high (isentrope eval --checkpoint last)"
        for path in at_best
    ]
