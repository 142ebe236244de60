"""What can only be seen on a GPU: decoding through CUDA graphs gives what decoding without them gives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from isentrope.core.engine import Request, Sampled
from isentrope.engines.torch import TorchEngine
from isentrope.models.load import load_folder
from isentrope.models.policy import Policy
from tests.engines.test_torch import TOLERANCE, never, score
from tests.models.test_hugging_face import make_folder

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
POCKET = Path(__file__).parents[2] / "isentrope" / "models" / "pocket"


@pytest.fixture(params=["pocket", "llama", "qwen2"])
def policy(request: pytest.FixtureRequest, tmp_path: Path) -> Policy:
    folder = POCKET if request.param == "pocket" else make_folder(tmp_path, request.param)
    return load_folder(folder, torch.device("cuda"), "float32")


def played(policy: Policy, graphs: bool) -> list[tuple[list[int], Sampled]]:
    """Four turns of six conversations, of which three go on to the last; one begins anew. The columns cross the graph's
    step of 256 and the cache's of 512."""
    rng = np.random.default_rng(0)
    engine = TorchEngine(policy)
    engine.open(range(6))
    prompts = {slot: rng.integers(9, 200, 230 + 5 * slot).tolist() for slot in range(6)}
    seen: list[tuple[list[int], Sampled]] = []
    for turn in range(4):
        live = list(range(6)) if turn < 2 else [0, 2, 5]
        engine.keep(live)
        if not graphs:
            engine._graphs, engine._graphed = False, None
        if turn == 3:
            prompts[2] = rng.integers(9, 200, 40).tolist()
        requests = [Request(s, prompts[s], rng.random(8 + 4 * s, dtype=np.float32), 1.0, never) for s in live]
        for request, sampled in zip(requests, engine.sample(requests), strict=True):
            seen.append((prompts[request.slot], sampled))
            prompts[request.slot] = [*prompts[request.slot], *sampled.ids.tolist(), *rng.integers(9, 200, 120).tolist()]
    assert engine._graphs is graphs
    return seen


def test_graphs_change_nothing(policy: Policy) -> None:
    for (prompt, a), (other, b) in zip(played(policy, True), played(policy, False), strict=True):
        assert prompt == other
        np.testing.assert_array_equal(a.ids, b.ids)
        np.testing.assert_allclose(a.logprobs, b.logprobs, atol=1e-5)


def test_scoring_again_gives_the_numbers_of_sampling(policy: Policy) -> None:
    for prompt, sampled in played(policy, True):
        logp, entropy = score(policy, prompt, sampled)
        np.testing.assert_allclose(sampled.logprobs, logp, atol=TOLERANCE)
        np.testing.assert_allclose(sampled.entropies, entropy, atol=TOLERANCE)


def test_new_weights_are_sampled_from_at_once(policy: Policy) -> None:
    before = played(policy, True)
    with torch.no_grad():
        for parameter in policy.module.parameters():
            parameter.mul_(1.02)
    after = played(policy, True)
    assert any(not np.array_equal(a.ids, b.ids) for (_, a), (_, b) in zip(before, after, strict=True))
    for prompt, sampled in after:
        logp, _ = score(policy, prompt, sampled)
        np.testing.assert_allclose(sampled.logprobs, logp, atol=TOLERANCE)
