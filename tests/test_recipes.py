"""The recipes: every file loads, the papers' numbers arrive, every row of the index has its run, and one step works."""

from __future__ import annotations

import json
import math
import operator
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from isentrope.config.load import load_config
from isentrope.config.schema import RunConfig
from isentrope.config.text import as_table
from isentrope.core.errors import TaskError
from isentrope.loop.imitate import warm_up
from isentrope.loop.train import train
from isentrope.methods.options import with_options
from isentrope.methods.registry import METHODS, make_methods

RECIPES = Path(__file__).parent.parent / "recipes"
PAPERS = RECIPES / "papers"
INDEX = PAPERS / "rows.toml"
ROWS: list[dict[str, Any]] = tomllib.loads(INDEX.read_text(encoding="utf-8"))["row"]
FILES = sorted(path for path in RECIPES.rglob("*.toml") if path != INDEX and path.parent.name != "studies")
BASES = [path for path in FILES if path.stem.startswith("base-")]
LEAVES = [path for path in FILES if PAPERS in path.parents and path not in BASES]

WORLDS = {
    "ALFWorld": "household",
    "WebShop": "webshop",
    "ScienceWorld": "scienceworld",
    "Search QA": "search_qa",
    "SWE-bench Verified": "code_repair",
}
# runs that no table or figure of the papers shows
OURS = {
    "epo/alfworld-grpo-epo-base.toml",
    "epo/alfworld-grpo-epo-decay.toml",
    "epo/alfworld-grpo-epo-indicator.toml",
    "epo/alfworld-grpo-ea.toml",
    "epo/scienceworld-ppo-epo-no-dw.toml",
    "epo/scienceworld-ppo-epo-indicator.toml",
    "verl-agent-vanilla.toml",
}
# The form of prompt that the pocket model can answer. Half of its responses are longer than 14 tokens (5 without a
# thought), so some turns are invalid and returns differ: there is something to learn. Two steps: EPO needs a history
# and ActRe a second stage.
TINY = [
    "policy.model=pocket", "agent.prompt=brief", "agent.context=full", "agent.show_admissible=false",
    "agent.max_response=14", "agent.max_context=512", "task.max_turns=3", "task.options={rooms='small', games=''}",
    "rollout.groups=2", "rollout.group_size=4", "learn.mini_batches=2", "run.steps=2", "run.eval_every=0",
    "run.device=cpu", "run.threads=1", "eval.games=1", "eval.quick_games=1", "eval.splits=seen", "sft.games=2",
    "sft.samples=2", "sft.epochs=1",
]  # fmt: skip
# what a method leaves in the metrics
TRACES = {
    "entropy_bonus": "loss/entropy_bonus",
    "epo": "loss/epo",
    "ea": "ea/added",
    "seal": "seal/bce",
    "aem": "aem/weight_max",
    "actre": "plan/stage",
}


def name_of(path: Path) -> str:
    return path.relative_to(PAPERS if PAPERS in path.parents else RECIPES).as_posix()


def paper_config(name: str, *changes: str) -> RunConfig:
    return load_config(PAPERS / name, changes)


def recipes_of(command: str) -> set[str]:
    return {row["recipe"] for row in ROWS if row["command"] == command}


@pytest.mark.parametrize("recipe", FILES, ids=name_of)
def test_a_recipe_loads_and_its_methods_can_be_made(recipe: Path) -> None:
    config = load_config(recipe)
    assert [method.name for method in make_methods(config)] == list(config.methods)
    assert config.agent.max_response < config.agent.max_context


def test_small_files_on_one_base() -> None:
    for leaf in LEAVES:
        lines = leaf.read_text(encoding="utf-8").splitlines()
        assert any(line.startswith("extends = ") for line in lines), leaf
        assert len(lines) <= 20, leaf


def test_every_value_says_where_it_comes_from() -> None:
    for path in [*BASES, *LEAVES]:
        for line in path.read_text(encoding="utf-8").splitlines():
            if re.match(r"\w+ = ", line) and not line.startswith(("extends", "methods")):
                assert "  # " in line, f"{name_of(path)}: {line}"


@pytest.mark.parametrize("paper", ["actre", "epo", "seal", "aem"])
def test_the_rows_of_a_paper_have_their_recipes(paper: str) -> None:
    rows = [row for row in ROWS if row["paper"] == paper]
    assert rows
    for row in rows:
        assert set(row) - {"published", "note", "warmup"} == {
            "paper", "table", "task", "model", "method", "recipe", "command"
        }, row  # fmt: skip
        assert row["recipe"].startswith(f"{paper}/"), row
        config = paper_config(row["recipe"], f"policy.model={row['model']}")
        assert config.policy.model == row["model"]
        assert config.task.world == WORLDS[row["task"]], row
        assert row["command"] in ("train", "sft", "rft", "eval"), row
        assert (config.sft.source == "own") == (row["command"] == "rft"), row
        assert not (config.methods and row["command"] != "train"), row
        assert ("published" in row) == row["table"].startswith("Table"), row
        assert all(0 <= value <= 100 for value in row.get("published", {}).values()), row
        if "warmup" in row:
            assert paper_config(row["warmup"]).task.world == config.task.world, row


def test_a_row_stands_once() -> None:
    key = operator.itemgetter("paper", "table", "task", "model", "method")
    keys = [key(row) for row in ROWS]
    assert len(set(keys)) == len(keys)


def test_every_recipe_belongs_to_a_row_or_is_known_to_be_ours() -> None:
    used = {row["recipe"] for row in ROWS} | {row["warmup"] for row in ROWS if "warmup" in row}
    assert {name_of(leaf) for leaf in LEAVES} == used | OURS
    assert not used & OURS


def test_every_method_has_a_recipe() -> None:
    assert {method for leaf in LEAVES for method in load_config(leaf).methods} == set(METHODS.inside)


NUMBERS: list[tuple[str, dict[str, Any]]] = [
    ("actre/alfworld-grpo.toml", {"rollout.temperature": 0.6, "rollout.groups": 16, "rollout.group_size": 8}),
    ("actre/alfworld-sft.toml", {"sft.lr": 1e-5, "sft.source": "expert", "agent.order": "think_act"}),
    ("actre/webshop-sft-no-think.toml", {"sft.lr": 1e-5, "agent.order": "act"}),
    ("actre/webshop-grpo-higher-temperature.toml", {"method.higher_temperature.temperature": 1.2}),
    ("actre/alfworld-grpo-entreg.toml", {"method.entropy_bonus.coefficient": 0.001}),
    ("actre/alfworld-actre.toml", {"method.actre.temperature": 1.2, "method.actre.switch": 0.5}),
    ("actre/webshop-actre-no-stage2.toml", {"method.actre.variant": "no_stage2", "method.actre.switch": 0.5}),
    ("actre/alfworld-dapo-no-think.toml", {"learn.loss.clip_high": 0.28, "learn.kl": 0.0, "methods": ("no_think",)}),
    ("epo/alfworld-grpo.toml", {"task.max_turns": 50, "learn.lr": 5e-6, "learn.kl": 0.01, "run.steps": 150}),
    ("epo/alfworld-grpo.toml", {"learn.warmup": 0.1, "learn.floor": 0.2, "agent.max_context": 2048 + 512}),
    ("epo/alfworld-grpo.toml", {"methods": (), "learn.advantage.kind": "grpo", "agent.window": 2}),
    ("epo/alfworld-grpo-epo.toml", {"method.epo.alpha": 0.1, "method.epo.coefficient": 0.001}),
    ("epo/scienceworld-grpo-epo.toml", {"method.epo.alpha": 0.05, "learn.lr": 5e-6, "task.max_turns": 30}),
    ("epo/scienceworld-ppo-epo.toml", {"method.epo.alpha": 0.05, "learn.lr": 3e-6, "learn.advantage.kind": "gae"}),
    ("epo/scienceworld-ppo-epo.toml", {"method.epo.beta_start": 2.0, "method.epo.beta_end": 1.0}),
    ("epo/scienceworld-ppo-epo.toml", {"method.epo.kappa_high": 2.0, "method.epo.decay": 3.0, "run.steps": 125}),
    ("epo/scienceworld-ppo-epo-base.toml", {"method.epo.variant": "base", "method.epo.alpha": 0.05}),
    ("epo/scienceworld-ppo-ea.toml", {"method.ea.alpha": 0.4, "method.ea.kappa": 2.0, "learn.kl": 0.01}),
    ("epo/scienceworld-gigpo.toml", {"task.options": {"reward": "success"}, "learn.advantage.kind": "gigpo"}),
    ("seal/alfworld-grpo.toml", {"task.max_turns": 25, "learn.lr": 2e-6, "rollout.temperature": 1.0}),
    (
        "seal/alfworld-gigpo-seal.toml",
        {"learn.advantage.discount": 0.95, "learn.advantage.step_weight": 1.0, "method.seal.alpha": 0.1},
    ),
    ("seal/webshop-grpo.toml", {"task.max_turns": 10, "agent.max_context": 4096 + 512, "learn.kl": 0.01}),
    ("seal/webshop-gigpo-seal-alpha-0.3.toml", {"method.seal.alpha": 0.3, "method.seal.width": 256}),
    ("seal/search-qa-grpo.toml", {"rollout.groups": 256, "rollout.group_size": 5, "learn.kl": 0.001}),
    ("seal/search-qa-grpo-seal.toml", {"task.max_turns": 3, "task.success_reward": 1.0, "eval.temperature": 0.0}),
    ("seal/search-qa-grpo-seal.toml", {"task.invalid_reward": -0.01, "agent.window": 4, "methods": ("seal",)}),
    ("aem/alfworld-grpo-aem.toml", {"method.aem.strength": 1.0, "learn.kl": 0.01, "task.max_turns": 50}),
    (
        "aem/webshop-gspo-aem.toml",
        {"learn.loss.clip_low": 3e-4, "learn.loss.clip_high": 4e-4, "learn.loss.kind": "sequence"},
    ),
    ("aem/alfworld-dapo.toml", {"learn.loss.clip_low": 0.2, "learn.loss.clip_high": 0.28, "learn.overlong": 0.2}),
    ("aem/webshop-ppo.toml", {"learn.advantage.kind": "gae", "learn.kl": 0.01, "task.max_turns": 15}),
    (
        "aem/code-repair-deepswe-aem.toml",
        {"learn.advantage.kind": "rloo", "learn.kl": 0.0, "learn.loss.clip_high": 0.28},
    ),
    ("aem/code-repair-deepswe.toml", {"learn.mask_truncated": True, "learn.aggregation": "constant"}),
    ("verl-agent-vanilla.toml", {"method.entropy_bonus.coefficient": 0.001, "learn.advantage.stats": "steps"}),
]


@pytest.mark.parametrize(("name", "expected"), NUMBERS, ids=[name for name, _ in NUMBERS])
def test_numbers_of_the_papers(name: str, expected: dict[str, Any]) -> None:
    config = paper_config(name)
    table = as_table(config) | {"learn": as_table(with_options(config).learn)}
    for path, value in expected.items():
        found: Any = table
        for part in path.split("."):
            found = found[part]
        assert found == value, path


def test_as_many_episodes_for_all_methods_of_a_task() -> None:
    for base in (path for path in BASES if "papers" in path.parts):
        rollout = load_config(base).rollout
        for leaf in LEAVES:
            if leaf.parent == base.parent and leaf.stem.startswith(base.stem.removeprefix("base-") + "-"):
                mine = load_config(leaf).rollout
                assert mine.groups * mine.group_size == rollout.groups * rollout.group_size, leaf


def test_the_papers_gigpo_divides_both_parts() -> None:
    """As the published scripts do; never the mixed form, which no paper has."""
    configs = {name_of(leaf): load_config(leaf).learn for leaf in LEAVES if "gigpo" in leaf.stem}
    assert len(configs) == 10
    for name, learn in configs.items():
        found = (learn.algorithm, learn.advantage.kind, learn.advantage.options["divide_by_std"])
        assert found == ("gigpo", "gigpo", True), name


def test_baselines_have_no_entropy_bonus() -> None:
    for row in ROWS:
        if row["method"].lower() in ("grpo", "ppo", "dapo", "gspo", "gigpo", "deepswe"):
            assert not paper_config(row["recipe"]).methods, row


def distinct_household_runs() -> list[Path]:
    """One recipe for each combination of algorithm, methods and their options that trains in the household world."""
    not_trained = recipes_of("sft") | recipes_of("rft") | recipes_of("eval") | {"seal/alfworld-midtrain.toml"}
    found: dict[str, Path] = {}
    for leaf in LEAVES:
        config = load_config(leaf)
        if config.task.world == "household" and name_of(leaf) not in not_trained:
            stats = config.learn.advantage.options.get("stats", "episodes")
            key = [config.learn.algorithm, stats, config.methods, config.method]
            found.setdefault(json.dumps(key, sort_keys=True), leaf)
    return list(found.values())


@pytest.mark.parametrize("recipe", distinct_household_runs(), ids=name_of)
def test_a_tiny_run(recipe: Path, tmp_path: Path) -> None:
    config = load_config(recipe)
    changes = [*TINY, *(["agent.max_response=5"] if "no_think" in config.methods else [])]
    changes += ["learn.resample=2"] if config.learn.resample else []
    train(load_config(recipe, changes), tmp_path / "run", quiet=True)
    lines = (tmp_path / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    steps = [entry for entry in map(json.loads, lines) if entry["kind"] == "train"]
    assert [step["step"] for step in steps] == [1, 2]
    for step in steps:
        assert all(math.isfinite(value) for value in step.values() if isinstance(value, float))
    assert any(step.get("grad_norm", 0) > 0 for step in steps), f"TINY no longer suits the pocket model: {steps}"
    for method in config.methods:
        assert method not in TRACES or any(TRACES[method] in step for step in steps), steps


@pytest.mark.parametrize("name", ["actre/alfworld-sft.toml", "actre/alfworld-sft-no-think.toml"])
def test_one_pass_of_imitation(name: str, tmp_path: Path) -> None:
    config = paper_config(name, *TINY, "task.max_turns=20", "agent.max_response=64", "agent.max_context=1536")
    warm_up(config, tmp_path / "run", quiet=True)
    assert '"sft/loss"' in (tmp_path / "run" / "metrics.jsonl").read_text(encoding="utf-8")


def test_own_games(tmp_path: Path) -> None:
    # in three turns nothing is solved: the run gets as far as it can, and says why it stops
    with pytest.raises(TaskError, match="nothing to imitate"):
        warm_up(paper_config("actre/alfworld-rft.toml", *TINY), tmp_path / "run", quiet=True)
