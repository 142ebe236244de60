"""In TRL the methods compute what they compute in our learner: advantages, terms and gradients on the same batch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl", reason="needs TRL: pip install -e '.[trl]'")

from isentrope.methods.registry import Listed
from isentrope.plugins.trl import EntropyGRPOTrainer
from tests.plugins.trl_lab import Gradients, OurLearner, Talks, Weighing, compare, make_folder, make_trainer, settings

CARRIED: dict[str, list[Listed]] = {
    "none that acts": [("epo", {"coefficient": 0.0})],
    "aem": ["aem"],
    "aem, falling": [("aem", {"strength": 2.0, "leave_out": "falling"})],
    "ea": ["ea"],
    "epo": [("epo", {"coefficient": 0.5})],
    "epo, decay": [("epo", {"coefficient": 0.5, "variant": "decay"})],
    "epo, indicator": [("epo", {"coefficient": 0.5, "penalty": "indicator"})],
    "entropy bonus by turn": [("entropy_bonus", {"coefficient": 0.1, "aggregation": "turn"})],
    "entropy bonus by token": [("entropy_bonus", {"coefficient": 0.1, "aggregation": "token"})],
    "entropy bonus by sequence": [("entropy_bonus", {"coefficient": 0.1, "aggregation": "sequence"})],
    "seal": [("seal", {"alpha": 0.5})],
    "seal, mixed, before": [("seal", {"alpha": 0.5, "groups": "mixed", "state": "before"})],
    "seal, advantage": [("seal", {"alpha": 0.5, "label": "advantage"})],
    "weights": [Weighing],
    "all": ["aem", "ea", ("epo", {"coefficient": 0.5}), ("seal", {"alpha": 0.5}), Weighing],
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("llama"))


def same_as_ours(model: Path, folder: Path, methods: Sequence[Listed], **changes: Any) -> None:
    seen, talks = Gradients(), Talks()
    args = settings(folder, **changes)
    trainer = make_trainer(EntropyGRPOTrainer, model, args, talks, [seen], methods=methods)
    seen.trainer = trainer
    trainer.train()
    ours = OurLearner(model, methods, temperature=args.temperature)
    assert len(talks.given) == 3
    for k, rows in enumerate(talks.given):
        logged = trainer.state.log_history[k]
        compare(ours, k + 1, rows, seen.base[k], seen.advantages[k], seen.seen[k], logged)


@pytest.mark.parametrize("name", CARRIED)
def test_as_in_our_learner(model: Path, tmp_path: Path, name: str) -> None:
    same_as_ours(model, tmp_path, CARRIED[name])


def test_at_another_temperature_in_another_model(tmp_path: Path) -> None:
    model = make_folder(tmp_path / "model", "qwen2")
    same_as_ours(model, tmp_path / "run", CARRIED["all"], temperature=0.8, gradient_accumulation_steps=4)
