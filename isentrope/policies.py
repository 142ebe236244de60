"""The two policies of a training run."""

from __future__ import annotations

from pathlib import Path

from isentrope.config.schema import RunConfig
from isentrope.models.load import load_checkpoint, load_folder, load_policy
from isentrope.models.lora.adapters import reference_of
from isentrope.models.policy import Policy
from isentrope.runs.layout import POLICY
from isentrope.runs.writer import RunFolder


def policies(config: RunConfig, folder: RunFolder, found: Path | None) -> tuple[Policy, Policy | None]:
    """The policy as it is now, and the reference: the policy as it was at step 0, kept in the run folder."""
    run, longest = config.run, config.agent.max_context
    if found:
        policy = load_checkpoint(found / POLICY, config.policy, run, config.learn, config.critic, longest)
    else:
        policy = load_policy(config.policy, run, config.learn, config.critic, longest)
        folder.write_start(policy)
        folder.write_reference(policy)
    folder.write_tokens(policy.dialect)
    if config.learn.gradient_checkpointing:
        policy.model.compute_twice()
    if config.learn.kl == 0:
        return policy, None
    if config.policy.lora_rank:
        return policy, reference_of(policy, folder.reference)
    reference = load_folder(folder.reference, policy.device, run.dtype, run.weights)
    reference.module.requires_grad_(False)
    return policy, reference
