"""ActRe's claims: thinking narrows actions down, and acting first widens them again."""

from __future__ import annotations

import math
from dataclasses import replace

from isentrope.papers.common import NO_WORSE, SOLVED, SUCCESS, better, of_metric
from isentrope.papers.measures import after_start, log_mean, positive_share, rise, success_between
from isentrope.papers.record import Claim, Measure, Part, Premise, Select

BARE = Select("grpo")
FULL = Select("grpo", "actre")
PROBED = 4  # probes of a run after its first step, at least
STAGE_1 = 0.5  # share of the steps that ActRe acts first in
LEARNT = 0.05  # success that stage 1 must gain to have learnt something
ABLE = 0.3  # of the success with thoughts: with less the model cannot act without (the paper's own start has half)
WIDER = math.log(1.05)
_OPEN = ("acting first keeps actions more open", "acting first keeps actions less open")
_BOTH_FORMS = "a warm-up that has taught all response forms used (sft.orders), or the form itself is what differs"

DELTA_H = of_metric(after_start, "probe/delta_h", "ΔH, mean over the probes after the first step", 0.11, 0.056,
                    least=PROBED)  # fmt: skip
POSITIVE = of_metric(positive_share, "probe/delta_h", "share of the probes with ΔH above 0", 0.1, least=PROBED)
ACTION_ENTROPY = of_metric(log_mean, "entropy/action",
                           "logarithm of the entropy of action tokens, mean over the first half of the steps (stage 1)",
                           0.1, 0.13, begin=0.0, end=STAGE_1)  # fmt: skip
STAGE_1_RISE = of_metric(rise, SOLVED, "rise of the training success over stage 1: its last fifth less its first",
                         begin=0.0, end=STAGE_1)  # fmt: skip
AT_START = Measure(success_between, "success before the first step", ("eval/{split}/success",),
                   (("begin", 0.0), ("end", 0.0)))  # fmt: skip
# think-first steps begin at half of the run: the window of Succ. is steps 30 to 50 of them, where Succ. is 80 to 100
EQUAL_STEPS = replace(
    SUCCESS, function=success_between, options=(("begin", 0.3), ("end", STAGE_1)), by_kind=False,
    words="success of the evaluations after as many think-first steps as ActRe has had",
)  # fmt: skip
LEARNS = Premise(
    "stage 1 learns", FULL, STAGE_1_RISE, LEARNT,
    "a start from which acting first learns: a model or a warm-up that solves more games in that form, or more steps",
)  # fmt: skip
CAN_ACT = Premise("the model can act without thoughts", Select("grpo", "no_think"), AT_START, ABLE,
                  "a model, or a warm-up, that solves a third as many games without thoughts as with them, or more",
                  against=BARE)  # fmt: skip


def _staged(name: str, *against: Select, least: float = 0.02) -> Part:
    return better(name, FULL, *against, least=least, premises=(LEARNS,))


BESIDE = replace(
    better("over GRPO, equal think-first steps", FULL, BARE, counts=False),
    measure=replace(SUCCESS, by_kind=False), control_measure=EQUAL_STEPS, premises=(),
)  # fmt: skip

CLAIMS = (
    Claim(
        "A1", "ActRe",
        "While a policy is trained, thinking lowers the entropy of the action that follows: at the same state and for "
        "the same action, ΔH = H(action | observation) - H(action | observation, thought) is above 0.",
        (
            Part("mean ΔH", BARE, DELTA_H, 0.0, 0.01, unit="nats", expect=0.1,
                 means=("a thought lowers the action's entropy", "a thought raises the action's entropy")),
            Part("share of probes above 0", BARE, POSITIVE, 0.5, 0.75, unit="share", expect=0.9,
                 means=("a thought lowers the action's entropy at this share of the probes", "")),
        ),
        least_steps=50, needs="bare GRPO in the form think_act, instruments.probe_every at most 10 (probe/delta_h)",
        caveat="The line without a thought is not what the prompt asks for; a warm-up on both forms makes it fair.",
    ),
    Claim(
        "A2", "ActRe", "A policy that acts before it thinks has a higher action entropy than one that thinks first.",
        (
            Part("order alone", Select("grpo", "actre", "no_high_temperature"), ACTION_ENTROPY, 0.0, WIDER, (BARE,),
                 unit="times the control", expect=math.log(1.2), means=_OPEN),
            Part("with hot tokens", FULL, ACTION_ENTROPY, 0.0, WIDER, (BARE,), counts=False, unit="times the control",
                 expect=math.log(1.2), means=_OPEN),
        ),
        least_steps=50,
        needs=f"actre (variant no_high_temperature, switch 0.5) and bare GRPO at one temperature; {_BOTH_FORMS}",
        caveat="Hot tokens are measured at the temperature they were sampled with, so they have no voice here.",
    ),
    Claim(
        "A3", "ActRe",
        "ActRe ends with more success than GRPO, than GRPO at a higher temperature and GRPO with an entropy bonus.",
        (
            _staged("over GRPO", BARE),
            _staged("over higher T", Select("grpo", "higher_temperature")),
            _staged("over EntReg", Select("grpo", "entropy_bonus")),
            BESIDE,
        ),
        least_steps=100,
        caveat="Evaluations think first, and ActRe does so in half of its steps only: GRPO after as many such steps is "
        "shown beside, without a voice.",
        needs=f"actre, bare, higher_temperature and entropy_bonus on GRPO; {_BOTH_FORMS}",
    ),
    Claim(
        "A4", "ActRe",
        "Each part of ActRe matters: without stage 1, without stage 2 or without hot tokens it does worse.",
        (
            _staged("stage 1", Select("grpo", "actre", "no_stage1"), BARE, least=0.01),
            _staged("stage 2", Select("grpo", "actre", "no_stage2"), least=0.01),
            _staged("hot tokens", Select("grpo", "actre", "no_high_temperature"), least=0.01),
        ),
        least_steps=100,
        needs=f"actre and its three variants on GRPO; bare GRPO can stand for no_stage1, its equal; {_BOTH_FORMS}",
        caveat="The paper's smallest ablation effect is 2 points.",
    ),
    Claim(
        "A5", "ActRe", "Trained by GRPO, a policy that does not think at all does no worse than one that does.",
        (better("no thinking", Select("grpo", "no_think"), BARE, border=NO_WORSE, least=NO_WORSE, expect=0.0,
                premises=(CAN_ACT,)),),
        least_steps=100, needs=f"no_think and bare GRPO; {_BOTH_FORMS}",
        caveat="No worse: less than 3 points lost.",
    ),
)  # fmt: skip
