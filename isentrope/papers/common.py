"""Comparisons and premises that several papers' claims share."""

from __future__ import annotations

from isentrope.papers.measures import converged_success, erupts, rise_while_measured
from isentrope.papers.record import Arm, Measure, Number, Part, Premise, Select

FLOOR, CEILING = 0.05, 0.95  # a control outside of these leaves no room to see a method in
WORTH = 0.02  # the smallest gain in success that we would call one
NO_WORSE = -0.03  # a loss in success up to this is none
EXPECTED = 0.05  # the gain that a method of these papers should bring: the power is told for it
ERUPTING = 0.25  # share of all runs that must erupt: half of the bare ones, if a method keeps all of its own calm

ENTROPY, SOLVED = "entropy/token", "success/all"


def of_metric(
    function: Number, key: str, words: str, spread: float = 0.0, spread_lm: float = 0.0, **options: float | str
) -> Measure:
    """A number of one metric: the function is given its key and the options."""
    return Measure(function, words, (key,), (("key", key), *options.items()), spread, spread_lm)


SUCCESS = Measure(
    converged_success,
    "success after convergence: mean of the evaluations in the last fifth of the steps, over all splits played",
    ("eval/{split}/success",), spread=0.031, spread_lm=0.06, alike=(FLOOR, CEILING), by_kind=True,
)  # fmt: skip
STILL_RISING = of_metric(
    rise_while_measured, SOLVED,
    "rise of the training success in the last fifth of the steps, by a line through the last two fifths", 0.027, 0.063,
)  # fmt: skip
ERUPTS = Measure(erupts, "share of the runs in which entropy erupts", (ENTROPY,))

_EASIER, _LONGER = "an easier world, or a better start", "more steps, until both arms are flat"
SOLVES_SOME = Premise("the control solves some games", Arm.control, SUCCESS, FLOOR, _EASIER)
LEAVES_ROOM = Premise("the control leaves room", Arm.control, SUCCESS, CEILING, "a harder world", upwards=False)
STOPPED_RISING = Premise("both arms have stopped rising", Arm.both, STILL_RISING, WORTH, _LONGER, upwards=False)
CONVERGED_WITH_ROOM = (SOLVES_SOME, LEAVES_ROOM, STOPPED_RISING)


def erupting(runs: Select | Arm) -> Premise:
    """Entropy erupts in the runs that a claim is about. Where a method is to calm them both arms are counted together:
    bare runs alone would meet it by chance where they are the worse ones, and the method would look good."""
    remedy = "a setting in which at least half of the bare runs erupt"
    return Premise("entropy erupts", runs, ERUPTS, ERUPTING, remedy, counted=True)


def better(
    name: str, runs: Select, *against: Select, least: float = WORTH, border: float = 0.0, expect: float = EXPECTED,
    counts: bool = True, premises: tuple[Premise, ...] = (),
) -> Part:  # fmt: skip
    """`runs` end with more success than the first of `against` that there is."""
    more, less = (f"{runs.words()} ends {way} {against[0].words()}" for way in ("above", "below"))
    return Part(
        name, runs, SUCCESS, border, least, against, counts=counts, unit="success", expect=expect,
        premises=(*CONVERGED_WITH_ROOM, *premises), means=(more, less),
    )  # fmt: skip
