"""One conversation in a world, for a trainer that has no runner of its own: what its users would write."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from isentrope.agent.context import Context
from isentrope.agent.prompts import NO_ACTION
from isentrope.agent.response_format import parse_response
from isentrope.config.schema import RunConfig
from isentrope.core.tokenizer import Dialect
from isentrope.worlds.contract import Task, View, World


@dataclass
class Talk:
    """A conversation while it is being played: its first prompt, everything after it, and who wrote which token."""

    config: RunConfig
    task: Task
    view: View
    context: Context
    first: list[int] = field(default_factory=list[int])
    rest: list[int] = field(default_factory=list[int])
    mask: list[int] = field(default_factory=list[int])  # 1: the model's token
    reward: float = 0.0
    ended: bool = False

    @classmethod
    def begun(cls, world: World, index: int, dialect: Dialect, config: RunConfig) -> Talk:
        task = world.open()
        view = task.start(world.instance("train", index))
        return cls(config, task, view, Context.of(dialect, config.agent, config.agent.order))

    def prompt(self) -> list[int]:
        """The whole conversation so far."""
        return self.context.prompt(self.view)

    def answered(self, prompt: Sequence[int], answer: Sequence[int]) -> None:
        """Write the answer down and let the task take its step."""
        told = list(prompt)[len(self.first) + len(self.rest) :]
        if not self.first:
            self.first, told = told, []
        self.rest += [*told, *answer]
        self.mask += [0] * len(told) + [1] * len(answer)
        settings = self.config.task
        parsed = parse_response(self.context.dialect.pieces(answer), self.config.agent.order, "tag")
        self.context.answered(prompt, answer, parsed.action)
        if parsed.action is None:
            self.reward += settings.invalid_reward
            self.view = View(NO_ACTION, self.view.admissible, self.view.goal, self.view.rules)
            return
        step = self.task.step(parsed.action)
        self.reward += settings.success_reward * step.reward + (0.0 if step.valid else settings.invalid_reward)
        self.view, self.ended = step.view, step.terminated or step.truncated
