"""Every token that vLLM draws in conversations of several turns, before and after new weights, against float64."""

from __future__ import annotations

from isentrope.config.schema import PolicySettings, RunSettings
from isentrope.engines.registry import make_engine
from isentrope.models.load import load_policy
from tests.audit.engines import Plan, check_engine
from tests.engines.vllm.helpers import config_of


def test_log_probs_entropies_and_draws_are_those_of_float64() -> None:
    policy = load_policy(PolicySettings(), RunSettings(device="cpu"))
    engine = make_engine(config_of(batch=8), policy)
    plan = Plan(slots=14, turns=3, lengths=(3, 64, 150), answer=16)
    lines = check_engine("vllm", engine, policy, policy.tokenizer.size, plan, "cpu")
    for line in lines:
        print(f"{line.name}: {line.measured:.3e}, at most {line.bar:.3e} ({line.note})")
    wrong = [line for line in lines if not line.holds]
    assert not wrong, "\n".join(f"{line.name}: {line.measured:.3e} > {line.bar:.3e} ({line.note})" for line in wrong)
