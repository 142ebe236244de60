"""AEM's claims: which responses raise entropy, and that weighing them lets exploration come first."""

from __future__ import annotations

import math

from isentrope.papers.common import ENTROPY, better, of_metric
from isentrope.papers.measures import log_change, log_mean, share_of_time
from isentrope.papers.record import Claim, Part, Select

BARE = Select("grpo")
WEIGHED = Select("grpo", "aem")
FALLING_OUT = Select("grpo", "aem", "falling")  # leave_out: what lets the entropy fall has no voice
RISING_OUT = Select("grpo", "aem", "rising")
MOVED = math.log(1.05)  # against the entropy that the run began with
APART = math.log(1.02)  # against the entropy of the other arm

DRIFT = of_metric(log_change, ENTROPY, "logarithm of entropy/token, mean of steps 41 to 50, over that of steps 1 to 3",
                  0.17, 0.14, first=3, end=50, last=10)  # fmt: skip
EARLY = of_metric(log_mean, ENTROPY, "logarithm of entropy/token, mean over the first fifth of the steps", 0.04, 0.03,
                  begin=0.0, end=0.2)  # fmt: skip
LATE = of_metric(log_mean, ENTROPY, "logarithm of entropy/token, mean over the last fifth of the steps", 0.14, 0.075,
                 begin=0.8, end=1.0)  # fmt: skip
SHAPING = of_metric(share_of_time, "seconds/shape", "share of a step's time that methods take to shape the advantages",
                    0.0005)  # fmt: skip

_START, _BATCH, _CONTROL = "times its start", "times the full batch", "times the control"
_TRUE = math.log(1.2)  # a drift that should not be missed
_DRIFTS = ("entropy rises from its start", "entropy falls from its start")
_ABOVE = ("entropy ends above that of the full batch", "entropy ends below that of the full batch")
_HIGHER = ("entropy is higher with AEM", "entropy is lower with AEM")

CLAIMS = (
    Claim(
        "M1", "AEM",
        "Entropy follows the sign of A · (S - H): without the responses that should lower it (A > 0 and w > 1, or "
        "A < 0 and w < 1) it rises, without the other two kinds it falls, and the full batch lies between.",
        (
            Part("rises", FALLING_OUT, DRIFT, 0.0, MOVED, unit=_START, expect=_TRUE, means=_DRIFTS),
            Part("falls", RISING_OUT, DRIFT, 0.0, -MOVED, upwards=False, unit=_START, expect=-_TRUE, means=_DRIFTS),
            Part("above the full batch", FALLING_OUT, DRIFT, 0.0, MOVED, (BARE,), unit=_BATCH, expect=_TRUE,
                 means=_ABOVE),
            Part("below the full batch", RISING_OUT, DRIFT, 0.0, -MOVED, (BARE,), upwards=False, unit=_BATCH,
                 expect=-_TRUE, means=_ABOVE),
        ),
        least_steps=50,
        needs="GRPO bare, and with aem and method.aem.leave_out = falling and rising (tag variant = falling, rising); "
        "50 steps are enough",
        caveat="The theorem itself is checked by computation; runs show whether its sign carries over to AdamW, "
        "clipping and shared weights. Leaving out half of the responses also makes the update smaller.",
    ),
    Claim(
        "M2", "AEM", "With AEM entropy is higher than without it early in training, and lower late.",
        (
            Part("early", WEIGHED, EARLY, 0.0, APART, (BARE,), unit=_CONTROL, expect=math.log(1.1), means=_HIGHER),
            Part("late", WEIGHED, LATE, 0.0, -APART, (BARE,), upwards=False, unit=_CONTROL, expect=-math.log(1.1),
                 means=_HIGHER),
        ),
        least_steps=100, needs="aem and bare on GRPO",
        caveat="In the paper the turn comes as success rises; runs that end early never see it.",
    ),
    Claim(
        "M3", "AEM", "AEM raises success on GRPO, GSPO and DAPO.",
        tuple(better(f"on {name.upper()}", Select(name, "aem"), Select(name)) for name in ("grpo", "gspo", "dapo")),
        least_steps=100, needs="aem and bare, on GRPO, GSPO and DAPO",
    ),
    Claim(
        "M4", "AEM", "AEM costs about 1 % of a step.",
        (Part("time of a step", WEIGHED, SHAPING, 0.02, 0.02, upwards=False, unit="of a step", expect=0.01,
              means=("of a step's time goes into AEM", "")),),
        least_steps=30, needs="aem on GRPO; seconds/shape in the timings",
        caveat="About 1 %: at most 2 %.",
    ),
)  # fmt: skip
