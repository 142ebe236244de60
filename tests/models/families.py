"""Small tokenizers and chat templates in the manner of well-known families, worded here.

The templates do what the families' do where it matters to us: default system messages, dates, trimming, folding the
system text into a message, refusing it, and changing what past turns said.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

transformers: Any = pytest.importorskip("transformers", reason="pip install 'isentrope[hf]'")

_WORDS = [
    "You are in the middle of a room. You see a desk 1, a shelf 2 and a bed 3.\n\nPut a mug on the shelf.",
    "<think>The mug may be on the desk.</think><action>go to desk 1</action>",
    "system user assistant model User: Agent: [INST] [/INST] Today Date: 26 Jul 2024\n\n",
    "You arrive at desk 1. On the desk 1, you see a mug 1. Answer in this form: think, then act.",
] * 4

CHATML = (
    "{% for m in messages %}{% if loop.first and m['role'] != 'system' %}"
    "<|im_start|>system\nYou help, always.<|im_end|>\n{% endif %}"
    "{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
QWEN = (
    "{%- if messages[0].role == 'system' %}{{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}"
    "{%- else %}{{- '<|im_start|>system\nYou are here to help.<|im_end|>\n' }}{%- endif %}"
    "{%- for m in messages %}{%- if not (m.role == 'system' and loop.first) %}"
    "{{- '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>' + '\n' }}{%- endif %}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"
)
# Thoughts of past turns are taken out, and a last answer gets an empty one.
QWEN3 = (
    "{%- set last = messages | length - 1 %}{%- for m in messages %}{%- set said = m.content %}"
    "{%- if m.role == 'assistant' and '</think>' in said %}{%- set said = said.split('</think>')[-1] %}{%- endif %}"
    "{{- '<|im_start|>' + m.role + '\n' }}"
    "{%- if m.role == 'assistant' and loop.index0 == last %}{{- '<think>\n\n</think>\n\n' }}{%- endif %}"
    "{{- said + '<|im_end|>\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"
)
LLAMA3 = (
    "{{- bos_token }}{%- if not date_string is defined %}{%- set date_string = strftime_now('%d %b %Y') %}{%- endif %}"
    "{%- if messages[0]['role'] == 'system' %}{%- set system = messages[0]['content'] | trim %}"
    "{%- set messages = messages[1:] %}{%- else %}{%- set system = '' %}{%- endif %}"
    "{{- '<|start_header_id|>system<|end_header_id|>\n\nKnown until: December 2023\nToday Date: ' + date_string }}"
    "{{- '\n\n' + system + '<|eot_id|>' }}"
    "{%- for m in messages %}"
    "{{- '<|start_header_id|>' + m['role'] + '<|end_header_id|>\n\n' + m['content'] | trim + '<|eot_id|>' }}"
    "{%- endfor %}{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{%- endif %}"
)
_INST = (
    "{{- bos_token }}{%- if messages[0]['role'] == 'system' %}{%- set system = messages[0]['content'] %}"
    "{%- set messages = messages[1:] %}{%- endif %}"
    "{%- for m in messages %}{%- if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{- raise_exception('roles must take turns') }}{%- endif %}"
    "{%- if m['role'] == 'user' %}{%- if loop.WHERE and system is defined %}"
    "{{- ' [INST] ' + system + '\n\n' + m['content'] + ' [/INST]' }}{%- else %}"
    "{{- ' [INST] ' + m['content'] + ' [/INST]' }}{%- endif %}"
    "{%- else %}{{- ' ' + m['content'] + eos_token }}{%- endif %}{%- endfor %}"
)
MISTRAL = _INST.replace("WHERE", "first")
# Later versions move the system text along to the newest message, and have no space in front of it.
MISTRAL_LAST = _INST.replace("WHERE", "last").replace("' [INST] '", "'[INST] '")
GEMMA = (
    "{{ bos_token }}"
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{% for m in messages %}{% set role = 'model' if m['role'] == 'assistant' else m['role'] %}"
    "{{ '<start_of_turn>' + role + '\n' + m['content'] | trim + '<end_of_turn>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"
)
PHI = (
    "{% for m in messages %}{{ '<|' + m['role'] + '|>\n' + m['content'] + '<|end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}"
)

# family -> template, control tokens, beginning, end, kind of vocabulary
FAMILIES: dict[str, tuple[str, list[str], str | None, str, str]] = {
    "smollm2": (CHATML, ["<|im_start|>", "<|im_end|>"], "<|im_start|>", "<|im_end|>", "bytes"),
    "qwen2.5": (QWEN, ["<|endoftext|>", "<|im_start|>", "<|im_end|>"], None, "<|im_end|>", "newlines"),
    "qwen3": (QWEN3, ["<|im_start|>", "<|im_end|>"], None, "<|im_end|>", "newlines"),
    "llama3": (
        LLAMA3,
        ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
        "<|begin_of_text|>",
        "<|end_of_text|>",
        "newlines",
    ),
    "mistral": (MISTRAL, ["<s>", "</s>"], "<s>", "</s>", "pieces"),
    "mistral-last": (MISTRAL_LAST, ["<s>", "</s>"], "<s>", "</s>", "pieces"),
    "gemma": (GEMMA, ["<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"], "<bos>", "<eos>", "gemma"),
    "phi": (
        PHI,
        ["<|end|>", "<|user|>", "<|system|>", "<|assistant|>", "<|endoftext|>"],
        None,
        "<|endoftext|>",
        "bytes",
    ),
}
# The pattern by which newer byte-level vocabularies cut text: punctuation takes the line ends behind it along.
_NEWLINES = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


@cache
def vocabulary(kind: str) -> str:
    """A small trained tokenizer without any control token, as JSON."""
    from tokenizers import Regex, Tokenizer, decoders, normalizers, pre_tokenizers, trainers
    from tokenizers.models import BPE

    raw = Tokenizer(BPE())
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    if kind in ("bytes", "newlines"):
        byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=kind == "bytes")
        cut = pre_tokenizers.Split(Regex(_NEWLINES), "isolated")
        raw.pre_tokenizer = byte_level if kind == "bytes" else pre_tokenizers.Sequence([cut, byte_level])
        raw.decoder = decoders.ByteLevel()
        raw.normalizer = None if kind == "bytes" else normalizers.NFC()
        raw.train_from_iterator(_WORDS, trainers.BpeTrainer(vocab_size=500, initial_alphabet=alphabet))
        return raw.to_str()
    # Pieces as SentencePiece writes them: a space is a letter of its own, and unknown letters are spelled in bytes.
    blank = "\u2581"
    spaces = pre_tokenizers.Metaspace(replacement=blank, prepend_scheme="never", split=True)
    raw.pre_tokenizer = spaces
    raw.train_from_iterator(_WORDS, trainers.BpeTrainer(vocab_size=300))
    model = json.loads(raw.to_str())["model"]
    spelled = [f"<0x{b:02X}>" for b in range(256)]
    words = {word: i for i, word in enumerate(["<unk>", *spelled, *(w for w in model["vocab"] if w not in spelled)])}
    merges = [tuple(pair) for pair in model["merges"]]
    pieces = Tokenizer(BPE(vocab=words, merges=merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    if kind == "pieces":
        pieces.pre_tokenizer = pre_tokenizers.Metaspace(replacement=blank, prepend_scheme="first", split=False)
    else:
        pieces.normalizer = normalizers.Replace(" ", blank)
        pieces.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    pieces.decoder = decoders.Sequence([decoders.Replace(blank, " "), decoders.ByteFallback(), decoders.Fuse()])
    return pieces.to_str()


def make_tokenizer(family: str, template: str | None = None, plain: tuple[str, ...] = ()) -> Any:
    """`template` instead of the family's own, "" for none; `plain` are words added without being special."""
    from tokenizers import AddedToken, Tokenizer

    own, controls, begin, end, kind = FAMILIES[family]
    raw = Tokenizer.from_str(vocabulary(kind))
    raw.add_special_tokens([AddedToken(c, special=True, rstrip=family == "phi", normalized=False) for c in controls])
    raw.add_tokens([AddedToken(word, normalized=False) for word in plain])
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=raw, bos_token=begin, eos_token=end)
    if template != "":
        fast.chat_template = template or own
    return fast


def make_folder(path: Path, family: str, **changes: Any) -> Path:
    make_tokenizer(family, **changes).save_pretrained(path)
    return path
