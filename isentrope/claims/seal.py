"""SEAL's claims: entropy erupts and subsides, why, and that telling right from wrong states calms it."""

from __future__ import annotations

from isentrope.claims.common import better
from isentrope.claims.eruptions import (
    enough_erupt,
    erupted,
    erupts_repeatedly,
    gap_before,
    gap_change,
    into_the_peak,
    largest_amplitude,
    what_stays,
)
from isentrope.claims.measures import curve_of, early_change, mean, over
from isentrope.claims.record import Claim, Measure, Number, Part, Select
from isentrope.study.read import StudyRun

PLAIN = Select(("grpo", "gigpo"))
ALPHA = "0.1"
ALPHAS = ("0.03", "0.1", "0.3")
LONG = 300  # steps from which a run may be expected to erupt more than once
VALID_AT_FIRST = 0.9  # with more than this there is nothing left to surge
SURGE = 0.2  # share of the steps in which validity surges
LONG_ENOUGH = 40  # tokens of a response in which a sentence can stand twice
_LONG_RUNS = f"bare GRPO and GiGPO of at least {LONG} steps, better 400 and more"
_NO_ERUPTIONS = "Runs without an eruption tell nothing here."


def has_room(run: StudyRun) -> str | None:
    start = mean(curve_of(run, "valid_ratio").between(1, 3).values)
    if start is None or start <= VALID_AT_FIRST:
        return None
    return f"actions are valid from the start (more than {VALID_AT_FIRST:g}): nothing is left to surge"


def erupted_in_words(run: StudyRun) -> str | None:
    """Of eruptions whose responses are long enough to be looked at for repeated sentences."""
    tokens = over(run, "response/tokens")
    if tokens is None or tokens >= LONG_ENOUGH:
        return erupted(run)
    return f"responses of fewer than {LONG_ENOUGH} tokens are too short for a sentence to stand twice"


def _early(key: str, words: str, relative: str) -> Measure:
    return Measure(early_change, words, (key,), (("key", key), ("share", SURGE), ("relative", relative)))


def _gap(function: Number, words: str, suffix: str = "") -> Measure:
    keys = (f"probe/interference/negative{suffix}", f"probe/interference/positive{suffix}")
    return Measure(function, words, keys, (("negative", keys[0]), ("positive", keys[1])))


def _at(function: Number, key: str, words: str) -> Measure:
    return Measure(function, words, (key, "entropy/token"), (("key", key),))


VALIDITY = _early("valid_ratio", "rise of valid_ratio over the first fifth of the steps", "no")
ENTROPY = _early("entropy/token", "change of entropy/token over the first fifth, over its start", "yes")
REPEATS = Measure(erupts_repeatedly, "whether at least two eruptions came down again", ("entropy/token",))
AMPLITUDE = Measure(
    largest_amplitude, "largest eruption over the entropy of the first five steps; 0 without one", ("entropy/token",)
)
_GAP = "(c of negative - c of positive episodes) over their sizes at the last probe before an onset"
GAP = _gap(gap_before, _GAP)
GAP_SHRINKS = _gap(gap_change, f"{_GAP}, less the same at the first probe after it")
GAP_PER_TOKEN = _gap(gap_before, f"{_GAP}, gradients a token", "_per_token")
VALID_LIKELIHOOD = _at(into_the_peak, "likelihood/valid", "rise of likelihood/valid from before an onset to the peak")
SOLVED_LIKELIHOOD = _at(into_the_peak, "likelihood/solved", "the same of likelihood/solved")
DUPLICATION = _at(into_the_peak, "degeneracy/duplication", "rise of duplication from before an onset to the peak")
DUPLICATION_STAYS = _at(what_stays, "degeneracy/duplication", "duplication after an eruption less that before it")


def _seal(algorithm: str, alpha: str = ALPHA) -> Select:
    return Select(algorithm, "seal", alpha=alpha)


def _calmer(algorithm: str, name: str, counts: bool) -> Part:
    return Part(
        name, _seal(algorithm), AMPLITUDE, 0.0, -0.1, (Select(algorithm),), upwards=False, counts=counts,
        unit="of the start", ground=enough_erupt,
    )  # fmt: skip


CLAIMS = (
    Claim(
        "S1",
        "SEAL",
        "At the beginning valid actions surge while entropy falls.",
        (
            Part("validity", PLAIN, VALIDITY, 0.0, 0.1, unit="share", fit=has_room),
            Part("entropy", PLAIN, ENTROPY, 0.0, -0.1, upwards=False, unit="of its start", fit=has_room),
        ),
        least_steps=50,
        needs="bare GRPO or GiGPO from a start with at most 90 % valid turns: little or no warm-up",
        caveat="A warm-up teaches the format before the run begins.",
    ),
    Claim(
        "S2",
        "SEAL",
        "Entropy then erupts and subsides again, more than once.",
        (Part("runs that do", PLAIN, REPEATS, 0.5, 0.5, shares=True, unit="share of runs"),),
        least_steps=LONG,
        least_seeds=5,
        needs=f"{_LONG_RUNS}, five or more (entropy/token)",
        caveat="The claim is taken to be about most runs. With five runs all must do it, or none, to decide.",
    ),
    Claim(
        "S3",
        "SEAL",
        "Right before an eruption, episodes with a negative advantage interfere more than those with a positive one, "
        "and this is less so afterwards.",
        (
            Part("before", PLAIN, GAP, 0.0, 0.05, unit="of both", fit=erupted),
            Part("against afterwards", PLAIN, GAP_SHRINKS, 0.0, 0.05, unit="of both", fit=erupted),
            Part("before, a token", PLAIN, GAP_PER_TOKEN, 0.0, 0.05, counts=False, unit="of both", fit=erupted),
        ),
        least_steps=LONG,
        needs=f"{_LONG_RUNS}; instruments.probe_every at most 5 (probe/interference/…), better probe_gradient = all",
        caveat=f"{_NO_ERUPTIONS} Failed episodes are often longer, and c grows with length: see the part a token.",
    ),
    Claim(
        "S4",
        "SEAL",
        "The likelihood of valid episodes falls into an eruption.",
        (
            Part("valid", PLAIN, VALID_LIKELIHOOD, 0.0, -0.02, upwards=False, unit="nats", fit=erupted),
            Part("solved", PLAIN, SOLVED_LIKELIHOOD, 0.0, -0.02, upwards=False, counts=False, unit="nats", fit=erupted),
        ),
        least_steps=LONG,
        needs=f"{_LONG_RUNS} (likelihood/valid)",
        caveat=f"{_NO_ERUPTIONS} The mean log-probability of sampled tokens is minus their entropy but for chance, so "
        "this could hardly be otherwise where most responses are valid.",
    ),
    Claim(
        "S5",
        "SEAL",
        "Sentences are repeated more in an eruption, and this stays when it is over.",
        (
            Part("rises", PLAIN, DUPLICATION, 0.0, 0.01, unit="share", fit=erupted_in_words),
            Part("stays", PLAIN, DUPLICATION_STAYS, 0.0, 0.01, unit="share", fit=erupted_in_words),
        ),
        least_steps=LONG,
        needs=f"{_LONG_RUNS}, with responses of {LONG_ENOUGH} tokens and more (degeneracy/duplication)",
        caveat=_NO_ERUPTIONS,
    ),
    Claim(
        "S6",
        "SEAL",
        "SEAL makes eruptions smaller.",
        (_calmer("grpo", "on GRPO", True), _calmer("gigpo", "on GiGPO", False)),
        least_steps=LONG,
        needs=f"seal (α = {ALPHA}) and bare GRPO of at least {LONG} steps; half of the bare runs must erupt",
        caveat="All runs count, those without an eruption too: taking only seeds whose bare run erupted would make any "
        "method look good.",
    ),
    Claim(
        "S7",
        "SEAL",
        "SEAL raises success on GRPO and GiGPO.",
        (better("on GRPO", _seal("grpo"), Select("grpo")), better("on GiGPO", _seal("gigpo"), Select("gigpo"))),
        least_steps=100,
        needs=f"seal (α = {ALPHA}) and bare, on GRPO and GiGPO",
    ),
    Claim(
        "S8",
        "SEAL",
        "SEAL raises success over a wide range of α.",
        tuple(better(f"α = {alpha}", _seal("grpo", alpha), Select("grpo"), least=0.01) for alpha in ALPHAS),
        least_steps=100,
        needs=f"seal on GRPO with α = {', '.join(ALPHAS)} (tag alpha) and bare GRPO",
    ),
)
