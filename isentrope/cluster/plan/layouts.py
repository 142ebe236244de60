"""Which cards learn and which sample; what a card has to hold, and how long scoring and the update of a step take."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from isentrope.cluster.plan.cards import Card
from isentrope.cluster.plan.costs import Costs, Model
from isentrope.cluster.plan.lengths import Lengths
from isentrope.cluster.plan.rates import Rates
from isentrope.cluster.plan.simulate import Setup
from isentrope.config.schema import RunConfig
from isentrope.models.memory import BFLOAT16, GPU, READ_AT_ONCE, Need, Wanted
from isentrope.models.sources.catalogue import Facts

SAMPLING_SHARE = 0.95  # of a card that only samples, which weights, cache and passes may take
ROW = 64  # tokens of a page of the engine's cache


@dataclass(frozen=True)
class Layout:
    cards: int
    learners: int
    samplers: int  # on the same cards, or on the others
    ahead: int = 0
    in_flight: bool = False
    sharded: bool = False  # weights and gradients too, not the optimiser alone

    @property
    def shared(self) -> bool:
        """All cards do both, one after the other."""
        return self.learners + self.samplers > self.cards

    @property
    def name(self) -> str:
        when = f"ahead {self.ahead}" if self.ahead else "synchronous"
        when += ", in flight" if self.in_flight else ""
        where = f"all {self.cards} do both" if self.shared else f"{self.learners} learn, {self.samplers} sample"
        return f"{'one card' if self.cards == 1 else where}; {when}"


@dataclass(frozen=True)
class Task:
    """The run that is planned, and on what."""

    config: RunConfig
    facts: Facts
    card: Card
    rates: Rates
    task_seconds: float
    gpu: bool = True  # the native engine plays there, and training is compiled

    @property
    def costs(self) -> Costs:
        return Costs(Model.of(self.facts, self.config.policy.lora_rank), self.rates)

    @property
    def separate_critic(self) -> bool:
        return self.config.learn.advantage.kind == "gae" and self.config.critic.kind == "separate"


# -- memory


@dataclass(frozen=True)
class Memory:
    """Bytes of each kind of card; one that does both has both in one."""

    learner: Need
    sampler: Need | None  # None: the same cards
    rows: int  # conversations that the cache of one sampler has room for

    def fits(self, card: Card) -> bool:
        needs = [need for need in (self.learner, self.sampler) if need is not None]
        return self.rows > 0 and all(need.total <= card.memory for need in needs)


def memory_of(task: Task, layout: Layout, slots: int) -> Memory:
    config, facts = task.config, task.facts
    card = int(task.card.memory)
    wanted = Wanted(
        facts, task.rates.number, config.policy.lora_rank, config.learn, task.separate_critic, task.gpu, 0, True, card
    )
    learner = _split(wanted.need, facts, layout)
    context = math.ceil(config.agent.max_context / ROW) * ROW
    each = task.rates.number * facts.layers * facts.kv_width * context
    most = math.ceil(slots / layout.samplers / 8) * 8
    if layout.shared:
        share = float(config.engine.options.get("memory", 0.4)) * task.card.memory
        left = min(share, task.card.memory - learner.certain - learner.base)
        whole = facts.parameters * task.rates.number
        if layout.sharded:  # to sample, a card has to have all of the weights
            learner = replace(learner, engine=whole)
            left -= whole
        rows = max(0, min(most, int(left / each)))
        return Memory(_with_cache(learner, task, rows * context), None, rows)
    sampler = Need(task.rates.number * facts.parameters, base=GPU if task.gpu else 0)
    left = SAMPLING_SHARE * task.card.memory - sampler.total
    rows = max(0, min(most, int(left / each)))
    return Memory(learner, _with_cache(sampler, task, rows * context), rows)


def _with_cache(need: Need, task: Task, tokens: int) -> Need:
    """With the engine's cache and its recorded passes: isentrope/models/memory.py."""
    facts, number = task.facts, task.rates.number
    queries = facts.heads * facts.head_width or facts.width
    passes = min(READ_AT_ONCE, tokens) * BFLOAT16 * (3 * facts.inner + 4 * facts.width + queries) if task.gpu else 0
    cache = number * facts.layers * facts.kv_width * tokens
    return replace(need, cache=need.cache + cache, passes=need.passes + passes)


def _split(need: Need, facts: Facts, layout: Layout) -> Need:
    """Replicas share the optimiser alone; sharded weights are gathered layer by layer, two layers at a time."""
    count = layout.learners
    if count == 1:
        return need
    part = {name: math.ceil(getattr(need, name) / count) for name in ("copies", "moments", "host")}
    if layout.sharded:
        part |= {
            name: math.ceil(getattr(need, name) / count) for name in ("weights", "gradients", "reference", "critic")
        }
        part["layer"] = need.layer + 2 * need.weights // max(1, facts.layers)
    return replace(need, **part)


# -- time


def passes_of(config: RunConfig, separate_critic: bool) -> float:
    """Forward passes over a step's tokens before its update. The first mini-batch takes its old log-probs from its own
    forward pass."""
    learn = config.learn
    again = 1 - 1 / learn.mini_batches if learn.old_logprobs == "recompute" else 0.0
    return again + (learn.kl > 0) + separate_critic


def learn_seconds(task: Task, layout: Layout, lengths: Lengths, passes: float | None = None) -> tuple[float, float]:
    """Scoring, and the update. Conversations are dealt out by cost, and none is divided."""
    costs, learn, count = task.costs, task.config.learn, layout.learners
    scored = passes_of(task.config, task.separate_critic) if passes is None else passes
    share = min(1.0, max(1 / count, lengths.longest / max(1, lengths.computed)))
    tokens, written, seen = (share * value for value in (lengths.computed, lengths.written, lengths.seen))
    link = task.card.between(count)
    pieces = max(1, math.ceil(tokens / learn.micro_tokens))
    score = scored * costs.score(tokens, written, seen)
    back = costs.learn(tokens, written, seen, learn.gradient_checkpointing) * (2 if task.separate_critic else 1)
    updates = learn.mini_batches * learn.epochs
    told = costs.gather(count, link, math.ceil(pieces / learn.mini_batches), layout.sharded) * updates
    work = learn.epochs * back
    update = max(work, told) if layout.sharded else work + told  # sharded weights are gathered ahead of their use
    starts = costs.starts(pieces)
    update += learn.epochs * (starts + costs.rates.laid * lengths.whole / count)
    return score + scored * starts, update + updates * costs.optimise(count)


def setup_of(task: Task, layout: Layout, slots: int, rows: int) -> Setup:
    def learn(lengths: Lengths) -> tuple[float, float]:
        return learn_seconds(task, layout, lengths)

    costs = task.costs
    there = 0.0 if layout.cards == 1 else task.card.between(layout.cards)
    sync = costs.send(there) if layout.cards > 1 or layout.ahead else 0.0
    return Setup(
        costs, layout.samplers, slots, rows, learn, sync, task.task_seconds, max(1, task.config.task.workers),
        layout.ahead, layout.in_flight,
    )  # fmt: skip
