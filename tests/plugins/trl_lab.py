"""A tiny model, made-up conversations for TRL's `rollout_func`, and the same batch in our learner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from isentrope.config.schema import Choice, LearnSettings, RunConfig, RunSettings
from isentrope.core.advantage import Advantage, Estimate, Outcomes
from isentrope.core.method import Method
from isentrope.core.types import Episode, StepTokens, Term, TokenBatch, TokenStats
from isentrope.learning.learner import Credited, Learner
from isentrope.learning.packing import micro_batches
from isentrope.learning.tokens import flatten
from isentrope.methods.registry import Listed, make_listed
from isentrope.metrics.episodes import rollout_metrics
from isentrope.models.load import load_folder
from isentrope.models.policy import Policy
from tests.builders.turns import turn

INSTALL = "needs TRL: pip install -e '.[trl]'"
trl: Any = pytest.importorskip("trl", reason=INSTALL)
transformers: Any = pytest.importorskip("transformers", reason=INSTALL)
datasets: Any = pytest.importorskip("datasets", reason=INSTALL)

GROUP = 4
CPU = torch.device("cpu")


class Weighing(Method):
    """Weighs tokens by what the policy is sure of, has a term of the advantages, and needs part and turn numbers."""

    name = "weighing"

    def weigh(self, batch: TokenBatch, stats: TokenStats) -> Tensor:
        return torch.exp(-stats.entropy_N / 3) * (1 + batch.part_N) / torch.bincount(batch.turn_N)[batch.turn_N]

    def loss(self, batch: TokenBatch, stats: TokenStats) -> Term:
        far_N = stats.hidden_ND.square().mean(-1) * batch.advantage_N.abs() + 0.1 * (stats.logp_N - batch.old_logp_N)
        loss = (batch.weights["episode"] * far_N).sum() + (batch.weights["constant"] * stats.logp_N).sum()
        return Term(loss, {"loss/weighing": float(loss.detach())})


def make_folder(folder: Path, family: str = "llama") -> Path:
    """Random weights, sure of some tokens and not of others. A few rows more than tokens: families add some."""
    from tests.models.families import make_tokenizer

    tokenizer = make_tokenizer("smollm2")
    torch.manual_seed(1)
    kinds = {"llama": transformers.LlamaConfig, "qwen2": transformers.Qwen2Config}
    config = kinds[family](
        vocab_size=len(tokenizer) + 16, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=4096, tie_word_embeddings=False,
    )  # fmt: skip
    model = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(4 if weight.dim() == 2 else 1)
        model.lm_head.weight.mul_(6)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@dataclass
class Talks:
    """TRL's `rollout_func`: ragged conversations of one to four turns, of which some keep to the form of a response.
    It remembers what it gave. `even`: all of a group are rewarded the same, so TRL's own loss has no gradient."""

    even: bool = False
    given: list[list[dict[str, Any]]] = field(default_factory=list[list[dict[str, Any]]])

    def __call__(self, prompts: Sequence[str], trainer: Any) -> dict[str, Any]:
        first = trainer.accelerator.process_index * len(prompts)
        rows = [self.talk(trainer, prompt, 1000 * len(self.given) + first + i) for i, prompt in enumerate(prompts)]
        self.given.append(rows)
        return {key: [row[key] for row in rows] for key in ("prompt_ids", "completion_ids", "env_mask", "ret")} | {
            "logprobs": None
        }

    def talk(self, trainer: Any, prompt: str, seed: int) -> dict[str, Any]:
        rng, tokenizer = np.random.default_rng(seed), trainer.processing_class
        words = len(tokenizer)
        ids: list[int] = []
        mask: list[int] = []
        for place in range(int(rng.integers(1, 5))):
            told = rng.integers(0, words, int(rng.integers(1, 6))).tolist() if place else []
            said = rng.integers(0, words, int(rng.integers(1, 9))).tolist()
            if rng.random() < 0.5:
                said = tokenizer.encode("<think>The mug</think><action>go to desk 1</action>", add_special_tokens=False)
            ids += told + said
            mask += [0] * len(told) + [1] * len(said)
        if rng.random() < 0.3:  # the environment had the last word
            ids, mask = [*ids, 5, 6], [*mask, 0, 0]
        return {
            "prompt_ids": rng.integers(0, words, 2 + int(rng.integers(0, 5))).tolist(), "completion_ids": ids,
            "env_mask": mask, "ret": float(int(prompt) % 2) if self.even else float(rng.integers(0, 3)) / 2,
        }  # fmt: skip


def rewarded(completion_ids: Sequence[Sequence[int]], ret: Sequence[float] = (), **rest: Any) -> list[float]:
    """Those of `Talks`; of what TRL sampled by itself something that depends on it."""
    return list(ret) or [sum(ids) % 3 / 2 for ids in completion_ids]


def settings(folder: Path, **changes: Any) -> Any:
    told: dict[str, Any] = {
        "output_dir": str(folder), "seed": 3, "max_steps": 3, "use_cpu": True, "bf16": False, "report_to": [],
        "per_device_train_batch_size": GROUP, "gradient_accumulation_steps": 2, "num_generations": GROUP,
        "max_completion_length": 64, "learning_rate": 0.0, "max_grad_norm": 0.0, "gradient_checkpointing": False,
        "save_strategy": "no", "logging_steps": 1, "disable_tqdm": True, "model_init_kwargs": {"dtype": "float32"},
    }  # fmt: skip
    return trl.GRPOConfig(**(told | changes))


class Gradients(transformers.TrainerCallback):
    """Keeps the gradient of every optimizer step, and what the methods made of its rollout."""

    def __init__(self) -> None:
        self.seen: list[list[Tensor]] = []
        self.advantages: list[Any] = []
        self.base: list[list[float]] = []
        self.tokens: list[Any] = []
        self.rows: list[Any] = []  # of the update, where it learns from a part of the rollout
        self.trainer: Any = None

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any, **rest: Any) -> None:
        self.seen.append([_gradient(weight) for weight in model.parameters()])
        step = getattr(self.trainer, "_rollout_step", None)
        self.advantages.append(None if step is None else step.advantage_N)
        self.tokens.append(None if step is None else step.table.tokens)
        self.base.append(list(self.trainer._logs["advantages"]))
        micro = args.gradient_accumulation_steps
        number = (self.trainer._step - 1) % args.steps_per_generation // micro
        self.rows.append(None if step is None else step.window_rows[number])


def _gradient(weight: Tensor) -> Tensor:
    return torch.zeros_like(weight) if weight.grad is None else weight.grad.clone()


def make_trainer(
    kind: Any, model: Path, args: Any, rollouts: Any, callbacks: Sequence[Any] = (), prompts: int = 64, **options: Any
) -> Any:
    games = datasets.Dataset.from_dict({"prompt": [str(i) for i in range(prompts)]})
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(model), padding_side="left")
    return kind(
        model=str(model), reward_funcs=rewarded, args=args, train_dataset=games, processing_class=tokenizer,
        rollout_func=rollouts, callbacks=list(callbacks), **options,
    )  # fmt: skip


class Given(Advantage):
    """TRL's advantages, one for each episode."""

    name = "given"
    value_E: Sequence[float] = ()

    def estimate(self, outcomes: Outcomes) -> Estimate:
        return Estimate(np.asarray(self.value_E)[outcomes.tokens.episode_N])


def episodes_of(rows: Sequence[Mapping[str, Any]], policy: Policy, temperature: float) -> list[Episode]:
    """The same conversations as episodes of ours, with the numbers of our own forward pass."""
    from isentrope.agent.response_format import parse_response

    episodes: list[Episode] = []
    for number, row in enumerate(rows):
        ids, mask, turns, at = row["completion_ids"], row["env_mask"], [], 0
        context = list(row["prompt_ids"])
        while 1 in mask[at:]:
            begin = at + mask[at:].index(1)
            end = begin + [*mask[begin:], 0].index(0)
            said = ids[begin:end]
            parsed = parse_response(policy.tokenizer.pieces(said), "think_act", "eos")
            changes: dict[str, Any] = {
                "context_ids": np.array(context + ids[at:begin], dtype=np.int32), "continues": bool(turns),
                "response_ids": np.array(said, dtype=np.int32), "think_span": parsed.think_span,
                "temperatures": np.full(len(said), temperature, dtype=np.float32), "action_span": parsed.action_span,
                "verdict": parsed.verdict,
            }  # fmt: skip
            turns.append(turn(np.zeros(len(said)), **changes))
            context, at = [], end
        solved = row["ret"] >= 1.0
        stop = "terminated" if solved else "turn_limit"
        place = ("made up", "train", number, "", "", number // GROUP, number % GROUP, "think_act")
        episodes.append(Episode(*place, tuple(turns), success=solved, stop=stop))
    return _sampled(policy, episodes)


@torch.no_grad()
def _sampled(policy: Policy, episodes: Sequence[Episode]) -> list[Episode]:
    sequences, tokens = flatten(episodes)
    logp_N, entropy_N = np.zeros_like(tokens.logp_N), np.zeros_like(tokens.entropy_N)
    for batch in micro_batches(sequences, tokens):
        stats = policy.stats(batch)
        logp_N[batch.number_N], entropy_N[batch.number_N] = stats.logp_N.numpy(), stats.entropy_N.numpy()
    at, changed = 0, list[Episode]()
    for episode in episodes:
        turns = list[Any]()
        for each in episode.turns:
            part = slice(at, at + len(each.response_ids))
            turns.append(replace(each, logprobs=logp_N[part].copy(), entropies=entropy_N[part].copy()))
            at = part.stop
        changed.append(replace(episode, turns=tuple(turns)))
    return changed


class OurLearner:
    """Our learner on the same rows. The policy stays as it is; the methods go on."""

    def __init__(self, model: Path, listed: Sequence[Listed], steps: int = 3, temperature: float = 1.0) -> None:
        self.policy, self.temperature = load_folder(model, CPU, "float32"), temperature
        learn = LearnSettings(lr=1e-3, kl=0.0, advantage=Choice("grpo"), aggregation="token", constant_length=64)
        config = RunConfig(run=RunSettings(steps=steps), learn=learn)
        self.learner = Learner(self.policy, None, config, make_listed(listed, steps, 3))
        self.learner.advantage = self.given = Given()
        self.taken: list[list[Tensor]] = []  # of each update of a step
        self.learner.optimiser.step = self._keep

    def in_parts(self, rows: Sequence[Any], epochs: int) -> None:
        """Updates on these rows, in this order."""
        changes = {"mini_batches": len(rows), "epochs": epochs}
        self.learner.settings = self.learner.mismatch.settings = replace(self.learner.settings, **changes)
        self.learner._mini_batches = lambda step, epoch, sequences: [
            [sequence for sequence in sequences if sequence.episode in part] for part in rows
        ]

    def _keep(self, loss: float, rate: float) -> float:
        self.taken.append([_gradient(weight) for weight in self.policy.module.parameters()])
        for weight in self.policy.module.parameters():
            weight.grad = None
        self.learner.optimiser.pass_by()
        return 0.0

    def step(
        self, step: int, rows: Sequence[Mapping[str, Any]], base: Sequence[float]
    ) -> tuple[Credited, dict[str, float], list[list[Tensor]]]:
        """What was credited, what was recorded, and the gradient of each update."""
        self.given.value_E, self.taken = base, []
        credited = self.learner.credit(step, episodes_of(rows, self.policy, self.temperature))
        metrics = self.learner.update(credited).metrics
        return credited, metrics, self.taken


def compare(ours: OurLearner, seen: Gradients, k: int, rows: Any, logged: Any) -> None:
    """The table, advantages, gradients and what the methods record are the same to 1e-5."""
    credited, metrics, (taken,) = ours.step(k + 1, rows, seen.base[k])
    looked = any(type(m).begin is not Method.begin or type(m).shape is not Method.shape for m in ours.learner.methods)
    for column in fields(StepTokens):
        theirs, mine = getattr(seen.tokens[k], column.name), getattr(credited.tokens, column.name)
        if column.name in ("logp_N", "entropy_N") and not looked:
            assert np.isnan(theirs).all()  # no pass was made for nobody
        elif column.name != "kind_E":
            assert theirs.dtype == mine.dtype, column.name
            np.testing.assert_allclose(theirs, mine, rtol=1e-5, atol=1e-5, err_msg=column.name)
    np.testing.assert_allclose(seen.advantages[k], credited.advantage_N, rtol=1e-5, atol=1e-5)
    same_gradients(seen.seen[k], taken)
    names = [method.name for method in ours.learner.methods]
    recorded = {key: value for key, value in metrics.items() if {*key.split("/")} & {*names}}
    for key, value in recorded.items():
        assert logged[key] == pytest.approx(value, rel=1e-5, abs=1e-5), key


def compare_records(record: Mapping[str, Any], episodes: Sequence[Episode]) -> None:
    """What our instruments wrote of a step of TRL is what they say of these episodes."""
    # `Talks` tells rewards, goals and ends apart from its turns
    apart = ("return/", "stop/", "entropy/kind", "success/", "observation/", "verdict/", "accepted/")
    for key, value in rollout_metrics(episodes).items():
        if not key.startswith(apart):
            assert record[key] == pytest.approx(value, rel=1e-5, abs=1e-5), key


def same_gradients(gradients: Sequence[Tensor], taken: Sequence[Tensor]) -> None:
    size = max(float(gradient.abs().max()) for gradient in taken)
    assert size > 1e-4
    for theirs, mine in zip(gradients, taken, strict=True):
        np.testing.assert_allclose(theirs.numpy(), mine.numpy(), rtol=1e-5, atol=1e-5 * max(size, 1e-3))
