"""The runs that were broken on purpose: each is `base.toml` with one fault. The cause was written down before the run.

python -m tests.diagnosis.broken.make --out /tmp/broken            # all of them: about a minute each
python -m tests.diagnosis.broken.make --out /tmp/broken rate-high  # one
"""

from __future__ import annotations

from dataclasses import dataclass

FAULTS = "tests.diagnosis.broken.faults"


@dataclass(frozen=True)
class Broken:
    cause: str  # the finding that the doctor has to name first
    says: str  # the fault in words
    settings: tuple[str, ...]


BROKEN = {
    "rate-high": Broken("cause/rate_high", "the learning rate is 30 times too high", ("learn.lr=3e-3",)),
    "rate-low": Broken("cause/rate_low", "the learning rate is a thousandth of what fits", ("learn.lr=1e-7",)),
    "no-kl": Broken("cause/no_kl", "no KL term, at ten times the rate", ("learn.lr=1e-3", "learn.kl=0")),
    "group-of-two": Broken("cause/small_group", "two episodes a game", ("rollout.group_size=2",)),
    "impossible": Broken("cause/impossible", "nothing wins", (f"task.world={FAULTS}:NeverWon",)),
    "solved": Broken("success/solved", "everything wins already", (f"task.world={FAULTS}:WonAtOnce",)),
    "response-cut": Broken("cause/responses_cut", "eight tokens to answer in", ("agent.max_response=8",)),
    "context-cut": Broken("cause/context_cut", "room for half a game", ("agent.max_context=300", "agent.overflow=end")),
    "bad-tags": Broken("cause/invalid", "tags that the model does not know", ('agent.action_tags=["do"]',)),
    "frozen": Broken("cause/clipped_away", "gradients clipped to nothing", ("learn.grad_clip=1e-13",)),
    "reward-noise": Broken("cause/reward_noise", "the reward is a coin", (f"task.reward={FAULTS}:coin",)),
    "reward-leak": Broken("cause/reward_leak", "paid for walking", (f"task.reward={FAULTS}:wandering",)),
    "turn-limit": Broken("cause/turn_limit", "three turns a game", ("task.max_turns=3",)),
    "bonus": Broken(
        "cause/entropy_bonus", "an entropy bonus of 0.5",
        ("methods=entropy_bonus", "method.entropy_bonus.coefficient=0.5"),
    ),
    "temperature-high": Broken("cause/temperature_high", "sampled at temperature 2", ("rollout.temperature=2",)),
    "temperature-low": Broken("cause/temperature_low", "sampled at temperature 0.05", ("rollout.temperature=0.05",)),
    "stale": Broken("cause/stale_sampler", "the sampler keeps its first weights", (f"engine.kind={FAULTS}:Stale",)),
    "other-split": Broken(
        "cause/other_games", "trained on one kind of errand, evaluated on the others", (f"task.world={FAULTS}:OneKind",)
    ),
    "fails": Broken("cause/failures", "one step of five breaks", (f"task.world={FAULTS}:Fails",)),
    "same-game": Broken("cause/same_games", "the same game in all groups", (f"task.sampler.kind={FAULTS}:SameGame",)),
    "penalty": Broken(
        "cause/penalty", "an invalid action costs ten times what a win pays",
        ("task.success_reward=1", "task.invalid_reward=-10"),
    ),
}  # fmt: skip


HEALTHY = {
    "healthy-2": ("run.seed=2", "run.eval_every=8"),
    "healthy-3": ("run.seed=3", "run.eval_every=8"),
    "healthy-nokl": ("learn.kl=0", "run.seed=5", "run.eval_every=8"),
    "healthy-mid": ("run.steps=12", "run.seed=9", "run.eval_every=8"),
    "healthy-short": ("run.steps=4", "run.eval_every=8"),
}
