"""SEAL's claims: entropy erupts and subsides, why, and that telling right from wrong states calms it."""

from __future__ import annotations

import math

from isentrope.papers import measures
from isentrope.papers.common import ENTROPY, better, erupting, of_metric
from isentrope.papers.record import Arm, Claim, Measure, Number, Part, Premise, Select

PLAIN = Select(("grpo", "gigpo"))
ALPHA = "0.1"
ALPHAS = ("0.03", "0.1", "0.3")
LONG = 300  # steps from which a run may be expected to erupt more than once
VALID_AT_FIRST = 0.9  # with more than this there is nothing left to surge
SURGE = 0.2  # share of the steps in which validity surges
GAIN = 0.03  # success that SEAL adds in the paper, on ALFWorld
OPENING = 30  # steps; the paper's opening steps, in long runs too
FALL = math.log(1 / 0.9)  # entropy lower by a tenth
LOWER = math.log(1 / 0.9)  # eruptions lower by a tenth
LONG_ENOUGH = 40  # tokens of a response in which a sentence can stand twice
_LONG_RUNS = f"bare GRPO and GiGPO of at least {LONG} steps, better 400 and more"
_NO_ERUPTIONS = "Runs without an eruption tell nothing here."


ROOM_TO_SURGE = Premise(
    "actions are not valid from the start", Arm.treated,
    of_metric(measures.first_values, "valid_ratio", "valid_ratio of the first steps", count=3),
    VALID_AT_FIRST, "a start with fewer valid actions: little or no warm-up", upwards=False,
)  # fmt: skip
LONG_RESPONSES = Premise("responses are long enough for a sentence to stand twice", Arm.treated,
                         of_metric(measures.over, "response/tokens", "tokens of a response, mean over the run"),
                         LONG_ENOUGH, "a model and prompt with longer responses")  # fmt: skip


def _gap(function: Number, words: str, suffix: str = "") -> Measure:
    keys = (f"probe/interference/negative{suffix}", f"probe/interference/positive{suffix}")
    return Measure(function, words, keys, (("negative", keys[0]), ("positive", keys[1])), spread=0.2)


def _at(function: Number, key: str, words: str, spread: float) -> Measure:
    return Measure(function, words, (key, ENTROPY), (("key", key),), spread=spread)


VALIDITY = of_metric(measures.early_change, "valid_ratio",
                     "rise of valid_ratio over the first fifth of the steps, 30 at most", 0.044, 0.09, share=SURGE,
                     relative="no", most=OPENING)  # fmt: skip
EARLY_ENTROPY = of_metric(
    measures.early_log_change, ENTROPY,
    "logarithm of entropy/token at the end of the first fifth of the steps, 30 at most, over that at its start",
    0.1, 0.09, share=SURGE, most=OPENING,
)  # fmt: skip
REPEATS = Measure(measures.erupts_repeatedly, "whether at least two eruptions came down again", (ENTROPY,))
HEIGHT = Measure(measures.log_height,
                 "logarithm of 1 + the largest eruption over the entropy of the first five steps; 0 without one",
                 (ENTROPY,), spread=0.8)  # fmt: skip
_GAP = "(c of negative - c of positive episodes) over their sizes at the last probe before an onset"
GAP = _gap(measures.gap_before, _GAP)
GAP_SHRINKS = _gap(measures.gap_change, f"{_GAP}, less the same at the first probe after it")
GAP_PER_TOKEN = _gap(measures.gap_before, f"{_GAP}, gradients a token", "_per_token")
_RISE = "from before an onset to the peak"
VALID_LIKELIHOOD = _at(measures.into_the_peak, "likelihood/valid", f"rise of likelihood/valid {_RISE}", 0.15)
SOLVED_LIKELIHOOD = _at(measures.into_the_peak, "likelihood/solved", "the same of likelihood/solved", 0.08)
_REPEATED, _LEFT = "degeneracy/duplication", "duplication after an eruption less that before it"
DUPLICATION = _at(measures.into_the_peak, _REPEATED, f"rise of duplication {_RISE}", 0.1)
DUPLICATION_STAYS = _at(measures.what_stays, _REPEATED, _LEFT, 0.1)


def _seal(algorithm: str, alpha: str = ALPHA) -> Select:
    return Select(algorithm, "seal", alpha=alpha)


def _calmer(algorithm: str, name: str, counts: bool) -> Part:
    return Part(
        name, _seal(algorithm), HEIGHT, 0.0, -LOWER, (Select(algorithm),), upwards=False, counts=counts,
        unit="times the control, of 1 + height", expect=-math.log(2), premises=(erupting(Arm.pooled),),
        means=("eruptions are higher with SEAL", "eruptions are lower with SEAL"),
    )  # fmt: skip


def _of_eruptions(
    name: str, measure: Measure, least: float, unit: str, expect: float, means: tuple[str, str],
    counts: bool = True, more: tuple[Premise, ...] = (),
) -> Part:  # fmt: skip
    """A number of runs that erupted, where at least half of the runs do."""
    return Part(
        name, PLAIN, measure, 0.0, least, upwards=least > 0, counts=counts, unit=unit, expect=expect, means=means,
        fit=measures.erupted, premises=(erupting(Arm.treated), *more),
    )  # fmt: skip


def _raises(name: str, algorithm: str, alpha: str = ALPHA, least: float = 0.02) -> Part:
    """More success, where there are eruptions to be calmed."""
    runs = _seal(algorithm, alpha)
    return better(name, runs, Select(algorithm), least=least, expect=GAIN, premises=(erupting(Arm.pooled),))


_INTERFERE = ("negative episodes interfere more", "negative episodes interfere less")
_EASES = ("they interfere less afterwards", "they interfere more afterwards")
_LIKELY = ("their likelihood rises into the eruption", "their likelihood falls into the eruption")
_REPEATS = ("repetition rises", "repetition falls")
_STAYS = ("more is repeated after than before", "less is repeated after than before")

CLAIMS = (
    Claim(
        "S1", "SEAL", "At the beginning valid actions surge while entropy falls.",
        (
            Part("validity", PLAIN, VALIDITY, 0.0, 0.1, unit="share", premises=(ROOM_TO_SURGE,), expect=0.15,
                 means=("more actions are valid", "fewer actions are valid")),
            Part("entropy", PLAIN, EARLY_ENTROPY, 0.0, -FALL, upwards=False, unit="times its start",
                 premises=(ROOM_TO_SURGE,), expect=-2 * FALL, means=("entropy rises", "entropy falls")),
        ),
        least_steps=50, needs="bare GRPO or GiGPO from a start with at most 90 % valid turns: little or no warm-up",
        caveat="A warm-up teaches the format before the run begins.",
    ),
    Claim(
        "S2", "SEAL", "Entropy then erupts and subsides again, more than once.",
        (Part("runs that do", PLAIN, REPEATS, 0.5, 0.5, shares=True, unit="share of runs", expect=0.9,
              means=("of the runs erupt and subside at least twice", "")),),
        least_steps=LONG, least_seeds=5, needs=f"{_LONG_RUNS}, five or more (entropy/token)",
        caveat="The claim is taken to be about most runs. With six seeds all must do it, or none, to decide.",
    ),
    Claim(
        "S3", "SEAL",
        "Right before an eruption, episodes with a negative advantage interfere more than those with a positive one, "
        "and this is less so afterwards.",
        (
            _of_eruptions("before", GAP, 0.05, "of both", 0.3, _INTERFERE),
            _of_eruptions("against afterwards", GAP_SHRINKS, 0.05, "of both", 0.3, _EASES),
            _of_eruptions("before, a token", GAP_PER_TOKEN, 0.05, "of both", 0.3, _INTERFERE, counts=False),
        ),
        least_steps=LONG,
        needs=f"{_LONG_RUNS}; instruments.probe_every at most 5 (probe/interference/…), better probe_gradient = all",
        caveat=f"{_NO_ERUPTIONS} Failed episodes are often longer, and c grows with length: see the part a token.",
    ),
    Claim(
        "S4", "SEAL", "The likelihood of valid episodes falls into an eruption.",
        (
            _of_eruptions("valid", VALID_LIKELIHOOD, -0.02, "nats", -0.1, _LIKELY),
            _of_eruptions("solved", SOLVED_LIKELIHOOD, -0.02, "nats", -0.1, _LIKELY, counts=False),
        ),
        least_steps=LONG, needs=f"{_LONG_RUNS} (likelihood/valid)",
        caveat=f"{_NO_ERUPTIONS} The mean log-probability of sampled tokens is minus their entropy but for chance, so "
        "this could hardly be otherwise where most responses are valid.",
    ),
    Claim(
        "S5", "SEAL", "Sentences are repeated more in an eruption, and this stays when it is over.",
        (
            _of_eruptions("rises", DUPLICATION, 0.01, "share", 0.1, _REPEATS, more=(LONG_RESPONSES,)),
            _of_eruptions("stays", DUPLICATION_STAYS, 0.01, "share", 0.1, _STAYS, more=(LONG_RESPONSES,)),
        ),
        least_steps=LONG,
        needs=f"{_LONG_RUNS}, with responses of {LONG_ENOUGH} tokens and more (degeneracy/duplication)",
        caveat=_NO_ERUPTIONS,
    ),
    Claim(
        "S6", "SEAL", "SEAL makes eruptions smaller.",
        (_calmer("grpo", "on GRPO", True), _calmer("gigpo", "on GiGPO", False)),
        least_steps=LONG,
        needs=f"seal (α = {ALPHA}) and bare GRPO of at least {LONG} steps; a quarter of all of them must erupt",
        caveat="All runs count, those without an eruption too: taking only seeds whose bare run erupted would make any "
        "method look good.",
    ),
    Claim(
        "S7", "SEAL", "SEAL raises success on GRPO and GiGPO.",
        (_raises("on GRPO", "grpo"), _raises("on GiGPO", "gigpo")),
        least_steps=100, needs=f"seal (α = {ALPHA}) and bare, on GRPO and GiGPO",
    ),
    Claim(
        "S8", "SEAL", "SEAL raises success over a wide range of α.",
        tuple(_raises(f"α = {alpha}", "grpo", alpha, 0.01) for alpha in ALPHAS),
        least_steps=100, needs=f"seal on GRPO with α = {', '.join(ALPHAS)} (tag alpha) and bare GRPO",
    ),
)  # fmt: skip
