"""What the plug-in uses of TRL's GRPOTrainer, with types: TRL is imported where it is installed, and checked here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor

from isentrope.core.needs import require

WHAT = "isentrope.plugins.trl"
trl: Any = require("trl", "trl", WHAT)
transformers: Any = require("transformers", "trl", WHAT)
accelerate_utils: Any = require("accelerate.utils", "trl", WHAT)

if TYPE_CHECKING:

    class GRPOTrainer:
        """Of TRL 1.16."""

        args: Any
        state: Any
        model: Any
        accelerator: Any
        num_generations: int
        num_iterations: int
        temperature: float
        loss_type: str
        epsilon_low: float
        epsilon_high: float
        max_completion_length: int
        reward_weights: Tensor
        _tokenizer: Any
        _step: int  # micro-batches so far
        _metrics: dict[str, dict[str, list[float]]]
        _buffered_inputs: list[dict[str, Any]] | None  # micro-batches of the rollout that is being learnt from

        def __init__(self, model: Any, reward_funcs: Any, args: Any, *rest: Any, **options: Any) -> None: ...

        eos_token_ids: list[int]
        reward_func_names: list[str]
        lr_scheduler: Any
        beta: float
        num_generations_eval: int

        def add_callback(self, callback: Any) -> None: ...
        def _generate(self, prompts: Any) -> tuple[Any, ...]: ...
        def _calculate_rewards(self, *args: Any) -> Tensor: ...
        def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]: ...
        def _prepare_inputs(self, generation_batch: Any) -> dict[str, Any]: ...
        def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Tensor: ...
        def _get_per_token_logps_and_entropies(
            self, model: Any, *args: Any, **options: Any
        ) -> tuple[Tensor, Tensor | None, Tensor | None]: ...
        def _get_grad_norm(self, model: Any, grad_norm: Any = None) -> Any: ...
        def train(self, *args: Any, **options: Any) -> Any: ...
        def evaluate(self, *args: Any, **options: Any) -> Any: ...
        def _get_output_dir(self, trial: Any) -> str: ...
        def _save_checkpoint(self, model: Any, trial: Any) -> None: ...
        def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None: ...

    class TrainerCallback:
        """Of transformers."""

else:
    GRPOTrainer = trl.GRPOTrainer
    TrainerCallback = transformers.TrainerCallback
