"""All probes together: bounded, repeatable, on every kind of model, and without a trace."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from isentrope.config.schema import InstrumentSettings, LearnSettings, PolicySettings, RunConfig, RunSettings
from isentrope.learning.learner import Learner
from isentrope.learning.packing import micro_batches
from isentrope.learning.tokens import flatten
from isentrope.metrics.probes.interference import kernel
from isentrope.metrics.probes.probes import Probes, read_episodes, undisturbed
from isentrope.models.load import load_folder, load_policy
from isentrope.models.policy import Policy, before
from isentrope.models.token_head import token_head
from isentrope.runs.checkpoints import load_state, save_checkpoint
from tests.builders.toy_runs import make_model
from tests.metrics.probes.helpers import advantages_of, episode_of, games, make_turn
from tests.models.helpers import small_policy

KEYS = {
    "probe/delta_h",
    "probe/action_entropy",
    "probe/action_entropy_without",
    "probe/states",
    "probe/similarity/solved",
    "probe/similarity/failed",
    "probe/similarity/between",
    "probe/accuracy",
    "probe/majority",
    "probe/interference/positive",
    "probe/interference/negative",
    "probe/interference/positive_per_token",
    "probe/interference/negative_per_token",
    "probe/interference/sum",
}
MODELS = ["own", "llama", "gpt_neox", "lora", "own-bfloat16", "llama-bfloat16", "lora-bfloat16"]


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Policy]:
    def policy(name: str) -> Policy:
        family, _, dtype = name.partition("-")
        if family == "own":
            return load_folder(make_model(tmp_path_factory.mktemp("own")), torch.device("cpu"), dtype or "float32")
        pytest.importorskip("transformers", reason="pip install 'isentrope[hf]'")
        from tests.models.test_hugging_face import make_folder

        folder = make_folder(tmp_path_factory.mktemp(family), "llama" if family == "lora" else family)
        if family != "lora":
            return load_folder(folder, torch.device("cpu"), dtype or "float32")
        pytest.importorskip("peft", reason="pip install 'isentrope[hf]'")
        settings = PolicySettings(model=str(folder), lora_rank=4, lora_alpha=8.0)
        return load_policy(settings, RunSettings(device="cpu", dtype=dtype or "float32"))

    return policy


def fingerprint(policy: Policy) -> list[Any]:
    """Everything that a probe could change."""
    gradients = [None if p.grad is None else p.grad.clone() for p in policy.module.parameters()]
    return [
        {name: value.clone() for name, value in policy.module.state_dict().items()},
        gradients,
        [p.requires_grad for p in policy.module.parameters()],
        [module.training for module in policy.module.modules()],
        torch.get_rng_state(),
        torch.is_grad_enabled(),
        random.getstate(),
        np.random.get_state()[1].tolist(),  # type: ignore[index,union-attr]
    ]


def same(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor):
        return isinstance(b, Tensor) and torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("gradient", ["head", "all"])
def test_every_kind_of_model_is_probed_and_left_as_it_was(
    make: Callable[[str], Policy], name: str, gradient: str
) -> None:
    policy, settings = make(name), InstrumentSettings(probe_gradient=gradient)
    policy.module.train(gradient == "head")
    for i, parameter in enumerate(policy.module.parameters()):
        if parameter.requires_grad and i % 2:
            parameter.grad = torch.ones_like(parameter)
    episodes = games(policy.tokenizer)
    was = fingerprint(policy)
    found = Probes(settings, 64).run(policy, episodes, advantages_of(episodes))
    assert same(was, fingerprint(policy))
    assert set(found) == KEYS
    assert all(np.isfinite(value) for value in found.values())
    again = Probes(settings, 64).run(policy, episodes, advantages_of(episodes))
    assert again == found
    assert -1 <= found["probe/similarity/between"] <= 1


def test_the_model_is_left_as_it_was_after_an_error() -> None:
    policy = small_policy()
    policy.module.train()
    was = fingerprint(policy)

    def fail() -> None:
        with undisturbed(policy):
            torch.rand(3)
            raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError):
        fail()
    assert same(was, fingerprint(policy))


def test_learning_goes_on_as_without_probes() -> None:
    results: list[tuple[list[dict[str, float]], dict[str, Tensor]]] = []
    config = RunConfig(learn=replace(LearnSettings(), lr=1e-2, kl=0.0, mini_batches=2))
    for probed in (False, True):
        policy = small_policy()
        learner, probes = Learner(policy, None, config), Probes(config.instruments)
        seen: list[dict[str, float]] = []
        for step in range(1, 4):
            episodes = games(policy.tokenizer)
            credited = learner.credit(step, episodes)
            metrics = probes.run(policy, episodes, credited.advantage_N) if probed else {}
            metrics |= learner.update(credited).metrics
            assert probed == ("probe/delta_h" in metrics)
            seen.append({key: value for key, value in metrics.items() if not key.startswith("probe/")})
        results.append((seen, dict(policy.module.state_dict())))
    assert results[0][0] == results[1][0]
    assert same(results[0][1], results[1][1])


def test_the_states_stay_the_same_and_survive_a_checkpoint(tmp_path: Path) -> None:
    policy, settings = small_policy(), InstrumentSettings(probe_states=5)
    first, other = games(policy.tokenizer, groups=4), games(policy.tokenizer, groups=6, size=3)
    probes = Probes(settings)
    begun = probes.run(policy, first, None)
    save_checkpoint(tmp_path, 1, policy, {"probes": probes.state_dict()})
    resumed = Probes(settings)
    resumed.load_state_dict(load_state(tmp_path / "step-000001")["probes"])
    after, again = probes.run(policy, other, None), resumed.run(policy, other, None)
    assert after == again
    assert after["probe/delta_h"] == begun["probe/delta_h"]
    assert Probes(settings).run(policy, other, None)["probe/delta_h"] != begun["probe/delta_h"]


def test_states_are_added_until_there_are_enough() -> None:
    policy, probes = small_policy(), Probes(InstrumentSettings(probe_states=6))
    few = games(policy.tokenizer, groups=1, size=2)  # one turn and two turns
    assert [probes.run(policy, few, None)["probe/states"] for _ in range(3)] == [3, 6, 6]


def test_only_the_first_groups_are_read_in_whatever_order_they_come() -> None:
    policy, settings = small_policy(), InstrumentSettings(probe_groups=2, probe_states=0)
    episodes = games(policy.tokenizer, groups=4)
    found = Probes(settings).run(policy, episodes, advantages_of(episodes))
    shuffled = list(episodes)
    random.Random(3).shuffle(shuffled)
    assert Probes(settings).run(policy, shuffled, advantages_of(shuffled)) == pytest.approx(found, rel=1e-4)
    part = [episode for episode in episodes if episode.group < 2]
    assert Probes(settings).run(policy, part, advantages_of(part)) == pytest.approx(found, rel=1e-5)
    whole = Probes(replace(settings, probe_groups=0)).run(policy, episodes, advantages_of(episodes))
    assert whole["probe/interference/sum"] != pytest.approx(found["probe/interference/sum"], rel=1e-3)


@pytest.mark.parametrize("gradient", ["head", "all"])
@pytest.mark.parametrize("continues", [True, False])
def test_how_passes_are_cut_does_not_matter(gradient: str, continues: bool) -> None:
    """Without one growing conversation an episode has several sequences, which may come in several passes."""
    policy, settings = small_policy(), InstrumentSettings(probe_gradient=gradient)
    episodes = games(policy.tokenizer)
    if not continues:
        episodes = [replace(e, turns=tuple(replace(turn, continues=False) for turn in e.turns)) for e in episodes]
    found = [Probes(settings, size).run(policy, episodes, advantages_of(episodes)) for size in (1, 100, 10**6)]
    assert found[0] == pytest.approx(found[2], rel=1e-3, abs=1e-4)
    assert found[1] == pytest.approx(found[2], rel=1e-3, abs=1e-4)


def test_which_states_are_read() -> None:
    """At a token for similarity, in front of it for gradients; against one forward pass per episode."""
    policy = small_policy()
    episodes = games(policy.tokenizer, groups=1, size=3)
    with torch.no_grad():
        means, spoken = read_episodes(policy, episodes, micro_tokens=64)
        for e, episode in enumerate(episodes):
            (sequence,), _ = flatten([episode])
            ids = torch.from_numpy(sequence.ids)[None]
            states = policy.model.hidden(ids, torch.arange(ids.shape[1])[None], torch.zeros_like(ids))[0]
            torch.testing.assert_close(
                torch.from_numpy(means[e]).float(), states[sequence.columns].mean(0), rtol=1e-4, atol=1e-4
            )
            torch.testing.assert_close(spoken[e].hidden_ND, states[sequence.columns - 1], rtol=1e-4, atol=1e-4)
            assert spoken[e].target_N.tolist() == sequence.ids[sequence.columns].tolist()


def test_interference_against_the_gradient_of_the_output_matrix() -> None:
    """From episodes to K: the same as autograd through the policy's own head."""
    policy = small_policy()
    episodes = games(policy.tokenizer, groups=1, size=3)
    gradients: list[Tensor] = []
    for episode in episodes:
        sequences, tokens = flatten([episode])
        (batch,) = micro_batches(sequences, tokens)
        weight = policy.model.head_weight().detach().clone().requires_grad_()
        hidden = before(policy.states(batch), batch).detach()
        logp, _ = token_head(hidden, weight, batch.target_N, batch.temperature_N)
        gradients.append(torch.autograd.grad(logp.sum(), weight)[0].flatten())
    expected = torch.stack(gradients) @ torch.stack(gradients).T
    with torch.no_grad():
        _, spoken = read_episodes(policy, episodes, micro_tokens=64)
        found = kernel(spoken, policy.model.head_weight())
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-4, atol=1e-4 * float(expected.abs().max()))


def test_interference_of_all_weights_is_the_slope_of_the_likelihood() -> None:
    """Lemma 3.3 on a real model: a small step along Σ A_j g_j changes the mean log-likelihood by Σ A_j c_j."""
    policy = small_policy()
    episodes = games(policy.tokenizer, groups=1, size=4)
    settings = InstrumentSettings(probe_states=0, probe_gradient="all")
    found = Probes(settings).run(policy, episodes, advantages_of(episodes))["probe/interference/sum"]
    policy.module.double()
    sequences, tokens = flatten(episodes)
    (batch,) = micro_batches(sequences, tokens)
    weights = list(policy.module.parameters())
    signs = torch.from_numpy(advantages_of(episodes))[batch.number_N]
    direction = torch.autograd.grad((signs * policy.stats(batch).logp_N).sum(), weights)

    def mean_likelihood(step: float) -> float:
        with torch.no_grad():
            for weight, move in zip(weights, direction, strict=True):
                weight.add_(move, alpha=step)
            value = float(policy.stats(batch).logp_N.double().sum()) / len(episodes)
            for weight, move in zip(weights, direction, strict=True):
                weight.sub_(move, alpha=step)
        return value

    size = 1e-3 / float(sum((move**2).sum() for move in direction)) ** 0.5
    slope = (mean_likelihood(size) - mean_likelihood(-size)) / (2 * size)
    assert found == pytest.approx(slope, rel=0.02)


def test_when_probes_are_due() -> None:
    assert [s for s in range(1, 31) if Probes(InstrumentSettings(probe_every=10)).due(s)] == [1, 10, 20, 30]
    assert not any(Probes(InstrumentSettings(probe_every=0)).due(s) for s in range(1, 31))


def test_nothing_to_read() -> None:
    policy = small_policy()
    silent = replace(
        make_turn(policy.tokenizer, "you see", ""), response_ids=np.zeros(0, dtype=np.int32), verdict="no_action"
    )
    probes, none = Probes(InstrumentSettings()), np.zeros(0, dtype=np.float32)
    assert probes.run(policy, [], none) == {}
    assert probes.run(policy, [episode_of([silent]), episode_of([])], none) == {}
    assert probes.timings["probe/seconds"] >= 0


def test_advantages_must_fit_the_tokens() -> None:
    policy = small_policy()
    with pytest.raises(ValueError, match="3 advantages for"):
        Probes(InstrumentSettings()).run(policy, games(policy.tokenizer), np.zeros(3, dtype=np.float32))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("gradient", ["head", "all"])
def test_on_a_gpu(tmp_path: Path, gradient: str) -> None:
    folder, settings = make_model(tmp_path / "model"), InstrumentSettings(probe_gradient=gradient)
    found: list[dict[str, float]] = []
    for device in ("cpu", "cuda"):
        policy = load_folder(folder, torch.device(device), "float32")
        episodes = games(policy.tokenizer)
        was = torch.cuda.get_rng_state()
        found.append(Probes(settings).run(policy, episodes, advantages_of(episodes)))
        assert torch.equal(was, torch.cuda.get_rng_state())
    assert found[1] == pytest.approx(found[0], rel=1e-3, abs=1e-4)
