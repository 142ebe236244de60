"""ActRe's claims: thinking narrows actions down, and acting first widens them again."""

from __future__ import annotations

from isentrope.claims.common import NO_WORSE, better
from isentrope.claims.measures import after_start, over, positive_share
from isentrope.claims.record import Claim, Measure, Part, Select

BARE = Select("grpo")
FULL = Select("grpo", "actre")
PROBED = 4  # probes of a run after its first step, at least
_DELTA = ("probe/delta_h",)
_BOTH_FORMS = "a warm-up that has taught all response forms used (sft.orders), or the form itself is what differs"

DELTA_H = Measure(
    after_start, "ΔH, mean over the probes after the first step", _DELTA, (("key", "probe/delta_h"), ("least", PROBED))
)
POSITIVE = Measure(
    positive_share, "share of the probes with ΔH above 0", _DELTA, (("key", "probe/delta_h"), ("least", PROBED))
)
ACTION_ENTROPY = Measure(
    over,
    "entropy of action tokens, mean over the first half of the steps (stage 1)",
    ("entropy/action",),
    (("key", "entropy/action"), ("begin", 0.0), ("end", 0.5)),
)

CLAIMS = (
    Claim(
        "A1",
        "ActRe",
        "While a policy is trained, thinking lowers the entropy of the action that follows: at the same state and for "
        "the same action, ΔH = H(action | observation) - H(action | observation, thought) is above 0.",
        (
            Part("mean ΔH", BARE, DELTA_H, 0.0, 0.01, unit="nats"),
            Part("share of probes above 0", BARE, POSITIVE, 0.5, 0.75, unit="share"),
        ),
        least_steps=50,
        needs="bare GRPO in the form think_act, instruments.probe_every at most 10 (probe/delta_h)",
        caveat="The line without a thought is not what the prompt asks for; a warm-up on both forms makes it fair.",
    ),
    Claim(
        "A2",
        "ActRe",
        "A policy that acts before it thinks has a higher action entropy than one that thinks first.",
        (
            Part(
                "order alone", Select("grpo", "actre", "no_high_temperature"), ACTION_ENTROPY, 0.0, 0.05, (BARE,),
                "relative", unit="of the control",
            ),
            Part(
                "with hot tokens", FULL, ACTION_ENTROPY, 0.0, 0.05, (BARE,), "relative", counts=False,
                unit="of the control",
            ),
        ),
        least_steps=50,
        needs=f"actre (variant no_high_temperature, switch 0.5) and bare GRPO at one temperature; {_BOTH_FORMS}",
        caveat="Hot tokens are measured at the temperature they were sampled with, so they have no voice here.",
    ),
    Claim(
        "A3",
        "ActRe",
        "ActRe ends with more success than GRPO, than GRPO at a higher temperature and GRPO with an entropy bonus.",
        (
            better("over GRPO", FULL, BARE),
            better("over higher T", FULL, Select("grpo", "higher_temperature")),
            better("over EntReg", FULL, Select("grpo", "entropy_bonus")),
        ),
        least_steps=100,
        needs=f"actre, bare, higher_temperature and entropy_bonus on GRPO; {_BOTH_FORMS}",
    ),
    Claim(
        "A4",
        "ActRe",
        "Each part of ActRe matters: without stage 1, without stage 2 or without hot tokens it does worse.",
        (
            better("stage 1", FULL, Select("grpo", "actre", "no_stage1"), BARE, least=0.01),
            better("stage 2", FULL, Select("grpo", "actre", "no_stage2"), least=0.01),
            better("hot tokens", FULL, Select("grpo", "actre", "no_high_temperature"), least=0.01),
        ),
        least_steps=100,
        needs=f"actre and its three variants on GRPO; bare GRPO can stand for no_stage1, its equal; {_BOTH_FORMS}",
        caveat="The paper's smallest ablation effect is 2 points: some 27 seeds at a spread of 5 points.",
    ),
    Claim(
        "A5",
        "ActRe",
        "Trained by GRPO, a policy that does not think at all does no worse than one that does.",
        (better("no thinking", Select("grpo", "no_think"), BARE, border=NO_WORSE, least=NO_WORSE),),
        least_steps=100,
        needs=f"no_think and bare GRPO; {_BOTH_FORMS}",
        caveat="No worse: less than 3 points lost.",
    ),
)  # fmt: skip
