"""TRL's GRPOTrainer with our methods: `EntropyGRPOTrainer(..., methods=["aem", "epo"])`.

TRL samples, rewards, estimates advantages and has the policy loss; the hooks are called where our own learner calls
them. Every process has the whole step's table, so all of them compute the same.

    begin, shape   once a rollout, in `_generate_and_score_completions`: advantages become one per token
    weigh          in `_compute_loss`, between its forward pass and its loss: as a factor of the advantages
    loss           in `_compute_loss`, from the same forward pass; TRL's own loss stays as it is
    updated        after the optimizer's step
    state          in each checkpoint of TRL

The instruments (instruments.py) look on and write our run folder beside TRL's output. Without methods every override
hands on what TRL does, and nothing else.
"""

from __future__ import annotations

import io
import math
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from isentrope.config.kinds import ClipOptions
from isentrope.config.schema import RunConfig
from isentrope.core.errors import TrainError
from isentrope.core.method import Method
from isentrope.core.tokenizer import ACTION
from isentrope.core.types import Floats, Metrics, TokenBatch, TokenStats
from isentrope.learning import hooks
from isentrope.learning.losses.clipped import Clip
from isentrope.learning.records import Figures, accumulate, brought
from isentrope.learning.tokens import Ids
from isentrope.methods.registry import Listed, make_listed
from isentrope.plugins.table import Rollout, Table, Window, flat, make_batch, make_table, make_window
from isentrope.plugins.trl import checks
from isentrope.plugins.trl.base import GRPOTrainer, accelerate_utils, trl
from isentrope.plugins.trl.looking import WatchedGRPOTrainer
from isentrope.runs.atomic import write_atomically

STATE = "isentrope_methods.pt"
ROWS = "isentrope_rows"
"""Under this key TRL carries the numbers of the rows along as it shuffles and splits them."""
MODEL_INPUTS = (
    "pixel_values", "image_grid_thw", "num_images", "pixel_attention_mask", "spatial_shapes", "num_tiles",
    "image_sizes", "token_type_ids", "mm_token_type_ids", "image_position_ids",
)  # fmt: skip


@dataclass
class _Step:
    """What the methods made of a rollout."""

    table: Table
    advantage_N: Floats
    window_rows: Sequence[Ids] = ()  # of each optimizer step
    windows: dict[int, Window] = field(default_factory=dict[int, Window])


@dataclass
class _Pending:
    """One call of TRL's `_compute_loss`: its inputs, and what the methods read of its forward pass."""

    inputs: dict[str, Any]
    batch: TokenBatch | None = None
    stats: TokenStats | None = None


class EntropyGRPOTrainer(WatchedGRPOTrainer):
    def __init__(
        self,
        model: Any,
        reward_funcs: Any = None,
        args: Any = None,
        *rest: Any,
        methods: Sequence[Listed] = (),
        solved_at: float | None = None,
        action_tags: Sequence[str] = ACTION,
        run_folder: str | Path | bool = True,
        **options: Any,
    ) -> None:
        """As GRPOTrainer. `methods` are names, `module:Class`, classes, or pairs of one with its options. A completion
        whose rewards add up to `solved_at` (1.0) counts as solved: SEAL learns from that. `action_tags` hold an action.
        `run_folder` is where our instruments write: True: a folder in `output_dir`; False: they are off."""
        self._listed, self._tags = tuple(methods), tuple(action_tags)
        self._solved_at = 1.0 if solved_at is None else solved_at
        self._methods: list[Method] | None = None
        self._rollouts = 0  # so far, those before a restart included
        self._rollout_step: _Step | None = None
        self._pending: _Pending | None = None
        self._passes: list[tuple[Tensor, Tensor | None]] | None = None  # while TRL scores a rollout
        self._last_pass: tuple[Tensor, Tensor | None] | None = None
        self._figures: list[Figures] = []
        if self._listed:
            checks.check_version(str(trl.__version__), GRPOTrainer)
            checks.refuse_sampling(make_listed(self._listed, RunConfig().run.steps, 0))
        super().__init__(model, reward_funcs, args, *rest, **options)
        if self._listed:
            checks.refuse_settings(self.args)
        self.watch(run_folder, self._listed, solved_at, self._tags)

    @property
    def methods(self) -> list[Method]:
        """Those of the training; before it begins, when nobody knows how long it will be, new ones each time."""
        if self._methods is not None:
            return self._methods
        a: Any = self.args
        updates = self.state.max_steps or max(a.max_steps, 1)
        steps = math.ceil(updates * a.gradient_accumulation_steps / (a.steps_per_generation * self.num_iterations))
        made = make_listed(self._listed, steps, a.seed)
        self._methods = made if self.state.max_steps else None
        return made

    def _acting(self) -> bool:
        return bool(self._listed) and self.model.training

    def _record(self, metrics: Mapping[str, float]) -> None:
        for key, value in metrics.items():
            self._metrics["train"][key].append(value)
        if self.instruments is not None:
            self.instruments.noted(metrics)

    # A rollout: begin and shape.

    def _generate(self, prompts: Any) -> tuple[Any, ...]:
        given = super()._generate(prompts)
        if self._acting():
            checks.check_masks(given[1], given[2])
        return given

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        if not self._acting() and self.instruments is None:
            return super()._generate_and_score_completions(inputs)
        if self.instruments is not None:
            self.instruments.begins()
        self._passes = [] if self.model.training else None
        try:
            output = super()._generate_and_score_completions(inputs)
            passes = self._passes or []
        finally:
            self._passes = None
        first = self.accelerator.process_index * len(output["completion_ids"])
        output[ROWS] = torch.arange(
            first, first + len(output["completion_ids"]), device=output["completion_ids"].device
        )
        before, scored = output["advantages"], self._scored_by_trl(output, passes)
        if self.instruments is not None:
            self.instruments.sampled_all(output, inputs, before)
        if self._acting():
            scored = self._to_methods(output, scored)
        if self.instruments is not None and scored is not None and self.model.training:
            self.instruments.scored(*scored)
        return output

    def _to_methods(self, output: dict[str, Any], scored: tuple[Tensor, Tensor] | None) -> tuple[Tensor, Tensor] | None:
        """Show the rollout to the methods, which may change its advantages; gives what it was scored with."""
        self._rollouts += 1
        looks = any(_overrides(method, "begin") or _overrides(method, "shape") for method in self.methods)
        scored = self._scores(output) if looks and scored is None else scored
        table = self._table(output, *(scored if looks and scored is not None else (None, None)))
        local_B = output[ROWS].cpu().numpy()
        advantage_N = table.per_token(self.from_all(output["advantages"])[:, None].expand(-1, table.width))
        self._record(hooks.begin(self.methods, self._rollouts, table.tokens))
        if any(_overrides(method, "shape") for method in self.methods):
            advantage_N, metrics = hooks.shaped(self.methods, self._rollouts, table.tokens, advantage_N)
            self._record(metrics)
            output["advantages"] = table.padded(advantage_N, local_B, output["advantages"], output["completion_ids"])
        self._record({"solved": float(table.tokens.solved_E.mean())})
        self._rollout_step = _Step(table, advantage_N)
        if self.instruments is not None and self.instruments.rolled:
            self.instruments.rolled[-1].advantages = output["advantages"]
        return scored

    def _scored_by_trl(
        self, output: dict[str, Any], passes: Sequence[tuple[Tensor, Tensor | None]]
    ) -> tuple[Tensor, Tensor] | None:
        """Log-probs and entropies of the policy that sampled, if TRL made a pass over the rollout itself."""
        old = output.get("old_per_token_logps")
        return next(((logps, e) for logps, e in passes if logps is old and e is not None), None)

    def _scores(self, output: dict[str, Any]) -> tuple[Tensor, Tensor]:
        """The same, by a pass of our own."""
        ids = torch.cat([output["prompt_ids"], output["completion_ids"]], dim=1)
        mask = torch.cat([output["prompt_mask"], output["completion_mask"]], dim=1)
        with torch.no_grad():
            logps, entropies, _ = super()._get_per_token_logps_and_entropies(
                self.model, ids, mask, output["completion_ids"].shape[1],
                batch_size=self.args.per_device_train_batch_size, compute_entropy=True,
                **{key: output[key] for key in MODEL_INPUTS if key in output},
            )  # fmt: skip
        if entropies is None:
            raise TrainError("TRL gave no entropies of its rollout; switch a fused loss off (use_liger_kernel=False)")
        return logps, entropies

    def _table(self, output: dict[str, Any], logps: Tensor | None, entropies: Tensor | None) -> Table:
        mask = output["completion_mask"]
        if "tool_mask" in output:
            mask = mask * output["tool_mask"]
        assert self._rewards is not None
        rewards = (self._rewards * self.reward_weights.to(self._rewards.device)).nansum(dim=1)
        rewards[torch.isnan(self._rewards).all(dim=1)] = torch.nan
        rollout = Rollout(
            ids_BT=self.from_all(output["completion_ids"]).cpu().numpy(),
            mask_BT=self.from_all(mask).bool().cpu().numpy(),
            reward_B=rewards.double().cpu().numpy(),
            group_size=self.num_generations,
            temperature=self.temperature,
            logp_BT=None if logps is None else flat(self.from_all(logps)),
            entropy_BT=None if entropies is None else flat(self.from_all(entropies)),
        )
        return make_table(rollout, self.read_piece, self._tags, self._solved_at)

    def _prepare_inputs(self, generation_batch: Any) -> dict[str, Any]:
        before = self._buffered_inputs
        inputs = super()._prepare_inputs(generation_batch)
        if self._acting() and self._buffered_inputs is not before:
            assert self._rollout_step is not None
            assert self._buffered_inputs is not None
            rows = self.from_all(torch.stack([part[ROWS] for part in self._buffered_inputs], dim=1))
            window: int = self.args.gradient_accumulation_steps
            self._rollout_step.window_rows = [part.flatten().cpu().numpy() for part in torch.split(rows, window, dim=1)]
        return inputs

    # An update: weigh and loss.

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Tensor:
        self._last_pass = None
        loss = self._loss_with_terms(model, inputs) if self._acting() else super()._compute_loss(model, inputs)
        if self.instruments is not None:
            self.instruments.passed(inputs, inputs[ROWS], loss, self._last_pass)
        self._last_pass = None
        return loss

    def _loss_with_terms(self, model: Any, inputs: dict[str, Any]) -> Tensor:
        pending = self._pending = _Pending(dict(inputs))
        epsilon_high, self.epsilon_high = self.epsilon_high, self._clip_high()
        try:
            loss = super()._compute_loss(model, pending.inputs)
        finally:
            self.epsilon_high, self._pending = epsilon_high, None
        if pending.batch is None or pending.stats is None:
            raise TrainError(
                "TRL computed its loss without log-probs and entropies of the tokens, as a fused loss does "
                "(use_liger_kernel); switch it off, as the methods need them"
            )
        if not len(pending.batch.mini_batch):  # TRL has masked all completions of this update
            return loss
        terms, figures = hooks.terms(self.methods, pending.batch, pending.stats)
        self._figures.append(figures)
        for term in terms:  # gradients are averaged over the processes, and the term is a sum over them
            loss = loss + self.accelerator.num_processes * term
        return loss

    def _get_per_token_logps_and_entropies(
        self, model: Any, *args: Any, **options: Any
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        pending = self._pending
        if pending is None:
            if self._passes is None or model is not self.model:  # a reference has no entropies
                given = super()._get_per_token_logps_and_entropies(model, *args, **options)
                self._last_pass = given[:2]
                return given
            given = super()._get_per_token_logps_and_entropies(model, *args, **options | {"compute_entropy": True})
            self._passes.append(given[:2])
            return given
        with self._hidden_states(model) as states:
            given = super()._get_per_token_logps_and_entropies(model, *args, **options)
        if given[1] is None or not states:
            raise TrainError(
                "TRL's forward pass gave no entropies or no hidden states, as fused kernels do; switch them off"
            )
        self._look(pending, given[0], given[1], states[-1])
        self._last_pass = given[:2]
        return given

    @contextmanager
    def _hidden_states(self, model: Any) -> Generator[list[Tensor]]:
        """What the model's body gives to its head, with gradient."""
        inner = self.accelerator.unwrap_model(model)
        inner = inner.get_base_model() if hasattr(inner, "peft_config") and hasattr(inner, "get_base_model") else inner
        states: list[Tensor] = []

        def keep(module: Any, given: Any, output: Any) -> None:
            states.append(output.last_hidden_state)

        handle = inner.base_model.register_forward_hook(keep)
        try:
            yield states
        finally:
            handle.remove()

    def _look(self, pending: _Pending, logps: Tensor, entropies: Tensor, states: Tensor) -> None:
        """Show the forward pass to the methods, and weigh the policy loss."""
        step, inputs = self._rollout_step, pending.inputs
        assert step is not None
        rows = inputs[ROWS].cpu().numpy()
        batch = make_batch(step.table, self._window(step), step.advantage_N, rows, inputs, logps)
        row_N, col_N = batch.row_N, batch.col_N - inputs["prompt_ids"].shape[1]
        stats = TokenStats(
            logps[row_N, col_N].float(), entropies[row_N, col_N].float(), states[row_N, batch.col_N - 1], states
        )
        pending.batch, pending.stats = batch, stats
        given_N = hooks.weights(self.methods, batch, stats) if len(batch.mini_batch) else None
        if given_N is not None:
            advantages = inputs["advantages"]
            factor = torch.ones_like(logps, dtype=advantages.dtype)
            factor[row_N, col_N] = given_N.to(factor)
            inputs["advantages"] = factor * (advantages if advantages.ndim > 1 else advantages[:, None])

    def _window(self, step: _Step) -> Window:
        number: int = self._step % self.args.steps_per_generation // self.args.gradient_accumulation_steps
        if number not in step.windows:
            step.windows[number] = make_window(step.table, step.window_rows[number], self.max_completion_length)
        return step.windows[number]

    def _clip_high(self) -> float:
        loss = Clip(ClipOptions(clip_low=self.epsilon_low, clip_high=self.epsilon_high))
        changed = hooks.clipped(self.methods, loss)
        if changed is loss:
            return self.epsilon_high
        if self.loss_type not in checks.CLIPPED:
            raise TrainError(
                f"a method sets clip_high, and loss_type = {self.loss_type!r} has none in that sense; use one of "
                f"{', '.join(checks.CLIPPED)}"
            )
        assert changed.clip is not None
        return changed.clip[1]

    def after_update(self) -> None:
        """The optimizer has made its step, or left it out."""
        if self._listed:
            self._after_update_of_methods()
        super().after_update()

    def _after_update_of_methods(self) -> None:
        figures, self._figures = brought(self._figures), []
        if self.accelerator.num_processes > 1:
            for method in self.methods:
                self._average_own_gradients(method)
            figures: list[Metrics] = list(accelerate_utils.gather_object(figures))
        sums: Metrics = {}
        extremes = hooks.extremes(self.methods, figures)
        for each in figures:
            accumulate(sums, each, extremes)
        self._record(sums)
        hooks.updated(self.methods, not self.accelerator.optimizer_step_was_skipped)

    def _average_own_gradients(self, method: Method) -> None:
        """Of weights that a method has of its own, which no one else would bring together."""
        for module in (value for value in vars(method).values() if isinstance(value, nn.Module)):
            for weight in module.parameters():
                gradient = torch.zeros_like(weight) if weight.grad is None else weight.grad
                weight.grad = self.accelerator.reduce(gradient, reduction="mean")

    # State.

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        folder = Path(self._get_output_dir(trial=trial)) / f"checkpoint-{self.state.global_step}"
        if self._listed and self.args.should_save:  # first, so that a checkpoint that is whole has it
            buffer = io.BytesIO()
            torch.save({"rollouts": self._rollouts, "methods": hooks.states(self.methods)}, buffer)
            write_atomically(folder / STATE, buffer.getvalue())
        super()._save_checkpoint(model, trial)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if not self._listed or checkpoint is None:
            return
        path = Path(checkpoint) / STATE
        try:
            kept: Any = torch.load(path, map_location="cpu", weights_only=True)
            rollouts, methods = int(kept["rollouts"]), dict(kept["methods"])
        except Exception as error:  # a damaged file may end anywhere in the reader
            raise TrainError(
                f"{path}: no state of the methods can be read ({type(error).__name__}: {str(error)[:100]}); resume a "
                "checkpoint of a run with the same methods, or begin a new run"
            ) from error
        hooks.load_states(self.methods, methods)
        self._rollouts = rollouts


def _overrides(method: Method, hook: str) -> bool:
    return getattr(type(method), hook) is not getattr(Method, hook)
