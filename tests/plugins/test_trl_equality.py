"""In TRL the methods compute what they compute in our learner: advantages, terms and gradients on the same batch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("trl", reason="needs TRL: pip install -e '.[trl]'")

from isentrope.methods.registry import Listed
from isentrope.plugins.trl import EntropyGRPOTrainer
from tests.plugins.trl_lab import (
    Gradients,
    OurLearner,
    Talks,
    Weighing,
    compare,
    make_folder,
    make_trainer,
    same_gradients,
    settings,
)

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
        compare(ours, seen, k, rows, trainer.state.log_history[k])


@pytest.mark.parametrize("name", CARRIED)
def test_as_in_our_learner(model: Path, tmp_path: Path, name: str) -> None:
    same_as_ours(model, tmp_path, CARRIED[name])


def test_at_another_temperature_in_another_model(tmp_path: Path) -> None:
    model = make_folder(tmp_path / "model", "qwen2")
    same_as_ours(model, tmp_path / "run", CARRIED["all"], temperature=0.8, gradient_accumulation_steps=4)


@pytest.mark.parametrize("beta", [0.0, 1e-9])  # with the second TRL scores the rollout with its reference too
def test_several_updates_of_a_rollout(model: Path, tmp_path: Path, beta: float) -> None:
    """Two passes over a rollout of four micro-batches, two for each update: terms have the denominator of their own
    update. TRL's loss has another one, so rewards are even here and it has no gradient."""
    methods: list[Listed] = [("epo", {"coefficient": 0.5}), ("seal", {"alpha": 0.5, "groups": "mixed"}), Weighing]
    seen, talks = Gradients(), Talks(even=True)
    args = settings(tmp_path, steps_per_generation=4, num_iterations=2, max_steps=8, beta=beta)
    trainer = make_trainer(EntropyGRPOTrainer, model, args, talks, [seen], methods=methods)
    seen.trainer = trainer
    trainer.train()
    ours = OurLearner(model, methods, steps=2)
    assert [len(rows) for rows in talks.given] == [16, 16]
    for k, rows in enumerate(talks.given):
        ours.in_parts(seen.rows[4 * k : 4 * k + 2], epochs=2)
        credited, _, taken = ours.step(k + 1, rows, seen.base[4 * k])
        np.testing.assert_allclose(seen.advantages[4 * k], credited.advantage_N, atol=1e-5)
        for theirs, mine in zip(seen.seen[4 * k : 4 * k + 4], taken, strict=True):
            same_gradients(theirs, mine)


@pytest.mark.parametrize(
    "changes",
    [{"loss_type": kind} for kind in ("grpo", "bnpo", "dr_grpo", "cispo", "sapo", "vespo", "luspo")]
    + [{"importance_sampling_level": "sequence"}, {"gradient_checkpointing": True}, {"top_entropy_quantile": 0.5}],
    ids=lambda changes: "-".join(map(str, changes.values())),
)
def test_terms_beside_every_loss_of_trl(model: Path, tmp_path: Path, changes: Any) -> None:
    """What a term adds to the gradient does not depend on TRL's own loss, which has none here."""
    taken: list[Any] = []
    for methods in ([], [("epo", {"coefficient": 0.5})]):
        seen = Gradients()
        args = settings(tmp_path, max_steps=1, **changes)
        seen.trainer = trainer = make_trainer(EntropyGRPOTrainer, model, args, Talks(True), [seen], methods=methods)
        trainer.train()
        taken.append(seen.seen[0])
    alone = OurLearner(model, [("epo", {"coefficient": 0.5})])
    talks = Talks(True)
    rows = [talks.talk(trainer, "0", i) for i in range(8)]
    _, _, (mine,) = alone.step(1, rows, [0.0] * 8)
    same_gradients([after - before for before, after in zip(*taken, strict=True)], mine)


@pytest.mark.parametrize("kind", ["grpo", "bnpo", "dr_grpo", "cispo", "sapo", "dapo", "luspo"])
def test_weights_multiply_the_policy_loss_of_every_kind(model: Path, tmp_path: Path, kind: str) -> None:
    """Half the weight, half the gradient."""

    class Half(Weighing):
        name = "half"
        share = 0.5

        def weigh(self, batch: Any, stats: Any) -> Any:
            return stats.logp_N.new_full(stats.logp_N.shape, self.share)

        def loss(self, batch: Any, stats: Any) -> Any:
            return None

    taken: list[Any] = []
    for share in (1.0, 0.5):
        Half.share = share
        seen = Gradients()
        args = settings(tmp_path, max_steps=1, loss_type=kind)
        seen.trainer = make_trainer(EntropyGRPOTrainer, model, args, Talks(), [seen], methods=[Half])
        seen.trainer.train()
        taken.append(seen.seen[0])
    same_gradients([2 * gradient for gradient in taken[1]], taken[0])
