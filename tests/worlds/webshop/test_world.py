"""The world: the contract, its splits and options, the expert, and the command line."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from isentrope.cli.main import app
from isentrope.cli.play import Game
from isentrope.core.errors import ConfigError, TaskError
from isentrope.worlds.conformance.suite import assert_conforms
from isentrope.worlds.contract import Instance, Step
from isentrope.worlds.registry import make_world
from isentrope.worlds.webshop.sources import generated_products, write_official
from isentrope.worlds.webshop.world import Errand, WebShopOptions, WebShopWorld
from tests.worlds.webshop.shop import ATTRIBUTES, PRODUCTS, official

RECORDED = Path(__file__).with_name("lucene_rankings.tsv")


@pytest.fixture(scope="module")
def world() -> WebShopWorld:
    return WebShopWorld()


def visit(world: WebShopWorld, instance: Instance, turns: int = 15) -> Iterator[Step]:
    """The expert's steps."""
    task, expert = world.open(), world.expert(0)
    view = task.start(instance)
    expert.start(view, instance)
    for _ in range(turns):
        step = task.step(expert.act(view).action)
        yield step
        if step.terminated:
            return
        view = step.view


def success(world: WebShopWorld, games: int) -> float:
    steps = [list(visit(world, world.instance("test", index))) for index in range(games)]
    assert all(step.valid for episode in steps for step in episode)
    return sum(episode[-1].success for episode in steps) / games


def test_the_contract(world: WebShopWorld) -> None:
    assert_conforms(world, games=8)


def test_splits(world: WebShopWorld) -> None:
    assert world.splits() == ("train", "test")
    assert world.size("test") == 500
    with_dev = WebShopWorld(WebShopOptions(dev=True))
    sizes = {split: with_dev.size(split) for split in with_dev.splits()}
    assert sizes == {"train": (world.size("train") or 0) - 1000, "test": 500, "dev": 1000}
    assert with_dev.goal(with_dev.instance("dev", 0)) == world.goal(world.instance("train", 0))
    assert with_dev.goal(with_dev.instance("train", 0)) == world.goal(world.instance("train", 1000))
    texts = {
        split: {world.goal(world.instance(split, i)).text for i in range(world.size(split) or 0)}
        for split in ("train", "test")
    }
    assert not texts["train"] & texts["test"]
    assert world.kinds == ("beauty", "electronics", "fashion", "garden", "grocery")


def test_the_expert_solves_the_generated_goals(world: WebShopWorld) -> None:
    assert success(world, 150) >= 0.97


@official
def test_the_expert_on_official_goals() -> None:
    official_world = WebShopWorld(WebShopOptions(products=str(PRODUCTS), attributes=str(ATTRIBUTES)))
    assert success(official_world, 60) >= 0.75


def test_how_the_expert_reads_an_instruction() -> None:
    errand = Errand.read(
        "Find me a soft shirt with two pockets with color: red, and size: x-large, and price lower than 40.00 dollars"
    )
    assert errand.options == {"color": "red", "size": "x-large"}
    assert errand.limit == 40
    assert errand.query == "Find me a soft shirt with two pockets red x-large"
    assert errand.words == {"soft", "shirt", "two", "pocket"}
    plain = Errand.read("i want shoes with laces")
    assert (plain.options, plain.limit) == ({}, float("inf"))


def test_rewards_and_what_is_told_with_them(world: WebShopWorld) -> None:
    instance = world.instance("test", 0)
    *before, last = visit(world, instance)
    assert all(step.reward == 0 and not step.info for step in before)
    assert last.success
    assert last.reward == 1
    assert last.info["score"] == 1


@pytest.mark.parametrize("reward", ["score", "success"])
def test_a_half_right_purchase(reward: str) -> None:
    made = make_world("webshop", {"reward": reward})
    task = made.open()
    view = task.start(made.instance("test", 0))
    results = task.step(f"search[{view.goal}]")
    first_product = next(action for action in results.view.admissible or () if action.startswith("click[b0"))
    assert task.step(first_product).valid
    end = task.step("click[buy now]")  # without any option
    assert end.terminated
    assert not end.success
    assert 0 < end.info["score"] < 1
    assert end.reward == (end.info["score"] if reward == "score" else 0)
    assert not task.step("click[buy now]").valid


def test_the_instruction_on_every_page() -> None:
    made = make_world("webshop", {"show_instruction": True})
    task = made.open()
    view = task.start(made.instance("train", 1))
    assert view.text == f"WebShop [SEP] Instruction: [SEP] {view.goal} [SEP] Search"
    assert task.step("search[lamp]").view.text.startswith(f"Instruction: [SEP] {view.goal} [SEP] Back to Search")


def test_instances(world: WebShopWorld) -> None:
    instance = world.instance("train", 3)
    assert pickle.loads(pickle.dumps(instance)) == instance
    assert instance.kind in world.kinds
    for split, index in (("train", -1), ("test", 500), ("dev", 0)):
        with pytest.raises(TaskError, match="webshop"):
            world.instance(split, index)


def test_options_that_cannot_be() -> None:
    with pytest.raises(TaskError, match="products is not"):
        make_world("webshop", {"human": "x.json"})
    with pytest.raises(ConfigError, match="reward"):
        make_world("webshop", {"reward": "money"})
    with pytest.raises(TaskError, match="no such file"):
        make_world("webshop", {"products": "/no/where.json", "attributes": "/no/where"}).splits()


def test_too_few_goals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ISENTROPE_CACHE", str(tmp_path / "cache"))
    items, _ = write_official(tmp_path, list(generated_products())[:3])
    with pytest.raises(TaskError, match="need more than 500"):
        make_world("webshop", {"products": str(items)}).splits()


def test_a_missing_package_is_named_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rapidfuzz", None)
    with pytest.raises(TaskError, match=r"rapidfuzz: pip install 'isentrope\[webshop\]'"):
        make_world("webshop")


def test_closing_and_opening_again() -> None:
    own = WebShopWorld()
    goal = own.goal(own.instance("train", 0))
    own.close()
    own.close()
    assert own.goal(own.instance("train", 0)) == goal


def test_pages_for_people(world: WebShopWorld) -> None:
    typed = iter(["search[lip tint]", "3", "hint", "dance", "7", "4", "2", "6"])
    console = Console(width=100, record=True, force_terminal=False, highlight=False)
    game = Game(world.open(), world.expert(0), world.instance("test", 3), console, lambda prompt: next(typed, None))
    game.run()
    text = console.export_text()
    for part in (
        "Type search[",
        "Results for lip tint, page 1 of",
        "1 Back to Search",
        "Rating:",
        "✓ ",
        "Features",
        "Score:",
    ):
        assert part in text, part
    assert text.count("That did nothing here.") == 1
    assert "[SEP]" not in text


def run(*arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, [str(one) for one in arguments], env={"COLUMNS": "150", "NO_COLOR": "1"})
    return done.exit_code, done.output


def test_checking_rankings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ISENTROPE_CACHE", str(tmp_path / "cache"))
    items, _ = write_official(tmp_path, generated_products())
    check = ("check-task", "webshop", "--products", items, "--rankings")
    code, text = run(*check, RECORDED)
    assert code == 0
    assert "top-1 agreement  100.00%" in text
    assert "top-10 overlap   100.00%" in text
    lines = RECORDED.read_text(encoding="utf-8").splitlines()
    turned = tmp_path / "turned.tsv"  # two of 60 queries get another's answers; tabs between ASINs are fine too
    mixed = [
        f"{one.split(chr(9))[0]}\t{other.split(chr(9))[1]}" for one, other in zip(lines[:2], lines[20:22], strict=True)
    ]
    turned.write_text("\n".join(mixed + [line.replace(" B0", "\tB0") for line in lines[2:]]), encoding="utf-8")
    code, text = run(*check, turned)
    assert code == 1
    assert "top-1 agreement   96.67%" in text


@pytest.mark.parametrize(
    ("content", "message"),
    [("", "holds no ranking"), ("shirt B01", "there is no tab"), ("shirt\tB01,B02", "is no ASIN")],
)
def test_rankings_that_cannot_be_read(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "r.tsv").write_text(content)
    code, text = run("check-task", "webshop", "--products", tmp_path / "x", "--rankings", tmp_path / "r.tsv")
    assert code != 0
    assert message in " ".join(text.split())


def test_rankings_need_both_files_and_the_webshop() -> None:
    assert "takes both files" in run("check-task", "webshop", "--rankings", RECORDED)[1]
    assert "webshop only" in run("check-task", "household", "--rankings", RECORDED, "--products", "x")[1]
