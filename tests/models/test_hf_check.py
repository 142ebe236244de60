"""Models that would give wrong numbers without an error are refused when they are loaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from isentrope.config.schema import PolicySettings, RunSettings
from isentrope.core.errors import EngineError
from isentrope.models.kv_cache import Cache
from isentrope.models.load import check_model, load_folder, load_policy
from isentrope.models.lora import Base, with_adapters
from tests.models.test_hugging_face import CPU, load, make_folder, make_tokenizer, transformers

SIZES: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 48}


def make_other(path: Path, config: Any) -> Path:
    torch.manual_seed(0)
    lm = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for parameter in lm.parameters():
            if parameter.dim() == 2:
                parameter.mul_(5)
    lm.save_pretrained(path)
    make_tokenizer("{% for m in messages %}<|im_start|>{{ m['content'] }}<|im_end|>{% endfor %}").save_pretrained(path)
    return path


@pytest.mark.parametrize("family", ["rwkv", "bloom", "mamba"])
def test_a_model_that_remembers_or_attends_otherwise_is_refused(tmp_path: Path, family: str) -> None:
    words = len(make_tokenizer(None))
    config = {
        "rwkv": lambda: transformers.RwkvConfig(vocab_size=words, attention_hidden_size=32, **SIZES),
        "bloom": lambda: transformers.BloomConfig(vocab_size=words, hidden_size=32, n_layer=2, n_head=4),
        "mamba": lambda: transformers.MambaConfig(vocab_size=words, hidden_size=32, num_hidden_layers=2),
    }[family]()
    with pytest.raises(EngineError, match=r"not supported|cannot load|has no|expected"):
        load(make_other(tmp_path, config))


def test_numbers_that_differ_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = load(make_folder(tmp_path))
    check_model(policy)
    write = Cache.update
    monkeypatch.setattr(Cache, "update", lambda cache, k, v, layer, *a, **o: write(cache, k, v * 1.1, layer))
    with pytest.raises(EngineError, match="read piece by piece"):
        check_model(policy)


@pytest.mark.parametrize("change", ["left out", "renamed"])
def test_a_folder_without_some_of_its_tensors_is_refused(tmp_path: Path, change: str) -> None:
    folder = make_folder(tmp_path)
    weights = load_file(folder / "model.safetensors")
    if change == "left out":
        weights = {name: value for name, value in weights.items() if "layers.1.mlp" not in name}
    else:
        weights = {f"module.{name}": value for name, value in weights.items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(EngineError, match=r"lacks \d+ of the tensors"):
        load(folder)


def test_a_folder_whose_shapes_do_not_fit_is_refused(tmp_path: Path) -> None:
    folder = make_folder(tmp_path)
    config = json.loads((folder / "config.json").read_text()) | {"intermediate_size": 40}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(EngineError, match="cannot load"):
        load(folder)


def test_sampling_settings_without_do_sample_do_not_keep_a_model_from_being_saved(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "a")
    (folder / "generation_config.json").write_text(json.dumps({"temperature": 0.9, "top_p": 0.6}))
    load(folder).save(tmp_path / "b")
    assert (tmp_path / "b" / "model.safetensors").is_file()


def test_adapters_are_added_to_the_weights_in_float32(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "base")
    settings = PolicySettings(model=str(folder), lora_rank=4)
    policy = with_adapters(load_folder(folder, CPU, "float32"), settings, 0, Base(str(folder), str(folder)))
    torch.manual_seed(0)
    with torch.no_grad():
        for name, parameter in policy.module.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=1e-3)
    (tmp_path / "adapters").mkdir()
    policy.save(tmp_path / "adapters")
    asked = PolicySettings(model=str(tmp_path / "adapters"))
    exact = load_policy(asked, RunSettings(device="cpu", dtype="float32", weights="float32")).module
    rounded = load_policy(asked, RunSettings(device="cpu", dtype="bfloat16", weights="bfloat16")).module
    for a, b in zip(exact.parameters(), rounded.parameters(), strict=True):
        assert torch.equal(a.to(torch.bfloat16), b)  # the sum rounded once, not a sum of rounded parts


def test_a_cache_says_when_it_has_moved() -> None:
    cache = Cache(2, CPU)
    seen = [cache.moves]
    for columns in (10, 20, 100):
        cache.begin(1, None, columns)
        cache.update(torch.ones(2, 1, 1, 4), torch.ones(2, 1, 1, 4), 0)
        seen.append(cache.moves)
    cache.keep(torch.tensor([1]))
    seen.append(cache.moves)
    assert seen == [0, 1, 1, 2, 3]
    assert cache.layers[0][0].shape == (1, 1, 128, 4)
