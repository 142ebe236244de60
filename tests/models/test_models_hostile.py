"""Model folders, names and headers that are damaged, or that somebody made up: refused with a sentence, not loaded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from isentrope.core.errors import EngineError
from isentrope.models.load import load_folder
from isentrope.models.sources.cache import cache_folder
from isentrope.models.sources.catalogue import check_folder, read_facts
from isentrope.models.sources.find import POCKET, find_facts, find_folder, present_folder
from isentrope.models.sources.hub import cached_models, hub_cache
from isentrope.runs.checkpoints import kept_checkpoints

DEEP = '{"architectures":' + "[" * 100_000


@pytest.fixture(autouse=True)
def no_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ISENTROPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))


def fill(folder: Path) -> Path:
    folder.mkdir(parents=True)
    for name in ("config.json", "model.safetensors"):
        (folder / name).write_bytes((POCKET / name).read_bytes())
    (folder / "tokenizer.json").write_text("{}")
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return fill(tmp_path / "model")


@pytest.mark.parametrize(
    "named", ["sub/a.safetensors", "sub/a.bin", "pytorch_model.bin", "../../x", "../model.safetensors", "", 5, ["x"]]
)
def test_an_index_may_name_only_safetensors_in_its_own_folder(folder: Path, named: object) -> None:
    for name in ("pytorch_model.bin", "a.bin", "a.safetensors", "x"):
        (folder / name).write_bytes((POCKET / "model.safetensors").read_bytes())
    index = {"weight_map": {"w": "model.safetensors", "v": named}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(EngineError, match="which is not loaded: expected names of safetensors files"):
        load_folder(folder, torch.device("cpu"), "auto")


@pytest.mark.parametrize("table", [5, {}, None])
def test_an_index_without_files(folder: Path, table: object) -> None:
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": table}))
    with pytest.raises(EngineError, match="names no files"):
        read_facts(folder)


def test_weights_that_config_json_has_elsewhere(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text()) | {"transformers_weights": "evil.safetensors.index.json"}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(EngineError, match="transformers_weights"):
        check_folder(folder)


def in_cache(tmp_path: Path) -> Path:
    return fill(tmp_path / "hub" / "models--org--small" / "snapshots" / "abc")


def test_a_file_that_was_copied_in_half(folder: Path, tmp_path: Path) -> None:
    cached = in_cache(tmp_path)
    assert [name for name, _ in cached_models()] == ["org/small@abc"]
    for place in (folder, cached):
        weights = (place / "model.safetensors").read_bytes()
        (place / "model.safetensors").write_bytes(weights[: len(weights) // 2])
    with pytest.raises(EngineError, match=r"not a whole safetensors file \(its header tells of"):
        check_folder(folder)
    assert list(cached_models()) == []


def test_one_part_of_several_is_not_the_whole(folder: Path, tmp_path: Path) -> None:
    for place in (folder, in_cache(tmp_path)):
        (place / "model.safetensors").rename(place / "model-00001-of-00002.safetensors")
    with pytest.raises(EngineError, match=r"neither model.safetensors nor"):
        check_folder(folder)
    assert list(cached_models()) == []


def test_weights_of_another_program_are_not_counted(folder: Path) -> None:
    before = read_facts(folder).parameters
    (folder / "consolidated.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    assert read_facts(folder).parameters == before


@pytest.mark.parametrize(
    "entry",
    [
        {"shape": [1e400], "data_offsets": [0, 4]},
        {"shape": [10**200, 10**200], "data_offsets": [0, 4]},
        {"shape": [-4], "data_offsets": [0, 4]},
        {"shape": [1], "data_offsets": [0]},
        {"shape": [1]},
        {"shape": 5, "data_offsets": [0, 4]},
        5,
    ],
)
def test_headers_of_weights_that_lie(folder: Path, entry: object) -> None:
    header = json.dumps({"w": entry}).encode()
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + b"1234")
    with pytest.raises(EngineError, match="not a whole safetensors file"):
        read_facts(folder)


@pytest.mark.parametrize("name", ["architectures", "layer_types"])
def test_lists_that_are_none(folder: Path, name: str) -> None:
    config = json.loads((folder / "config.json").read_text()) | {name: 5}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(EngineError, match=f"{name} in config.json is '5'; expected a list"):
        check_folder(folder)
    assert find_facts(str(folder), get=False)[2].startswith("cannot be used")


def test_json_that_is_nested_without_end(folder: Path) -> None:
    (folder / "tokenizer_config.json").write_text(DEEP)
    assert not check_folder(folder).chat_template
    header = DEEP.encode()
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(EngineError, match="not a whole safetensors file"):
        check_folder(folder)
    (folder / "model.safetensors").write_bytes(whole)
    (folder / "config.json").write_text(DEEP)
    with pytest.raises(EngineError, match="cannot read"):
        check_folder(folder)


def test_numbers_in_config_json_that_cannot_be(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text()) | {"num_hidden_layers": 10**400, "hidden_size": -1}
    (folder / "config.json").write_text(json.dumps(config))
    facts = read_facts(folder)
    assert (facts.layers, facts.width) == (0, 0)


def test_homes_that_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    for look in (find_folder, lambda name: find_facts(name, get=False)):
        with pytest.raises(EngineError, match=r"policy.model = '~nobody-here/x'"):
            look("~nobody-here/x")
    for name, look in (("ISENTROPE_CACHE", cache_folder), ("HF_HUB_CACHE", hub_cache)):
        monkeypatch.setenv(name, "~nobody-here/x")
        with pytest.raises(EngineError, match=f"{name} = '~nobody-here/x'"):
            look()


def test_a_name_too_long_for_a_path() -> None:
    with pytest.raises(EngineError, match="expected pocket"):
        find_folder("x" * 5000)


def test_a_slip_in_a_path_is_no_name_on_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path / "runs" / "warm")
    monkeypatch.chdir(tmp_path)
    assert find_folder("runs/warm") == Path("runs/warm")
    for look in (find_folder, present_folder, lambda name: find_facts(name, get=False)):
        with pytest.raises(EngineError, match="there is no folder runs/wram here, though there is one called runs"):
            look("runs/wram")
    assert present_folder("org/small") is None
    with pytest.raises(EngineError, match="there is no folder org/small here"):
        find_facts("org/small", get=False)
    cached = in_cache(tmp_path)  # what is here already needs no download: no harm in a folder of that name
    (tmp_path / "org").mkdir()
    assert find_folder("org/small@abc") == cached


@pytest.fixture
def run(tmp_path: Path) -> Path:
    for step in (2, 4):
        fill(tmp_path / "run" / "checkpoints" / f"step-{step:06d}" / "policy")
    (tmp_path / "run" / "checkpoints" / "step-foo").mkdir()
    return tmp_path / "run"


def test_the_best_checkpoint_of_a_run_or_else_the_last(run: Path) -> None:
    checkpoints = run / "checkpoints"
    assert list(kept_checkpoints(checkpoints)) == [2, 4]
    assert find_folder(str(run)) == checkpoints / "step-000004" / "policy"
    (checkpoints / "best.json").write_text('{"name": "step-000002", "success": 0.5}')
    assert find_folder(str(run)) == checkpoints / "step-000002" / "policy"


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "5", "{}", DEEP, '{"name": 5}', '{"name": "../../x"}', '{"name": "step-000008"}']
)
def test_a_note_on_the_best_checkpoint_that_cannot_be_read(run: Path, text: str) -> None:
    (run.parent / "x" / "policy").mkdir(parents=True)
    (run / "checkpoints" / "best.json").write_text(text)
    with pytest.raises(EngineError, match=r"delete .*best.json, and the last checkpoint is taken"):
        find_folder(str(run))
