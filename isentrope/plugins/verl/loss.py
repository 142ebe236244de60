"""The loss on verl's workers: verl's own, and the terms of the methods from the same forward pass.

    actor_rollout_wg.set_loss_fn(partial(entropy_ppo_loss, config=actor_config, methods=methods))

Methods are sent anew each step, with what `begin` made of it in the trainer's process. A worker keeps no state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from isentrope.core.errors import TrainError
from isentrope.core.method import Method
from isentrope.core.needs import require
from isentrope.core.types import TokenStats
from isentrope.learning import hooks
from isentrope.learning.records import brought
from isentrope.plugins.verl.data import micro_batch

WHAT = "isentrope.plugins.verl"
losses: Any = require("verl.workers.utils.losses", "verl", WHAT)
padding: Any = require("verl.workers.utils.padding", "verl", WHAT)
metric: Any = require("verl.utils.metric", "verl", WHAT)


def entropy_ppo_loss(
    config: Any, model_output: Mapping[str, Any], data: Any, dp_group: Any = None, methods: Sequence[Method] = ()
) -> tuple[Tensor, dict[str, Any]]:
    """verl's `ppo_loss` with the terms added. Without methods it is verl's own."""
    if not methods:
        return losses.ppo_loss(config=config, model_output=model_output, data=data, dp_group=dp_group)
    entropy = model_output.get("entropy")
    if entropy is None:
        raise TrainError(
            "verl computed no entropies in its update, which the methods' terms are made of; set "
            "actor_rollout_ref.actor.calculate_entropy=True"
        )
    missing = [name for name in ("batch_num_tokens", "global_batch_size") if data[name] is None]
    if missing:
        raise TrainError(f"verl gave its loss no {' and no '.join(missing)}, so a mini-batch's means are not known")
    logp_BT, entropy_BT = (padding.no_padding_2_padding(part, data) for part in (model_output["log_probs"], entropy))
    told = {name: float(data[name]) for name in ("dp_size", "batch_num_tokens", "global_batch_size")}
    chosen = data.select("response_mask", "responses").to_padded_tensor()
    mask_BT, responses = chosen["response_mask"].bool(), chosen["responses"]
    loss, metrics = losses.ppo_loss(config=config, model_output=model_output, data=data, dp_group=dp_group)
    if not bool(mask_BT.any()):
        return loss, metrics
    batch = micro_batch(responses, mask_BT, told, logp_BT.detach())
    row_N, col_N = batch.row_N, batch.col_N
    no_states = logp_BT.new_zeros((len(row_N), 0))
    stats = TokenStats(logp_BT[row_N, col_N].float(), entropy_BT[row_N, col_N].float(), no_states, no_states)
    terms, figures = hooks.terms(methods, batch, stats)
    for term in terms:
        loss = loss + term
    (plain,) = brought([figures])
    kind = metric.AggregationType.SUM  # shares of the mini-batch, as verl's own losses are
    added = {
        f"isentrope/{key}": metric.Metric(value=torch.tensor(value), aggregation=kind) for key, value in plain.items()
    }
    return loss, metrics | added
