"""A tiny llama as a GGUF file, written from scratch, and the same model as transformers has it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
import transformers

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
HEADS, KV_HEADS, WIDTH, INNER, LAYERS = 4, 2, 64, 96, 2
NAMES = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
}  # fmt: skip


def words() -> tuple[list[str], list[str]]:
    """A byte-level vocabulary with three control tokens and a few merges."""
    from tokenizers import pre_tokenizers

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = ["t h", "th e", "Ġ the", "g o", "Ċ Ċ"]
    return ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *letters, *(m.replace(" ", "") for m in merges)], merges


def reference_model(vocabulary: int) -> Any:
    torch.manual_seed(3)
    config = transformers.LlamaConfig(
        vocab_size=vocabulary, hidden_size=WIDTH, intermediate_size=INNER, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, num_key_value_heads=KV_HEADS, max_position_embeddings=256,
        tie_word_embeddings=True, rms_norm_eps=1e-5, rope_theta=10000.0,
    )  # fmt: skip
    model: Any = transformers.LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3)
    return model


def write_gguf(path: Path, model: Any, packed: bool = False, leave_out: str = "", pre: str = "smollm") -> Path:
    writer: Any = gguf.GGUFWriter(str(path), "llama")
    tokens, merges = words()
    writer.add_name("tiny")
    writer.add_license("apache-2.0")
    writer.add_block_count(LAYERS)
    writer.add_context_length(256)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([3, 3, 3] + [1] * (len(tokens) - 3))
    writer.add_token_merges(merges)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(2)
    writer.add_chat_template(TEMPLATE)
    for name, weight in model.state_dict().items():
        place = gguf_name(name)
        if place is None or place == leave_out:
            continue
        array = for_llama_cpp(name, weight.numpy())
        kind = gguf.GGMLQuantizationType.Q8_0
        if packed and array.ndim == 2:
            writer.add_tensor(place, gguf.quants.quantize(array, kind), raw_dtype=kind)
        else:
            writer.add_tensor(place, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def gguf_name(name: str) -> str | None:
    fixed = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}
    if name in fixed:
        return fixed[name]
    if not name.startswith("model.layers."):
        return None  # the head is the embedding
    _, _, layer, rest = name.split(".", 3)
    return f"blk.{layer}.{NAMES[rest.removesuffix('.weight')]}.weight"


def for_llama_cpp(name: str, weight: np.ndarray) -> np.ndarray:
    """GGUF has each head's rotary pairs side by side (0, 1), (2, 3), …; transformers has them in two halves."""
    heads = HEADS if "q_proj" in name else KV_HEADS if "k_proj" in name else 0
    if not heads:
        return weight
    halves = weight.reshape(heads, 2, weight.shape[0] // heads // 2, weight.shape[1])
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(weight.shape))
