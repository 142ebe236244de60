"""EPO's claims: a smoothed entropy bonus gives more success and calmer entropy at no cost."""

from __future__ import annotations

import math

from isentrope.papers.common import ENTROPY, SOLVED, better, of_metric
from isentrope.papers.measures import log_deviation, log_mean, log_seconds_per_token, over
from isentrope.papers.record import Claim, Measure, Part, Premise, Select

ALGORITHMS = (("grpo", "on GRPO"), ("ppo", "on PPO"))
EARLY = 0.4  # the paper's 40 to 60 of 150 steps
COST = math.log(1.05)  # against a token's time in the update without EPO: what we take for measurable

CALM = of_metric(log_deviation, ENTROPY,
                 "logarithm of the standard deviation of entropy/token over the steps, the first tenth left out",
                 0.15, 0.09, begin=0.1)  # fmt: skip
LEARNT_EARLY = of_metric(over, SOLVED, "success of the training episodes, mean over the first 40 % of the steps",
                         0.03, 0.023, begin=0.0, end=EARLY)  # fmt: skip
MEAN_ENTROPY = of_metric(log_mean, ENTROPY, "logarithm of entropy/token, mean over the steps, the first fifth left out",
                         begin=0.2, end=1.0)  # fmt: skip
TIME = Measure(log_seconds_per_token, "logarithm of the seconds of the update a token, median over steps",
               ("tokens_per_second/update",), spread=0.07, spread_lm=0.04)  # fmt: skip
_ON_GRPO = "decided on GRPO, shown on PPO (the paper shows most of its ablations on PPO and ScienceWorld)"


def _epo(algorithm: str, variant: str = "full") -> Select:
    return Select(algorithm, "epo", variant)


def _moves(algorithm: str, variant: str) -> tuple[Premise]:
    """A bonus that does not move entropy cannot be improved on: nothing could be seen of it."""
    return (
        Premise(
            "the bonus moves entropy measurably", _epo(algorithm, variant), MEAN_ENTROPY, 0.0,
            "a larger weight of the bonus, or longer runs, so that entropy differs from that of the bare algorithm",
            against=Select(algorithm), clear=True,
        ),
    )  # fmt: skip


def _more_success(ours: str, theirs: str) -> tuple[Part, ...]:
    """One variant ends with more success than another, where the bonus moves entropy; decided on GRPO."""
    return tuple(
        better(name, _epo(algorithm, ours), _epo(algorithm, theirs), counts=algorithm == "grpo",
               premises=_moves(algorithm, "base"))
        for algorithm, name in ALGORITHMS
    )  # fmt: skip


CLAIMS = (
    Claim(
        "E1", "EPO", "EPO raises the success after convergence, on PPO and on GRPO.",
        tuple(better(name, _epo(algorithm), Select(algorithm)) for algorithm, name in ALGORITHMS),
        least_steps=100, needs="epo and bare, on GRPO and PPO",
    ),
    Claim(
        "E2", "EPO", "EPO lowers the variance of the policy's entropy over training.",
        tuple(
            Part(name, _epo(algorithm), CALM, 0.0, -0.1, (Select(algorithm),), upwards=False, unit="times the control",
                 expect=-math.log(1.3), means=("entropy varies more with EPO", "entropy varies less with EPO"))
            for algorithm, name in ALGORITHMS
        ),
        least_steps=100, needs="epo and bare, on GRPO and PPO (entropy/token)",
        caveat="A slow fall counts as variance too; -0.1 is a deviation smaller by a tenth.",
    ),
    Claim(
        "E3", "EPO", "The smoothing matters: with it EPO ends with more success than with the entropy bonus alone.",
        _more_success("full", "base"),
        least_steps=100, needs=f"epo and its variant base; {_ON_GRPO}",
        caveat="With the paper's numbers the smoothing takes 10 to 20 % off the bonus for tokens above the band, and "
        "nothing else: both effects are scaled by 0.001, so a difference is hardly to be expected.",
    ),
    Claim(
        "E4", "EPO", "The changing weight β lets EPO learn faster in the early part of training than a constant one.",
        tuple(
            Part(name, _epo(algorithm), LEARNT_EARLY, 0.0, 0.01, (_epo(algorithm, "no_dw"),),
                 counts=algorithm == "grpo", unit="success", expect=0.05, premises=_moves(algorithm, "full"),
                 means=("the changing weight learns faster", "the constant weight learns faster"))
            for algorithm, name in ALGORITHMS
        ),
        least_steps=100, needs=f"epo and its variant no_dw; {_ON_GRPO}",
    ),
    Claim(
        "E5", "EPO", "An entropy bonus whose weight decays over training ends with less success than a constant one.",
        _more_success("base", "decay"),
        least_steps=100, needs=f"epo's variants base and decay; {_ON_GRPO}",
    ),
    Claim(
        "E6", "EPO", "EPO ends with more success than adding entropy to the advantage (EA).",
        tuple(
            better(name, _epo(algorithm), Select(algorithm, "ea"), counts=algorithm == "grpo")
            for algorithm, name in ALGORITHMS
        ),
        least_steps=100, needs=f"epo and ea; {_ON_GRPO}",
    ),
    Claim(
        "E7", "EPO", "EPO costs no measurable time.",
        (Part("time of the update", _epo("grpo"), TIME, COST, COST, (Select("grpo"),), upwards=False,
              unit="times the control", expect=0.0, means=("EPO takes longer", "EPO takes less time")),),
        least_steps=30, needs="epo and bare on GRPO on one device with as many runs side by side (timings)",
        caveat="Other runs on the device disturb the clock: in the large study runs that are the same by definition "
        "differ by a third and more. Only runs that had the device to themselves, or equal company, tell.",
    ),
)  # fmt: skip
