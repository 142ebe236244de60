"""GGUF files: a tiny one becomes the model that it was written from; the real SmolLM2, if it is here, speaks."""

from __future__ import annotations

import json
import os
import resource
import struct
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from isentrope.core.errors import EngineError
from isentrope.models.sources import gguf as conversion
from isentrope.models.sources import smollm2
from isentrope.models.sources.catalogue import Facts, read_facts
from isentrope.models.sources.find import find_facts, find_folder, present_folder
from isentrope.models.sources.gguf import NOTE, convert, converted_folder, gguf_facts, read_gguf_header

transformers: Any = pytest.importorskip("transformers", reason="pip install 'isentrope[hf]'")
pytest.importorskip("gguf", reason="pip install 'isentrope[hf]'")
pytest.importorskip("accelerate", reason="pip install 'isentrope[hf]'")
from tests.models import tiny_gguf  # noqa: E402  # it needs them


@pytest.fixture(scope="module")
def model() -> Any:
    return tiny_gguf.reference_model(len(tiny_gguf.words()[0]))


@pytest.fixture(scope="module")
def made(model: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(the GGUF file, its converted folder)."""
    place = tmp_path_factory.mktemp("gguf")
    file = tiny_gguf.write_gguf(place / "tiny.gguf", model)
    os.environ["ISENTROPE_CACHE"] = str(place / "cache")
    try:
        return file, convert(file)
    finally:
        del os.environ["ISENTROPE_CACHE"]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ISENTROPE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "converted"


@torch.no_grad()
def test_the_converted_model_computes_what_the_original_does(model: Any, made: tuple[Path, Path]) -> None:
    again = transformers.AutoModelForCausalLM.from_pretrained(made[1], dtype=torch.float32)
    ids = torch.randint(3, 200, (2, 17), generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(again(ids).logits, model(ids).logits, rtol=1e-5, atol=1e-5)
    config = json.loads((made[1] / "config.json").read_text())
    assert "quantization_config" not in config
    assert config["tie_word_embeddings"] is True


def test_tokenizer_and_template_come_along(made: tuple[Path, Path]) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(made[1])
    words = tiny_gguf.words()[0]
    ids = tokenizer("go the")["input_ids"]
    assert [words[i] for i in ids] == ["go", "Ġthe"]
    text = tokenizer.apply_chat_template([{"role": "user", "content": "hi"}], tokenize=False)
    assert text == "<|im_start|>user\nhi<|im_end|>\n"
    assert tokenizer("<|im_end|>")["input_ids"] == [2]
    assert json.loads((made[1] / NOTE).read_text())["licence"] == "apache-2.0"


def test_digits_stand_apart_as_smollm_learnt_them(made: tuple[Path, Path]) -> None:
    """The two line breaks are one token: a digit ends what goes before it, and does not take a part along."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(made[1])
    assert tokenizer.convert_ids_to_tokens(tokenizer("\n\n12")["input_ids"]) == ["ĊĊ", "1", "2"]


def test_packed_weights_are_unpacked_as_the_gguf_package_does(model: Any, tmp_path: Path, cache: Path) -> None:
    import gguf
    from safetensors.torch import load_file

    file = tiny_gguf.write_gguf(tmp_path / "packed.gguf", model, packed=True)
    weights = load_file(convert(file) / "model.safetensors")
    kind = gguf.GGMLQuantizationType.Q8_0
    for name, weight in model.state_dict().items():
        if name == "lm_head.weight":
            continue
        array = weight.numpy()
        if array.ndim == 2:
            array = gguf.quants.dequantize(gguf.quants.quantize(array, kind), kind)
        torch.testing.assert_close(weights[name], torch.from_numpy(array), rtol=0, atol=0)


def test_it_is_converted_once_and_again_when_the_file_changes(model: Any, tmp_path: Path, cache: Path) -> None:
    file = tiny_gguf.write_gguf(tmp_path / "tiny.gguf", model)
    assert present_folder(str(file)) is None
    folder = find_folder(str(file))
    assert folder.parent == cache
    assert present_folder(str(file)) == folder
    before = (folder / "model.safetensors").stat().st_mtime_ns
    assert find_folder(str(file)) == folder
    assert (folder / "model.safetensors").stat().st_mtime_ns == before
    os.utime(file, (1, 1))
    assert present_folder(str(file)) is None
    assert converted_folder(file) != folder


def test_another_process_may_be_done_first(
    made: tuple[Path, Path], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(folder: Path, file: Path, header: object) -> None:
        other = converted_folder(file)  # the other process puts its folder in place meanwhile
        other.mkdir()
        (other / NOTE).write_text("{}")
        (folder / "config.json").write_text("{}")

    monkeypatch.setattr(conversion, "_convert_into", slow)
    folder = convert(made[0])
    assert (folder / NOTE).read_text() == "{}"
    assert [place.name for place in cache.iterdir()] == [folder.name]


def test_what_a_killed_conversion_left_is_swept(
    made: tuple[Path, Path], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, fresh = cache / ".making-old", cache / ".making-fresh"
    for left in (old, fresh):
        left.mkdir(parents=True)
    day_ago = time.time() - conversion.STALE - 60
    os.utime(old, (day_ago, day_ago))
    monkeypatch.setattr(conversion, "_convert_into", lambda *_: None)
    convert(made[0])
    assert not old.exists()
    assert fresh.exists()


def test_another_process_may_sweep_at_once(
    made: tuple[Path, Path], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (cache / ".making-a").mkdir(parents=True)
    look = Path.stat

    def gone(path: Path, **how: bool) -> os.stat_result:
        if path.name == ".making-a":
            raise FileNotFoundError(path)
        return look(path, **how)

    monkeypatch.setattr(Path, "stat", gone)
    monkeypatch.setattr(conversion, "_convert_into", lambda *_: None)
    assert (convert(made[0]) / NOTE).is_file()


def test_one_that_was_deleted_in_part_is_made_again(
    made: tuple[Path, Path], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = converted_folder(made[0])
    target.mkdir(parents=True)
    (target / "config.json").write_text("old")
    (target / "left.txt").write_text("old")
    monkeypatch.setattr(conversion, "_convert_into", lambda place, *_: (place / "config.json").write_text("new"))
    assert convert(made[0]) == target
    assert {file.name for file in target.iterdir()} == {"config.json", NOTE}
    assert (target / "config.json").read_text() == "new"
    assert [place.name for place in cache.iterdir()] == [target.name]


def test_others_may_read_it_as_any_folder(made: tuple[Path, Path], tmp_path: Path) -> None:
    usual = tmp_path / "usual"
    usual.mkdir()
    (usual / "file").write_text("")
    assert made[1].stat().st_mode == usual.stat().st_mode
    assert {file.stat().st_mode for file in made[1].iterdir()} == {(usual / "file").stat().st_mode}


def test_it_is_on_the_disk_before_it_has_its_name(
    made: tuple[Path, Path], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[tuple[str, bool]] = []
    there = converted_folder(made[0])
    monkeypatch.setattr(conversion, "flush_folder", lambda place, **_: flushed.append((place.name, there.exists())))
    monkeypatch.setattr(conversion, "_convert_into", lambda *_: None)
    convert(made[0])
    assert flushed == [("model", False), (cache.name, True)]


def test_a_full_disk(made: tuple[Path, Path], cache: Path) -> None:
    """Files may not grow beyond 50 kB, which safetensors reports in its own way."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, before[1]))
    try:
        with pytest.raises(EngineError, match="free some space or set ISENTROPE_CACHE"):
            convert(made[0])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(cache.iterdir()) == []


def test_a_missing_tensor_is_refused_and_nothing_is_left(model: Any, tmp_path: Path, cache: Path) -> None:
    file = tiny_gguf.write_gguf(tmp_path / "hole.gguf", model, leave_out="blk.1.ffn_up.weight")
    with pytest.raises(EngineError, match=r"lacks 1 tensors.*up_proj"):
        convert(file)
    assert list(cache.iterdir()) == []


def test_files_that_are_no_whole_gguf(made: tuple[Path, Path], tmp_path: Path, cache: Path) -> None:
    whole = made[0].read_bytes()
    for content, reason in ((b"GGML" + whole[4:], "does not begin"), (whole[:3000], "not a whole"), (b"", "begin"),
                            (whole[:20], r"not a whole GGUF file \(it ends too early\)")):  # fmt: skip
        file = tmp_path / "bad.gguf"
        file.write_bytes(content)
        with pytest.raises(EngineError, match=reason):
            convert(file)
    lying = bytearray(whole)
    lying[8:16] = (2**60).to_bytes(8, "little")  # so many tensors
    file.write_bytes(lying)
    with pytest.raises(EngineError, match="a length of"):
        read_gguf_header(file)


def hostile(path: Path, name: str, value: Any, kind: Any, embedding: int = 2) -> Path:
    """A header alone, with one setting of choice; its embedding has so many dimensions."""
    import gguf

    def text(word: str) -> bytes:
        return struct.pack("<Q", len(word)) + word.encode()

    packed = text(value) if kind == gguf.GGUFValueType.STRING else struct.pack("<f", value)
    path.write_bytes(
        b"GGUF" + struct.pack("<IQQ", 3, 1, 2)
        + text("general.architecture") + struct.pack("<I", gguf.GGUFValueType.STRING) + text("llama")
        + text(name) + struct.pack("<I", kind) + packed
        + text("token_embd.weight") + struct.pack("<I", embedding) + struct.pack("<Q", 4) * embedding
        + struct.pack("<IQ", 0, 0)
    )  # fmt: skip
    return path


def test_headers_that_lie(tmp_path: Path, cache: Path) -> None:
    from gguf import GGUFValueType as Kind

    file = tmp_path / "bad.gguf"
    assert gguf_facts(hostile(file, "llama.block_count", 3.0, Kind.FLOAT32)).layers == 3
    for value, kind in (("abc", Kind.STRING), (float("nan"), Kind.FLOAT32), (float("inf"), Kind.FLOAT32)):
        hostile(file, "split.count", value, kind)
        with pytest.raises(EngineError, match=r"split.count = .*expected a whole number"):
            convert(file)
        hostile(file, "llama.block_count", value, kind)
        with pytest.raises(EngineError, match=r"llama.block_count = .*expected a whole number"):
            gguf_facts(file)
    hostile(file, "llama.block_count", 3.0, Kind.FLOAT32, embedding=0)
    with pytest.raises(EngineError, match=r"token_embd.weight has 0 dimensions"):
        gguf_facts(file)
    with pytest.raises(EngineError, match="cannot read a llama model"):
        convert(file)


def test_too_little_memory_to_unpack(made: tuple[Path, Path], cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversion, "free_memory", lambda _: 1000)
    with pytest.raises(EngineError, match="unpacking"):
        convert(made[0])


def test_a_cache_that_cannot_be_written(
    made: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ISENTROPE_CACHE", str(tmp_path / "file"))
    with pytest.raises(EngineError, match="ISENTROPE_CACHE"):
        convert(made[0])


def shape(facts: Facts) -> Facts:
    """All but where the model is, in which form and how large there."""
    return replace(facts, folder=Path(), architecture="", disk=0)


def test_facts_before_the_conversion_are_those_after(made: tuple[Path, Path]) -> None:
    before, after = gguf_facts(made[0]), read_facts(made[1])
    assert shape(before) == shape(after)


def test_a_file_below_the_home_folder(made: tuple[Path, Path], cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(made[0].parent))
    folder, facts, _ = find_facts(f"~/{made[0].name}", get=False)
    assert (folder, shape(facts)) == (None, shape(gguf_facts(made[0])))


@pytest.mark.slow
def test_the_real_smollm2() -> None:
    """Its weights are gguf's own numbers, and it speaks."""
    if not (smollm2.converted() and smollm2.installed_file()):
        pytest.skip("SmolLM2 is not here: isentrope models smollm2 --get")
    import gguf

    folder, file = smollm2.smollm2_folder(), smollm2.installed_file()
    assert shape(read_facts(folder)) == shape(smollm2.FACTS)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    packed = {tensor.name: tensor for tensor in gguf.GGUFReader(str(file)).tensors}
    weights = model.state_dict()
    for ours, theirs in (("model.embed_tokens", "token_embd"), ("model.layers.29.mlp.down_proj", "blk.29.ffn_down")):
        tensor = packed[f"{theirs}.weight"]
        expected = torch.from_numpy(gguf.quants.dequantize(tensor.data, tensor.tensor_type).copy())
        torch.testing.assert_close(weights[f"{ours}.weight"], expected, rtol=0, atol=0)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    question = [{"role": "user", "content": "What is the capital of France?"}]
    ids = tokenizer.apply_chat_template(question, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    said = model.generate(**ids, max_new_tokens=12, do_sample=False)[0, ids["input_ids"].shape[1] :]
    assert "Paris" in tokenizer.decode(said)
