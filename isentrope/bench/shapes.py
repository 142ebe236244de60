"""Models of a known shape with random weights, as Hugging Face folders: speed does not depend on what a model knows.

The tokenizer is made on the spot from the household world's own text (byte-level pairs, ChatML's form), so nothing has
to be fetched. The model may have more words than the tokenizer uses: they are sampled all the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from isentrope.core.errors import ConfigError
from isentrope.worlds.household.players import RandomPlayer
from isentrope.worlds.household.world import RULES, HouseholdWorld

SHAPES: dict[str, dict[str, int]] = {
    "smollm2": {"vocab": 49152, "width": 576, "layers": 30, "heads": 9, "kv_heads": 3, "inner": 1536},
    "small": {"vocab": 4096, "width": 256, "layers": 8, "heads": 4, "kv_heads": 2, "inner": 768},
    "tiny": {"vocab": 2048, "width": 64, "layers": 2, "heads": 2, "kv_heads": 1, "inner": 128},
}
_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
SEED = 40_000_000  # first of the games that the tokenizer is made from
_TOKENS = 2000  # of the tokenizer, control tokens included


def llama_settings(name: str, positions: int = 8192) -> dict[str, Any]:
    """The shape as transformers' LlamaConfig has it."""
    shape = SHAPES[name]
    return {
        "vocab_size": shape["vocab"],
        "hidden_size": shape["width"],
        "num_hidden_layers": shape["layers"],
        "num_attention_heads": shape["heads"],
        "num_key_value_heads": shape["kv_heads"],
        "intermediate_size": shape["inner"],
        "max_position_embeddings": positions,
        "tie_word_embeddings": True,
    }


def write_random_model(name: str, folder: Path, positions: int = 8192, seed: int = 0) -> Path:
    """The folder of a Llama of this shape with random weights and a tokenizer; written only if it is not there."""
    if name not in SHAPES:
        raise ConfigError(f"no shape is called {name!r}; there are {', '.join(SHAPES)}, or give a model folder")
    if (folder / "READY").is_file():
        return folder
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(seed)
    config: Any = LlamaConfig(**llama_settings(name, positions), pad_token_id=0, bos_token_id=1, eos_token_id=2)
    model: Any = LlamaForCausalLM(config)
    model.save_pretrained(folder)
    _write_tokenizer(folder)
    (folder / "READY").touch()
    return folder


def _write_tokenizer(folder: Path) -> None:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

    kit: Any = Tokenizer(models.BPE())
    kit.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    kit.decoder = decoders.ByteLevel()
    controls = ["<|pad|>", "<|im_start|>", "<|im_end|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=_TOKENS,
        special_tokens=[AddedToken(name, special=True) for name in controls],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    kit.train_from_iterator(_texts(), trainer)
    kit.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "pad_token": "<|pad|>",
        "bos_token": "<|im_start|>",
        "eos_token": "<|im_end|>",
        "model_max_length": 1_000_000,
        "clean_up_tokenization_spaces": False,
    }
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
