"""Conversations that begin alike are read once, and nobody can tell."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from isentrope.bench.work import write_random_model
from isentrope.config.load import load_config
from isentrope.core.engine import Request, Sampled
from isentrope.engines.torch import TorchEngine
from isentrope.models.load import load_policy
from isentrope.models.policy import Policy
from tests.models.helpers import small_policy


def hugging_face(folder: Path) -> Policy:
    config = load_config(None, [f"policy.model={write_random_model('tiny', folder)}", "run.device=cpu"])
    return load_policy(config.policy, config.run)


MODELS: dict[str, Callable[[Path], Policy]] = {"ours": lambda folder: small_policy(), "hugging face": hugging_face}


def ask(engine: TorchEngine, prompts: dict[int, list[int]], turn: int) -> dict[int, Sampled]:
    requests = [
        Request(s, p, np.random.default_rng([s, turn]).random(4, dtype=np.float32), 1.0, lambda tail: False)
        for s, p in prompts.items()
    ]
    return dict(zip(prompts, engine.sample(requests), strict=True))


def converse(engine: TorchEngine, begin: dict[int, list[int]], turns: int = 3) -> list[dict[int, Sampled]]:
    engine.open(list(begin))
    prompts, found = begin, list[dict[int, Sampled]]()
    for turn in range(turns):
        found.append(ask(engine, prompts, turn))
        told = np.random.default_rng(turn).integers(9, 200, 3).tolist()
        prompts = {s: [*p, *found[-1][s].ids.tolist(), *told] for s, p in prompts.items()}
        if turn == 1:  # all begin anew, two of them alike
            prompts = {s: [7 + s % 2, 8, 9, 10] for s in prompts}
    return found


@pytest.mark.parametrize("model", MODELS)
def test_a_group_is_answered_as_its_members_alone(tmp_path: Path, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = MODELS[model](tmp_path)
    alike, other = [20, 30, 40, 50, 60], [20, 30, 40]
    begin = {0: alike, 3: other, 1: alike, 2: [*other, 41, 42, 43], 7: alike}
    engine, read = TorchEngine(policy), list[int]()
    plain = engine._extend

    def counted(live, fed):  # type: ignore[no-untyped-def]
        read.append(sum(map(len, fed)))
        return plain(live, fed)

    monkeypatch.setattr(engine, "_extend", counted)
    together = converse(engine, begin)
    assert read[0] == 5 + 3 + 6  # of three that begin alike one was read
    for slot, prompt in begin.items():
        for turn, answers in enumerate(converse(TorchEngine(policy), {slot: prompt})):
            np.testing.assert_array_equal(together[turn][slot].ids, answers[slot].ids)
            np.testing.assert_allclose(together[turn][slot].logprobs, answers[slot].logprobs, atol=1e-4)
