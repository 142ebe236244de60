"""The plug-in for verl on its real data structures: DataProto, nested TensorDicts, its losses and its trainer's class.
A whole verl run does not start without a GPU."""

from __future__ import annotations

import importlib
import tomllib
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

pytest.importorskip("verl", reason="needs verl: see docs/plugins/verl.md")

from isentrope.core.errors import ConfigError, TrainError
from isentrope.core.method import Method
from isentrope.core.types import Episode, Term, TokenBatch, TokenStats
from isentrope.learning import hooks
from isentrope.learning.packing import micro_batches
from isentrope.learning.tokens import flatten
from isentrope.methods.registry import make_listed
from isentrope.plugins import verl as plugin
from isentrope.plugins.verl import checks
from isentrope.plugins.verl.data import places_of, step_of
from isentrope.plugins.verl.loss import entropy_ppo_loss, losses, padding
from isentrope.plugins.verl.trainer import STATE, EntropyTrainer
from tests.builders.turns import turn

verl: Any = importlib.import_module("verl")
tensordict: Any = importlib.import_module("tensordict")
ROWS, GROUP, WORDS = 8, 4, 96


def read_piece(number: int) -> bytes:
    tags = (b"<think>", b"</think>", b"<action>", b"</action>")
    return tags[number] if number < len(tags) else f" w{number}".encode()


class Made:
    """Ragged conversations of one to four turns with numbers of their own, in verl's form and as episodes of ours."""

    def __init__(self, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.prompts, self.responses, self.masks = list[Tensor](), list[Tensor](), list[Tensor]()
        for row in range(ROWS):
            ids: list[int] = []
            mask: list[int] = []
            for place in range(1 + int(rng.integers(0, 4))):
                told = rng.integers(9, WORDS, int(rng.integers(1, 5))).tolist() if place else []
                said = rng.integers(9, WORDS, int(rng.integers(1, 7))).tolist()
                said = [0, *said, 1, 2, 9, 3] if rng.random() < 0.5 else said
                ids, mask = ids + told + said, mask + [0] * len(told) + [1] * len(said)
            self.prompts.append(torch.tensor(rng.integers(9, WORDS, 1 + row % 3)))
            self.responses.append(torch.tensor(ids))
            self.masks.append(torch.tensor(mask))
        self.logp = [torch.tensor(-rng.random(len(ids)) * 3, dtype=torch.float32) for ids in self.responses]
        self.entropy = [torch.tensor(rng.random(len(ids)) * 3, dtype=torch.float32) for ids in self.responses]
        self.rewards = rng.integers(0, 3, ROWS) / 2
        self.keys = [f"u_{row // GROUP}_{row % GROUP}_0" for row in range(ROWS)]

    def nested(self, parts: list[Tensor]) -> Tensor:
        return torch.nested.as_nested_tensor(parts, layout=torch.jagged)

    def scores(self) -> list[Tensor]:
        made = [torch.zeros(len(ids)) for ids in self.responses]
        for row, reward in zip(made, self.rewards, strict=True):
            row[-1] = reward
        return made

    def queue(self) -> Any:
        fields = {
            "responses": self.nested(self.responses), "response_mask": self.nested(self.masks),
            "old_log_probs": self.nested(self.logp), "entropy": self.nested(self.entropy),
            "rm_scores": self.nested(self.scores()),
        }  # fmt: skip
        return tensordict.TensorDict(fields, batch_size=ROWS)

    def padded(self) -> Any:
        """As verl's DataProto holds it, with verl's own GRPO advantages."""
        from verl.trainer.ppo.core_algos import AdvantageEstimator
        from verl.trainer.ppo.v1.utils import compute_advantage_for_multi_trajectories

        data = verl.DataProto(batch=self.queue().to_padded_tensor())
        data.batch["token_level_scores"] = data.batch["token_level_rewards"] = data.batch["rm_scores"]
        data.non_tensor_batch["uid"] = np.array([key.rsplit("_", 2)[0] for key in self.keys], dtype=object)
        return compute_advantage_for_multi_trajectories(data, self.keys, AdvantageEstimator.GRPO)

    def episodes(self) -> list[Episode]:
        from isentrope.agent.response_format import parse_response

        made: list[Episode] = []
        for row in range(ROWS):
            ids, mask, turns, at = self.responses[row].tolist(), self.masks[row].tolist(), list[Any](), 0
            context: list[int] = self.prompts[row].tolist()
            while 1 in mask[at:]:
                begin = at + mask[at:].index(1)
                end = begin + [*mask[begin:], 0].index(0)
                parsed = parse_response([read_piece(i) for i in ids[begin:end]], "think_act", "eos")
                changes: dict[str, Any] = {
                    "context_ids": np.array(context + ids[at:begin], dtype=np.int32), "continues": bool(turns),
                    "response_ids": np.array(ids[begin:end], dtype=np.int32), "think_span": parsed.think_span,
                    "action_span": parsed.action_span, "verdict": parsed.verdict,
                    "temperatures": np.ones(end - begin, dtype=np.float32),
                }  # fmt: skip
                turns.append(turn(self.entropy[row][begin:end], logprobs=self.logp[row][begin:end].numpy(), **changes))
                context, at = [], end
            success = bool(self.rewards[row] >= 1)
            place = ("made up", "train", row, "", "", row // GROUP, row % GROUP, "think_act")
            made.append(Episode(*place, tuple(turns), success=success, stop="terminated" if success else "turn_limit"))
        return made


SETS: list[list[Any]] = [["aem"], ["ea"], [("epo", {"coefficient": 0.3})], ["aem", "ea", ("epo", {"coefficient": 0.3})]]


@pytest.mark.parametrize("listed", SETS)
def test_advantages_are_those_of_our_own_hooks(listed: list[Any]) -> None:
    """Three steps of the same methods on verl's batch, and on the same episodes as our learner has them: the table,
    what `begin` and `shape` record, and every advantage."""
    theirs, ours = make_listed(listed, 3, 0), make_listed(listed, 3, 0)
    for number in range(3):
        made = Made(number)
        data = made.padded()
        step = step_of(data.batch, made.keys, read_piece, ("action",), 1.0, 1.0)
        _, tokens = flatten(made.episodes())
        for column in ("target_N", "logp_N", "entropy_N", "episode_N", "turn_N", "group_N", "part_N", "success_N"):
            np.testing.assert_array_equal(getattr(step.table.tokens, column), getattr(tokens, column), err_msg=column)
        for column in ("episode_U", "place_U", "valid_U", "solved_E", "failed_E"):
            np.testing.assert_array_equal(getattr(step.table.tokens, column), getattr(tokens, column), err_msg=column)
        before_N = step.per_token(data.batch["advantages"])
        advantages_E = data.batch["advantages"][torch.arange(ROWS), data.batch["response_mask"].argmax(dim=1)].numpy()
        np.testing.assert_allclose(before_N, advantages_E[tokens.episode_N])
        assert hooks.begin(theirs, number + 1, step.table.tokens) == hooks.begin(ours, number + 1, tokens)
        mine, told = hooks.shaped(ours, number + 1, tokens, advantages_E[tokens.episode_N])
        given, also = hooks.shaped(theirs, number + 1, step.table.tokens, before_N)
        assert told == pytest.approx(also)
        padded = step.padded(given, data.batch["advantages"])
        row_N, col_N = data.batch["response_mask"].bool().nonzero(as_tuple=True)
        np.testing.assert_allclose(padded[row_N, col_N].numpy(), mine, rtol=1e-5, atol=1e-5)
        assert not padded[~data.batch["response_mask"].bool()].any()


def test_rows_in_any_order_and_several_rows_of_an_episode() -> None:
    """verl balances rows over its workers, and an agent loop may give several outputs."""
    keys = ["b_1_1", "a_0_0", "b_0_0", "a_1_0", "b_1_0", "x_y_0_0"]
    places = places_of(keys)
    assert [keys[row] for row in places.order_B] == ["b_1_0", "b_1_1", "b_0_0", "a_0_0", "a_1_0", "x_y_0_0"]
    assert places.episode_B.tolist() == [0, 0, 1, 2, 3, 4]
    assert places.group_E.tolist() == [0, 0, 1, 1, 2]
    with pytest.raises(TrainError, match="'nonsense' of a row of verl: expected UID_SESSION_NUMBER"):
        places_of(["nonsense"])
    made = Made()
    data = made.padded()
    shuffled = np.random.default_rng(1).permutation(ROWS)
    other = step_of(
        data.batch[torch.from_numpy(shuffled)], [made.keys[i] for i in shuffled], read_piece, ("action",), 1, 1
    )
    straight = step_of(data.batch, made.keys, read_piece, ("action",), 1, 1)
    assert sorted(other.table.tokens.entropy_N.tolist()) == sorted(straight.table.tokens.entropy_N.tolist())
    assert (np.diff(other.table.tokens.episode_N) >= 0).all()
    assert (np.diff(other.table.tokens.group_N) >= 0).all()
    values = torch.arange(float(data.batch["advantages"].numel())).view_as(data.batch["advantages"])
    back = other.padded(other.per_token(values[torch.from_numpy(shuffled)]), torch.zeros_like(values))
    mask = data.batch["response_mask"].bool()
    assert torch.equal(back, (values * mask)[torch.from_numpy(shuffled)])


def test_a_batch_without_entropies() -> None:
    batch = Made().padded().batch
    del batch["entropy"]
    with pytest.raises(TrainError, match=r"has no entropy: .*bypass_mode=False"):
        step_of(batch, Made().keys, read_piece, ("action",), 1.0, 1.0)


class Hidden(Method):
    """Its term is made of hidden states."""

    name = "hidden"

    def loss(self, batch: TokenBatch, stats: TokenStats) -> Term:
        return Term(stats.hidden_ND.sum())


def worker_data(made: Made, rows: list[int], logp: list[Tensor], entropy: list[Tensor], **told: Any) -> Any:
    """A micro-batch as verl's engine hands it to the loss: nested tensors, and the model's output over whole rows."""
    from verl.utils import tensordict_utils as tu

    def some(parts: list[Tensor]) -> Tensor:
        return torch.nested.as_nested_tensor([parts[row] for row in rows], layout=torch.jagged)

    advantages = [mask * 0.5 for mask in made.masks]
    tensors = {
        "prompts": some(made.prompts), "responses": some(made.responses), "response_mask": some(made.masks),
        "old_log_probs": some(made.logp), "advantages": some(advantages),
    }  # fmt: skip
    data = tu.get_tensordict(tensor_dict=tensors, non_tensor_dict=told)

    def output(parts: list[Tensor]) -> Tensor:
        """Of all tokens of a row: what stands at a place is of the token behind it."""
        rows_of = [torch.cat([torch.zeros(len(made.prompts[r]) - 1), parts[r], torch.zeros(1)]) for r in rows]
        return torch.nested.as_nested_tensor(rows_of, layout=torch.jagged)

    return data, {"log_probs": output(logp), "entropy": output(entropy)}


def actor_config(**changes: Any) -> Any:
    from verl.workers.config import FSDPActorConfig

    return FSDPActorConfig(
        strategy="fsdp", rollout_n=GROUP, ppo_micro_batch_size_per_gpu=4, ppo_mini_batch_size=8, **changes
    )


@pytest.mark.parametrize("micro", [[[*range(8)]], [[0, 3], [1, 2, 7], [4, 5, 6]]])
@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize(
    "listed",
    [
        [("entropy_bonus", {"coefficient": 0.3})],
        [("entropy_bonus", {"coefficient": 0.3, "aggregation": "token"})],
        [("epo", {"coefficient": 0.3, "kappa_high": 0.7, "kappa_low": 0.5})],
        [("entropy_bonus", {"coefficient": 0.1}), ("epo", {"coefficient": 0.3, "kappa_high": 0.7})],
    ],
)
def test_terms_and_their_gradients_are_our_learners(listed: list[Any], processes: int, micro: list[list[int]]) -> None:
    """A mini-batch in one piece and in ragged pieces, with one and two data-parallel processes, whose gradients verl
    averages: loss and gradient of every entropy equal those of our own batches to 1e-5."""
    made, methods, ours = Made(5), make_listed(listed, 4, 0), make_listed(listed, 4, 0)
    _, tokens = flatten(made.episodes())
    for step in (1, 2):
        hooks.begin(methods, step, tokens)
        hooks.begin(ours, step, tokens)
    entropy = [part.clone().requires_grad_() for part in made.entropy]
    logp = [part.clone().requires_grad_() for part in made.logp]
    told = {"dp_size": processes, "batch_num_tokens": int(sum(m.sum() for m in made.masks)), "global_batch_size": ROWS}
    total, plain = torch.zeros(()), torch.zeros(())
    for rows in micro:  # each a process's share in turn
        for terms in (methods, []):
            data, output = worker_data(made, rows, logp, entropy, **told)
            loss, metrics = entropy_ppo_loss(actor_config(), output, data, methods=terms)
            total, plain = (total + loss, plain) if terms else (total, plain + loss)
        assert "actor/pg_loss" in metrics
    term = (total - plain) / processes
    term.backward()
    sequences, table = flatten(made.episodes())
    (batch,) = micro_batches(sequences, table, constant_length=1.0)
    entropy_N = torch.from_numpy(table.entropy_N)[torch.from_numpy(batch.number_N)].clone().requires_grad_()
    stats = TokenStats(batch.old_logp_N, entropy_N, torch.zeros(len(entropy_N), 0), torch.zeros(0))
    losses_of, _ = hooks.terms(ours, batch, stats)
    expected: Tensor = torch.stack(losses_of).sum()
    expected.backward()
    assert float(term) == pytest.approx(float(expected), rel=1e-5, abs=1e-6)
    theirs_N = torch.cat([part.grad[mask.bool()] for part, mask in zip(entropy, made.masks, strict=True)])
    mine_N = torch.zeros(len(table.entropy_N))
    mine_N[torch.from_numpy(batch.number_N)] = entropy_N.grad
    np.testing.assert_allclose(theirs_N.numpy(), mine_N.numpy(), rtol=1e-5, atol=1e-7)
    assert float(theirs_N.abs().max()) > 1e-3
    assert not any(bool(part.grad[~mask.bool()].any()) for part, mask in zip(entropy, made.masks, strict=True))


def test_without_methods_the_loss_is_verls_bit_for_bit() -> None:
    made = Made(2)
    told = {"dp_size": 1, "batch_num_tokens": int(sum(m.sum() for m in made.masks)), "global_batch_size": ROWS}
    given = [worker_data(made, [*range(ROWS)], made.logp, made.entropy, **told) for _ in range(2)]
    mine, theirs = (
        fn(actor_config(), out, data)
        for fn, (data, out) in zip((entropy_ppo_loss, losses.ppo_loss), given, strict=True)
    )
    assert torch.equal(mine[0], theirs[0])
    assert {key: getattr(value, "values", value) for key, value in mine[1].items()} == {
        key: getattr(value, "values", value) for key, value in theirs[1].items()
    }


def test_a_loss_without_what_it_needs() -> None:
    made, methods = Made(), make_listed(["entropy_bonus"], 1, 0)
    told = {"dp_size": 1, "batch_num_tokens": 10, "global_batch_size": ROWS}
    data, output = worker_data(made, [0, 1], made.logp, made.entropy, **told)
    with pytest.raises(TrainError, match="calculate_entropy=True"):
        entropy_ppo_loss(actor_config(), {"log_probs": output["log_probs"]}, data, methods=methods)
    data, output = worker_data(made, [0, 1], made.logp, made.entropy, **told | {"batch_num_tokens": None})
    with pytest.raises(TrainError, match="no batch_num_tokens"):
        entropy_ppo_loss(actor_config(), output, data, methods=methods)


# -- the trainer's class, on a queue of the test's own


class Queue:
    """What of verl's TransferQueue the trainer calls."""

    def __init__(self, data: Any) -> None:
        self.data = data

    def kv_batch_get(self, keys: Any, partition_id: str, select_fields: list[str]) -> Any:
        return self.data.select(*select_fields)

    def kv_batch_put(self, keys: Any, partition_id: str, fields: Any) -> Any:
        self.data.update(fields)
        return SimpleNamespace(keys=keys, partition_id=partition_id)


class Base:
    """verl's own, as far as it is called."""

    saved = 0

    def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
        made: Made = self.made  # type: ignore[attr-defined]
        advantages = made.padded().batch["advantages"]
        fields = {"advantages": padding.response_to_nested(advantages, made.nested(made.masks))}
        self.queue.data.update(tensordict.TensorDict(fields, batch_size=ROWS))  # type: ignore[attr-defined]
        return batch

    def _update_actor(self, batch: Any, metrics: dict[str, Any]) -> Any:
        return batch

    def _save_checkpoint(self) -> None:
        self.saved += 1

    def _load_checkpoint(self) -> None: ...


class Trainer(EntropyTrainer, Base):
    padding = padding

    def __init__(self, made: Made, methods: Any, folder: Path, **more: Any) -> None:
        from omegaconf import OmegaConf

        actor = {"calculate_entropy": True, "data_loader_seed": 1} | more
        self.config = OmegaConf.create(
            {"isentrope": {"methods": methods}, "trainer": {"default_local_dir": str(folder)},
             "actor_rollout_ref": {"actor": actor, "rollout": {"temperature": 1.0}}}
        )  # fmt: skip
        self.made, self.queue, self.global_steps, self.total_training_steps = made, Queue(made.queue()), 1, 4
        self.sent: list[Any] = []
        self.actor_rollout_wg = SimpleNamespace(set_loss_fn=self.sent.append)

    def _actor_config(self) -> Any:
        return actor_config()

    def shaped(self, padded: Any, keys: list[str]) -> Any:
        import isentrope.plugins.verl.trainer as module

        module.piece_reader = lambda tokenizer: read_piece  # the test has no tokenizer
        self.tokenizer = None
        return super().shaped(padded, keys)


BATCH = SimpleNamespace(partition_id="train", keys=Made().keys)


def test_a_step_of_the_trainer(tmp_path: Path) -> None:
    made = Made()
    trainer = Trainer(made, ["aem", {"epo": {"coefficient": 0.3}}], tmp_path)
    metrics: dict[str, Any] = {}
    batch = trainer._compute_advantage(BATCH, metrics)
    data = made.padded()
    step = step_of(data.batch, made.keys, read_piece, ("action",), 1.0, 1.0)
    methods = make_listed(["aem"], 4, 1)
    given, told = hooks.shaped(methods, 1, step.table.tokens, step.per_token(data.batch["advantages"]))
    expected = step.padded(given, data.batch["advantages"])
    assert torch.equal(trainer.queue.data["advantages"].to_padded_tensor(0.0), expected)
    assert not torch.equal(expected, data.batch["advantages"])
    assert metrics["isentrope/aem/weight_max"] == pytest.approx(told["aem/weight_max"])
    assert metrics["isentrope/epo/coefficient"] == 0.3
    trainer._update_actor(batch, metrics)
    (sent,) = trainer.sent
    assert isinstance(sent, partial)
    assert [method.name for method in sent.keywords["methods"]] == ["epo"]
    import cloudpickle  # ray's own way to the workers

    again = cloudpickle.loads(cloudpickle.dumps(sent))
    assert again.keywords["methods"][0].history == trainer.methods[1].history


def test_state_goes_with_checkpoints(tmp_path: Path) -> None:
    trainer = Trainer(Made(), [{"epo": {"coefficient": 0.3}}], tmp_path)
    trainer._compute_advantage(BATCH, {})
    trainer._save_checkpoint()
    assert trainer.saved == 1
    again = Trainer(Made(), [{"epo": {"coefficient": 0.3}}], tmp_path)
    again._load_checkpoint()
    assert again.methods[0].state_dict() == trainer.methods[0].state_dict()
    (tmp_path / "global_step_1" / STATE).write_bytes(b"cut")
    with pytest.raises(TrainError, match="no state of the methods can be read"):
        Trainer(Made(), ["epo"], tmp_path)._load_checkpoint()
    other = Trainer(Made(), ["aem"], tmp_path)
    torch.save({}, tmp_path / "global_step_1" / STATE)
    with pytest.raises(TrainError, match="no state of the method 'aem'"):
        other._load_checkpoint()


@pytest.mark.parametrize(
    ("methods", "error"),
    [
        (["actre"], "it changes how responses are sampled"),
        (["seal"], "its hook `updated` has no place"),
        (["tests.plugins.test_verl:Hidden"], "its term needs more than entropies"),
        (["eop"], "did you mean epo"),
        ("aem", "expected a list"),
        ([{"aem": {}, "ea": {}}], "expected a name, or"),
        ([3], "expected a name, or"),
        ([{"epo": {"coeficient": 1}}], "did you mean"),
    ],
)
def test_mistakes(tmp_path: Path, methods: Any, error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        _ = Trainer(Made(), methods, tmp_path).methods


def test_a_term_without_entropies_is_refused_before_anything_is_trained(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="calculate_entropy=True"):
        _ = Trainer(Made(), ["epo"], tmp_path, calculate_entropy=False).methods
    assert Trainer(Made(), ["aem"], tmp_path, calculate_entropy=False).methods[0].name == "aem"


def test_without_methods_nothing_is_done(tmp_path: Path) -> None:
    trainer = Trainer(Made(), [], tmp_path)
    assert trainer._compute_advantage(BATCH, {}) is BATCH
    trainer._update_actor(BATCH, {})
    trainer._save_checkpoint()
    trainer._load_checkpoint()
    assert trainer.sent == []
    assert list(tmp_path.iterdir()) == []


def test_verl_knows_the_trainer() -> None:
    pytest.importorskip("transfer_queue", reason="needs verl's TransferQueue")
    name = plugin.register()
    assert name == "isentrope_sync"
    from verl.trainer.ppo.v1 import get_trainer_cls

    kind = get_trainer_cls(name)
    assert kind.__mro__[1] is EntropyTrainer
    assert kind._compute_advantage is EntropyTrainer._compute_advantage
    assert plugin.register() == name  # a second time is none


def test_versions() -> None:
    checks.check_version("0.9.1")
    with pytest.warns(UserWarning, match=r"verl 0\.10 was not tested"):
        checks.check_version("0.10")


def test_verl_finds_the_plug_in_by_its_entry_point() -> None:
    table = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    module = table["project"]["entry-points"]["verl.plugins"]["isentrope"]
    importlib.import_module(module)  # it registers as it is imported, and never fails
