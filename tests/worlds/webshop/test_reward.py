"""Rewards worked out by hand, and against a naive reference."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isentrope.worlds.webshop.reward import COLOURS, close, colour, matching_options, noun_share, score, type_factor
from tests.worlds.webshop.shop import GOAL, SHIRT, product


def test_everything_right() -> None:
    result = score(GOAL, SHIRT, ["navy blue", "large"])
    assert (result.reward, result.type_factor, result.attributes, result.options, result.price) == (
        1.0,
        1.0,
        2,
        2,
        True,
    )
    assert result.perfect


@pytest.mark.parametrize(
    ("changes", "chosen", "expected"),
    [
        ({}, ["navy blue"], 4 / 5),  # size not chosen
        ({}, ["red", "small"], 3 / 5),  # both wrong
        ({}, [], 3 / 5),
        ({"price": 40.01}, ["navy blue", "large"], 4 / 5),  # a cent too dear
        ({"price": 40.0}, ["navy blue", "large"], 1.0),
        ({"attributes": ("long sleeve",)}, ["navy blue", "large"], 4 / 5),
        ({"attributes": (), "description": "Machine wash, LONG SLEEVE."}, ["navy blue", "large"], 1.0),  # told in words
        ({"attributes": ("sleeve, long", "wash machine")}, ["navy blue", "large"], 1.0),  # order does not count
        ({"attributes": (), "title": "Cotton Shirt"}, ["navy blue", "large"], 3 / 5),
    ],
)
def test_parts(changes: dict[str, object], chosen: list[str], expected: float) -> None:
    result = score(GOAL, product(**changes), chosen)
    assert result.reward == pytest.approx(expected)
    assert result.perfect == (expected == 1.0)


def test_the_kind_of_product() -> None:
    """s is the share of nouns. All five words of the wanted title count as nouns."""
    elsewhere = {"query": "desk lamp", "product_category": "Garden › Lamps"}
    assert type_factor(GOAL, SHIRT) == 1.0
    assert noun_share(SHIRT.title, "Oak Table") == 0.0
    assert type_factor(GOAL, product(title="Oak Table")) == 0.0  # the same query does not help
    assert type_factor(GOAL, product(title="Cotton Shirt", **elsewhere)) == 1.0  # s = 2/5
    assert type_factor(GOAL, product(title="Wool Shirt", **elsewhere)) == 0.5  # s = 1/5, not more than 0.2
    nouns = "Lamp Table Chair Desk Shelf Window Door Garden Kitchen Bottle Basket"
    long = replace(GOAL, product=product(title=f"Shirt {nouns}"))
    assert 0 < noun_share(long.product.title, "Shirt") < 0.1
    assert type_factor(long, product(title="Shirt")) == 0.1
    some = replace(GOAL, product=product(title="Shirt Lamp Table Chair Desk Shelf"))
    assert 0.1 < noun_share(some.product.title, "Shirt") < 0.2
    assert type_factor(some, product(title="Shirt")) == 1.0  # the same query
    two_parts = "Fashion › Women › Shirts"
    assert type_factor(some, product(title="Shirt", query="other", product_category=two_parts)) == 1.0
    assert type_factor(some, product(title="Shirt", query="other", product_category="Fashion › Women")) == 0.5


def test_a_title_without_nouns_counts_as_a_fifth() -> None:
    assert noun_share("", "Oak Table") == 0.2
    unnamed = replace(GOAL, product=product(title=""))
    assert type_factor(unnamed, product(title="Oak Table")) == 1.0
    assert type_factor(unnamed, product(title="Oak Table", query="x", product_category="")) == 0.5


@pytest.mark.parametrize(
    ("value", "expected"), [("navy blue", "blue"), ("dusty pink", "pink"), ("large", "large"), ("", ""), ("oak", "oak")]
)
def test_colours(value: str, expected: str) -> None:
    assert colour(value) == expected
    assert list(COLOURS) == sorted(COLOURS)
    assert len(COLOURS) == 53


def test_colours_make_options_match() -> None:
    assert matching_options(["light blue", "large"], ["sky blue | white", "large"]) == 2
    assert matching_options(["navyblue"], ["skyblue"]) == 1
    assert matching_options(["navy", "large"], ["large"]) == 1
    assert matching_options([], ["large"]) == 0


def naive_ratio(one: str, other: str) -> float:
    """The token-set ratio from its definition: 2 · common / total, of the sorted shared words and the rest."""

    def ratio(left: str, right: str) -> float:
        if not left and not right:
            return 100.0
        row = [0] * (len(right) + 1)
        for char in left:
            last = 0
            for i, match in enumerate(right, start=1):
                last, row[i] = row[i], last + 1 if char == match else max(row[i], row[i - 1])
        return 200 * row[-1] / (len(left) + len(right))

    left, right = (set(re.sub(r"[\W_]", " ", text.lower()).split()) for text in (one, other))
    if not left or not right:
        return 0.0
    shared = " ".join(sorted(left & right))
    with_left = f"{shared} {' '.join(sorted(left - right))}".strip()
    with_right = f"{shared} {' '.join(sorted(right - left))}".strip()
    of_shared = [ratio(shared, with_left), ratio(shared, with_right)] if shared else []
    return max([ratio(with_left, with_right), *of_shared])


@pytest.mark.parametrize(
    ("same", "other", "expected"),
    [(17, 3, False), (35, 6, False), (6, 1, True)],  # ratios 85.0, 85.4 (which is 85 in whole per cent) and 85.7
)
def test_the_limit_of_closeness(same: int, other: int, expected: bool) -> None:
    assert close("a" * same + "b" * other, "a" * same + "c" * other) == expected


TEXT = st.lists(st.sampled_from(["long", "sleeve", "sleeves", "easy", "care", "(2)", "x-large", "large"]), max_size=4)


@settings(max_examples=200)
@given(TEXT.map(" ".join), TEXT.map(" ".join))
def test_closeness_by_definition(one: str, other: str) -> None:
    assert close(one, other) == (round(naive_ratio(one, other)) > 85)


@settings(max_examples=60)
@given(
    st.lists(st.sampled_from(["long sleeve", "machine wash", "two pockets", "oak"]), min_size=1, max_size=3),
    st.lists(st.sampled_from(["red", "blue", "small", "large"]), max_size=3),
    st.lists(st.sampled_from(["dark red", "navy blue", "small", "x-large"]), max_size=3),
    st.floats(1, 100),
    st.sampled_from(["Cotton Shirt", "Oak Table", SHIRT.title]),
)
def test_against_a_naive_reward(
    attributes: list[str], options: list[str], chosen: list[str], price: float, title: str
) -> None:
    goal = replace(GOAL, attributes=tuple(attributes), options=tuple(options))
    bought = product(price=price, title=title)
    told = [bought.title.lower(), " ".join(bought.bullets).lower(), bought.description.lower()]
    points = float(price <= goal.price_limit)
    for wanted in attributes:
        points += any(round(naive_ratio(own, wanted)) > 85 for own in bought.attributes) or any(
            wanted in text for text in told
        )
    for wanted in options:
        points += any(round(naive_ratio(colour(own), colour(wanted))) > 85 for own in chosen)
    expected = type_factor(goal, bought) * points / (len(attributes) + len(options) + 1)
    result = score(goal, bought, chosen)
    assert result.reward == pytest.approx(expected)
    assert 0 <= result.reward <= 1
