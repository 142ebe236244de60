"""ActRe while it samples: the temperatures that are recorded, and the numbers that belong to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from isentrope.core.engine import Request, Sampled
from isentrope.core.tokenizer import neutral
from isentrope.core.types import Episode, RolloutPlan, TokenTemperature
from isentrope.engines.torch import TorchEngine
from isentrope.learning.packing import micro_batches
from isentrope.learning.tokens import flatten
from isentrope.methods.actre import ActRe, ActReOptions
from isentrope.models.load import load_policy
from isentrope.models.policy import Policy
from isentrope.rollout.collector import Collector
from tests.methods.helpers import seen, shape, some_advantages
from tests.methods.runs import config_for, play_run, steps_of
from tests.models.helpers import small_policy
from tests.reference import naive_methods

BASE, HOT = 0.9, 1.3
USUAL = ("go to desk 1", "go to desk 10", "look")


def actre(steps: int = 4, **options: Any) -> ActRe:
    return ActRe(ActReOptions(temperature=HOT, **options), steps)


def rule_of(method: ActRe, tokenizer: Any, admissible: tuple[str, ...] | None) -> TokenTemperature | None:
    """The temperatures of a response in the first step, at a base temperature of 0.9."""
    plan = method.plan(1, RolloutPlan(temperature=BASE))
    assert plan.temperature_rule is not None
    return plan.temperature_rule(tokenizer, admissible, BASE, ("action",))


def rescored(policy: Policy, episodes: Sequence[Episode], at: float | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Log-probs and entropies of the response tokens from a forward pass, at their own temperatures or at this one."""
    if at is not None:
        episodes = [
            replace(e, turns=tuple(replace(t, temperatures=np.full_like(t.temperatures, at)) for t in e.turns))
            for e in episodes
        ]
    sequences, tokens = flatten(episodes)
    logp_N, entropy_N = np.zeros_like(tokens.logp_N), np.zeros_like(tokens.logp_N)
    with torch.no_grad():
        for batch in micro_batches(sequences, tokens):
            stats = policy.stats(batch)
            logp_N[batch.number_N], entropy_N[batch.number_N] = stats.logp_N.numpy(), stats.entropy_N.numpy()
    return logp_N, entropy_N


def played(model: Path, method: ActRe, step: int, context: str) -> tuple[Policy, list[Episode]]:
    config = config_for(model, f"agent.context={context}", "rollout.group_size=6")
    policy = load_policy(config.policy, config.run)
    with Collector(config, TorchEngine(policy)) as collector:
        return policy, collector.play_groups(step, method.plan(step, RolloutPlan("think_act", BASE)))


@pytest.mark.parametrize("context", ["full", "window"])
def test_recorded_numbers_with_the_trie_rule(model: Path, context: str) -> None:
    policy, episodes = played(model, actre(), 1, context)
    seen = {BASE: 0, HOT: 0}
    for turn in (turn for episode in episodes for turn in episode.turns):
        assert turn.admissible is not None
        answer = policy.tokenizer.answer
        written = {a: policy.tokenizer.pieces(answer(f"<action>{neutral(a)}</action>")) for a in turn.admissible}
        pieces = policy.tokenizer.pieces(turn.response_ids.tolist())
        theirs = [HOT if naive_methods.branching(pieces[:j], written) else BASE for j in range(len(pieces))]
        assert turn.temperatures.tolist() == pytest.approx(theirs)
        assert turn.temperatures[0] == pytest.approx(BASE)  # the opening tag
        for value in theirs:
            seen[value] += 1
    assert min(seen.values()) > 20
    check_scores(policy, episodes)


def check_scores(policy: Policy, episodes: Sequence[Episode]) -> None:
    tokens = flatten(episodes)[1]
    logp_N, entropy_N = rescored(policy, episodes)
    np.testing.assert_allclose(tokens.logp_N, logp_N, atol=1e-4)
    np.testing.assert_allclose(tokens.entropy_N, entropy_N, atol=1e-4)
    hot_N = tokens.temperature_N > 1
    cool, _ = rescored(policy, episodes, BASE)
    assert np.abs(tokens.logp_N - cool)[hot_N].max() > 0.01  # at the base temperature they are other numbers


@pytest.mark.parametrize("context", ["full", "window"])
def test_recorded_numbers_with_the_entropy_rule(model: Path, context: str) -> None:
    method, threshold = actre(branching="entropy", switch=1.0), None
    for step in (1, 2):
        policy, episodes = played(model, method, step, context)
        _, entropy_N = rescored(policy, episodes, BASE)
        at, counted = 0, []
        for turn in (turn for episode in episodes for turn in episode.turns):
            part = entropy_N[at : at + len(turn.response_ids)].tolist()
            at += len(part)
            pieces = policy.tokenizer.pieces(turn.response_ids.tolist())
            theirs, more = naive_methods.entropy_temperatures(pieces, part, threshold, BASE, HOT)
            assert turn.temperatures.tolist() == pytest.approx(theirs)
            counted += more
        np.testing.assert_allclose(sorted(method.entropies), sorted(counted), atol=1e-4)
        shape(method, episodes, some_advantages(episodes), step)
        assert method.threshold == pytest.approx(naive_methods.quantile(counted, 0.8), abs=1e-4)
        assert (seen(method)["actre/branching"] > 0) == (step == 2)  # at the first step nothing is hot
        threshold = method.threshold
    check_scores(policy, episodes)


def uniforms_for(policy: Policy, prompt: list[int], ids: list[int], at: Sequence[float]) -> np.ndarray:
    """Random numbers that make the engine say these tokens, at these temperatures."""
    row, found = torch.tensor([[*prompt, *ids]]), []
    with torch.no_grad():
        states = policy.model.hidden(row, torch.arange(row.shape[1])[None], torch.zeros_like(row))[0]
        for j, token in enumerate(ids):
            logits = policy.model.head_weight() @ states[len(prompt) + j - 1] / at[j]
            p = torch.softmax(logits.double(), -1)
            found.append(float(p[:token].sum() + p[token] / 2))
    return np.array(found, dtype=np.float32)


def steer(policy: Policy, ids: list[int], at: Sequence[float], rule: TokenTemperature | None) -> Sampled:
    prompt = [20, 21, 22]
    engine = TorchEngine(policy)
    engine.open([0])
    request = Request(0, prompt, uniforms_for(policy, prompt, ids, at), BASE, lambda tail: False, rule)
    return engine.sample([request])[0]


@pytest.mark.parametrize("kind", ["pocket", "hugging_face"])
def test_the_engine_asks_the_rule_before_every_token(kind: str, tmp_path: Path) -> None:
    policy = small_policy() if kind == "pocket" else hugging_face(tmp_path)
    written = {a: policy.tokenizer.pieces(policy.tokenizer.answer(f"<action>{a}</action>")) for a in USUAL}
    for said in (*USUAL, "go to hell"):
        ids = policy.tokenizer.answer(f"<action>{said}</action>")
        pieces = policy.tokenizer.pieces(ids)
        theirs = [HOT if naive_methods.branching(pieces[:j], written) else BASE for j in range(len(ids))]
        sampled = steer(policy, ids, theirs, rule_of(actre(), policy.tokenizer, USUAL))
        assert sampled.ids.tolist() == ids
        assert sampled.temperatures.tolist() == pytest.approx(theirs)
        assert HOT in theirs


def hugging_face(folder: Path) -> Policy:
    pytest.importorskip("transformers", reason="pip install 'isentrope[hf]'")
    from isentrope.models.load import load_folder
    from tests.models.test_hugging_face import make_folder

    return load_folder(make_folder(folder), torch.device("cpu"), "float32")


@pytest.mark.parametrize("branching", ["trie", "entropy"])
@pytest.mark.parametrize("old", ["sampler", "recompute"])
def test_the_ratio_at_the_first_update_is_one(model: Path, tmp_path: Path, branching: str, old: str) -> None:
    changes = (f"method.actre={{branching='{branching}', switch=1.0, temperature=1.5}}", f"learn.old_logprobs={old}")
    out = play_run(model, tmp_path / "run", "methods=['actre']", *changes)
    last = steps_of(out)[-1]
    assert last["actre/branching"] > 0.1
    assert last["ratio/min"] == pytest.approx(1, abs=1e-4)
    assert last["ratio/max"] == pytest.approx(1, abs=1e-4)
    if old == "recompute":
        assert last["mismatch/logp_max"] < 1e-4
