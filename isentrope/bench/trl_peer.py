"""TRL's GRPOTrainer doing the same work, as its users would set it up.

Several turns go through `rollout_func(prompts, trainer)`. Each turn the whole conversation so far is given to the
trainer's own generation, as the trainer's tool loop does it too: transformers' `generate` on a left-padded batch, or
vLLM in TRL's process. What costs TRL time without being part of the work is switched off: gradient checkpointing,
saving, the progress bar, vLLM's text of the tokens. Needs `pip install trl==1.16.0 datasets`.
"""

from __future__ import annotations

import importlib
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import torch

from isentrope.agent.context import Context
from isentrope.agent.prompts import NO_ACTION
from isentrope.agent.response_format import parse_response
from isentrope.bench.driven import DrivenTokenizer
from isentrope.bench.work import Spent, Work, clock
from isentrope.config.schema import RunConfig
from isentrope.core.needs import is_here
from isentrope.core.tokenizer import ChatTokenizer
from isentrope.models.sources.find import find_folder
from isentrope.models.sources.pocket import PocketTokens
from isentrope.rollout.sampler import InTurn, pick_instances
from isentrope.worlds.contract import Task, View, World
from isentrope.worlds.pool.open import open_world


@dataclass
class Talk:
    """A conversation while it is being played, as users of TRL would write it: its first prompt, everything after it,
    and who wrote which token."""

    config: RunConfig
    task: Task
    view: View
    context: Context
    first: list[int] = field(default_factory=list[int])
    rest: list[int] = field(default_factory=list[int])
    mask: list[int] = field(default_factory=list[int])  # 1: the model's token
    logprobs: list[float] = field(default_factory=list[float])  # the sampler's, where it gives any; 0 for others' words
    reward: float = 0.0
    ended: bool = False

    @classmethod
    def begun(cls, world: World, index: int, tokenizer: ChatTokenizer, config: RunConfig) -> Talk:
        task = world.open()
        view = task.start(world.instance("train", index))
        return cls(config, task, view, Context.of(tokenizer, config.agent, config.agent.order))

    def answered(self, prompt: Sequence[int], answer: Sequence[int], logprobs: Sequence[float]) -> None:
        """Write the answer down and let the task take its step."""
        told = list(prompt)[len(self.first) + len(self.rest) :]
        if not self.first:
            self.first, told = told, []
        self.rest += [*told, *answer]
        self.mask += [0] * len(told) + [1] * len(answer)
        self.logprobs += [*[0.0] * len(told), *logprobs]
        settings = self.config.task
        parsed = parse_response(self.context.tokenizer.pieces(answer), self.config.agent.order, "tag")
        self.context.answered(prompt, answer, parsed.action)
        if parsed.action is None:
            self.reward += settings.invalid_reward
            self.view = View(NO_ACTION, self.view.admissible, self.view.goal, self.view.rules)
            return
        step = self.task.step(parsed.action)
        self.reward += settings.success_reward * step.reward + (0.0 if step.valid else settings.invalid_reward)
        self.view, self.ended = step.view, step.terminated or step.truncated


VERSION = "1.16.0"


def missing() -> str:
    """Why TRL cannot be measured here; empty if it can."""
    try:
        importlib.import_module("datasets")
        found = str(importlib.import_module("trl").__version__)
    except ImportError as error:
        return f"{error}; pip install trl=={VERSION} datasets"
    return "" if found.split(".")[0] == VERSION.split(".")[0] else f"TRL {found}, and this was written for {VERSION}"


@dataclass(frozen=True)
class Colocated:
    """vLLM in TRL's process, on the same card. What is not here is as TRL and vLLM have it."""

    memory: float = 0.3  # vLLM's share of the card: TRL's default
    corrected: bool = True  # TRL's default: the trainer computes all log-probs again and compares them with vLLM's


class TrlPeer:
    """`micro`: conversations a forward and backward pass; `threads`: torch threads on a CPU, 0: torch's own choice;
    `vllm`: samples in transformers' place; `make`: what makes the trainer, in place of TRL's GRPOTrainer."""

    def __init__(
        self,
        work: Work,
        config: RunConfig,
        micro: int,
        threads: int = 0,
        vllm: Colocated | None = None,
        make: Callable[..., Any] | None = None,
    ) -> None:
        self.work, self.config, self.micro, self.threads, self.vllm = work, config, micro, threads, vllm
        self.make = make
        self.cpu = not work.device.startswith("cuda")
        self.world = open_world(config.task)
        self.folder = find_folder(work.model)
        self.tokenizer = self._chat_tokenizer()
        self.turns, self.rollout_seconds, self.counts = work.turns, 0.0, (0, 0)
        self.spent, self.generating = list[Spent](), 0.0  # seconds of the last rollout in the trainer's generation

    def _chat_tokenizer(self) -> ChatTokenizer:
        from isentrope.models.chat.tokenizer import ChatTokens

        pocket = (self.folder / "pocket_tokens.json").is_file()
        tokenizer = PocketTokens.load(self.folder) if pocket else ChatTokens.load(self.folder)
        return DrivenTokenizer(tokenizer, self.work.response) if self.work.driven else tokenizer

    def run(
        self,
        steps: int,
        warm_turns: int,
        between: Callable[[int], None] = lambda step: None,
        until: float = float("inf"),
    ) -> list[Spent]:
        """`steps` measured steps after one of `warm_turns` turns that is not; `between` is called after each of them
        with its number, and after the warm-up with 0. At least one; no other that would end after `until`."""
        os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
        if self.vllm and not is_here("flashinfer"):
            os.environ.setdefault("VLLM_USE_FLASHINFER_SAMPLER", "0")  # read when vLLM is imported
        peer = self

        class Watch(importlib.import_module("transformers").TrainerCallback):
            began = 0.0

            def on_step_begin(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
                peer.turns = warm_turns if state.global_step == 0 else peer.work.turns
                peer.set_threads()
                self.began = clock(peer.work)

            def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
                seconds = clock(peer.work) - self.began
                if state.global_step > 1:
                    peer.spent.append(Spent(peer.rollout_seconds, seconds - peer.rollout_seconds, *peer.counts))
                    control.should_training_stop |= time.monotonic() + seconds > until
                between(state.global_step - 1)

        with tempfile.TemporaryDirectory() as folder:
            self._trainer(folder, steps + 1, Watch()).train()
        return self.spent

    def set_threads(self) -> None:
        if self.cpu:
            torch.set_num_threads(self.threads or len(os.sched_getaffinity(0)))
            torch.use_deterministic_algorithms(False)

    def _trainer(self, folder: str, steps: int, watch: Any) -> Any:
        trl, datasets = importlib.import_module("trl"), importlib.import_module("datasets")
        work = self.work
        picked = [pick_instances(InTurn(seed=work.seed), self.world, work.groups, step) for step in range(steps)]
        instances = [instance for group in picked for instance in group]
        args = trl.GRPOConfig(
            output_dir=folder, seed=work.seed, max_steps=steps, shuffle_dataset=False,
            use_cpu=self.cpu, bf16=False, model_init_kwargs={"dtype": "float32" if self.cpu else "bfloat16"},
            per_device_train_batch_size=self.micro, gradient_accumulation_steps=work.episodes // self.micro,
            num_generations=work.group_size, max_completion_length=work.response, **self._sampling(),
            temperature=self.config.rollout.temperature, learning_rate=self.config.learn.lr, beta=0.0,
            gradient_checkpointing=False, save_strategy="no", report_to=[], disable_tqdm=True, logging_strategy="no",
        )  # fmt: skip
        games = datasets.Dataset.from_dict({"prompt": [str(i.index) for i in instances]})
        return (self.make or trl.GRPOTrainer)(
            model=str(self.folder), reward_funcs=_reward, args=args, train_dataset=games,
            processing_class=self._tokenizer(), callbacks=[watch], rollout_func=self.rollout,
        )  # fmt: skip

    def _sampling(self) -> dict[str, Any]:
        """Who samples, and that no response ends before its length."""
        if self.vllm is None:
            return {"generation_kwargs": {"min_new_tokens": self.work.response} if self.work.driven else None}
        return {
            "use_vllm": True, "vllm_mode": "colocate", "vllm_gpu_memory_utilization": self.vllm.memory,
            "vllm_max_model_length": self.work.context,
            "vllm_importance_sampling_correction": self.vllm.corrected,
            "generation_kwargs": {"ignore_eos": self.work.driven, "detokenize": False},
        }  # fmt: skip

    def _tokenizer(self) -> Any:
        transformers = importlib.import_module("transformers")
        if not (self.folder / "pocket_tokens.json").is_file():
            return transformers.AutoTokenizer.from_pretrained(str(self.folder), padding_side="left")
        # The trainer wants a tokenizer to show completions with; ours has its own class, so it gets the names alone.
        tokens = importlib.import_module("tokenizers")
        names = {f"token{i}": i for i in range(self.tokenizer.size)}
        kit = tokens.Tokenizer(tokens.models.WordLevel(names, unk_token="token0"))
        end = PocketTokens.load(self.folder).answer("</action>")[0]
        return transformers.PreTrainedTokenizerFast(
            tokenizer_object=kit, pad_token="token0", eos_token=f"token{end}", padding_side="left"
        )

    def rollout(self, prompts: list[str], trainer: Any) -> dict[str, Any]:
        """All turns of all conversations, in the form that TRL asks for."""
        begin, self.generating = clock(self.work), 0.0
        talks = [Talk.begun(self.world, int(prompt), self.tokenizer, self.config) for prompt in prompts]
        for _ in range(self.turns):
            live = [talk for talk in talks if not talk.ended]
            asked = [talk.context.prompt(talk.view) for talk in live]  # the whole conversation so far
            if not live:
                break
            asking = clock(self.work)
            answers, logprobs = trainer._generate_single_turn(asked, None, {}, 1)
            self.generating += clock(self.work) - asking
            given = cast("list[list[float]]", logprobs or [[]] * len(live))
            for talk, prompt, answer, sure in zip(live, asked, cast("list[list[int]]", answers), given, strict=True):
                talk.answered(prompt, answer, sure)
        self.rollout_seconds = clock(self.work) - begin
        self.counts = (sum(sum(t.mask) for t in talks), sum(len(t.first) + len(t.rest) for t in talks))
        return {
            "prompt_ids": [talk.first for talk in talks],
            "completion_ids": [talk.rest for talk in talks],
            # transformers gives none, as in the trainer's own generation: there is one update a rollout
            "logprobs": [talk.logprobs for talk in talks] if self.vllm else None,
            "env_mask": [talk.mask for talk in talks],
            "ret": [talk.reward for talk in talks],
        }


def _reward(completions: Sequence[str], ret: Sequence[float], **rest: Any) -> list[float]:
    return list(ret)
