"""Makes the logs in tests/imports/data with the programs themselves, in an empty folder:

    python -m tests.imports.make_data trl     # with TRL 1.16, datasets, tensorboard and wandb
    python -m tests.imports.make_data verl    # with verl 0.9.1 (--no-deps), orjson, torch, tensorboard and wandb

TRL: six steps of GRPO on the CPU, a model of two layers that was never trained, letters as tokens, pay for vowels. One
run that logs to TensorBoard, W&B and trainer_state.json. verl: its `Tracking` with every logger that needs no server,
called as its trainer does; verl itself does not start without a GPU, so the numbers are made up here.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
import os
import sys
import types
from pathlib import Path
from typing import Any

OFFLINE = {
    "WANDB_MODE": "offline", "WANDB_DIR": ".", "WANDB_SILENT": "true", "WANDB_CONSOLE": "off", "HF_HUB_OFFLINE": "1",
    "WANDB_DISABLE_GIT": "true", "WANDB_DISABLE_CODE": "true", "WANDB_X_DISABLE_STATS": "true",
    "WANDB_X_DISABLE_META": "true", "TENSORBOARD_LOGGING_DIR": "tensorboard", "TENSORBOARD_DIR": "tensorboard",
    "VERL_FILE_LOGGER_PATH": "verl.jsonl",
}  # fmt: skip


def trl(steps: int = 6, rate: float = 2e-2) -> None:
    torch, datasets, tokenizers, transformers, library = (
        importlib.import_module(name) for name in ("torch", "datasets", "tokenizers", "transformers", "trl")
    )
    torch.manual_seed(0)
    words = ["<pad>", "<eos>", "<unk>", *"abcdefghijklmnopqrstuvwxyz"]
    letters: Any = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({word: n for n, word in enumerate(words)}, unk_token="<unk>")
    )
    letters.pre_tokenizer = tokenizers.pre_tokenizers.Split("", "isolated")
    letters.decoder = tokenizers.decoders.Fuse()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=letters, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>"
    )
    shape = transformers.Qwen2Config(
        vocab_size=len(words), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=128, tie_word_embeddings=True, pad_token_id=0, eos_token_id=1,
        bos_token_id=None,
    )  # fmt: skip
    transformers.Qwen2ForCausalLM(shape).save_pretrained("model")
    tokenizer.save_pretrained("model")
    args = library.GRPOConfig(
        output_dir="output", max_steps=steps, learning_rate=rate, per_device_train_batch_size=16, num_generations=8,
        max_completion_length=12, model_init_kwargs={"dtype": "float32"}, use_cpu=True, bf16=False, logging_steps=1,
        save_steps=steps, report_to=["tensorboard", "wandb"], beta=0.01, disable_tqdm=True, run_name="tiny",
    )  # fmt: skip
    prompts = datasets.Dataset.from_dict({"prompt": [words[3 + n % 26] * 3 for n in range(64)]})

    def vowels(completions: list[str], **rest: Any) -> list[float]:
        return [sum(letter in "aeiou" for letter in text) / max(1, len(text)) for text in completions]

    library.GRPOTrainer(
        model="model", reward_funcs=vowels, args=args, train_dataset=prompts, processing_class=tokenizer
    ).train()


def verl(steps: int = 12) -> None:
    spec = importlib.util.find_spec("verl")
    assert spec
    assert spec.submodule_search_locations
    place = Path(next(iter(spec.submodule_search_locations)))
    for name in ("verl", "verl.utils"):  # their own __init__ imports ray and more, which the loggers do not need
        sys.modules[name] = module = types.ModuleType(name)
        module.__path__ = [str(place.parent / name.replace(".", "/"))]
    import numpy as np

    tracking: Any = importlib.import_module("verl.utils.tracking").Tracking(
        "project", "tiny", ["file", "tensorboard", "console", "wandb"], config={"trainer": {"total_epochs": 1}}
    )
    for step in range(1, steps + 1):
        data: dict[str, Any] = {
            "training/global_step": step, "training/epoch": 0, "actor/entropy": 1.2 * math.exp(-step / 3),
            "actor/pg_loss": 0.01 * (-1) ** step, "actor/pg_clipfrac": 0.002, "actor/ppo_kl": 0.001 * step,
            "actor/pg_clipfrac_lower": 0.0, "actor/grad_norm": 0.4 + 0.01 * step, "actor/lr": 1e-6,
            "critic/score/mean": 0.3 + 0.02 * step, "critic/score/max": 1.0, "critic/score/min": 0.0,
            "critic/rewards/mean": 0.29 + 0.02 * step, "critic/advantages/mean": -0.01,
            "response_length/mean": 200.0 - step, "response_length/clip_ratio": 0.01, "num_turns/max": np.int32(2),
            "num_turns/mean": np.float64(2.0), "timing_s/step": 12.5, "perf/throughput": np.float32(812.5),
        }  # fmt: skip
        if step % 5 == 0:
            data |= {"val-core/openai/gsm8k/acc/mean@1": 0.3 + 0.02 * step, "val-aux/openai/gsm8k/reward/std@1": 0.1}
        tracking.log(data, step)
    tracking.finish()


if __name__ == "__main__":
    os.environ.update(OFFLINE)
    {"trl": trl, "verl": verl}[sys.argv[1]]()
