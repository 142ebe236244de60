"""Advantage estimators and losses by name, made with their settings."""

from __future__ import annotations

from typing import Any, TypeVar

from isentrope.config.convert import parse_choice
from isentrope.config.parts import GROUPS, Parts
from isentrope.config.schema import Choice, LearnSettings, RunConfig
from isentrope.core.advantage import Advantage
from isentrope.core.errors import ConfigError
from isentrope.core.loss import Loss
from isentrope.core.part import Part

P = TypeVar("P", bound=Part)
ADVANTAGES = Parts(
    "advantage estimator",
    GROUPS["learn.advantage"],
    {
        "reinforce": "isentrope.learning.advantages.reinforce:Reinforce",
        "rloo": "isentrope.learning.advantages.rloo:Rloo",
        "grpo": "isentrope.learning.advantages.grpo:Grpo",
        "gigpo": "isentrope.learning.advantages.gigpo:Gigpo",
        "gigpo_mixed": "isentrope.learning.advantages.gigpo:GigpoMixed",
        "gae": "isentrope.learning.advantages.gae:Gae",
    },
)
LOSSES = Parts(
    "loss",
    GROUPS["learn.loss"],
    {
        "clip": "isentrope.learning.losses.clipped:Clip",
        "sequence": "isentrope.learning.losses.sequence:Sequence",
        "policy_gradient": "isentrope.learning.losses.policy_gradient:PolicyGradient",
    },
)


def make_advantage(learn: LearnSettings) -> Advantage:
    return _make(ADVANTAGES, Advantage, learn.advantage, "learn.advantage")


def make_loss(learn: LearnSettings) -> Loss:
    return _make(LOSSES, Loss, learn.loss, "learn.loss")


def part_problems(config: RunConfig) -> list[str]:
    """Why the advantage estimator or the loss, one from outside perhaps, does not fit the other settings."""
    problems: list[str] = []
    if make_advantage(config.learn).compares_groups and config.rollout.group_size < 2:
        problems.append(
            f"rollout.group_size = {config.rollout.group_size} with learn.advantage.kind = "
            f'"{config.learn.advantage.kind}": it compares the episodes of a group with each other; use 2 or more'
        )
    updates = config.learn.mini_batches * config.learn.epochs
    if make_loss(config.learn).on_policy and updates > 1:
        problems.append(
            f'learn.loss.kind = "{config.learn.loss.kind}" with {updates} updates per step: without a ratio only the '
            "first would be right; use learn.mini_batches = learn.epochs = 1, or another loss"
        )
    return problems


def _make(parts: Parts, base: type[P], choice: Choice, path: str) -> P:
    kind: Any = parts.load(choice.kind)
    if not isinstance(kind, type) or not issubclass(kind, base):
        raise ConfigError(
            f'{path}.kind = "{choice.kind}" is {kind!r:.60}, expected a subclass of isentrope.{base.__name__}'
        )
    options = parse_choice(kind.options_class, choice, path)
    try:
        return kind(options)
    except Exception as error:  # somebody's code, which may raise anything
        raise ConfigError(f"could not make the {parts.what} {choice.kind!r}: {error}") from error
