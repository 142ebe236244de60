"""Hostile model folders and GGUF files: each family takes a whole folder and a seed, and spoils something of it.

`make_model` makes the folder they start from: a llama of two layers with a tokenizer of a few hundred words, which
loads, samples and trains.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

MARK = "ran"  # a file of this name beside the folder: code of the folder was run
CODE = "from pathlib import Path\nPath({mark!r}).write_text('')\nclass Evil: pass\nclass EvilConfig: pass\n"
BIG = (2**31, 2**40, 10**9, 10**12, 2**62, -1, 0, 10**400)
ODD = (*BIG, -5, 1e308, float("nan"), float("inf"), "", "x", "1000000000", None, True, [], {}, [1, 2], {"a": 1})


def make_model(folder: Path) -> Path:
    import torch
    import transformers

    from tests.models.families import make_tokenizer

    tokenizer = make_tokenizer("smollm2")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=4096, tie_word_embeddings=True,
    )  # fmt: skip
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def put(path: Path, value: Any) -> None:
    path.unlink(missing_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value))


def change(path: Path, **values: Any) -> None:
    put(path, {**(read(path) if path.exists() else {}), **values})


# -- chat templates

LOOP = "".join("{% for " + name + " in range(99999) %}" for name in "ijk") + "{% endfor %}" * 3
TEMPLATES = (
    LOOP,
    LOOP.replace("{% endfor %}", "x{% endfor %}", 1),
    "{{ 10**10000000 }}",
    "{{ 10**10**9 }}",
    "{% set x = 9**9**9 %}",
    "{{ 'a' * 10**10 }}",
    "{{ ('a' * 10**7) | list }}" * 4,
    "{{ 'a'.center(10**10) }}",
    "{{ '%010000000000d' | format(1) }}",
    "{{ '{:>9999999999}'.format(1) }}",
    "{{ strftime_now('%Y' * 10**9) }}",
    "{{ raise_exception('x' * 10**10) }}",
    "{{ lipsum(n=10**8) }}",
    "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(60) }}",
    "{% set ns = namespace(s='xxxxxxxx') %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% endfor %}{{ ns.s }}",
    "{% set ns = namespace(s=[1]) %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% endfor %}{{ ns.s }}",
    "{{ (range(99999) | map('string') | join) * 99999 }}",
    "{{ 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaa' | replace('a', 'a' * 10**8) }}",
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ cycler.__init__.__globals__.os.system('touch ran') }}",
    "{{ messages.append(1) }}{{ self._TemplateReference__context }}",
    "{{ ('a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i', 'j') | random }}",
    "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "{{ 1" + " + 1" * 100_000 + " }}",
    "{% if 1 %}" * 200 + "{% endif %}" * 200,
    "{% for m in messages %}" * 30 + "x" + "{% endfor %}" * 30,
    "x" * 40_000_000,
    "{% include '/etc/passwd' %}",
    "{% import 'os' as os %}",
    "{{ messages | tojson(indent=10**9) }}",
    "{% generation %}" * 3,
    "\x00{{",
)


def template(random: Random, folder: Path) -> None:
    """One of the programs above, in front of a template that works, in one of the places where templates stand."""
    at = random.randrange(len(TEMPLATES))
    nth_template(folder, at, random.choice((0, 0, 1, 2)))


def nth_template(folder: Path, number: int, place: int = 0) -> None:
    whole = (folder / "chat_template.jinja").read_text()
    text = TEMPLATES[number] + whole
    if place == 0:
        put(folder / "chat_template.jinja", text)
        return
    (folder / "chat_template.jinja").unlink()
    given: Any = text if place == 1 else [{"name": "default", "template": text}, {"name": "rag", "template": text}]
    change(folder / "tokenizer_config.json", chat_template=given)


def template_of_another_type(random: Random, folder: Path) -> None:
    (folder / "chat_template.jinja").unlink()
    odd = (5, [], {}, {"default": 5}, [{"name": "default"}], [[]], {"a": "x"}, True, "", [5], {"default": LOOP})
    change(folder / "tokenizer_config.json", chat_template=random.choice(odd))


def templates_beside(random: Random, folder: Path) -> None:
    """More templates, in the folder that transformers looks into."""
    more = folder / "additional_chat_templates"
    more.mkdir()
    for number in range(random.choice((1, 20_000))):
        (more / f"t{number}.jinja").write_text("x")
    if random.random() < 0.5:
        os.mkfifo(more / "default.jinja")


def spoilt_template(random: Random, folder: Path) -> None:
    text = list((folder / "chat_template.jinja").read_text())
    for _ in range(random.choice((1, 3, 20))):
        at, how = random.randrange(len(text)), random.randrange(3)
        if how == 0:
            del text[at : at + random.choice((1, 5))]
        elif how == 1:
            text.insert(at, random.choice("{}%'|()[]*\x00\ud7ff\n9"))
        else:
            text[at] = random.choice("{}%'|()[]*+ 0a")
    put(folder / "chat_template.jinja", "".join(text))


# -- tokenizers


def replace(pattern: Any, content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": pattern, "content": content}


def split(pattern: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def sequence(key: str, parts: list[Any]) -> dict[str, Any]:
    return {"type": "Sequence", key: parts}


def nested(key: str, inner: Any, depth: int) -> str:
    start = f'{{"type": "Sequence", "{key}": ['
    return start * depth + json.dumps(inner) + "]}" * depth


DOUBLING = sequence("normalizers", [replace({"String": letter}, letter * 2) for letter in "ae" for _ in range(60)])
TOKENIZERS: dict[str, dict[str, Any]] = {
    "doubling": {"normalizer": DOUBLING},
    "doubling a rare letter": {
        "normalizer": sequence("normalizers", [replace({"String": "\u16a0"}, "\u16a0" * 2)] * 60)
    },
    "long content": {"normalizer": replace({"Regex": "."}, "x" * 10_000)},
    "longer content": {"normalizer": replace({"String": "q"}, "x" * 10_000_000)},
    "empty pattern": {"normalizer": replace({"String": ""}, "x" * 100_000)},
    "empty regex": {"normalizer": replace({"Regex": ""}, "x" * 100_000)},
    "prepend": {"normalizer": sequence("normalizers", [{"type": "Prepend", "prepend": "x" * 1_000_000}] * 20)},
    "charsmap": {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "////" + "AAAA" * 1000}},
    "backtracking": {"pre_tokenizer": split(r"(a+)+$b|(x+x+)+y|(.*)*z")},
    "backtracking alternatives": {"pre_tokenizer": split(r"(a|a|b|ab)*\1c|(?:o|o)+(?:o|o)+(?:o|o)+Q")},
    "polynomial": {"pre_tokenizer": split(r"\s*\s*\s*\s*\s*\s*\s*\s*Q|a*a*a*a*a*a*a*a*Q")},
    "backtracking in a normaliser": {"normalizer": replace({"Regex": r"(e+)+\1$Q|(\s+)+Q"}, "x")},
    "counted": {"pre_tokenizer": split(r"(((a{1,99}){1,99}){1,99}){1,99}b")},
    "look-behind": {"pre_tokenizer": split(r"(?<=(a|aa))" * 50 + r"|(?:(?=a))*b")},
    "a bad pattern": {"pre_tokenizer": split("(((")},
    "a pattern of megabytes": {"pre_tokenizer": split("a|" * 2_000_000)},
    "dropout": {"model.dropout": 0.5},
    "negative dropout": {"model.dropout": -1e308},
    "post-processor": {
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<|im_end|>", "type_id": 0}}] * 100_000,
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
            "special_tokens": {"<|im_end|>": {"id": "<|im_end|>", "ids": [1] * 1000, "tokens": ["a"] * 1000}},
        }
    },
    "wordpiece": {
        "model": {
            "type": "WordPiece", "unk_token": "a", "continuing_subword_prefix": "", "max_input_chars_per_word": 2**60,
            "vocab": {"a" * n: n for n in range(1, 3000)},
        },
        "pre_tokenizer": None,
    },
    "unigram": {"model": {"type": "Unigram", "unk_id": 0, "vocab": [["a" * n, -1e308] for n in range(1, 3000)]}},
    "unigram without": {"model": {"type": "Unigram", "unk_id": None, "vocab": []}},
    "unigram beyond": {"model": {"type": "Unigram", "unk_id": 10**9, "vocab": [["a", 0.0]]}},
    "ids": {"model.vocab": {"a": 2**32 - 1, "b": 2**31, "c": 4_000_000_000}},
    "negative ids": {"model.vocab": {"a": -1}},
    "great ids": {"model.vocab": {"a": 10**30}},
    "one id for all": {"model.vocab": {chr(97 + n): 5 for n in range(26)}, "model.merges": []},
    "merges": {"model.merges": [["zz", "yy"]] * 1000},
    "merges of nothing": {"model.merges": ["", " ", "  "]},
    "long words": {"model.vocab": {"a" * 10_000_000: 0, "b": 1}, "model.merges": []},
    "truncation": {"truncation": {"direction": "Right", "max_length": 0, "strategy": "LongestFirst", "stride": 2**60}},
    "padding": {
        "padding": {
            "strategy": {"Fixed": 2**33}, "direction": "Right", "pad_to_multiple_of": 2**33, "pad_id": 0,
            "pad_type_id": 0, "pad_token": "x",
        }
    },
    "decoder": {"decoder": sequence("decoders", [replace({"String": "a"}, "a" * 1000)] * 60)},
    "no model": {"model": None},
    "another model": {"model": {"type": "Evil"}},
    "version": {"version": "9.9"},
}  # fmt: skip


def tokenizer(random: Random, folder: Path) -> None:
    named_tokenizer(folder, random.choice(sorted(TOKENIZERS)))


def named_tokenizer(folder: Path, name: str) -> None:
    path = folder / "tokenizer.json"
    table = read(path)
    for key, value in TOKENIZERS[name].items():
        *outer, last = key.split(".")
        place = table
        for part in outer:
            place = place[part]
        place[last] = value
    put(path, table)


def nested_tokenizer(random: Random, folder: Path) -> None:
    path, key = folder / "tokenizer.json", random.choice(("normalizer", "pre_tokenizer", "decoder", "post_processor"))
    table = read(path)
    table[key] = "HERE"
    inner = {"pre_tokenizer": "pretokenizers", "post_processor": "processors"}.get(key, key + "s")
    deep = nested(inner, {"type": "NFC"}, random.choice((100, 10_000, 200_000)))
    put(path, json.dumps(table).replace('"HERE"', deep))


def added_tokens(random: Random, folder: Path) -> None:
    path = folder / "tokenizer.json"
    table = read(path)
    count = random.choice((30_000, 200_000))
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": random.random() < 0.5}
    words = ["a" * (n % 3000 + 1) + str(n) if count == 30_000 else f"<{n}>" for n in range(count)]
    table["added_tokens"] += [
        {"id": 600 + n, "content": word, "special": True, **plain} for n, word in enumerate(words)
    ]
    put(path, table)


def spoilt_tokenizer(random: Random, folder: Path) -> None:
    path = folder / random.choice(("tokenizer.json", "tokenizer.json", "tokenizer_config.json"))
    put(path, spoilt(random, read(path), random.choice((0.003, 0.02, 0.2))))


def bytes_of_a_tokenizer(random: Random, folder: Path) -> None:
    flip(random, folder / random.choice(("tokenizer.json", "tokenizer_config.json", "config.json")))


def files_elsewhere(random: Random, folder: Path) -> None:
    """Settings of a tokenizer that name files outside, a class of another library, or arguments for one."""
    outside = str(folder.parent / "pipe")
    os.mkfifo(outside)
    choices: tuple[dict[str, Any], ...] = (
        {"tokenizer_file": outside},
        {"vocab_file": outside, "merges_file": "/dev/zero"},
        {"name_or_path": "evil/model", "_name_or_path": "evil/model", "tokenizer_class": "evil/model"},
        {"tokenizer_class": "SiglipTokenizer", "sp_model_kwargs": {"model_file": outside}},
        {"tokenizer_class": "MistralCommonBackend", "fix_mistral_regex": True},
        {"tokenizer_class": "BertJapaneseTokenizer", "word_tokenizer_type": "mecab", "mecab_kwargs": {"x": outside}},
        {"tokenizer_class": "PreTrainedTokenizerFast", "gguf_file": outside, "tokenizer_object": 5},
        {"tokenizer_class": "AutoTokenizer", "added_tokens_decoder": {"5": {"content": "x" * 10**6}, "x": 5}},
        {"processor_class": "evil/processor", "auto_map": {"AutoTokenizer": ["evil/model--t.Evil", None]}},
        {"extra_special_tokens": {"evil": "<think>"}, "additional_special_tokens": ["a"] * 300_000},
        {"from_slow": True, "tokenizer_class": "LlamaTokenizer"},
    )
    change(folder / "tokenizer_config.json", **random.choice(choices))


def other_tokenizer_files(random: Random, folder: Path) -> None:
    """No tokenizer.json, but what is turned into one."""
    (folder / "tokenizer.json").unlink()
    name = random.choice(("tokenizer.model", "vocab.json", "vocab.txt", "tekken.json", "tiktoken.model"))
    data: tuple[bytes, ...] = (
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\x7f" * 1000,
        os.urandom(10) * 1000,
        b"[" * 200_000,
        b'{"a": 0, "b": 1}',
        b"a\n" * 5_000_000,
        b"",
    )
    (folder / name).write_bytes(random.choice(data))
    if name == "vocab.json":
        (folder / "merges.txt").write_bytes(random.choice(data))
    change(
        folder / "tokenizer_config.json",
        tokenizer_class=random.choice(("LlamaTokenizer", "GPT2Tokenizer", "BertTokenizer", "Qwen2Tokenizer")),
    )


# -- settings

NUMBERS = (
    "num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim",
    "vocab_size", "max_position_embeddings", "rms_norm_eps", "rope_theta", "initializer_range", "pad_token_id",
    "eos_token_id", "bos_token_id", "pretraining_tp", "num_labels", "attention_dropout",
)  # fmt: skip


def config_numbers(random: Random, folder: Path) -> None:
    values = {name: random.choice(ODD) for name in random.sample(NUMBERS, random.choice((1, 1, 2)))}
    change(folder / "config.json", **values)


def config_sizes(random: Random, folder: Path) -> None:
    name = random.choice(("num_hidden_layers", "hidden_size", "intermediate_size", "vocab_size", "num_labels"))
    change(folder / "config.json", **{name: random.choice((10**5, 10**6, 10**7, 10**9))})


def config_of_another_kind(random: Random, folder: Path) -> None:
    kinds = ("gpt2", "mixtral", "bloom", "t5", "bert", "evil", "", 5, None, "qwen2", "deepseek_v3", "mamba", "jamba",
             "llava", "gemma3", "falcon_h1", "gpt_neox", "rwkv", "auto", "encoder-decoder", "timm_wrapper")  # fmt: skip
    sizes = {"n_layer": 10**9, "n_positions": 10**6, "n_ctx": 10**6, "n_embd": 10**5, "num_local_experts": 10**8,
             "n_routed_experts": 10**9, "num_experts": 10**9, "backbone": "hf-hub:evil/model"}  # fmt: skip
    change(folder / "config.json", model_type=random.choice(kinds), **(sizes if random.random() < 0.5 else {}))


CODE_KEYS: tuple[dict[str, Any], ...] = (
    {"auto_map": {"AutoConfig": "evil.EvilConfig", "AutoModelForCausalLM": "evil.Evil"}, "trust_remote_code": True},
    {"auto_map": {"AutoModelForCausalLM": "evil/model--evil.Evil"}, "model_type": "evil"},
    {"model_type": "evil", "auto_map": {"AutoConfig": "evil.EvilConfig"}},
    {"attn_implementation": "kernels-community/flash-attn", "_attn_implementation": "kernels-community/flash-attn2"},
    {"_attn_implementation_internal": "evil/kernel:fn", "_attn_implementation_autoset": False, "use_kernels": True},
    {"experts_implementation": "evil/kernel", "_experts_implementation": "evil/kernel"},
    {"quantization_config": {"quant_method": "gptq", "bits": 4}},
    {"quantization_config": {"quant_method": "quark"}, "compression_config": {"quant_method": "bitnet"}},
    {"_name_or_path": "evil/model", "name_or_path": "evil/model", "_commit_hash": "x", "transformers_version": "99"},
    {"dtype": "load", "torch_dtype": "hub"},
    {"dtype": "float64"},
    {"dtype": {"": "float16", "x": "load"}},
    {"hidden_act": "evil"},
    {"hidden_act": "ClassInstantier"},
    {"id2label": {str(n): "x" for n in range(300_000)}, "label2id": {}},
    {"rope_scaling": {"rope_type": "evil", "factor": float("nan")}},
    {"rope_scaling": {"rope_type": "yarn", "factor": 1e308, "original_max_position_embeddings": 0}},
    {"rope_parameters": {"rope_type": "llama3", "rope_theta": float("nan"), "factor": -1}},
    {"rope_scaling": {"rope_type": "linear", "factor": 0}},
    {"rope_theta": 0}, {"rope_theta": -1.0},
    {"tie_word_embeddings": False}, {"tie_word_embeddings": "no"},
    {"pruned_heads": {"0": [0, 1, 2, 3]}, "tf_legacy_loss": True, "torchscript": True, "is_decoder": False},
    {"base_model_tp_plan": {"layers.*": "evil"}, "tp_plan": "auto", "distributed_config": {"x": 1}},
    {"generation_config": {"custom_generate": "evil/model"}, "custom_generate": "evil/model"},
    {"sub_configs": {"text_config": {"num_hidden_layers": 10**9}}, "text_config": {"num_hidden_layers": 10**9}},
    {"device_map": "auto", "max_memory": {}, "low_cpu_mem_usage": False, "fusion_config": {"x": 1}},
    {"layer_types": ["full_attention"] * 500_000},
    {"architectures": ["EvilForCausalLM"]}, {"architectures": ["__class__ForCausalLM"]},
    {"is_encoder_decoder": True, "problem_type": "x", "output_hidden_states": True, "return_dict": False},
    {"attribute_map": {"hidden_size": "x"}, "keys_to_ignore_at_inference": 5, "base_config_key": "x"},
    {"__class__": "x", "__dict__": {}, "to_dict": 5, "get_text_config": 5, "validate": 5},
    {"transformers_weights": "../x"}, {"transformers_weights": "adapter_model.safetensors"},
)  # fmt: skip


def config_code(random: Random, folder: Path) -> None:
    nth_config(folder, random.randrange(len(CODE_KEYS)))


def nth_config(folder: Path, number: int) -> None:
    add_code(folder)
    change(folder / "config.json", **CODE_KEYS[number])


def add_code(folder: Path) -> None:
    """Python files of every name that a library may look for."""
    code = CODE.format(mark=str(folder.parent / MARK))
    for name in ("evil", "modeling_evil", "configuration_evil", "tokenization_evil", "generate", "__init__", "kernels"):
        (folder / f"{name}.py").write_text(code)
    (folder / "custom_generate").mkdir(exist_ok=True)
    (folder / "custom_generate" / "generate.py").write_text(code)
    change(folder / "generation_config.json", custom_generate=str(folder), cache_implementation="evil")


def generation(random: Random, folder: Path) -> None:
    odd: tuple[Any, ...] = (
        {"eos_token_id": list(range(3_000_000))}, {"eos_token_id": "x"}, {"eos_token_id": [None, {}]}, [], 5,
        {"temperature": float("nan"), "top_k": -5, "top_p": 1e308, "num_beams": 10**9, "max_length": 10**30},
        {"cache_implementation": "evil", "compile_config": {"backend": "evil"}, "watermarking_config": {"x": 1}},
        {"generation_mode": 5, "constraints": [1], "force_words_ids": [[1]], "_from_model_config": True},
    )  # fmt: skip
    put(folder / "generation_config.json", random.choice(odd))


def spoilt_config(random: Random, folder: Path) -> None:
    put(folder / "config.json", spoilt(random, read(folder / "config.json"), random.choice((0.02, 0.1, 0.3))))


# -- weights


def weights_header(random: Random, folder: Path) -> None:
    path = folder / "model.safetensors"
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    table, rest = json.loads(data[8 : 8 + length]), data[8 + length :]
    names = [name for name in table if name != "__metadata__"]
    one, other = random.sample(names, 2)
    how = random.randrange(9)
    if how == 0:
        table[one]["data_offsets"] = table[other]["data_offsets"]
    elif how == 1:
        table[one]["dtype"] = random.choice(("F64", "I8", "BOOL", "F8_E4M3", "EVIL", 5, "F4", "C64"))
    elif how == 2:
        table[one]["shape"] = random.choice(([2**31, 2**31], [0], [], [2**62, 4], [1] * 10_000))
    elif how == 3:
        table[one]["data_offsets"] = random.choice(([0, 2**62], [2**63, 2**63], [-4, 0], [8, 4], ["0", "4"]))
    elif how == 4:
        table["__metadata__"] = random.choice(({"format": "tf"}, {"format": "evil"}, 5, {"x": {}}, {}))
    elif how == 5:
        del table[one]
    elif how == 6:
        table |= {f"more{n}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for n in range(200_000)}
    elif how == 7:
        table[one + "x"] = table.pop(one)
    header = json.dumps(table).encode() + b" " * (90_000_000 if how == 8 else 0)
    path.write_bytes(len(header).to_bytes(8, "little") + header + rest)


def weights_elsewhere(random: Random, folder: Path) -> None:
    weights, how = folder / "model.safetensors", random.randrange(8)
    index = folder / "model.safetensors.index.json"
    if how == 0:
        os.mkfifo(folder / "part.safetensors")
        put(index, {"weight_map": {"a": "part.safetensors"}})
    elif how == 1:
        put(index, {"weight_map": {"a": "../x.safetensors", "b": "/etc/passwd"}})
    elif how == 2:
        weights.rename(folder / "pytorch_model.bin")
    elif how == 3:
        os.truncate(weights, 2**38)
    elif how == 4:
        weights.unlink()
        weights.mkdir()
    elif how == 5:
        weights.unlink()
        weights.symlink_to("/dev/zero")
    elif how == 6:
        put(
            index,
            {"metadata": {"total_size": 10**30}, "weight_map": {f"w{n}": "model.safetensors" for n in range(300_000)}},
        )
    else:
        (folder / "pytorch_model.bin").write_bytes(b"\x80\x04cposix\nsystem\n(S'touch ran'\ntR.")
        (folder / "consolidated.safetensors").write_bytes(b"")
        os.mkfifo(folder / "tf_model.h5")


# -- files


SMALL = (
    "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
    "added_tokens.json", "chat_template.jinja", "chat_template.json", "merges.txt", "vocab.json", "tokenizer.model",
    "README.md", "isentrope.json", "base.json", "adapter_config.json", "processor_config.json",
    "preprocessor_config.json", "pocket_tokens.json", "model.safetensors.index.json", "audio_tokenizer_config.json",
)  # fmt: skip


def odd_files(random: Random, folder: Path) -> None:
    """A pipe, a device, a folder, 256 GB, or nothing, in the place of one file."""
    nth_file(folder, random.choice(SMALL), random.randrange(6))


def nth_file(folder: Path, name: str, how: int) -> None:
    path = folder / name
    path.unlink(missing_ok=True)
    if how == 0:
        os.mkfifo(path)
    elif how == 1:
        path.symlink_to(random_device(name))
    elif how == 2:
        path.mkdir()
    elif how == 3:
        path.touch()
        os.truncate(path, 2**38)
    elif how == 4:
        put(path, '{"a":' * 100_000)
    else:
        put(path, "")


def random_device(name: str) -> str:
    return ("/dev/zero", "/dev/stdin", "/proc/self/mem")[len(name) % 3]


# -- adapters

ADAPTERS: tuple[dict[str, Any], ...] = (
    {}, {"r": 10**9}, {"r": -1}, {"r": 0}, {"r": "x"}, {"target_modules": "(a+)+$|.*"}, {"target_modules": []},
    {"target_modules": "all-linear"}, {"megatron_config": {"x": 1}, "megatron_core": "evil"},
    {"auto_mapping": {"base_model_class": "Evil", "parent_library": "evil"}}, {"layer_replication": [[0, 10**8]]},
    {"init_lora_weights": "pissa"}, {"init_lora_weights": "eva", "eva_config": {"rho": 1e308}},
    {"rank_pattern": {"(a+)+$": 10**8}, "alpha_pattern": {".*": 1e308}}, {"modules_to_save": ["embed_tokens"]},
    {"use_dora": True}, {"peft_type": "EVIL"}, {"peft_type": "PREFIX_TUNING"}, {"lora_alpha": float("nan")},
    {"base_model_name_or_path": "evil/model", "revision": "x"}, {"runtime_config": {"ephemeral_gpu_offload": True}},
    {"trainable_token_indices": list(range(10**6))}, {"target_parameters": ["x"] * 10**5}, {"lora_dropout": 5},
    {"fan_in_fan_out": True, "lora_bias": True, "bias": "all", "use_rslora": True, "use_qalora": True},
)  # fmt: skip


def adapter(random: Random, folder: Path) -> None:
    nth_adapter(folder, random.randrange(len(ADAPTERS)))


def nth_adapter(folder: Path, number: int) -> None:
    """The folder becomes adapters on a whole model beside it."""
    below = folder.parent / "below"
    shutil.copytree(folder, below)
    config = {
        "peft_type": "LORA", "task_type": None, "r": 2, "lora_alpha": 4, "bias": "none", "lora_dropout": 0.0,
        "target_modules": ["q_proj"], "inference_mode": True, "base_model_name_or_path": str(below),
    }  # fmt: skip
    code = CODE.format(mark=str(folder.parent / MARK))
    (folder / "evil.py").write_text(code)
    put(folder / "adapter_config.json", config | ADAPTERS[number])
    put(folder / "base.json", {"name": "below", "folder": str(below), "fingerprint": base_fingerprint(below)})
    write_adapters(folder / "adapter_model.safetensors")


def base_fingerprint(folder: Path) -> str:
    import torch
    from safetensors.torch import load_file
    from torch import nn

    from isentrope.models.lora import fingerprint

    holder = nn.Module()
    for name, value in load_file(folder / "model.safetensors").items():
        place = holder
        for part in ("lm." + name).split(".")[:-1]:
            if not hasattr(place, part):
                place.add_module(part, nn.Module())
            place = getattr(place, part)
        place.register_parameter(name.rsplit(".", 1)[-1], nn.Parameter(value.to(torch.float32)))
    return fingerprint(holder)


def write_adapters(path: Path) -> None:
    import torch
    from safetensors.torch import save_file

    stem = "base_model.model.model.layers.{}.self_attn.q_proj.lora_{}.weight"
    shapes = {"A": (2, 32), "B": (32, 2)}
    save_file({stem.format(n, k): torch.ones(*shapes[k]) * 0.01 for n in range(2) for k in "AB"}, path)


def base_elsewhere(random: Random, folder: Path) -> None:
    """Adapters whose model is somewhere else: on the hub, in a circle, in a pipe."""
    nth_adapter(folder, 0)
    name = random.choice(
        ("evil/model", "evil/model@main", str(folder), "/dev/zero", "~evil/x", "new", "smollm2", "x" * 5000)
    )
    place = random.choice(("", "/nowhere", str(folder), "/dev", "\x00"))
    put(folder / "base.json", {"name": name, "folder": place, "fingerprint": "x"})


# -- spoiling whatever it is


def spoilt(random: Random, value: Any, share: float) -> Any:
    """The same with values of other types and sizes in a share of its places."""
    if random.random() < share:
        return random.choice(ODD)
    if isinstance(value, dict):
        return {key: spoilt(random, inner, share) for key, inner in value.items()}
    if isinstance(value, list):
        return [spoilt(random, inner, share) for inner in value]
    return value


def flip(random: Random, path: Path, start: int = 0, end: int | None = None) -> None:
    data = bytearray(path.read_bytes())
    end = min(len(data), end or len(data))
    how = random.randrange(4)
    for _ in range(random.choice((1, 3, 20))):
        at = random.randrange(start, end)
        if how == 0:
            data[at] ^= 1 << random.randrange(8)
        elif how == 1:
            data[at] = random.randrange(256)
        elif how == 2:
            size = random.choice((1, 2, 4, 8))
            data[at : at + size] = random.choice((b"\xff", b"\x00", b"\x7f", b"\x80")) * size
    path.write_bytes(bytes(data if how != 3 else data[: random.randrange(1, end)]))


FAMILIES: dict[str, Callable[[Random, Path], None]] = {
    function.__name__: function
    for function in (
        template, template_of_another_type, templates_beside, spoilt_template, tokenizer, nested_tokenizer,
        added_tokens, spoilt_tokenizer, bytes_of_a_tokenizer, files_elsewhere, other_tokenizer_files, config_numbers,
        config_sizes, config_of_another_kind, config_code, generation, spoilt_config, weights_header,
        weights_elsewhere, odd_files, adapter, base_elsewhere,
    )
}  # fmt: skip
