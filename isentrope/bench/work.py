"""The work of one GRPO step in numbers, and how long it took: the same for every trainer that is measured."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from isentrope.bench.driven import WORLD, DrivenTokenizer
from isentrope.config.load import load_config
from isentrope.config.schema import RunConfig
from isentrope.core.errors import ConfigError
from isentrope.core.types import Episode, RolloutPlan
from isentrope.engines.registry import make_engine
from isentrope.learning.learner import Learner
from isentrope.loop.session import use_threads
from isentrope.models.load import load_policy
from isentrope.models.policy import Policy
from isentrope.rollout.collector import Collector
from isentrope.worlds.household.players import RandomPlayer
from isentrope.worlds.household.world import RULES, HouseholdWorld

# Models of a known shape with random weights, as Hugging Face folders: speed does not depend on what a model knows.
#
# The tokenizer is made on the spot from the household world's own text (byte-level pairs, ChatML's form), so nothing
# has to be fetched. The model may have more words than the tokenizer uses: they are sampled all the same.
_SIZES = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
          "intermediate_size")  # fmt: skip
SHAPES = {
    "smollm2": (49152, 576, 30, 9, 3, 1536),
    "small": (4096, 256, 8, 4, 2, 768),
    "tiny": (2048, 64, 2, 2, 1, 128),
}
_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
CONTROLS: dict[str, Any] = {
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}  # of its tokenizer
SEED = 40_000_000  # first of the games that the tokenizer is made from
_TOKENS = 2000  # of the tokenizer, control tokens included


def llama_settings(name: str, positions: int = 8192) -> dict[str, Any]:
    """The shape as transformers' LlamaConfig has it."""
    sizes = dict(zip(_SIZES, SHAPES[name], strict=True))
    return {**sizes, "max_position_embeddings": positions, "tie_word_embeddings": True}


def write_random_model(name: str, folder: Path, positions: int = 8192, seed: int = 0) -> Path:
    """The folder of a Llama of this shape with random weights and a tokenizer; written only if it is not there."""
    if name not in SHAPES:
        raise ConfigError(f"no shape is called {name!r}; there are {', '.join(SHAPES)}, or give a model folder")
    from transformers import LlamaConfig

    settings = llama_settings(name, positions)
    return write_model(LlamaConfig(**settings, architectures=["LlamaForCausalLM"], **CONTROLS), folder, seed=seed)


def write_model(
    config: Any, folder: Path, device: str = "cpu", dtype: torch.dtype = torch.float32, seed: int = 0
) -> Path:
    """The same for a configuration of transformers' that names its class; `device`: where weights are drawn."""
    if (folder / "READY").is_file():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    random_model(config, device, dtype, seed).save_pretrained(folder)
    _write_tokenizer(folder)
    (folder / "READY").touch()
    return folder


def random_model(config: Any, device: str | torch.device, dtype: torch.dtype, seed: int = 0) -> Any:
    """transformers' model of this configuration with random weights."""
    import transformers

    torch.manual_seed(seed)
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device):
            return getattr(transformers, config.architectures[0])(config)
    finally:
        torch.set_default_dtype(before)


def _write_tokenizer(folder: Path) -> None:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

    kit: Any = Tokenizer(models.BPE())
    kit.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    kit.decoder = decoders.ByteLevel()
    controls = ["<|pad|>", "<|im_start|>", "<|im_end|>"]
    special, letters = [AddedToken(name, special=True) for name in controls], pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=_TOKENS, special_tokens=special, initial_alphabet=letters, show_progress=False
    )
    kit.train_from_iterator(_texts(), trainer)
    kit.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "<|pad|>", "bos_token": "<|im_start|>",
        "eos_token": "<|im_end|>", "model_max_length": 1_000_000, "clean_up_tokenization_spaces": False,
    }  # fmt: skip
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=1))
    (folder / "chat_template.jinja").write_text(_TEMPLATE)


def _texts(games: int = 120, turns: int = 12) -> Iterator[str]:
    """What an aimless player reads, and the rules."""
    world = HouseholdWorld()
    yield from [RULES] * 20
    for i in range(games):
        instance = world.instance("train", SEED + i)
        player, task = RandomPlayer(i), world.open()
        view = task.start(instance)
        player.start(view, instance)
        yield f"{view.text} {view.goal}"
        for _ in range(turns):
            move = player.act(view)
            view = task.step(move.action).view
            yield f"{move.thought} {move.action} {view.text}"


@dataclass(frozen=True)
class Work:
    """What both sides do in a step."""

    model: str  # pocket, a model folder, or one of `shapes.SHAPES`: random weights
    device: str = "cpu"
    groups: int = 4
    group_size: int = 8
    turns: int = 10
    response: int = 32  # tokens
    context: int = 4096  # tokens a conversation may have
    rooms: str = "full"
    prompt: str = "full"
    words: int = 0  # added to the first observation
    driven: bool = True  # responses of fixed length that choose actions by chance; else as the model says
    seed: int = 0
    own_time: bool = False  # count the time that the process itself used, so that other programs disturb less

    @property
    def episodes(self) -> int:
        return self.groups * self.group_size

    def with_model_in(self, folder: Path) -> Work:
        """The same with its model as a folder: written there if it is a shape."""
        if self.model not in SHAPES:
            return self
        return replace(self, model=str(write_random_model(self.model, folder / self.model, max(8192, self.context))))

    def config(self, extra: Sequence[str] = ()) -> RunConfig:
        """Our settings for it. `extra` are further `section.name=value`."""
        world = [f"task.world={WORLD}", f"task.options.words={self.words}"] if self.driven else ["task.world=household"]
        own = [
            f"task.options.rooms={self.rooms}", f"task.max_turns={self.turns}", f"agent.prompt={self.prompt}",
            f"agent.max_response={self.response}", f"agent.max_context={self.context}", "agent.overflow=end",
            f"policy.model={self.model}", f"run.device={self.device}", f"run.seed={self.seed}",
            f"rollout.groups={self.groups}", f"rollout.group_size={self.group_size}",
            f"rollout.batch={min(self.episodes, 256)}", "learn.kl=0", "learn.lr=1e-6",
        ]  # fmt: skip
        return load_config(None, [*world, *own, *extra])


@dataclass(frozen=True)
class Spent:
    """Seconds of one step, and what was done in them."""

    rollout: float
    update: float
    sampled: int  # tokens that the model wrote
    whole: int  # tokens of all conversations, prompts and observations included

    @property
    def step(self) -> float:
        return self.rollout + self.update


def typical(steps: Sequence[Spent]) -> Spent:
    """The median of each."""
    rollout, update, sampled, whole = map(statistics.median, zip(*map(astuple, steps), strict=True))
    return Spent(rollout, update, round(sampled), round(whole))


def device_named(name: str) -> str:
    return name if name != "auto" else "cuda" if torch.cuda.is_available() else "cpu"


def clock(work: Work) -> float:
    if work.device.startswith("cuda"):
        torch.cuda.synchronize()
    return time.process_time() if work.own_time else time.perf_counter()


class Ours:
    """Rollout and update as the training loop does them."""

    def __init__(self, work: Work, config: RunConfig, loaded: Policy | None = None) -> None:
        self.work, self.config = work, config
        use_threads(config)
        policy = loaded or load_policy(config.policy, config.run)
        if work.driven:
            policy = replace(policy, tokenizer=DrivenTokenizer(policy.tokenizer, work.response))
        self.learner = Learner(policy, None, config)
        self.collector = Collector(config, make_engine(config, policy))

    def step(self, number: int) -> Spent:
        use_threads(self.config)
        begin = clock(self.work)
        plan = RolloutPlan(self.config.agent.order, self.config.rollout.temperature)
        episodes = self.collector.play_groups(number, plan)
        middle = clock(self.work)
        self.learner.learn(number, episodes)
        self.collector.engine.refresh()
        end = clock(self.work)
        return Spent(middle - begin, end - middle, *_tokens(episodes))

    def close(self) -> None:
        self.collector.close()


def _tokens(episodes: Sequence[Episode]) -> tuple[int, int]:
    turns = [turn for episode in episodes for turn in episode.turns]
    sampled = sum(len(turn.response_ids) for turn in turns)
    return sampled, sampled + sum(len(turn.context_ids) for turn in turns)
