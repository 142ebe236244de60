"""Runs of the toy world that are small enough to be made many times in a test: their model and their settings."""

from __future__ import annotations

from pathlib import Path

from isentrope.config.load import load_config
from isentrope.config.schema import RunConfig
from isentrope.models.llama import Llama, Shape
from isentrope.models.sources.pocket import PocketTokens

PHRASES = [
    "One more.",
    "add one",
    "take one",
    "look",
    "You see a number. The number is",
    " 1",
    " 2",
    "reach",
    "Nothing",
]


# 7,000 weights, warmed up in all forms of a response: thinks, acts and solves a game now and then
WARM_MODEL = Path(__file__).parents[1] / "golden" / "model"


def make_model(folder: Path) -> Path:
    """A model of random weights in the pocket format."""
    import torch

    folder.mkdir(parents=True, exist_ok=True)
    tokens = PocketTokens(PHRASES)
    model = Llama(Shape(vocabulary=tokens.size, width=16, layers=1, heads=2, kv_heads=1, inner=32))
    model.initialise(torch.Generator().manual_seed(5))
    model.save(folder)
    tokens.save(folder)
    return folder


def toy_config(model: Path, *changes: str) -> RunConfig:
    return load_config(
        None,
        [
            "task.world=tests.toys:ToyWorld",
            "task.max_turns=4",
            "agent.prompt=brief",
            "agent.max_response=10",
            "agent.max_context=400",
            f"policy.model={model}",
            "run.threads=1",
            "run.device=cpu",
            "run.steps=6",
            "run.checkpoint_every=2",
            "run.eval_every=3",
            "rollout.groups=2",
            "rollout.group_size=3",
            "learn.lr=1e-3",
            "learn.mini_batches=2",
            "eval.splits=['seen']",
            "eval.games=6",
            "eval.quick_games=4",
            "methods=['entropy_bonus']",
            "sft.games=6",
            "sft.batch_games=3",
            "sft.epochs=3",
            *changes,
        ],
    )
