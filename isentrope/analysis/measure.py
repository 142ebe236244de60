"""Success, intervals and means of the episodes of one split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from isentrope.core.stats import Share, mean_and_std, share_of
from isentrope.core.types import CUTS, Episode
from isentrope.metrics.entropy import key_part
from isentrope.metrics.episodes import ended_by, lost_to_faults

PAPERS_ORDER = ("pick", "look", "clean", "heat", "cool", "two")  # the columns of the papers' household tables


@dataclass(frozen=True)
class Outcome:
    """How often one game was solved."""

    game: int
    kind: str
    wins: int
    episodes: int


@dataclass(frozen=True)
class SplitResult:
    success: Share
    kinds: Mapping[str, Share]
    means: Mapping[str, float] = field(default_factory=dict[str, float])  # of EXTRAS, those that are known
    outcomes: tuple[Outcome, ...] | None = None  # by game, in the order of the games; None: not known
    failures: int = 0  # episodes that a task, a server or the clock broke, counted as not solved
    cut: Mapping[str, int] = field(default_factory=dict[str, int])  # episodes by stop: clock (failures too), context

    @property
    def average(self) -> float | None:
        """Mean of the kinds' success, each kind weighing the same; None with fewer than two kinds."""
        return _mean([share.value for share in self.kinds.values()]) if len(self.kinds) > 1 else None


@dataclass(frozen=True)
class Evaluation:
    """One checkpoint, or a model that has none, on one or more splits."""

    step: int | None
    splits: Mapping[str, SplitResult]


EXTRAS = {
    "score": "mean of the score that the task itself gives, or of its reward: 1 for a solved game, without penalties",
    "return": "mean sum of rewards, scaled and with penalties, as in training",
    "turns": "mean turns of an episode",
    "valid_ratio": "share of the turns whose response was a valid action",
    "response_tokens": "mean tokens of a response",
}


def measure(
    episodes: Sequence[Episode], success_reward: float, invalid_reward: float, tokens_known: bool = True
) -> SplitResult:
    """The result of one split's episodes, one or more for each game. A server's tokens are not known."""
    played: dict[int, list[Episode]] = {}
    for episode in episodes:
        played.setdefault(episode.index, []).append(episode)
    outcomes = tuple(
        Outcome(game, key_part(plays[0].kind), sum(play.success for play in plays), len(plays))
        for game, plays in sorted(played.items())
    )
    turns = [turn for episode in episodes for turn in episode.turns]
    means: dict[str, float] = {}

    def score(episode: Episode) -> float:
        penalty = invalid_reward * sum(not turn.valid for turn in episode.turns)
        return (episode.ret - penalty) / success_reward if episode.score is None else episode.score

    if episodes:
        means["return"] = _mean([episode.ret for episode in episodes])
        means["turns"] = _mean([len(episode.turns) for episode in episodes])
        if success_reward:
            means["score"] = _mean([score(episode) for episode in episodes])
    if turns:
        means["valid_ratio"] = _mean([turn.valid for turn in turns])
        if tokens_known:
            means["response_tokens"] = _mean([len(turn.response_ids) for turn in turns])
    return of_outcomes(outcomes, means, lost_to_faults(episodes), ended_by(CUTS, episodes))


def of_outcomes(
    outcomes: Sequence[Outcome], means: Mapping[str, float], failures: int = 0, cut: Mapping[str, int] | None = None
) -> SplitResult:
    kinds = ordered_kinds({outcome.kind for outcome in outcomes})
    shares = {kind: _share([outcome for outcome in outcomes if outcome.kind == kind]) for kind in kinds}
    return SplitResult(_share(outcomes), shares, dict(means), tuple(outcomes), failures, dict(cut or {}))


def ordered_kinds(kinds: set[str]) -> list[str]:
    """In the papers' order, then all others by name."""
    known = [kind for kind in PAPERS_ORDER if kind in kinds]
    return known + sorted(kinds.difference(known))


def _share(outcomes: Sequence[Outcome]) -> Share:
    return share_of([outcome.wins for outcome in outcomes], [outcome.episodes for outcome in outcomes])


def _mean(values: Sequence[float]) -> float:
    return mean_and_std(values)[0]
