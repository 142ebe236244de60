"""Recipes that come with the package: found by name, also as the base of a file that lies elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from isentrope.config.load import load_config
from isentrope.config.recipes import RECIPES, find_recipe, known_recipes, meaning_of, our_recipe, recipe_names
from isentrope.core.errors import ConfigError
from isentrope.study.plan import read_plan


@pytest.mark.parametrize("name", recipe_names())
def test_a_copy_means_the_same_wherever_it_lies(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    source = RECIPES / f"{name}.toml"
    copy = tmp_path / "mine.toml"
    copy.write_bytes(source.read_bytes())
    if name.startswith("studies/"):
        plans = [read_plan(path) for path in (source, copy)]
        found = [cell.recipe.resolve() for plan in plans for cell in plan.cells if cell.recipe is not None]
        assert set(found) == {plans[0].cells[0].recipe.resolve()} if plans[0].cells[0].recipe else not found
        assert all(path.is_file() for path in found)
    else:
        assert load_config(copy) == load_config(source) == load_config(name)


def test_a_file_beside_comes_first(tmp_path: Path) -> None:
    (tmp_path / "demo").write_text("run.steps = 7\n")
    (tmp_path / "mine.toml").write_text('extends = "demo"\n')
    assert load_config(tmp_path / "mine.toml").run.steps == 7
    (tmp_path / "demo").unlink()
    assert load_config(tmp_path / "mine.toml").run.steps == load_config("demo").run.steps


def test_a_folder_of_the_same_name_is_no_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "demo").mkdir()  # `isentrope train demo --out demo`, resumed
    assert find_recipe("demo") == RECIPES / "demo.toml"


@pytest.mark.parametrize("name", ["../pyproject", "/demo", "", "papers", "none"])
def test_what_is_no_recipe_of_ours(name: str) -> None:
    assert our_recipe(name) is None


def test_names() -> None:
    assert our_recipe("papers/seal/webshop-grpo-seal-alpha-0.3") is not None
    assert our_recipe("demo.toml") == our_recipe("demo") == RECIPES / "demo.toml"
    assert our_recipe("papers/rows") is not None
    assert "papers/rows" not in recipe_names()
    with pytest.raises(ConfigError, match="did you mean demo"):
        load_config("dmeo")


def test_each_says_what_it_is_for_in_a_line() -> None:
    groups = [known_recipes(under) for under in ("", "studies", "papers")]
    assert sum(map(len, groups)) == len(recipe_names())
    for known in [one for group in groups for one in group]:
        assert 10 < len(known.meaning) <= 110, known
    assert meaning_of(RECIPES / "alfworld.sh").startswith("A language model on ALFWorld's official games")


def test_a_base_that_is_nowhere(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('extends = "nowhere"\n')
    with pytest.raises(ConfigError, match=r"no recipe at .*nowhere"):
        load_config(tmp_path / "mine.toml")
