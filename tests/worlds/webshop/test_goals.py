"""Goals: from products, from the official files, shuffled and limited."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from isentrope.worlds.webshop.products import Product, Wish
from isentrope.worlds.webshop.reward import (
    NO_LIMIT,
    count_attributes,
    goal_count,
    goal_of,
    price_limit,
    shuffled,
    weight,
)
from isentrope.worlds.webshop.world import WebShopOptions, WebShopWorld
from tests.worlds.webshop.shop import ATTRIBUTES, PRODUCTS, SHIRT, official, product

WANTED = replace(SHIRT, wishes=(Wish("Find me a shirt", ("long sleeve", "machine wash")),))


def test_a_goal_per_combination() -> None:
    assert goal_count(WANTED) == 4
    goals = [goal_of(WANTED, number) for number in range(4)]
    assert [goal.options for goal in goals] == [
        ("navy blue", "small"), ("navy blue", "large"), ("red", "small"), ("red", "large"),
    ]  # fmt: skip
    limit = price_limit(WANTED)
    assert (
        goals[1].text
        == f"Find me a shirt with color: navy blue, and size: large, and price lower than {limit:.2f} dollars"
    )
    with pytest.raises(IndexError):
        goal_of(WANTED, 4)


def test_option_names_in_alphabetical_order() -> None:
    turned = replace(WANTED, options={"size": ("small",), "color": ("red",)})
    assert " with color: red, and size: small, and price" in goal_of(turned, 0).text
    assert goal_of(replace(WANTED, options={}), 0).text.startswith("Find me a shirt, and price lower than ")


def test_peoples_wishes_have_their_own_options() -> None:
    wishes = (Wish("a red one", ("long sleeve",), ("red",)), Wish("any", ("machine wash",), ()))
    asked = replace(SHIRT, wishes=wishes)
    assert goal_count(asked) == 2
    assert [goal_of(asked, number).options for number in range(2)] == [("red",), ()]
    assert goal_of(asked, 1).text.startswith("any, and price lower than ")


@pytest.mark.parametrize(
    ("price", "possible"),
    [(24.5, {40, 50, 60}), (9.99, {20, 30, 40}), (10.0, {30, 40, 50}), (965.0, {980, 990}), (975.0, {990})],
)
def test_the_limit_is_the_larger_of_two_draws(price: float, possible: set[int]) -> None:
    drawn = {price_limit(product(number, price=price)) for number in range(300)}
    assert drawn == possible


def test_no_limit_where_no_two_are_left() -> None:
    for price in (980.0, 2000.0):
        dear = replace(WANTED, price=price)
        assert price_limit(dear) == NO_LIMIT
        assert "price" not in goal_of(dear, 0).text


def test_the_shuffle_is_the_originals() -> None:
    expected = list(range(1000))
    random.seed(233)
    random.shuffle(expected)
    assert list(shuffled(1000)) == expected


def test_weights() -> None:
    other = replace(SHIRT, options={}, wishes=(Wish("x", ("long sleeve",)),))
    counts: Counter[str] = Counter()
    for one in (WANTED, other):
        count_attributes(one, counts)
    assert counts == {"long sleeve": 5, "machine wash": 4}
    assert weight(("long sleeve", "machine wash"), counts) == pytest.approx((1 / 5 + 1 / 4) / 2)


@official
def test_the_official_goals() -> None:
    world = WebShopWorld(WebShopOptions(products=str(PRODUCTS), attributes=str(ATTRIBUTES)))
    catalogue = world.catalogue
    assert len(catalogue) == 1000
    assert catalogue.goals == 6910
    goals = [catalogue.goal(number) for number in range(catalogue.goals)]
    assert len({goal.product.asin for goal in goals}) == 415
    assert world.size("test") == 500
    assert world.size("train") == 6410
    # the shuffle, done over again on the goals in the file's order
    products: list[Product] = [catalogue.product(position) for position in range(1000)]
    in_order = [goal_of(one, number) for one in products for number in range(goal_count(one))]
    random.seed(233)
    random.shuffle(in_order)
    assert goals == in_order
    naive = Counter(attribute for goal in goals for attribute in goal.attributes)
    instance = world.instance("train", 7)
    wanted = goals[507].attributes
    assert world.weight(instance) == pytest.approx(sum(1 / naive[one] for one in wanted) / len(wanted))
    assert WebShopWorld(replace(world.options, dev=True)).splits() == ("train", "test", "dev")
