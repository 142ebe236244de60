"""The difference in success between two rows, with the interval that what was recorded allows.

both have two seeds or more   Welch's interval over seeds: it holds for another training of both; not where all
                              seeds of a row came out alike, on both sides
both know the same games      paired by game: it holds for these weights on other games
else                          the two as independent samples of games
"""

from __future__ import annotations

from collections.abc import Sequence

from isentrope.metrics.episodes import wilson
from isentrope.results.curve import chosen
from isentrope.results.measure import Outcome
from isentrope.results.rows import differing
from isentrope.results.source import Source, with_outcomes
from isentrope.results.statistics import Difference, Share, correlation_of, difference_of, share_of, welch


def compare(first: Sequence[Source], second: Sequence[Source], split: str, at: str) -> tuple[Difference, str]:
    """first - second on one split, and how the interval was made."""
    if len(first) > 1 and len(second) > 1:
        values = [[_share(source, split, at).value for source in sources] for sources in (first, second)]
        found = welch(*values)
        if found is not None:
            return found, f"Welch's interval over {len(first)} and {len(second)} seeds"
    ours, theirs = _by_game(first, split, at), _by_game(second, split, at)
    elsewhere = differing(first[0], second[0], ("task.world", "task.options"))  # then equal numbers are other games
    if ours and theirs and _kinds(ours) == _kinds(theirs) and not elsewhere:
        a, b = _pooled(ours), _pooled(theirs)
        related = correlation_of(_rates(ours), _rates(theirs), min(a.effective, b.effective))
        found = difference_of(a, b, related)
        return found, f"interval over {len(ours)} games, paired (correlation {related:.2f})"
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
    low, high = wilson(mean * count, count)
    return Share(mean, low, high, shares[0].games, shares[0].episodes, count)


def _share(source: Source, split: str, at: str) -> Share:
    evaluation = chosen(source, split, at)
    if evaluation is None:
        raise ValueError(f"{source.path} has no evaluation on {split}")
    return evaluation.splits[split].success
