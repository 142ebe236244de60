"""GiGPO's two parts put together: in its published form one normalisation for both, in the mixed form two."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from isentrope.config.schema import Choice, LearnSettings
from isentrope.core.types import Episode
from isentrope.learning.credit import assign_credit
from isentrope.learning.tokens import flatten
from tests.builders.episodes import make_episodes

FORMS = ("gigpo", "gigpo_mixed")
every_seed = pytest.mark.parametrize("seed", range(4))
every_scale = pytest.mark.parametrize("scale", [0.5, 3.0, 100.0])


def episodes_of(*turns: list[tuple[str, float]]) -> list[Episode]:
    """One group; each episode a list of states and rewards."""
    template = make_episodes(0, groups=1, size=1)[0]
    made: list[Episode] = []
    for member, steps in enumerate(turns):
        of_it = (replace(template.turns[0], anchor=state, reward=reward) for state, reward in steps)
        made.append(replace(template, member=member, turns=tuple(of_it)))
    return made


def per_turn(
    episodes: list[Episode], form: str, divide: bool, weight: float = 1.0, discount: float = 0.5
) -> np.ndarray:
    _, tokens = flatten(episodes)
    learn = LearnSettings(
        advantage=Choice(form, {"divide_by_std": divide, "step_weight": weight, "discount": discount})
    )
    firsts = np.unique(tokens.turn_N, return_index=True)[1]
    return assign_credit(episodes, tokens, learn, 6).advantage_N[firsts]


def step_part(episodes: list[Episode], form: str, divide: bool) -> np.ndarray:
    return per_turn(episodes, form, divide) - per_turn(episodes, form, divide, weight=0.0)


def played(seed: int, scale: float = 1.0, groups: int = 3, size: int = 4) -> list[Episode]:
    """Made-up episodes among three states, with all rewards times `scale`."""
    rng = np.random.default_rng(seed)
    made: list[Episode] = []
    for episode in make_episodes(seed, groups, size):
        turns = [replace(turn, anchor=str(rng.integers(3)), reward=scale * turn.reward) for turn in episode.turns]
        made.append(replace(episode, turns=tuple(turns)))
    return made


# Returns 10 and 2: mean 6, unbiased std √32 = 5.65685, so ±4, divided ±0.70711. With γ = 0.5 the returns from the door
# on are 5, 1 and 2: mean 2.66667, differences 2.33333, -1.66667 and -0.66667, unbiased std √4.33333 = 2.08167, divided
# 1.12090, -0.80064 and -0.32026. The turn in the room is alone in its state and has the episode part only.
BY_HAND = {
    ("gigpo", True): [1.82800, 0.70711, -1.50775, -1.02736],
    ("gigpo", False): [6.33333, 4.0, -5.66667, -4.66667],
    ("gigpo_mixed", True): [3.04044, 0.70711, -2.37377, -1.37377],
    ("gigpo_mixed", False): [6.33333, 4.0, -5.66667, -4.66667],
}


@pytest.mark.parametrize(("form", "divide"), BY_HAND)
def test_both_forms_by_hand(form: str, divide: bool) -> None:
    episodes = episodes_of([("door", 0.0), ("room", 10.0)], [("door", 0.0), ("door", 2.0)])
    assert per_turn(episodes, form, divide) == pytest.approx(BY_HAND[form, divide], abs=2e-5)


def test_both_parts_are_divided_by_the_deviation_and_a_millionth() -> None:
    # Returns of 1 and 3 millionths: mean 2, unbiased std √2 = 1.41421 millionths; 1 / (1.41421 + 1) = 0.41421. Each of
    # the two parts has this number; with a biased std of 1 it would be 0.5, without the millionth 0.70711.
    episodes = episodes_of([("door", 1e-6)], [("door", 3e-6)])
    assert per_turn(episodes, "gigpo", True, weight=0.0) == pytest.approx([-0.41421, 0.41421], abs=1e-5)
    assert per_turn(episodes, "gigpo", True) == pytest.approx([-0.82843, 0.82843], abs=1e-5)


@every_seed
@every_scale
def test_divided_the_size_of_the_rewards_does_not_matter(seed: int, scale: float) -> None:
    before, after = (step_part(played(seed, times), "gigpo", True) for times in (1.0, scale))
    np.testing.assert_allclose(after, before, atol=1e-3)  # the millionth beside a deviation of 0.003
    assert np.abs(before).max() > 0.5
    whole = [per_turn(played(seed, times), "gigpo", True) for times in (1.0, scale)]
    np.testing.assert_allclose(whole[1], whole[0], atol=1e-3)


@every_seed
@every_scale
@pytest.mark.parametrize(("form", "divide"), [("gigpo", False), ("gigpo_mixed", False), ("gigpo_mixed", True)])
def test_undivided_the_step_part_grows_with_the_rewards(seed: int, scale: float, form: str, divide: bool) -> None:
    before, after = (step_part(played(seed, times), form, divide) for times in (1.0, scale))
    np.testing.assert_allclose(after, scale * before, rtol=1e-4, atol=1e-5 * scale)
    assert np.abs(before).max() > 0.5


@every_seed
def test_where_nothing_is_divided_the_forms_are_one(seed: int) -> None:
    one, other = (per_turn(played(seed), form, False) for form in FORMS)
    assert one.tolist() == other.tolist()


@every_seed
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("divide", [True, False])
def test_without_a_step_part_both_are_grpo(seed: int, form: str, divide: bool) -> None:
    episodes = played(seed)
    assert per_turn(episodes, form, divide, weight=0.0).tolist() == per_turn(episodes, "grpo", divide).tolist()


def walks(seed: int) -> list[Episode]:
    """16 groups of 8 long episodes that wander among 80 states; half of them end with the reward."""
    rng = np.random.default_rng(seed)
    made: list[Episode] = []
    for group in range(16):
        lengths, won = rng.integers(6, 20, 8), rng.random(8) < 0.5
        steps = [[(str(rng.integers(80)), 0.0) for _ in range(length - 1)] for length in lengths]
        ends = [(str(rng.integers(80)), 10.0 if solved else 0.0) for solved in won]
        walked = episodes_of(*([*way, end] for way, end in zip(steps, ends, strict=True)))
        made += [replace(episode, group=group) for episode in walked]
    return made


@every_seed
def test_divided_advantages_are_about_as_large_as_those_of_grpo(seed: int) -> None:
    episodes = walks(seed)
    spread = {form: float(per_turn(episodes, form, True, discount=0.95).std()) for form in ("grpo", *FORMS)}
    assert 0.8 < spread["grpo"] < 1.1
    assert 1.0 < spread["gigpo"] < 1.5  # two parts of about 1; a turn alone in its state has one
    assert spread["gigpo_mixed"] > 2.0  # in units of the reward, which is 10
