"""Our instruments in TRL's GRPOTrainer: what they see of a rollout and its updates, on its way to our run folder.

A step of the folder is a rollout and its updates; where an update learns from several rollouts, those together. All
processes bring together what they have (`_brought`); the first one makes episodes and numbers of it and writes them.
Log-probs and entropies are those of TRL's own forward passes, so no pass is added, and nothing of TRL is changed.
"""

from __future__ import annotations

import functools
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor

from isentrope.core.types import Metrics
from isentrope.methods.registry import Listed
from isentrope.plugins.played import Form, Numbers, Reader, Row, equal_groups, form_of, scores_of
from isentrope.plugins.table import flat
from isentrope.plugins.trl.base import accelerate_utils, trl
from isentrope.plugins.trl.rolled import (
    KINDS,
    MODES,
    OF_PASS,
    OF_ROLLOUT,
    STATE,
    Brought,
    Rolled,
    Sampled,
    game_of,
    last,
    means,
    parts,
    put,
    read_state,
    rewards_of,
    stored,
    told_of,
    wide,
)
from isentrope.plugins.trl.settings import settings_of
from isentrope.plugins.watched import LOG, Guard, Looked, Watcher
from isentrope.runs.atomic import write_atomically
from isentrope.runs.beside import WatchedFolder

if TYPE_CHECKING:
    from isentrope.plugins.trl.looking import WatchedGRPOTrainer


def _guarded(doing: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A hook whose errors are warnings."""

    def around(hook: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(hook)
        def called(self: Instruments, *args: Any, **options: Any) -> None:
            with self.guard(doing):
                hook(self, *args, **options)

        return called

    return around


class Instruments:
    """One for each trainer and process; `place` is where the first process writes."""

    def __init__(
        self,
        trainer: WatchedGRPOTrainer,
        place: Path,
        listed: Sequence[Listed],
        solved_at: float | None,
        tags: tuple[str, ...],
    ) -> None:
        self.trainer, self.place, self.listed = trainer, place, listed
        self.solved_at, self.tags = solved_at, tags
        self.guard = Guard()
        self.watcher: Watcher | None = None
        self.steps = 0  # that were written
        self.judged: bool | None = None if solved_at is None else True
        self.form: Form | None = None
        self.sampled = Sampled()
        self.rolled: list[Rolled] = []
        self.evaluated: list[Rolled] = []
        self.grad_norm: Any = None
        self.skipped = 0
        self.resumed: str | None = None
        self._path: Path | None = None  # of the folder that was opened

    # -- what TRL does

    @_guarded("looking at a rollout")
    def generated(self, prompts: Sequence[Any], given: Sequence[Any]) -> None:
        self.sampled.prompts, self.sampled.prompt_ids, self.sampled.ids, self.sampled.masks = prompts, *given[:3]

    @_guarded("looking at a rollout")
    def begins(self) -> None:
        self.sampled = Sampled(began=time.perf_counter())

    @_guarded("looking at a rollout")
    def sampled_all(self, output: Mapping[str, Any], inputs: Sequence[Mapping[str, Any]], before: Tensor) -> None:
        """TRL has sampled, rewarded and scored a rollout; `before`: its advantages before the methods."""
        trainer = self.trainer
        training = bool(trainer.model.training)
        mode = "train" if training else "eval"
        size = trainer.num_generations if training else trainer.num_generations_eval
        rolled = Rolled(
            self.sampled, inputs, output["advantages"], before, output["completion_mask"].any(dim=1),
            output["completion_ids"].shape[1], trainer.accelerator.process_index * len(output["completion_ids"]), size,
            time.perf_counter() - self.sampled.began,
        )  # fmt: skip
        rolled.metrics = last(trainer.recorded(mode), OF_ROLLOUT)
        (self.rolled if training else self.evaluated).append(rolled)

    @_guarded("looking at a rollout")
    def scored(self, logps: Tensor, entropies: Tensor | None) -> None:
        """Of the rollout, by a pass over all of it."""
        rolled = self.rolled[-1]
        rolled.logp_BT, rolled.entropy_BT, rolled.scored = logps.detach(), entropies, True

    @_guarded("looking at what methods record")
    def noted(self, metrics: Mapping[str, float]) -> None:
        """What the methods record."""
        if self.rolled:
            self.rolled[-1].metrics |= metrics

    @_guarded("looking at a forward pass")
    def passed(
        self, inputs: Mapping[str, Any], rows: Tensor, loss: Tensor, seen: tuple[Tensor, Tensor | None] | None
    ) -> None:
        """A micro-batch went through the loss; `seen`: its log-probs and entropies."""
        training = bool(self.trainer.model.training)
        rolled = (self.rolled if training else self.evaluated)[-1]
        rolled.passes += 1
        rolled.losses.append(loss.detach().float())
        rolled.figures.append(last(self.trainer.recorded("train" if training else "eval"), OF_PASS))
        if seen is None:
            return
        logps, entropies = seen[0].detach().float(), None if seen[1] is None else seen[1].detach().float()
        local_B = rows - rolled.first
        once = rolled.passes <= (self.trainer.args.steps_per_generation if training else 1)
        if once and not rolled.scored:
            rolled.logp_BT = put(rolled.logp_BT, local_B, logps, rolled)
            if entropies is not None:
                rolled.entropy_BT = put(rolled.entropy_BT, local_B, entropies, rolled)
        old = inputs.get("old_per_token_logps")
        if old is not None:
            log_ratio = (logps - old.float()).clamp(-20, 20)
            mask = inputs["completion_mask"] * inputs.get("tool_mask", 1) > 0
            if once:
                rolled.ratio_BT = put(rolled.ratio_BT, local_B, log_ratio.exp(), rolled)
            chosen = log_ratio[mask]
            if len(chosen):
                ratio, k3 = chosen.exp(), torch.expm1(-chosen) + chosen
                parts = (ratio.min(), ratio.max(), ratio.sum(), k3.sum(), ratio.new_tensor(float(len(chosen))))
                rolled.ratios.append(torch.stack(parts))

    @_guarded("looking at an update")
    def updated(self, rate: float, skipped: bool) -> None:
        """The optimizer made its step, or left it out. Writes the rollouts that nothing more is learnt from."""
        done: list[Rolled] = []
        with self.guard("looking at an update"):
            self.skipped += skipped
            rolled = self.rolled[-1]
            losses, rolled.losses = rolled.losses, []
            total = torch.stack(losses).sum() if losses else rolled.before.new_zeros(())
            rolled.updates.append({"grad_norm": self.grad_norm, "lr": rate, "loss": total})
            every = self.trainer.args.steps_per_generation * self.trainer.num_iterations
            done = [one for one in self.rolled if one.passes >= every]
            self.rolled = [one for one in self.rolled if one.passes < every]
        self._write(done)

    def _agreed(self, done: Sequence[Rolled]) -> bool:
        """Whether all processes have the same to bring. Without that one would wait for another that does not come: so
        this is asked first, even by one whose own looking failed."""
        if self.trainer.accelerator.num_processes == 1:
            return bool(done)
        kinds = [1 + sum(1 << place for place, part in enumerate(parts(one)) if part) for one in done]
        mine = torch.tensor([len(done), sum(kinds), sum(len(one.updates) for one in done)], dtype=torch.long)
        told = self.trainer.accelerator.gather(mine.to(self.trainer.accelerator.device)).view(-1, 3)
        if not bool((told == told[0]).all()):
            raise RuntimeError("processes have seen different parts of a step")
        return bool(done)

    # -- the folder

    @_guarded("looking at the run folder")
    def open(self) -> None:
        """As training begins."""
        state: dict[str, Any] = {}
        after: int | None = 0 if self._path is not None and self.steps == 0 else None
        if self.resumed is not None:
            with self.guard("reading the state of the instruments"):
                after = self._steps_by(self.trainer.state.global_step)
                state = read_state(Path(self.resumed))
                after = int(state.get("steps", after))
        elif self._path is None or self.steps:
            self._path = None
        self.resumed = None
        self.steps = after or 0
        self.rolled.clear()
        if "judged" in state:
            self.judged = state["judged"]
            self.form = Form(tuple(state["form"][0]), str(state["form"][1])) if state.get("form") else None
        if self.trainer.accelerator.is_main_process:
            place = self._path or (self.place.with_name(state["folder"]) if state.get("folder") else self.place)
            with self.guard("opening the run folder"):
                self.watcher = self._watcher(place, after)
                if state.get("running"):
                    self.watcher.load_state_dict(state["running"])

    def _steps_by(self, updates: int) -> int:
        args = self.trainer.args
        every = args.steps_per_generation * self.trainer.num_iterations
        return updates * args.gradient_accumulation_steps // max(every, args.gradient_accumulation_steps)

    def _watcher(self, place: Path, after: int | None) -> Watcher:
        trainer = self.trainer
        weights: int = sum(weight.numel() for weight in trainer.model.parameters())
        entry = {
            "from": str(trainer.args.output_dir), "what": "instruments in the trainer",
            "program": f"TRL {trl.__version__}", "names": "trl",
            "settings": settings_of(trainer, self.listed, self.tags),
        }  # fmt: skip
        folder = WatchedFolder(place, entry, weights, after)
        if folder.fresh and folder.path != self.place:
            LOG.warning(f"isentrope: {self.place} holds another run; this one is recorded in {folder.path}")
        words = [trainer.read_piece(number) for number in range(len(trainer.words))]
        try:
            watcher = Watcher(folder, words if any(words) else (), "trl")
            for method in trainer.methods:
                watcher.log.declare(method)
        except BaseException:
            folder.close()
            raise
        self._path = folder.path
        return watcher

    @_guarded("looking at the run folder")
    def close(self, error: BaseException | None = None) -> None:
        """Training has ended, by an error or not."""
        if error is None:
            with self.guard("looking at the last step"):
                done, self.rolled = [one for one in self.rolled if one.passes], []
                self._write(done)
        watcher, self.watcher = self.watcher, None
        if watcher is None:
            return
        with self.guard("closing the run folder"):
            if error is not None:
                watcher.folder.stopped(self.steps, type(error).__name__, str(error))
        with self.guard("closing the run folder"):
            watcher.close()

    @_guarded("looking at its state")
    def save(self, folder: Path) -> None:
        """What a resumed run goes on from, into a checkpoint of TRL."""
        if self.watcher is None:
            return
        with self.guard("writing the state of the instruments"):
            form = None if self.form is None else [list(self.form.tags), self.form.order]
            state = {
                "steps": self.steps, "folder": self.watcher.folder.path.name, "judged": self.judged, "form": form,
                "running": self.watcher.state_dict(),
            }  # fmt: skip
            write_atomically(folder / STATE, (json.dumps(state) + "\n").encode())

    # -- a step

    def _write(self, done: Sequence[Rolled]) -> None:
        begin = time.perf_counter()
        if self._agreed(done):
            self.steps += 1
            brought = [self._brought(one) for one in done]
            if self.watcher is not None:
                looked = self._looked(done, brought)
                sampled = sum(len(turn.response_ids) for episode in looked.episodes for turn in episode.turns)
                rollout = sum(one.seconds for one in done)
                now = time.perf_counter()
                timings = {
                    "seconds/rollout": rollout, "seconds/observe": now - begin,
                    "seconds/update": max(0.0, begin - done[0].sampled.began - rollout),
                    "tokens_per_second/rollout": sampled / max(rollout, 1e-9),
                }  # fmt: skip
                self.watcher.step(self.steps, looked, timings)

    @_guarded("looking at an evaluation")
    def evaluation(self, prefix: str) -> None:
        """TRL has evaluated; `prefix` is that of its metrics."""
        done, self.evaluated = self.evaluated, []
        opened = self.watcher
        if self._agreed(done):
            brought = [self._brought(one) for one in done]
            if not self.trainer.accelerator.is_main_process:
                return
            if opened is None:  # before or after training
                self.watcher = self._watcher(self._path or self.place, self.steps if self._path else None)
            assert self.watcher is not None
            split = prefix.removeprefix("eval_") or "eval"
            self.watcher.evaluation(self.steps, split, self._looked(done, brought, split))
            if opened is None:
                self.close()

    def _brought(self, rolled: Rolled) -> Brought:
        """The same on all processes, in the same order: everything that waits for others is in here."""
        trainer = self.trainer
        sampled, learnt = rolled.sampled, cast("list[bool]", rolled.learnt_B.tolist())
        masks = sampled.masks or [None] * len(sampled.ids)
        rows = [
            Row(a, b, mask, stored(prompt), *told_of(one), counts, episode=game_of(one))
            for a, b, mask, prompt, one, counts in zip(
                sampled.prompt_ids, sampled.ids, masks, sampled.prompts, rolled.inputs, learnt, strict=True
            )
        ]
        columns = [rolled.logp_BT, rolled.entropy_BT, rolled.ratio_BT, wide(rolled.advantages, rolled.columns)]
        columns = [None if column is None else trainer.from_all(column) for column in columns]
        before = trainer.from_all(rolled.before)
        losses = [update["loss"] for update in rolled.updates]
        totals = trainer.accelerator.gather(torch.stack(losses)) if losses else None
        ratios = torch.stack(rolled.ratios) if rolled.ratios else None
        if trainer.accelerator.num_processes > 1:
            rows = cast("list[Row]", accelerate_utils.gather_object(rows))
            ratios = None if ratios is None else trainer.accelerator.gather(ratios)
        assert sampled.rewards is not None
        weighed = (sampled.rewards * trainer.reward_weights.to(sampled.rewards.device)).nansum(dim=1)
        weighed[torch.isnan(sampled.rewards).all(dim=1)] = torch.nan
        reward_B = weighed.double().cpu().numpy()
        for row, reward in zip(rows, reward_B.tolist(), strict=True):
            row.reward = reward
        arrays = [None if column is None else flat(column) for column in columns]
        numbers = [
            Numbers(
                *(None if array is None else array[place] for array in (arrays[0], arrays[1], arrays[3], arrays[2]))
            )
            for place in range(len(rows))
        ]
        means_U: Any = [] if totals is None else totals.view(-1, len(losses)).mean(dim=0).tolist()
        return Brought(rows, numbers, reward_B, flat(before), means_U, None if ratios is None else flat(ratios))

    def _looked(self, done: Sequence[Rolled], brought: Sequence[Brought], split: str = "") -> Looked:
        trainer, size = self.trainer, done[0].size
        rows = [row for one in brought for row in one.rows]
        numbers = [number for one in brought for number in one.numbers]
        rewards = np.concatenate([one.reward_B for one in brought])
        games = any(row.episode is not None for row in rows)
        if self.form is None:
            self.form = Form(self.tags) if games else form_of(rows, trainer.read_piece, self.tags)
        if self.judged is None:
            self.judged = games or set(rewards[np.isfinite(rewards)].tolist()) <= {0.0, 1.0}
        if len({row.kind for row in rows}) > KINDS:
            for row in rows:
                row.kind = ""
        ends = frozenset({*trainer.eos_token_ids, trainer.words.pad_token_id} - {None})
        solved_at = 1.0 if self.solved_at is None else self.solved_at
        temperature: float = trainer.temperature
        reader = Reader(trainer.read_piece, ends, self.form, temperature, solved_at, size, "trl", split or "train")
        episodes = reader.episodes(rows, numbers)
        scores = None if split else scores_of(rows, numbers, MODES.get(trainer.loss_type, "token"))
        metrics = {} if split else self._metrics(done, brought, rows, rewards, size)
        return Looked(episodes, scores, metrics, bool(self.judged), bool(self.form.tags), games)

    def _metrics(
        self, done: Sequence[Rolled], brought: Sequence[Brought], rows: Sequence[Row], rewards: Any, size: int
    ) -> Metrics:
        """What the trainer itself knows of the step, by our names."""
        learnt = np.array([row.learnt for row in rows])
        lengths = np.array([len(row.ids) if row.mask is None else sum(row.mask) for row in rows], dtype=np.float64)
        before = np.concatenate([one.before_B for one in brought]).astype(np.float64)
        weights = lengths * learnt
        found: Metrics = {
            "advantage/zero_groups": equal_groups(rewards, size), "update/masked": 1 - float(learnt.mean()),
            "update/skipped": float(self.skipped), "ratio/min": 1.0, "ratio/max": 1.0, "ratio/mean": 1.0, "kl/old": 0.0,
        }  # fmt: skip
        if weights.sum() > 0:
            mean = float(np.average(before, weights=weights))
            found["advantage/mean"] = mean
            found["advantage/std"] = math.sqrt(float(np.average((before - mean) ** 2, weights=weights)))
        ratios = [one.ratios for one in brought if one.ratios is not None]
        if ratios:
            told = np.concatenate(ratios)
            count = told[:, 4].sum()
            found |= {"ratio/min": float(told[:, 0].min()), "ratio/max": float(told[:, 1].max())}
            found |= {"ratio/mean": float(told[:, 2].sum() / count), "kl/old": float(told[:, 3].sum() / count)}
        updates = [update for one in done for update in one.updates]
        found["update/count"] = float(len(updates))
        found |= means(
            [{key: float(one[key]) for key in ("grad_norm", "lr") if one[key] is not None} for one in updates]
        )
        found |= means([figures for one in done for figures in one.figures])
        found |= means([{"loss/total": total} for one in brought for total in cast("list[float]", one.totals)])
        found |= rewards_of(done, self.trainer.reward_func_names)
        for one in done:
            found |= one.metrics
        return found
