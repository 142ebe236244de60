"""Evaluation against training: where the two differ in level, what else they differ in.

The policy is the same, so it should answer in the same form and play as long. Where it does not, the evaluation asks
for something else than what is trained.
"""

from __future__ import annotations

from dataclasses import dataclass

from isentrope.core.text import count, percent
from isentrope.diagnosis.causes.suspect import suspect
from isentrope.diagnosis.facts import Facts
from isentrope.diagnosis.remedies import Finding

APART = 0.15  # of success, in the end: training is that much better than the evaluation
FORM = 0.5  # difference of the shares of the turns with a thought
SHORTER = 0.6  # of the turns that training's games last
ENDED = 0.6  # share of an evaluation's games that end unsolved though they might have gone on


@dataclass(frozen=True)
class Pair:
    """Success in the end, of training and of an evaluation."""

    split: str
    train: float
    judged: float

    @property
    def words(self) -> str:
        return f"success is {percent(self.train)} in training and {percent(self.judged)} on {self.split} games"


def apart(facts: Facts) -> Pair | None:
    """The evaluation that ends far below training and did not rise; none where they agree."""
    if facts.outcome is None:
        return None
    end = facts.outcome.end
    for split, (_, last) in facts.evaluations.items():
        if end.value - last.value >= APART and last.high < end.value and facts.evaluated[split] <= 0:
            return Pair(split, end.value, last.value)
    return None


def other_form(facts: Facts) -> Finding | None:
    """Evaluations whose responses have another form than those of training."""
    pair = apart(facts)
    if pair is None:
        return None
    train, judged = _thoughts(facts, pair.split)
    if train is None or judged is None or abs(train - judged) < FORM:
        return None
    claim = (
        f"The evaluation plays another form of response than training: {percent(train)} of the turns in training "
        f"have a thought, and {percent(judged)} of those in the evaluation. So it measures another policy than "
        f"the one that learns: {pair.words}."
    )
    methods = ", ".join(facts.course.methods)
    remedy = (f"a look at what of the methods ({methods}) changes evaluations",) if methods else ()
    remedy += ("agent.order, which both should have",)
    evidence = {"train": train, "judged": judged, "gap": pair.train - pair.judged}
    return suspect("evaluation_form", 0.95, claim, evidence, remedy)


def _thoughts(facts: Facts, split: str) -> tuple[float | None, float | None]:
    """The share of the turns with a thought in training and in an evaluation: as recorded, else of stored episodes."""
    recorded = [facts.course.curve(key).values for key in ("response/thoughts", f"eval/{split}/thoughts")]
    if all(recorded):
        return recorded[0][-1], recorded[1][-1]
    train, judged = facts.played, facts.judged
    return (train.thoughts, judged.thoughts) if train.turns and judged.turns else (None, None)


def cut_short(facts: Facts) -> Finding | None:
    """Evaluations whose games end sooner than those of training, unsolved."""
    pair = apart(facts)
    if pair is None:
        return None
    train, judged, ended = facts.played.most_turns, facts.judged.most_turns, 1 - pair.judged
    means = facts.course.curve("episode/turns"), facts.course.curve(f"eval/{pair.split}/turns")
    if train and judged:
        told = f"after {count(judged, 'turn')} at the latest", f"up to {count(train, 'turn')}"
    elif len(means[0]) and len(means[1]):  # a mean over all, solved ones included, for training: rather too few
        train, judged = means[0].end, (means[1].values[-1] - pair.judged) / max(ended, 1e-9)
        told = f"after {judged:.1f} turns on average", f"{train:.1f} on average"
    else:
        return None
    if ended < ENDED or judged > SHORTER * train:
        return None
    claim = (
        f"The evaluation's games are cut off and training's are not: they end {told[0]}, {percent(ended)} of them "
        f"unsolved, while those of training last {told[1]}. So the evaluation is at fault, not the policy: "
        f"{pair.words}."
    )
    remedy = (
        "a look at what ends the evaluation's games: the world, or a limit that it sets for that split",
        "isentrope play, on a game of that split",
    )
    return suspect("evaluation_cut", 0.95, claim, {"turns": judged, "train": train, "unsolved": ended}, remedy)
