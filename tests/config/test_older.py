"""Files of earlier versions: what a run recorded with a setting that is gone is read as what it computed."""

from __future__ import annotations

import json
import lzma
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from isentrope.cli.options import recipe_or_run
from isentrope.config.kinds import ClipOptions, GaeOptions, GigpoOptions, GpuOptions, ServerOptions
from isentrope.config.load import config_from_table, load_config
from isentrope.config.older import upgraded, upgraded_leaves
from isentrope.config.schema import RunConfig
from isentrope.config.text import as_table, table_to_toml
from isentrope.core.errors import ConfigError
from isentrope.methods.options import with_options
from isentrope.runs.folder import Run, leaves

KEPT = Path(__file__).parents[2] / "docs" / "runs"
GIGPO = {"algorithm": "gigpo", "advantage": "gigpo", "discount": 0.95}


def old_table(step_std: bool, divide: bool, **learn: Any) -> dict[str, Any]:
    """What a run of an earlier version recorded: every setting, in [learn] and [engine] themselves, and
    `learn.step_std`."""
    table = as_table(RunConfig())
    parts = {**vars(GaeOptions()), **vars(GigpoOptions()), **vars(ClipOptions()), "loss": "clip"}
    engine = {"kind": "auto", **vars(GpuOptions()), **vars(ServerOptions())}
    task = {key: value for key, value in table["task"].items() if key not in ("sampler", "reward")}
    said = {**table["learn"], **parts, **GIGPO, "divide_by_std": divide, **learn, "step_std": step_std}
    return {**table, "learn": said, "engine": engine, "task": task}


def old_file(folder: Path, step_std: bool, divide: bool, **learn: Any) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.toml").write_text(table_to_toml(old_table(step_std, divide, **learn)))
    return folder / "config.toml"


def forms(config: RunConfig) -> tuple[str, str, bool]:
    """The algorithm, the advantage estimator, and whether it divides; rloo and reinforce never do."""
    advantage = with_options(config).learn.advantage
    return config.learn.algorithm, advantage.kind, advantage.options.get("divide_by_std", False)


def same(config: RunConfig, *changes: str) -> bool:
    """Whether it is what these changes of the defaults are, all options written out."""
    return with_options(config) == with_options(load_config(None, changes))


def test_the_old_default_is_the_mixed_form(tmp_path: Path) -> None:
    config = load_config(old_file(tmp_path, step_std=False, divide=True), [])
    assert forms(config) == ("gigpo_mixed", "gigpo_mixed", True)
    assert same(config, "learn.algorithm=gigpo_mixed")


@pytest.mark.parametrize("divide", [True, False])
def test_both_parts_alike_are_the_published_form(tmp_path: Path, divide: bool) -> None:
    config = load_config(old_file(tmp_path, step_std=divide, divide=divide), [])
    assert forms(config) == ("gigpo", "gigpo", divide)
    assert same(config, "learn.algorithm=gigpo", f"learn.advantage.divide_by_std={str(divide).lower()}")


def test_a_step_part_divided_alone_is_refused_with_a_reason(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"learn\.step_std = true.*step part alone divided.*is gone"):
        load_config(old_file(tmp_path, step_std=True, divide=False), [])
    assert Run.open(tmp_path).setting("learn.step_std") is True  # its numbers can still be looked at


@pytest.mark.parametrize("advantage", ["grpo", "rloo", "reinforce", "gae"])
@pytest.mark.parametrize("step_std", [True, False])
def test_with_other_advantages_it_said_nothing(tmp_path: Path, advantage: str, step_std: bool) -> None:
    config = load_config(old_file(tmp_path, step_std, divide=False, algorithm="grpo", advantage=advantage), [])
    assert forms(config) == ("grpo", advantage, False)


def test_an_exchanged_advantage_leaves_the_algorithm_its_name(tmp_path: Path) -> None:
    config = load_config(old_file(tmp_path, step_std=False, divide=True, algorithm="dapo"), [])
    assert forms(config) == ("dapo", "gigpo_mixed", True)


@pytest.mark.parametrize("divide", [True, False])
def test_recommended_runs_have_the_name_that_their_recipe_has_today(tmp_path: Path, divide: bool) -> None:
    """Where nothing is divided the two forms are one; else a run could not be resumed with its recipe."""
    config = load_config(old_file(tmp_path, step_std=False, divide=divide, algorithm="recommended"), [])
    assert forms(config) == ("recommended", "gigpo_mixed", divide)
    assert same(config, "learn.algorithm=recommended", f"learn.advantage.divide_by_std={str(divide).lower()}")


def test_what_is_laid_over_an_old_file_wins(tmp_path: Path) -> None:
    old = old_file(tmp_path, step_std=False, divide=True)
    assert forms(load_config(old, ["learn.algorithm=gigpo"])) == ("gigpo", "gigpo", True)
    assert forms(load_config(old, ["learn.algorithm=dapo"])) == ("dapo", "grpo", True)
    assert forms(load_config(old, ["learn.divide_by_std=false"])) == ("gigpo_mixed", "gigpo_mixed", False)
    above = tmp_path / "above.toml"
    above.write_text('extends = "config.toml"\n[learn]\nlr = 0.5\n')
    assert load_config(above, []).learn.advantage.kind == "gigpo_mixed"


def test_a_run_is_evaluated_with_what_it_recorded(tmp_path: Path) -> None:
    old_file(tmp_path, step_std=False, divide=True)
    assert recipe_or_run(None, tmp_path, ["eval.games=3"]).learn.advantage.kind == "gigpo_mixed"
    assert Run.open(tmp_path).setting("learn.advantage.kind") == "gigpo_mixed"


def test_a_file_without_the_setting_is_of_today(tmp_path: Path) -> None:
    """The setting came with GiGPO itself, so that no earlier run lacks it."""
    table = old_table(step_std=False, divide=True)
    del table["learn"]["step_std"]
    assert forms(config_from_table(upgraded(table))) == ("gigpo", "gigpo", True)
    assert upgraded(upgraded(table)) == upgraded(table)
    today = as_table(with_options(load_config(None, ["learn.algorithm=gigpo"])))
    assert upgraded(today) == today
    recipe = tmp_path / "a.toml"
    recipe.write_text('[learn]\nalgorithm = "gigpo"\n')
    assert forms(load_config(recipe, [])) == ("gigpo", "gigpo", True)


@pytest.mark.parametrize("said", ["true", "false"])
def test_a_recipe_with_the_setting_is_told_what_to_write(tmp_path: Path, said: str) -> None:
    recipe = tmp_path / "a.toml"
    recipe.write_text(f'[learn]\nalgorithm = "gigpo"\nstep_std = {said}\n')
    hint = rf'learn\.step_std = {said}: no such setting any more; leave it out.*learn\.algorithm = "gigpo_mixed"'
    with pytest.raises(ConfigError, match=hint):
        load_config(recipe, [])
    with pytest.raises(ConfigError, match=hint):
        load_config(old_file(tmp_path, step_std=False, divide=True), [f"learn.step_std={said}"])


@pytest.mark.parametrize(("step_std", "divide"), [(False, True), (True, True), (False, False), (True, False)])
def test_settings_by_their_full_names_are_read_alike(step_std: bool, divide: bool) -> None:
    table = old_table(step_std, divide)
    flat = upgraded_leaves(leaves(table))
    assert flat == leaves(upgraded(table))
    assert upgraded_leaves(flat) == flat


@pytest.mark.parametrize("learn", [None, 3, {"step_std": False}, {"step_std": 1, "advantage": []}])
def test_what_is_no_table_of_settings_is_left_alone(learn: Any) -> None:
    assert upgraded({"learn": learn}) == {"learn": learn}
    assert upgraded({}) == {}


def kept_configs() -> Iterator[tuple[str, dict[str, Any]]]:
    """Of every run in a compact study, as they stand in the file; one of each cell."""
    for path in sorted(KEPT.glob("*/runs.jsonl.xz")):
        found: dict[str, dict[str, Any]] = {}
        with lzma.open(path, "rt", encoding="utf-8") as file:
            for line in file:
                cell = re.match(r'\{"cell":"([^"]+)"', line)  # to read all numbers of all runs takes long
                if cell and cell[1] not in found and (config := json.loads(line)["config"]):  # planned ones have none
                    found[cell[1]] = config
        yield from ((f"{path.parent.name}/{cell}", config) for cell, config in found.items())


def nested(flat: dict[str, Any]) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for key, value in flat.items():
        *parts, last = key.split(".")
        inner = table
        for part in parts:
            inner = inner.setdefault(part, {})
        inner[last] = value
    return table


def test_every_kept_config_loads() -> None:
    files = sorted(KEPT.rglob("config.toml"))
    assert files
    for path in files:
        assert load_config(path, []).learn.advantage.kind == "grpo"
    found = {name: config_from_table(nested(upgraded_leaves(flat))) for name, flat in kept_configs()}
    assert len(found) > 100
    mixed = [name for name, config in found.items() if config.learn.advantage.kind == "gigpo_mixed"]
    assert {"household/gigpo", "household/gigpo-seal-long", "alfworld/gigpo"} <= set(mixed)
    assert all(found[name].learn.algorithm == "gigpo_mixed" for name in mixed)
    older = [
        name for name in found if name.startswith(("household/", "alfworld/"))
    ]  # later ones say which form they had
    assert all(("/gigpo" in name) == (name in mixed) for name in older)
    assert found["gigpo/gigpo"].learn.advantage.kind == "gigpo"
