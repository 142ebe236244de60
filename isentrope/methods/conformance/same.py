"""Checks that compare two updates: with the part and without, before and after a restart, packed in another way."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from isentrope.core.advantage import Advantage
from isentrope.core.loss import Loss
from isentrope.core.method import Method
from isentrope.core.part import calling
from isentrope.core.types import Episode, RolloutPlan
from isentrope.learning.learner import Learner
from isentrope.learning.objective import policy_loss
from isentrope.learning.tokens import flatten
from isentrope.methods.conformance.lab import Lab, flat, planned, tiny_policy
from isentrope.methods.conformance.walk import batches, credited
from isentrope.runs.checkpoints import load_state, save_checkpoint
from isentrope.worlds.conformance.play import Skipped, need

PACKINGS: Mapping[str, Mapping[str, Any]] = {
    "micro-batches of 64 tokens": {"micro_tokens": 64},
    "rows of 60 tokens": {"row_tokens": 60},
    "rows with padding": {"row_tokens": 41, "micro_tokens": 100, "share_prefixes": "off"},
}
ROUNDING = 2e-5  # of the gradient's own size
PLAIN = (bool, int, float, str, type(None), Tensor)


def weights(learner: Learner) -> Tensor:
    return flat(list(learner.policy.module.parameters()))


def different(one: Mapping[str, float], other: Mapping[str, float], rounding: float = 0.0) -> list[str]:
    """The keys under which two records have other numbers, or only one has any."""
    told: list[str] = []
    for key in sorted({*one, *other}):
        pair = [one.get(key, np.inf), other.get(key, -np.inf)]
        if not np.isclose(*pair, rtol=rounding, atol=rounding / 10, equal_nan=True):
            told.append(f"{key} ({one.get(key)} and {other.get(key)})")
    return told


def without(lab: Lab, off: Mapping[str, Any]) -> str:
    """What two steps with these options differ in from two steps without the method; what it records does not count."""
    method = lab.make(off)
    assert isinstance(method, Method)
    alone, beside = lab.learner(None), lab.learner(method)
    with calling(method, "evaluation"):
        plans = {"evaluation": method.evaluation(RolloutPlan())}
    plans |= {"plan": planned(method, 1, beside.policy)}
    for hook, given in plans.items():
        if replace(given, notes={}) != RolloutPlan():
            return f"what `{hook}` gives"
    pairs = list(zip(lab.run(alone, (1, 2)), lab.run(beside, (1, 2)), strict=True))
    for plain, other in pairs:
        if found := different(plain, {key: value for key, value in other.items() if key not in lab.recorded}):
            return ", ".join(found[:3])
    return "" if torch.equal(weights(alone), weights(beside)) else "the policy's weights"


def check_restart(lab: Lab) -> str:
    """The next two steps after a checkpoint are the same in the object that wrote it and in one that reads it."""
    learner = lab.learner(lab.make())
    lab.run(learner, (1, 2))
    state, policy = learner.state_dict(), tiny_policy()
    odd = [f"{path} is a {kind}" for kept in state["methods"].values() for path, kind in _odd(kept, "state_dict()")]
    need(not odd, f"{'; '.join(odd[:3])}: a checkpoint holds numbers, text, tensors, and lists and dicts of them alone")
    policy.module.load_state_dict(learner.policy.module.state_dict())
    with tempfile.TemporaryDirectory() as folder:
        kept = load_state(save_checkpoint(Path(folder), 2, learner.policy, state))
    again = lab.learner(lab.make(), policy)
    again.load_state_dict(kept)
    for step, one, other in zip((3, 4), lab.run(learner, (3, 4)), lab.run(again, (3, 4)), strict=True):
        found = different(one, other)
        mend = "whatever a later step reads goes into state_dict and back in load_state_dict, and random numbers "
        mend += "come from a generator of its own with the given seed"
        need(not found, f"step {step} is another after a restart: {', '.join(found[:3])}; {mend}")
    need(torch.equal(weights(learner), weights(again)), "after a restart the policy learns something else")
    return "two steps after a checkpoint are the same, bit for bit"


def _odd(value: Any, path: str) -> list[tuple[str, str]]:
    """Places of a state that hold what no checkpoint can, each with its type."""
    if isinstance(value, PLAIN):
        return []
    if type(value) not in (dict, list, tuple):
        return [(path, type(value).__name__)]
    pairs = cast("dict[Any, Any]", value if isinstance(value, dict) else dict(enumerate(cast("list[Any]", value))))
    return [found for key, child in pairs.items() for found in _odd(child, f"{path}[{key!r}]")]


def check_order(lab: Lab) -> str:
    usual = lab.gradients(lab.make())
    if not all(bool(torch.isfinite(gradient).all()) for gradient, _ in usual):
        raise Skipped("its numbers are not finite")
    others = {name: lab.gradients(lab.make(), **packing) for name, packing in PACKINGS.items()}
    others["another order of episodes"] = lab.gradients(lab.make(), moved=True)
    for name, found in others.items():
        for step, ((one, metrics), (other, more)) in enumerate(zip(usual, found, strict=True), 1):
            off = _size(one - other) / max(_size(one), 1e-12)
            own = [{key: value for key, value in each.items() if key in lab.recorded} for each in (metrics, more)]
            told = [f"the gradient is {off:.2g} of its size off"] if off > ROUNDING else different(*own, rounding=1e-3)
            mend = "sum over tokens with batch.weights[…] instead of taking a mean, look at groups instead of places"
            need(not told, f"{name}, step {step}: {', '.join(told[:3])}, expected the same to rounding; {mend}")
    return f"the same to rounding with {', '.join(others)}"


def _size(vector: Tensor) -> float:
    return float(vector.square().sum().sqrt())


def at_ratio_1(lab: Lab) -> list[tuple[Tensor, Tensor]]:
    """Advantages, and the gradient of the loss with respect to the log-probs, where the policy is the old one."""
    loss, policy, found = lab.make(), tiny_policy(), list[tuple[Tensor, Tensor]]()
    if not isinstance(loss, Loss):
        raise Skipped("it is not a loss")
    for batch in batches(lab, 1):
        stats = policy.stats(batch)
        logp_N = stats.logp_N.detach().requires_grad_()
        same = replace(batch, old_logp_N=logp_N.detach().clone())
        given = policy_loss(same, replace(stats, logp_N=logp_N), loss)
        gradient_N = torch.autograd.grad(given.sum(), logp_N, allow_unused=True, materialize_grads=True)[0]
        found.append((batch.advantage_N, gradient_N))
    return found


def check_sign(lab: Lab) -> str:
    wrong = sum(int((advantage_N * gradient_N > 1e-6).sum()) for advantage_N, gradient_N in at_ratio_1(lab))
    told = f"{wrong} tokens with a good advantage become less likely, or the other way round"
    need(not wrong, f"hook per_token: {told}; it is minimised, so it falls where advantage times log-prob rises")
    return "good tokens become likelier, bad ones less likely"


def note_policy_gradient(lab: Lab) -> str:
    plain = all(torch.allclose(gradient_N, -advantage_N, atol=1e-5) for advantage_N, gradient_N in at_ratio_1(lab))
    return "at ratio 1 the gradient is " + ("that of a plain policy gradient" if plain else "another, on purpose?")


def note_groups(lab: Lab) -> str:
    if not isinstance(advantage := lab.make(), Advantage):
        raise Skipped("it is not an advantage estimator")

    episodes = lab.episodes[1]
    returns = ([e.ret for e in episodes], [1.0 for _ in episodes], [e.ret + e.group for e in episodes])
    tokens = flatten(episodes)[1]
    usual_N, equal_N, more_N = (credited(advantage, _paid(episodes, each), tokens).advantage_N for each in returns)
    told = f"equal returns give {'0' if not equal_N.any() else f'up to {np.abs(equal_N).max():.3g}'}"
    moved = float(np.abs(more_N - usual_N).max())
    said = "nothing" if moved < 1e-4 else f"advantages by up to {moved:.3g}"
    expected = ", though it compares groups" if advantage.compares_groups and moved >= 1e-4 else ""
    return f"{told}; the same number on all returns of a group changes {said}{expected}"


def _paid(episodes: Sequence[Episode], returns: Sequence[float]) -> list[Episode]:
    """The episodes with these returns, all of each at its end."""
    paid: list[Episode] = []
    for episode, amount in zip(episodes, returns, strict=True):
        turns = [replace(turn, reward=0.0) for turn in episode.turns]
        paid.append(replace(episode, turns=(*turns[:-1], replace(turns[-1], reward=amount))))
    return paid


def note_time(lab: Lab) -> str:
    spent: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(6):
        for with_it in spent:
            learner = lab.learner(lab.make() if with_it else None)
            begin = time.process_time()
            lab.run(learner, (1, 2))
            spent[with_it].append(time.process_time() - begin)
    times = min(spent[True]) / min(spent[False])
    return f"with it an update takes about {times:.2f} times as long as without, on this tiny model"
