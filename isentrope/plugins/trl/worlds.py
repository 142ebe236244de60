"""Our task worlds as TRL's `rollout_func`: whole games, played turn by turn with TRL's own sampling.

    games = TaskWorld("household", {"rooms": "small"}, max_turns=20)
    EntropyGRPOTrainer(..., rollout_func=games, reward_funcs=games.reward, train_dataset=games.dataset("train", 400))

A game is played as in our own trainer: the same prompts, the same form of a response, verdicts, limits and failures.
The tokens that TRL learns from are those that it sampled. `tools` gives a world to `environment_factory` instead: its
actions are then calls of a tool, in the form of the model's chat template.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from isentrope.config.schema import AgentSettings, TaskSettings
from isentrope.core.engine import TAIL_BYTES, Request, Sampled
from isentrope.core.errors import TaskError
from isentrope.core.needs import require
from isentrope.core.tokenizer import ACTION, ChatTokenizer
from isentrope.core.types import FAILURES, Episode, RolloutPlan
from isentrope.models.chat.tokenizer import ChatTokens
from isentrope.models.sources.pocket import PocketTokens
from isentrope.plugins.trl.rolled import EPISODE
from isentrope.rollout.collector import Runner
from isentrope.rollout.episode import Seat
from isentrope.worlds.contract import Instance, Task, World
from isentrope.worlds.pool.open import open_tasks, open_world

_OVER = "The game is over."
_RETURN = "world_return"


class TaskWorld:
    """A world of ours (`household`, `webshop`, `module:Class`, ...) with its options."""

    def __init__(
        self,
        world: str = "household",
        options: Mapping[str, Any] | None = None,
        max_turns: int = 50,
        success_reward: float = 1.0,
        invalid_reward: float = 0.0,
        **agent: Any,
    ) -> None:
        """`agent`: settings of [agent], such as prompt, max_response, max_context, show_admissible, action_tags."""
        self.task = TaskSettings(
            world=world, max_turns=max_turns, success_reward=success_reward, invalid_reward=invalid_reward,
            options=dict(options or {}),
        )  # fmt: skip
        plain: dict[str, Any] = {
            "prompt": "full",
            "max_response": 512,
            "max_context": 4096,
        }  # a row of TRL is one conversation
        told: dict[str, Any] = plain | agent | {"context": "full", "overflow": "end"}
        self.agent = AgentSettings(**told)
        self.world: World = open_world(self.task)
        self._played = 0

    def dataset(self, split: str, count: int, first: int = 0) -> Any:
        """A row for each game of a split from number `first` on, for `train_dataset` and `eval_dataset`."""
        size = self.world.size(split)
        if size is not None and first + count > size:
            raise TaskError(f"{self.world.name} has {size} games in {split!r}, and {first + count} were asked for")
        instances = [self.world.instance(split, first + number) for number in range(count)]
        rows = {"prompt": [f"{split}/{i.index}" for i in instances], "kind": [i.kind for i in instances]}
        return require("datasets", "trl", "TaskWorld.dataset").Dataset.from_dict(rows)

    def instance(self, prompt: str) -> Instance:
        split, _, index = prompt.rpartition("/")
        if not split or not index.isdigit():
            raise TaskError(f"the prompt {prompt!r:.60} names no game; expected SPLIT/NUMBER, as TaskWorld.dataset has")
        return self.world.instance(split, int(index))

    def __call__(self, prompts: Sequence[str], trainer: Any) -> dict[str, Any]:
        """TRL's rollout function: the games that these prompts name."""
        self._played += 1
        engine = TrlEngine(trainer, self.agent.max_response)
        seats = [Seat(self.instance(prompt), 0, place) for place, prompt in enumerate(prompts)]
        pool = open_tasks(self.task.world, self.task.options, len(seats), 0, self.task.step_seconds, world=self.world)
        plan = RolloutPlan(self.agent.order, float(trainer.temperature))
        runner = Runner(engine, pool, self.agent, self.task, len(seats))
        episodes = runner.play(seats, plan, 0, str(self._played))
        rows = [row_of(episode, engine.tokenizer, int(trainer.processing_class.eos_token_id)) for episode in episodes]
        columns = {key: [row[key] for row in rows] for key in rows[0]}
        scored = all(np.isfinite(row["logprobs"]).all() for row in rows)
        returns = [None if episode.stop in FAILURES else episode.ret for episode in episodes]
        return columns | {"logprobs": columns["logprobs"] if scored else None, _RETURN: returns, EPISODE: episodes}

    def reward(self, completions: Sequence[Any], **columns: Any) -> list[float | None]:
        """For `reward_funcs`: what the world gave; None for a game that broke, which TRL then does not learn from."""
        given = columns.get(_RETURN)
        if given is None:
            raise TaskError("TaskWorld.reward needs its games: give the same TaskWorld as rollout_func")
        return list(given)

    def tools(self) -> Callable[[], Any]:
        """For `environment_factory`, with `tool_dataset`: actions are calls of the tool `act`."""
        return lambda: _Tools(self)

    def tool_dataset(self, split: str, count: int, first: int = 0) -> Any:
        """As `dataset`, with messages that the environment completes."""
        rows = self.dataset(split, count, first)
        return rows.add_column("game", rows["prompt"]).map(_as_message)


def _as_message(row: Mapping[str, Any]) -> dict[str, Any]:
    return {"prompt": [{"role": "user", "content": ""}]}


class _Tools:
    """One game at a time, as TRL's environments are."""

    def __init__(self, games: TaskWorld) -> None:
        self._games, self._task = games, games.world.open()
        self._turns, self._reward, self._over = 0, 0.0, True

    def reset(self, game: str = "", **row: Any) -> str:
        view = self._task.start(self._games.instance(game))
        self._turns, self._reward, self._over = 0, 0.0, False
        return f"{view.rules}\n\n{view.goal}\n\n{view.text}"

    def act(self, action: str) -> str:
        """
        Do one thing in the game, and be told what happened.

        Args:
            action: The action, such as "go to desk 1".

        Returns:
            What happened.
        """
        if self._over:
            return _OVER
        step, told = self._task.step(action), self._games.task
        self._turns += 1
        self._reward += told.success_reward * step.reward + (0.0 if step.valid else told.invalid_reward)
        self._over = step.terminated or step.truncated or self._turns >= told.max_turns
        return f"{step.view.text}\n{_OVER}" if self._over else step.view.text

    def get_reward(self) -> float:
        return self._reward

    _task: Task


class TrlEngine:
    """TRL's generation as an engine of ours: whole conversations in, responses out, cut where their form is complete.
    It has no entropies; log-probs where TRL's sampler gives them."""

    capabilities: ClassVar[Any] = None

    def __init__(self, trainer: Any, most: int) -> None:
        self.trainer, self.most = trainer, most
        self.tokenizer: ChatTokenizer = chat_tokenizer(trainer.processing_class)

    def open(self, slots: Sequence[int]) -> None: ...
    def keep(self, slots: Sequence[int]) -> None: ...
    def refresh(self) -> None: ...
    def close(self) -> None: ...

    def notes(self) -> dict[str, float]:
        return {}

    def sample(self, requests: Sequence[Request]) -> list[Sampled]:
        settings: Any = getattr(self.trainer, "generation_config", None)  # of transformers; vLLM has its own limit
        longest = getattr(settings, "max_new_tokens", None)
        try:
            if longest is not None:
                settings.max_new_tokens = self.most
            answers, logprobs = self.trainer._generate_single_turn([list(r.prompt) for r in requests], None, {}, 1)
        finally:
            if longest is not None:
                settings.max_new_tokens = longest
        given = logprobs or [None] * len(requests)
        return [self._cut(*each) for each in zip(requests, answers, given, strict=True)]

    def _cut(self, request: Request, ids: Sequence[int], logprobs: Sequence[float | None] | None) -> Sampled:
        """Up to where the response is complete; what was sampled behind it is as if it had not been."""
        tail, stop, count = b"", "length", min(len(ids), self.most)
        for place in range(count):
            tail = (tail + self.tokenizer.pieces([ids[place]])[0])[-TAIL_BYTES:]
            if ids[place] in self.tokenizer.eos_ids or request.stop(tail):
                stop, count = "eos" if ids[place] in self.tokenizer.eos_ids else "tag", place + 1
                break
        unknown = np.full(count, np.nan, dtype=np.float32)
        told = np.array(logprobs[:count], dtype=np.float32) if logprobs is not None else unknown
        heat = np.full(count, request.temperature, dtype=np.float32)
        return Sampled(np.array(ids[:count], dtype=np.int32), told, unknown, heat, stop)


def row_of(episode: Episode, tokenizer: ChatTokenizer, end: int) -> dict[str, Any]:
    """A game as a row of TRL. One that was not cut off ends with the tokenizer's end, by which TRL tells."""
    prompt: list[int] = []
    ids: list[int] = []
    mask: list[int] = []
    logprobs: list[float] = []
    for place, turn in enumerate(episode.turns):
        told: list[int] = turn.context_ids.tolist() if place else []
        prompt = prompt if place else turn.context_ids.tolist()
        ids += [*told, *turn.response_ids.tolist()]
        mask += [0] * len(told) + [1] * len(turn.response_ids)
        logprobs += [*[0.0] * len(told), *turn.logprobs.tolist()]
    cut = bool(episode.turns) and episode.turns[-1].stop == "length"
    if not ids or (ids[-1] != end and not cut):
        ids, mask, logprobs = [*ids, end], [*mask, 0], [*logprobs, 0.0]
    return {"prompt_ids": prompt or [tokenizer.pad_id], "completion_ids": ids, "env_mask": mask, "logprobs": logprobs}


def chat_tokenizer(tokenizer: Any) -> ChatTokenizer:
    """Ours for TRL's tokenizer. Its chat template is run in this process, as TRL runs it too."""
    known = getattr(tokenizer, "isentrope_tokens", None)
    if known is None:
        known = tokenizer.isentrope_tokens = ChatTokens(tokenizer)
    return known


def load_tokenizer(folder: str | Path, tags: tuple[str, ...] = ACTION) -> Any:
    """A tokenizer for TRL's `processing_class`: that of the folder, or of the pocket model, which has none of its own
    that transformers could read."""
    transformers: Any = require("transformers", "trl", "load_tokenizer")
    folder = Path(folder)
    if not (folder / "pocket_tokens.json").is_file():
        return transformers.AutoTokenizer.from_pretrained(str(folder), padding_side="left")
    kit: Any = require("tokenizers", "trl", "load_tokenizer")
    ours = PocketTokens.load(folder)
    pieces = ours.pieces(range(ours.size))
    single = len(pieces) - len(ours.phrases) - 256  # controls and tags; the bytes stand behind them
    names = [piece.decode() for piece in pieces[:single]]
    names += [f"<0x{piece[0]:02X}>" for piece in pieces[single : single + 256]]
    names += [phrase.replace(" ", "\u2581") for phrase in ours.phrases]
    words = kit.models.WordLevel({name: number for number, name in enumerate(names)}, names[0])
    made = transformers.PreTrainedTokenizerFast(
        tokenizer_object=kit.Tokenizer(words),
        pad_token=names[ours.pad_id], eos_token=f"</{tags[0]}>", padding_side="left",
    )  # fmt: skip
    made.isentrope_tokens = ours
    return made
