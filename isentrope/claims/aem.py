"""AEM's claims: which responses raise entropy, and that weighing them lets exploration come first."""

from __future__ import annotations

from isentrope.claims.common import better
from isentrope.claims.measures import change, over, share_of_time
from isentrope.claims.record import Claim, Measure, Part, Select

BARE = Select("grpo")
WEIGHED = Select("grpo", "aem")
FALLING_OUT = Select("grpo", "aem", "falling")  # leave_out: what lets the entropy fall has no voice
RISING_OUT = Select("grpo", "aem", "rising")
MOVED = 0.05  # of the entropy that the run began with

DRIFT = Measure(
    change,
    "change of entropy/token: mean of steps 41 to 50 against steps 1 to 3, over the latter",
    ("entropy/token",),
    (("key", "entropy/token"), ("first", 3), ("end", 50), ("last", 10)),
)
EARLY = Measure(
    over,
    "entropy/token, mean over the first fifth of the steps",
    ("entropy/token",),
    (("key", "entropy/token"), ("begin", 0.0), ("end", 0.2)),
)
LATE = Measure(
    over,
    "entropy/token, mean over the last fifth of the steps",
    ("entropy/token",),
    (("key", "entropy/token"), ("begin", 0.8), ("end", 1.0)),
)
SHAPING = Measure(
    share_of_time,
    "share of a step's time that methods take to shape the advantages",
    ("seconds/shape",),
    (("key", "seconds/shape"),),
)

CLAIMS = (
    Claim(
        "M1",
        "AEM",
        "Entropy follows the sign of A · (S - H): without the responses that should lower it (A > 0 and w > 1, or "
        "A < 0 and w < 1) it rises, without the other two kinds it falls, and the full batch lies between.",
        (
            Part("rises", FALLING_OUT, DRIFT, 0.0, MOVED, unit="of its start"),
            Part("falls", RISING_OUT, DRIFT, 0.0, -MOVED, upwards=False, unit="of its start"),
            Part("above the full batch", FALLING_OUT, DRIFT, 0.0, MOVED, (BARE,), unit="of its start"),
            Part(
                "below the full batch", RISING_OUT, DRIFT, 0.0, -MOVED, (BARE,), upwards=False, unit="of its start"
            ),
        ),
        least_steps=50,
        needs="GRPO bare, and with aem and method.aem.leave_out = falling and rising (tag variant = falling, rising); "
        "50 steps are enough",
        caveat="The theorem itself is checked by computation; runs show whether its sign carries over to AdamW, "
        "clipping and shared weights. Leaving out half of the responses also makes the update smaller.",
    ),
    Claim(
        "M2",
        "AEM",
        "With AEM entropy is higher than without it early in training, and lower late.",
        (
            Part("early", WEIGHED, EARLY, 0.0, 0.02, (BARE,), "relative", unit="of the control"),
            Part("late", WEIGHED, LATE, 0.0, -0.02, (BARE,), "relative", upwards=False, unit="of the control"),
        ),
        least_steps=100,
        needs="aem and bare on GRPO",
        caveat="In the paper the turn comes as success rises; runs that end early never see it.",
    ),
    Claim(
        "M3",
        "AEM",
        "AEM raises success on GRPO, GSPO and DAPO.",
        tuple(
            better(f"on {name.upper()}", Select(name, "aem"), Select(name)) for name in ("grpo", "gspo", "dapo")
        ),
        least_steps=100,
        needs="aem and bare, on GRPO, GSPO and DAPO",
    ),
    Claim(
        "M4",
        "AEM",
        "AEM costs about 1 % of a step.",
        (Part("time of a step", WEIGHED, SHAPING, 0.02, 0.02, upwards=False, unit="of a step"),),
        least_steps=30,
        needs="aem on GRPO; seconds/shape in the timings",
        caveat="About 1 %: at most 2 %.",
    ),
)  # fmt: skip
