"""Looks for a reward without the goal, by sequences of actions: household, webshop, search QA.

    python -m tests.attack.sequences                        # full size: some ten minutes of a core
    python -m tests.attack.sequences --games 10 --walks 3   # a part

Whether the goal is reached is told by code of its own (tests/attack/referees.py), which sees the task and the actions
that were accepted, and shares nothing with the worlds' own rules. Told are: a reward where the referee sees no goal,
a goal without a reward, a reward outside of 0 to 1, one before the end, a second one after it.
"""

from __future__ import annotations

import argparse
import random
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from isentrope.core.errors import TaskError
from isentrope.worlds.contract import Expert, Instance, Step, Task
from isentrope.worlds.household.world import HouseholdOptions, HouseholdWorld
from isentrope.worlds.search_qa.world import SearchQAOptions, SearchQAWorld
from isentrope.worlds.webshop.world import WebShopOptions, WebShopWorld
from tests.attack.referees import House, Purchase, same_answer, same_words

MOST = 60  # actions of a sequence


@dataclass
class Found:
    """What was tried and what came of it."""

    counts: Counter[str] = field(default_factory=Counter[str])
    wrong: list[str] = field(default_factory=list[str])

    def judge(self, step: Step, goal: bool, what: str, partial: bool = False) -> None:
        self.counts["actions"] += 1
        if not 0.0 <= step.reward <= 1.0:
            self.wrong.append(f"{what}: reward {step.reward}")
        if step.reward and not step.terminated:
            self.wrong.append(f"{what}: reward {step.reward} before the end")
        whole = step.success if partial else step.reward == 1.0
        if whole and not goal:
            self.wrong.append(f"{what}: a reward without the goal")
        if goal and not whole:
            self.wrong.append(f"{what}: the goal without a reward")
        self.counts["rewards"] += whole
        self.counts["partial rewards"] += 0.0 < step.reward < 1.0

    def after_the_end(self, task: Task, actions: Iterable[str], what: str) -> None:
        """Nothing more is to be had."""
        for action in actions:
            try:
                step = task.step(action)
            except TaskError:
                continue
            if step.reward:
                self.wrong.append(f"{what}: a second reward after the end, for {action[:60]!r}")


def garbled(action: str, draw: random.Random) -> str:
    """Nearly the action, or more than one."""
    return draw.choice([
        action.upper(), action.replace(" ", "  "), f"{action}\n{action}", f"{action}; {action}", f"{action}.",
        f"<action>{action}</action>", "".join(chr(ord(one) + 0xFEE0) if "!" <= one <= "~" else one for one in action),
        action.replace("a", "а"), f"{action}\0", action[: len(action) // 2], "you win", "done", "", " ", "reward 1",
    ])  # fmt: skip


# household


def household(games: int, walks: int, depth: int, seed: int = 0) -> Found:
    found, draw = Found(), random.Random(f"household {seed}")
    world = HouseholdWorld(HouseholdOptions(rooms="small"))
    for index in range(games):
        instance = world.instance("train", index)
        solution = _solution(world, instance, world.expert(index))
        plays = [solution, *_near(solution, walks, draw)]
        plays += [[_ANY] * MOST for _ in range(walks)]
        for plan in plays:
            _play_house(world, instance, plan, draw, found)
        _breadth(world, instance, solution, depth, found)
    return found


_ANY = "*"  # something that is admissible, or nearly


def _solution(world: HouseholdWorld | SearchQAWorld | WebShopWorld, instance: Instance, expert: Expert) -> list[str]:
    task = world.open()
    view = task.start(instance)
    expert.start(view, instance)
    actions: list[str] = []
    for _ in range(2 * MOST):
        actions.append(expert.act(view).action)
        step = task.step(actions[-1])
        view = step.view
        if step.terminated:
            break
    return actions


def _near(solution: Sequence[str], count: int, draw: random.Random) -> Iterator[list[str]]:
    """Solutions with steps left out, twice, exchanged, backwards, or with anything in between."""
    for _ in range(count):
        plan = list(solution)
        for _ in range(draw.randint(1, 4)):
            at = draw.randrange(len(plan)) if plan else 0
            match draw.randrange(5):
                case 0:
                    plan[at : at + 1] = []
                case 1:
                    plan[at:at] = plan[max(0, at - 2) : at + 1] * draw.randint(1, 3)
                case 2:
                    other = draw.randrange(len(plan)) if plan else 0
                    plan[at : at + 1], plan[other : other + 1] = plan[other : other + 1], plan[at : at + 1]
                case 3:
                    plan[at:at] = [_ANY] * draw.randint(1, 6)
                case _:
                    plan[at:] = plan[at:][::-1]
        yield plan


def _play_house(
    world: HouseholdWorld, instance: Instance, plan: Sequence[str], draw: random.Random, found: Found
) -> None:
    task = world.open()
    view = task.start(instance)
    house = House(world.game(instance))
    found.counts["sequences"] += 1
    said: list[str] = []
    for planned in plan:
        action = planned
        if planned == _ANY:
            action = draw.choice(view.admissible or ("look",))
            action = garbled(action, draw) if draw.random() < 0.1 else action
        step = task.step(action)
        said.append(action)
        if step.valid:
            house.after(action.strip())
        found.judge(step, step.valid and house.goal(), f"household {instance.index}: {said}")
        view = step.view
        if step.terminated:
            return


def _breadth(world: HouseholdWorld, instance: Instance, solution: Sequence[str], depth: int, found: Found) -> None:
    """Every admissible sequence of that length from every place on the way to the solution's last steps."""
    for left in range(1, min(depth, len(solution)) + 1):
        _all_below(world, instance, list(solution[: len(solution) - left]), depth, found)


def _all_below(world: HouseholdWorld, instance: Instance, way: list[str], depth: int, found: Found) -> None:
    task = world.open()
    view = task.start(instance)
    house = House(world.game(instance))
    for action in way:
        step = task.step(action)
        if step.valid:
            house.after(action.strip())
        view = step.view
    if depth == 0 or house.goal():
        return
    for action in view.admissible or ():
        if action.startswith(("examine", "help", "inventory", "look")):
            continue  # they change nothing
        branch, after = world.open(), House(world.game(instance))
        branch.start(instance)
        for earlier in way:
            if branch.step(earlier).valid:
                after.after(earlier)
        step = branch.step(action)
        after.after(action)
        found.counts["sequences"] += 1
        found.judge(step, after.goal(), f"household {instance.index}: {[*way, action]}")
        if depth > 1 and not step.terminated:
            _all_below(world, instance, [*way, action], depth - 1, found)


# webshop

CLOSE = "rewards for another size"
"""WebShop's own rule: an option counts from a likeness of 86 in a hundred, which "pack of 2" and
"pack of 12" have, and "large" and "x-large"."""


def webshop(goals: int, walks: int, seed: int = 0) -> Found:
    found, draw = Found(), random.Random(f"webshop {seed}")
    for reward in ("score", "success"):
        world = WebShopWorld(WebShopOptions(reward=reward))
        for index in range(goals):
            instance = world.instance("train", index)
            solution = _solution(world, instance, world.expert(index))
            plans = [solution, *_near(solution, walks, draw), *([_ANY] * MOST for _ in range(walks))]
            for plan in [*plans, *_purchases(world, instance, 4 * walks, draw)]:
                _shop(world, instance, plan, draw, found)
        world.close()
    return found


def _shop(world: WebShopWorld, instance: Instance, plan: Sequence[str], draw: random.Random, found: Found) -> None:
    task = world.open()
    view = task.start(instance)
    goal = world.goal(instance)
    purchase = Purchase(goal.text, goal.attributes, goal.product, world.catalogue.product, world.catalogue)
    found.counts["sequences"] += 1
    said: list[str] = []
    for planned in plan:
        action = planned
        if planned == _ANY:
            searches = [
                f"search[{goal.text}]",
                f"search[{goal.product.title}]",
                "search[<r>]",
                "search[click[buy now]]",
            ]
            action = draw.choice([*(view.admissible or ()), draw.choice(searches)])
            action = garbled(action, draw) if draw.random() < 0.1 else action
        step = task.step(action)
        said.append(action)
        if step.valid:
            purchase.after(action.strip().lower(), step.view.text)
        reached = step.terminated and purchase.reached()
        if step.success and not reached and purchase.reached(but_for_size=True):
            found.counts[CLOSE] += 1
            reached = True
        found.judge(step, reached, f"webshop {instance.index}: {said}", partial=True)
        if step.terminated:
            again = ["click[buy now]", "click[back to search]", "click[< prev]", solution_end(said), "search[x]"]
            found.after_the_end(task, again, f"webshop {instance.index}")
            return
        view = step.view


def _purchases(world: WebShopWorld, instance: Instance, count: int, draw: random.Random) -> Iterator[list[str]]:
    """Other products, most of them of the wanted kind, with some of the options that they have, chosen to and fro."""
    wanted = world.goal(instance)
    stock = [world.catalogue.product(place) for place in range(len(world.catalogue))]
    alike = [one for one in stock if one.query == wanted.product.query]
    for _ in range(count):
        product = draw.choice(alike if draw.random() < 0.8 else stock)
        values = [value.lower() for options in product.options.values() for value in options]
        chosen = draw.sample(values, draw.randint(0, min(4, len(values))))
        chosen += [value.lower() for value in wanted.options if value.lower() in values and draw.random() < 0.8]
        plan = [f"search[{product.title}]", f"click[{product.asin.lower()}]", *(f"click[{one}]" for one in chosen)]
        if draw.random() < 0.5:
            plan[-1:-1] = ["click[features]", "click[< prev]"]
        yield [*plan, "click[buy now]"]


def solution_end(said: Sequence[str]) -> str:
    return said[-1] if said else "click[buy now]"


# search QA


def search_qa(questions: int, seed: int = 0) -> Found:
    found, draw = Found(), random.Random(f"search {seed}")
    for reward in ("em", "f1"):
        world = SearchQAWorld(SearchQAOptions(reward=reward))
        for index in range(questions):
            instance = world.instance("train", index)
            question = world.question(instance)
            solution = _solution(world, instance, world.expert(index))
            others = [world.question(world.instance("train", draw.randrange(500))).answers[0] for _ in range(5)]
            for text in answers(question.text, question.answers[0], others, draw):
                _ask(world, instance, [*solution[: draw.randrange(len(solution))], text], found)
        world.close() if hasattr(world, "close") else None
    return found


def answers(question: str, golden: str, others: Sequence[str], draw: random.Random) -> Iterator[str]:
    """Right ones in odd clothes, wrong ones, and several at once."""
    shuffled = golden.split()
    draw.shuffle(shuffled)
    for text in (
        golden, golden.upper(), f"the {golden}", f"{golden}!?", " ".join(shuffled), golden[:-1], golden[1:], golden * 2,
        f"{golden} {golden}", f"{golden} or {others[0]}", ", ".join([golden, *others]), " ".join([*others, golden]),
        f"The answer is {golden}", question, f"{question} {golden}", others[0], "", " ", "the", "...", "\u200b", "*",
        unicodedata.normalize("NFD", golden), unicodedata.normalize("NFKD", golden), golden.replace("a", "а"),
        golden.replace(" ", "\u00a0"), "\u200b".join(golden), golden + "\u0301", f"<b>{golden}</b>",
        f"{golden}]\nanswer[{golden}", f"{golden}</answer><answer>{golden}", golden.replace(" ", ""),
        " ".join([golden] * 60), "a " * 400 + golden, ".*", "None", "True", "answer", "answers[0]", "{golden}",
    ):  # fmt: skip
        yield f"answer[{text}]"
        yield f"<answer>{text}</answer>"
    yield from (f"Answer [{golden}] or so", f"answer[{golden}", f"search[x] answer[{golden}]", golden, "\0")


def _ask(world: SearchQAWorld, instance: Instance, plan: Sequence[str], found: Found) -> None:
    task = world.open()
    task.start(instance)
    golden = world.question(instance).answers
    found.counts["sequences"] += 1
    for action in plan:
        step = task.step(action)
        right = step.terminated and any(same_answer(action, one) for one in golden)
        what = f"search QA {instance.index}, {world.options.reward}: {action[:120]!r} for {golden[0]!r}"
        found.judge(step, right, what, partial=True)
        if step.reward == 1.0 and not any(same_words(action, one) for one in golden):
            found.wrong.append(f"{what}: the whole reward for other words")
        found.counts["whole f1 in another order"] += step.reward == 1.0 and not right
        if step.terminated:
            found.after_the_end(task, [action, f"answer[{golden[0]}]", "search[x]"], what)
            return


def report(name: str, found: Found) -> bool:
    print(f"{name}: {', '.join(f'{count:,} {what}' for what, count in found.counts.items())}; {len(found.wrong)} wrong")
    print(*(f"  {line[:600]}" for line in found.wrong[:20]), sep="\n" if found.wrong else "", flush=True)
    return bool(found.wrong)


def main() -> int:
    parser = argparse.ArgumentParser(description="Looks for a reward without the goal.")
    parser.add_argument("--games", type=int, default=300)
    parser.add_argument("--walks", type=int, default=40, help="random and nearly right sequences a game, of each kind")
    parser.add_argument("--depth", type=int, default=2, help="steps of which every sequence is tried")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    bad = [
        report("household", household(given.games, given.walks, given.depth, given.seed)),
        report("webshop", webshop(given.games, given.walks // 2, given.seed)),
        report("search QA", search_qa(given.games, given.seed)),
    ]
    return int(any(bad))


if __name__ == "__main__":
    raise SystemExit(main())
