"""verl's synchronous trainer with our methods: `trainer.v1.trainer_mode=isentrope_sync`.

    begin, shape   in `_compute_advantage`, behind verl's own estimate: read from the TransferQueue and put back
    loss           before `_update_actor`: the workers get a loss with the methods as `begin` left them
    state          beside verl's checkpoints, `isentrope_methods.pt`

Settings stand under `isentrope` on verl's command line: `+isentrope.methods=[aem,{epo:{coefficient:0.01}}]`.
"""

from __future__ import annotations

import io
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch

from isentrope.core.errors import ConfigError, TrainError
from isentrope.core.method import Method
from isentrope.core.needs import require
from isentrope.core.types import Metrics
from isentrope.learning import hooks
from isentrope.methods.registry import make_listed
from isentrope.models.chat.tokenizer import piece_reader
from isentrope.plugins.verl import checks
from isentrope.plugins.verl.data import step_of
from isentrope.plugins.verl.loss import WHAT, entropy_ppo_loss
from isentrope.runs.atomic import write_atomically

NAME = "isentrope_sync"
STATE = "isentrope_methods.pt"
_FIELDS = ("responses", "response_mask", "old_log_probs", "entropy", "rm_scores", "advantages")


class EntropyTrainer:
    """What is added to a trainer of verl; it stands before it among the bases."""

    if TYPE_CHECKING:
        config: Any
        tokenizer: Any
        global_steps: int
        actor_rollout_wg: Any
        total_training_steps: int

    queue: Any = None  # verl's TransferQueue
    padding: Any = None
    _methods: list[Method] | None = None

    def _ours(self) -> Any:
        return self.config.get("isentrope", None) or {}

    @property
    def methods(self) -> list[Method]:
        if self._methods is None:
            omegaconf: Any = require("omegaconf", "verl", WHAT)
            listed = self._ours().get("methods", [])
            plain = omegaconf.OmegaConf.to_container(listed) if omegaconf.OmegaConf.is_config(listed) else listed
            seed = int(self.config.actor_rollout_ref.actor.get("data_loader_seed", 42))
            made = make_listed(checks.read_methods(plain), int(self.total_training_steps), seed)
            checks.refuse(made)
            actor = self.config.actor_rollout_ref.actor
            if (self.config.get("distillation", None) or {}).get("enabled", False):
                raise ConfigError("the methods' loss stands where verl's distillation has its own; use one of the two")
            if any(type(method).loss is not Method.loss for method in made) and not actor.calculate_entropy:
                raise ConfigError(
                    "the terms of the methods are made of entropies in the update; set "
                    "actor_rollout_ref.actor.calculate_entropy=True"
                )
            self._methods = made
        return self._methods

    def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
        batch = cast("Any", super())._compute_advantage(batch, metrics=metrics)
        if not self.methods:
            return batch
        data = self.queue.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=list(_FIELDS))
        nested = data["response_mask"]
        padded = data.to_padded_tensor()
        padded["token_level_scores"] = padded.pop("rm_scores")
        changed, told = self.shaped(padded, batch.keys)
        metrics.update({f"isentrope/{key}": value for key, value in told.items()})
        if changed is None:
            return batch
        tensordict: Any = require("tensordict", "verl", WHAT)
        fields = {"advantages": self.padding.response_to_nested(changed, nested)}
        output = tensordict.TensorDict(fields, batch_size=len(batch.keys))
        return self.queue.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=output)

    def shaped(self, padded: Any, keys: list[str]) -> tuple[torch.Tensor | None, Metrics]:
        """Advantages after the methods, and what they record; None: no method shapes them."""
        ours = self._ours()
        temperature = float(self.config.actor_rollout_ref.rollout.temperature)
        tags = tuple(str(tag) for tag in ours.get("action_tags", ["action"]))
        solved_at = float(ours.get("solved_at", 1.0))
        step = step_of(padded, keys, piece_reader(self.tokenizer), tags, temperature, solved_at)
        told = hooks.begin(self.methods, self.global_steps, step.table.tokens)
        if all(type(method).shape is Method.shape for method in self.methods):
            return None, told
        before_BT = padded["advantages"]
        advantage_N, more = hooks.shaped(self.methods, self.global_steps, step.table.tokens, step.per_token(before_BT))
        return step.padded(advantage_N, before_BT), told | more

    def _update_actor(self, batch: Any, metrics: dict[str, Any]) -> Any:
        adding = [method for method in self.methods if type(method).loss is not Method.loss]
        if adding:
            actor = self._actor_config()
            self.actor_rollout_wg.set_loss_fn(partial(entropy_ppo_loss, config=actor, methods=tuple(adding)))
        return cast("Any", super())._update_actor(batch, metrics=metrics)

    def _actor_config(self) -> Any:
        """As verl's workers make it."""
        config: Any = require("verl.utils.config", "verl", WHAT)
        return config.omega_conf_to_dataclass(self.config.actor_rollout_ref.actor)

    # State.

    def _state_path(self, step: int) -> Path:
        return Path(str(self.config.trainer.default_local_dir)) / f"global_step_{step}" / STATE

    def _save_checkpoint(self) -> Any:
        if self.methods:
            buffer = io.BytesIO()
            torch.save(hooks.states(self.methods), buffer)
            write_atomically(self._state_path(self.global_steps), buffer.getvalue())
        return cast("Any", super())._save_checkpoint()

    def _load_checkpoint(self) -> Any:
        given = cast("Any", super())._load_checkpoint()
        if self.methods and self.global_steps > 0:
            path = self._state_path(self.global_steps)
            try:
                kept = torch.load(path, map_location="cpu", weights_only=True)
                hooks.load_states(self.methods, dict(kept))
            except TrainError:
                raise
            except Exception as error:  # a damaged file may end anywhere in the reader
                raise TrainError(
                    f"{path}: no state of the methods can be read ({type(error).__name__}: {str(error)[:100]}); resume "
                    "a checkpoint of a run with the same methods, or begin a new run"
                ) from error
        return given


def register_with_verl() -> Any:
    """The class that verl knows as `isentrope_sync`."""
    base: Any = require("verl.trainer.ppo.v1.trainer_base", "verl", WHAT)
    sync: Any = require("verl.trainer.ppo.v1.trainer_sync", "verl", WHAT)
    if NAME in base.TRAINER_REGISTRY:
        return base.TRAINER_REGISTRY[NAME]
    verl: Any = require("verl", "verl", WHAT)
    checks.check_version(str(getattr(verl, "__version__", "?")))
    padding: Any = require("verl.workers.utils.padding", "verl", WHAT)
    kind = type("EntropyTrainerSync", (EntropyTrainer, sync.PPOTrainerSync), {"queue": base.tq, "padding": padding})
    return base.register_trainer(NAME)(kind)
