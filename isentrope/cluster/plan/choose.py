"""The layouts of so many cards, each simulated; the quickest of them, and the settings that make a run so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from functools import cache

from isentrope.cluster.plan.cards import CARDS, Card
from isentrope.cluster.plan.layouts import Layout, Memory, Task, learn_seconds, memory_of, setup_of
from isentrope.cluster.plan.lengths import Lengths
from isentrope.cluster.plan.rates import rates_of
from isentrope.cluster.plan.simulate import Happened, simulate
from isentrope.cluster.plan.timeline import Steady, steady
from isentrope.config.schema import ClusterSettings, LearnSettings, RolloutSettings
from isentrope.core.errors import ConfigError
from isentrope.models.memory import BFLOAT16, gib

LengthsOf = Callable[[int], Lengths]
STEPS = 4  # that are simulated, and twice as many more as are played ahead: those that begin and those that end
MANY = 50_000  # turns of all steps together, from which on fewer steps are simulated
COUNTS = (2, 4, 8, 16, 32, 64, 128)  # of cards, that are tried where nothing fits
HIDDEN = 0.02  # a quicker layout that is more work to set up has to save so much


@dataclass(frozen=True)
class Outcome:
    layout: Layout
    memory: Memory
    steady: Steady
    happened: Happened
    slots: int  # conversations at once

    @property
    def tokens_per_card_hour(self) -> float:
        """Written ones that were learnt from."""
        return 3600 * self.steady.written / self.steady.step / self.layout.cards


def outcomes(task: Task, lengths_of: LengthsOf, cards: int, most_ahead: int = 1) -> list[Outcome]:
    """The best of each kind of layout, in the order of what is least work: all cards do both; apart and ahead; in
    flight. Kinds that do not fit are left out; if none is left, an error says what would fit."""

    @cache
    def tried(layout: Layout) -> Outcome | None:
        return _tried(task, lengths_of, layout)

    found = list[Outcome]()
    both = tried(Layout(cards, cards, cards))
    found += [both] if both else []
    if cards > 1:
        begin = _balanced(task, lengths_of, cards, both)
        for ahead in range(1, most_ahead + 1):
            for in_flight in (False, True):
                kind = Layout(cards, 1, cards - 1, ahead, in_flight)
                found += _best_split(tried, kind, begin)
                begin = found[-1].layout.learners if found and not found[-1].layout.shared else begin
    if not found:
        raise ConfigError(_none_fits(task, cards, lengths_of(0).episodes))
    return found


def recommended(found: list[Outcome]) -> Outcome:
    """The quickest, unless something simpler takes hardly longer."""
    quickest = min(one.steady.step for one in found)
    return next(one for one in found if one.steady.step <= (1 + HIDDEN) * quickest)


def _tried(task: Task, lengths_of: LengthsOf, layout: Layout) -> Outcome | None:
    slots = lengths_of(0).episodes
    memory = _memory(task, layout, slots)
    if memory is None:
        return None
    if layout.learners > 1 and not _replicas(task, layout, slots):
        layout = replace(layout, sharded=True)
    count = STEPS + 2 * layout.ahead
    if int(lengths_of(0).turns.sum()) * count > MANY:
        count = 2 + 2 * layout.ahead
    steps = [lengths_of(step) for step in range(count)]
    happened = simulate(setup_of(task, layout, slots, memory.rows), steps)
    return Outcome(layout, memory, steady(happened, steps, layout.ahead), happened, slots)


def _replicas(task: Task, layout: Layout, slots: int) -> bool:
    return memory_of(task, layout, slots).fits(task.card)


def _memory(task: Task, layout: Layout, slots: int) -> Memory | None:
    """With whole weights on every card that learns if they fit, else with sharded ones."""
    ways = [layout] if layout.learners == 1 else [layout, replace(layout, sharded=True)]
    needs = (memory_of(task, way, slots) for way in ways)
    return next((memory for memory in needs if memory.fits(task.card)), None)


def _balanced(task: Task, lengths_of: LengthsOf, cards: int, both: Outcome | None) -> int:
    """Cards that learn if both sides are to take equally long."""
    learning = sum(learn_seconds(task, Layout(1, 1, 1), lengths_of(0)))
    sampling = both.steady.rollout * cards if both else learning
    return min(cards - 1, max(1, round(cards * learning / (learning + sampling))))


def _best_split(tried: Callable[[Layout], Outcome | None], kind: Layout, begin: int) -> Iterator[Outcome]:
    """From a first guess on to whichever neighbour is quicker, by smaller and smaller steps."""

    def at(learners: int) -> Outcome | None:
        if not 0 < learners < kind.cards:
            return None
        return tried(replace(kind, learners=learners, samplers=kind.cards - learners))

    best, place, step = at(begin), begin, max(1, kind.cards // 8)
    if best is None:  # too few to hold the model
        some = ((count, at(count)) for count in range(1, kind.cards, max(1, kind.cards // 32)))
        place, best = next(((count, one) for count, one in some if one is not None), (begin, None))
    while best is not None and step:
        near = [(count, one) for count in (place - step, place + step) if (one := at(count)) is not None]
        count, one = min(near, key=lambda pair: pair[1].steady.step, default=(place, best))
        if one.steady.step < best.steady.step:
            best, place = one, count
        else:
            step //= 2
    if best is not None:
        yield best


# -- what is set for it


@dataclass(frozen=True)
class Advice:
    settings: list[str]  # that there are today
    missing: list[str]  # that a run would need and does not have yet, in words


def advice(task: Task, outcome: Outcome) -> Advice:
    """`--set` for a layout, and what the program cannot do of it yet."""
    layout, config = outcome.layout, task.config
    settings, missing = list[str](), list[str]()
    if config.rollout.batch < outcome.slots:
        settings.append(f"rollout.batch={outcome.slots}")
    if layout.cards > 1:
        kind = "ray" if layout.cards > task.card.node else "processes"
        kinds = next(item for item in fields(ClusterSettings) if item.name == "kind").metadata["choices"]
        if kind in kinds:
            settings.append(f"cluster.kind={kind}")
        else:
            missing.append(f"cluster.kind={kind}: several machines")
        most = next(item for item in fields(ClusterSettings) if item.name == "engines").metadata["high"]
        if most is None or layout.samplers <= most:
            settings.append(f"cluster.engines={layout.samplers}")
        else:
            missing.append(f"cluster.engines={layout.samplers}: at most {most:g}")
        settings.append(f"cluster.trainers={layout.learners}")
        if layout.shared:
            missing.append("samplers on all cards: those of a run are on the card of its first rank")
        else:
            missing.append("samplers on cards of their own: those of a run are on the card of its first rank")
        if layout.sharded:
            missing.append("weights that are divided over the ranks: each has all of them")
    if layout.ahead:
        most = next(item for item in fields(RolloutSettings) if item.name == "ahead").metadata["high"]
        if most is None or layout.ahead <= most:
            settings.append(f"rollout.ahead={layout.ahead}")
        else:
            missing.append(f"rollout.ahead={layout.ahead}: at most {most:g}")
        learn: LearnSettings = config.learn
        settings += ["learn.old_logprobs=recompute"] if learn.old_logprobs == "sampler" else []
        settings += ["learn.mismatch=truncate"] if learn.mismatch == "keep" else []
    if layout.in_flight:
        missing.append("weights that are renewed while episodes are played")
    return Advice(settings, missing)


# -- nothing fits


def _none_fits(task: Task, cards: int, episodes: int) -> str:
    config = task.config

    def fits(other: Task, count: int) -> bool:
        splits = {1, count // 8, count // 4, count // 2, 3 * count // 4, count - 1} - {0, count}
        ways = [Layout(count, count, count), *(Layout(count, some, count - some) for some in sorted(splits))]
        return any(_memory(other, way, episodes) is not None for way in ways)

    need = memory_of(task, Layout(cards, cards, cards, sharded=cards > 1), episodes).learner
    sampler = memory_of(task, Layout(2, 1, 1), episodes).sampler
    told = f"{gib(need.total)} on a card that does both, weights and optimiser divided over {cards}" if cards > 1 else (
        f"{gib(need.total)} on one card")  # fmt: skip
    told += f"; to sample alone {gib(sampler.total)}" if sampler is not None and cards > 1 else ""
    said = f"{config.policy.model} fits no split of {cards} × {task.card.title} ({gib(task.card.memory)}): {told}"
    said += "; a sampler has the whole model on its card."
    lighter = {
        "learn.gradient_checkpointing=true": replace(config.learn, gradient_checkpointing=True),
        "learn.optimiser=adamw8": replace(config.learn, optimiser="adamw8"),
        "learn.micro_tokens=4096": replace(config.learn, micro_tokens=4096),
    }
    ways = [f"--set {name}" for name, learn in lighter.items() if fits(_with(task, learn), cards)]
    if not config.policy.lora_rank:
        adapters = replace(config, policy=replace(config.policy, lora_rank=16))
        ways += ["--set policy.lora_rank=16"] if fits(replace(task, config=adapters), cards) else []
    more = next((count for count in COUNTS if count > cards and fits(task, count)), 0)
    ways += [f"--gpus {more}"] if more else []
    larger = sorted((card for card in CARDS.values() if card.memory > task.card.memory), key=lambda card: card.memory)
    other = next((card for card in larger if fits(_on(task, card), cards)), None)
    ways += [f"--card {other.name}"] if other else []
    if not ways:
        both = ((card, count) for card in larger for count in COUNTS if count > cards)
        ways = [f"--card {card.name} --gpus {count}" for card, count in both if fits(_on(task, card), count)][:1]
    if ways:
        return f"{said} These would fit: {', '.join(ways)}"
    return f"{said} Nothing tried would: a smaller model, or agent.max_context below {config.agent.max_context:,}"


def _with(task: Task, learn: LearnSettings) -> Task:
    return replace(task, config=replace(task.config, learn=learn))


def _on(task: Task, card: Card) -> Task:
    rates = rates_of(card)
    return replace(task, card=card, rates=rates if task.rates.number == BFLOAT16 else task.rates)
