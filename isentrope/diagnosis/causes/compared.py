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
SHORTER = 0.6  # of the turns that training's games may last
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
    pair, train, judged = apart(facts), facts.played, facts.judged
    if pair is None or not train.turns or not judged.turns or abs(train.thoughts - judged.thoughts) < FORM:
        return None
    claim = (
        f"The evaluation plays another form of response than training: {percent(train.thoughts)} of the turns "
        "in training "
        f"have a thought, and {percent(judged.thoughts)} of those in the evaluation. So it measures another "
        "policy than the "
        f"one that learns: {pair.words}."
    )
    methods = ", ".join(facts.course.methods)
    remedy = (f"a look at what of the methods ({methods}) changes evaluations",) if methods else ()
    remedy += ("agent.order, which both should have",)
    evidence = {"train": train.thoughts, "judged": judged.thoughts, "gap": pair.train - pair.judged}
    return suspect("evaluation_form", 0.95, claim, evidence, remedy)


def cut_short(facts: Facts) -> Finding | None:
    """Evaluations whose games end sooner than those of training, unsolved."""
    pair, limit = apart(facts), facts.turn_limit
    if pair is None or not limit:
        return None
    turns = facts.course.curve(f"eval/{pair.split}/turns").values
    most, ended = facts.judged.most_turns, 1 - pair.judged
    unsolved = (turns[-1] - pair.judged) / ended if turns and ended else limit  # a solved one has a turn and more
    longest = most or unsolved
    if ended < ENDED or longest > SHORTER * limit:
        return None
    claim = "The evaluation's games are cut off and training's are not: "
    claim += f"after {count(most, 'turn')} at the latest" if most else f"after {unsolved:.0f} turns on average"
    claim += f", {percent(ended)} of them unsolved, while games may last {count(round(limit), 'turn')} in training"
    claim += f". So the evaluation is at fault, not the policy: {pair.words}."
    remedy = (
        "a look at what ends the evaluation's games: the world, or a limit that it sets for that split",
        "isentrope play, on a game of that split",
    )
    return suspect("evaluation_cut", 0.95, claim, {"turns": longest, "limit": limit, "unsolved": ended}, remedy)
