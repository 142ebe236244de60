"""Pages, their text, and the way from one to another."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isentrope.worlds.webshop.visit import StartPage, Visit, clickable, page_text
from tests.worlds.webshop.shop import GOAL, SHIRT, Shelf, product

MANY = [product(number) for number in range(1, 24)]


def after(*actions: str, stock: Shelf | None = None) -> Visit:
    visit = Visit(stock or Shelf(*MANY), GOAL)
    for action in actions:
        assert visit.act(action), action
    return visit


def test_the_start() -> None:
    visit = after()
    assert page_text(visit.page) == "WebShop [SEP] Search"
    assert page_text(visit.page, "buy a shirt") == "WebShop [SEP] Instruction: [SEP] buy a shirt [SEP] Search"
    assert clickable(visit.page) == ()


def test_results() -> None:
    visit = after("search[Shirt]")
    lines = page_text(visit.page, "buy").split(" [SEP] ")
    assert lines[:5] == ["Instruction:", "buy", "Back to Search", "Page 1 (Total results: 23)", "Next >"]
    assert lines[5:8] == ["B000000001", SHIRT.title, "$24.5"]
    assert len(lines) == 5 + 3 * 10
    assert clickable(visit.page)[:3] == ("back to search", "next >", "b000000001")
    visit = after("search[shirt]", "click[next >]")
    assert page_text(visit.page).startswith("Back to Search [SEP] Page 2 (Total results: 23) [SEP] < Prev [SEP] Next >")
    visit = after("search[shirt]", "click[next >]", "click[next >]")
    assert page_text(visit.page).startswith("Back to Search [SEP] Page 3 (Total results: 23) [SEP] < Prev [SEP] B00")
    assert not visit.act("click[next >]")
    assert page_text(after("search[nothing]").page) == "Back to Search [SEP] Page 1 (Total results: 0)"


def test_an_item_and_its_sub_pages() -> None:
    visit = after("search[shirt]", "click[B000000002]")
    assert page_text(visit.page) == (
        "Back to Search [SEP] < Prev [SEP] color [SEP] navy blue [SEP] red [SEP] size [SEP] small [SEP] large [SEP] "
        "Marlo Cotton Shirt, Long Sleeve [SEP] Price: $24.5 [SEP] Rating: 4.1 [SEP] Description [SEP] Features [SEP] "
        "Reviews [SEP] Buy Now"
    )
    assert visit.act("click[description]")
    assert page_text(visit.page) == "Back to Search [SEP] < Prev [SEP] A shirt for cool mornings."
    assert clickable(visit.page) == ("back to search", "< prev")
    assert visit.act("click[< prev]")
    assert visit.act("click[features]")
    assert page_text(visit.page) == "Back to Search [SEP] < Prev [SEP] Easy care fabric. [SEP] Two pockets."
    stock = Shelf(product(1, reviews=(("Fine", "4.0", "It fits."),)))
    assert page_text(after("search[x]", "click[b000000001]", "click[reviews]", stock=stock).page).endswith(
        '"Fine" [SEP] 4.0 [SEP] It fits.'
    )
    assert page_text(after("search[x]", "click[b000000001]", "click[reviews]").page).endswith("No reviews found")


def test_going_back() -> None:
    there = after("search[shirt]", "click[next >]", "click[b000000012]", "click[large]", "click[< prev]")
    assert "Page 2" in page_text(there.page)
    visit = after(
        "search[shirt]", "click[b000000002]", "click[large]", "click[features]", "click[< prev]", "click[buy now]"
    )
    assert visit.result is not None
    assert visit.result.options == 1  # the choice outlives a look at the features
    visit = after(
        "search[shirt]", "click[b000000002]", "click[large]", "click[< prev]", "click[b000000002]", "click[buy now]"
    )
    assert visit.result is not None
    assert visit.result.options == 0  # and not a look at other products
    assert isinstance(after("search[shirt]", "click[b000000002]", "click[back to search]").page, StartPage)


def test_buying() -> None:
    visit = after(
        "search[shirt]", "click[b000000002]", "click[red]", "click[navy blue]", "click[large]", "click[buy now]"
    )
    assert visit.result is not None
    assert visit.result.perfect  # the last colour counts
    assert clickable(visit.page) == ()
    assert not visit.act("search[shirt]")


def test_an_action_in_capitals_counts_and_search_works_everywhere() -> None:
    visit = after("SEARCH[shirt]", "Click[B000000003]", "click[LARGE]", "search[red [new] shirt]")
    assert page_text(visit.page).startswith("Back to Search")


def test_a_value_of_two_options_is_the_last_ones() -> None:
    stock = Shelf(product(1, options={"color": ("small", "red"), "size": ("small", "large")}))
    visit = after("search[x]", "click[b000000001]", "click[small]", stock=stock)
    assert visit.page.chosen == {"size": "small"}  # pyright: ignore
    assert len(clickable(visit.page)) == len(set(clickable(visit.page)))


@pytest.mark.parametrize(
    "action",
    ["", "search", "search[]", "search[  ]", "click[]", "click[search]", "click[buy now]", "search[a] click[b]x",
     "find[x]", "search[<r>]", "search[<a> easy care]", "search[ <c> fashion]", "search[<Q> cotton shirt]",
     "click[b000000001]"],
)  # fmt: skip
def test_nothing_happens(action: str) -> None:
    visit = after()
    assert not visit.act(action)
    assert isinstance(visit.page, StartPage)
    assert visit.result is None


@settings(max_examples=60)
@given(st.integers(0, 10_000))
def test_everything_that_can_be_clicked_is_accepted(seed: int) -> None:
    draw = random.Random(seed)
    visit = after("search[shirt]")
    for _ in range(25):
        names = clickable(visit.page)
        before = page_text(visit.page)
        assert not visit.act("click[no such thing]")
        assert page_text(visit.page) == before
        assert visit.act(f"click[{draw.choice(names)}]" if names else "search[shirt]")
        if visit.result is not None:
            assert 0 <= visit.result.reward <= 1
            return
