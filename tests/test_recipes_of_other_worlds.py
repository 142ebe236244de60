"""The papers' recipes for the worlds beside the household: one tiny step each, offline, with the world's own data.

The model is tiny and random, so nothing that it says is an action. What is tried is that recipe, prompt, world and
method fit together; tests of the worlds and of the methods look at the rest.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from isentrope.config.load import load_config
from isentrope.loop.train import train
from isentrope.worlds.registry import WORLDS
from tests.test_recipes import PAPERS, TRACES

TINY = [
    "agent.max_response=48", "agent.max_context=6000", "task.max_turns=2", "rollout.groups=1", "rollout.group_size=2",
    "rollout.batch=2", "learn.mini_batches=1", "run.steps=1", "run.eval_every=0", "run.device=cpu", "run.threads=1",
    "eval.games=1", "eval.quick_games=1", "eval.splits=test",
    "learn.resample=0", "learn.mask_truncated=false",  # all episodes go alike and are cut off: nothing would be left
]  # fmt: skip
RECIPES = (
    "seal/webshop-gigpo-seal.toml",
    "seal/search-qa-grpo-seal.toml",
    "aem/code-repair-deepswe-aem.toml",
    "epo/scienceworld-grpo-epo.toml",
)


@pytest.fixture(scope="module", name="model")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("transformers", reason="pip install 'isentrope[hf]'")
    from tests.models.test_hugging_face import make_folder

    folder = make_folder(tmp_path_factory.mktemp("tiny"))
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config["max_position_embeddings"] = 8192  # prompts are long; positions are rotations, so there is nothing to learn
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


@pytest.mark.parametrize("name", RECIPES)
def test_one_step(name: str, model: Path, tmp_path: Path) -> None:
    config = load_config(PAPERS / name, [*TINY, f"policy.model={model}"])
    if missing := WORLDS[config.task.world].needs.missing():
        pytest.skip(f"{config.task.world} needs {'; '.join(missing)}")
    train(config, tmp_path / "run", quiet=True)
    lines = (tmp_path / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    (step,) = [entry for entry in map(json.loads, lines) if entry["kind"] == "train"]
    assert all(math.isfinite(value) for value in step.values() if isinstance(value, float)), step
    assert (step["failures"], step["episode/turns"], step["update/count"]) == (0, 2, 1), step
    (method,) = config.methods
    assert TRACES[method] in step, step
