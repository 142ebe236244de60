"""`isentrope export`: folders that plain transformers loads."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from isentrope.cli.main import app
from isentrope.core.errors import EngineError, RunError
from isentrope.loop.export import export
from isentrope.loop.imitate import warm_up
from isentrope.loop.train import train
from isentrope.models.load import load_folder, load_policy
from tests.builders.toy_runs import make_model, toy_config
from tests.models.test_hugging_face import make_folder

transformers: Any = pytest.importorskip("transformers", reason="pip install 'isentrope[hf]'")
pytest.importorskip("peft", reason="pip install 'isentrope[hf]'")
CPU = torch.device("cpu")
IDS = torch.tensor([[7, 40, 120, 33, 9, 80]])


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short warm-up of adapters on a tiny Hugging Face model."""
    place = tmp_path_factory.mktemp("export")
    config = toy_config(make_folder(place / "base"), "policy.lora_rank=4", "sft.epochs=1", "sft.lr=1e-2",
                        "agent.max_context=1500", "run.eval_every=0")  # fmt: skip
    warm_up(config, place / "run", quiet=True)
    return place / "run"


@torch.no_grad()
def our_logits(folder: Path) -> torch.Tensor:
    policy = load_folder(folder, CPU, "float32")
    hidden = policy.model.hidden(IDS, torch.arange(6)[None], torch.zeros_like(IDS))
    return hidden @ policy.model.head_weight().T


@torch.no_grad()
def their_logits(folder: Path) -> torch.Tensor:
    lm = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, local_files_only=True)
    return lm.eval()(IDS).logits


def test_adapters_are_merged_and_transformers_gives_the_same_logits(run: Path, tmp_path: Path) -> None:
    made = export(run, tmp_path / "a", "float32")
    assert made.source == run / "checkpoints/step-000002/policy"
    assert made.has_tokenizer
    ours = our_logits(made.source)
    torch.testing.assert_close(their_logits(tmp_path / "a"), ours, atol=1e-4, rtol=1e-4)
    base = their_logits(run.parent / "base")
    assert float((base - ours).abs().max()) > 1e-2  # the adapters did learn something
    assert len({path.stat().st_mode for path in (tmp_path / "a").iterdir()}) == 1  # who may read one may read all
    names = {path.name for path in (tmp_path / "a").iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "generation_config.json", "README.md"} <= names
    assert not any(name.startswith("adapter") for name in names)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "a", local_files_only=True)
    assert "<|im_start|>user" in tokenizer.apply_chat_template([{"role": "user", "content": "x"}], tokenize=False)
    stops = json.loads((tmp_path / "a/generation_config.json").read_text())["eos_token_id"]
    assert set(stops) == load_folder(made.source, CPU, "float32").tokenizer.eos_ids
    assert "isentrope" not in (tmp_path / "a/config.json").read_text()  # nothing that only we can read
    # and Isentrope reads it as any other model
    torch.testing.assert_close(our_logits(tmp_path / "a"), ours, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(("dtype", "tolerance"), [("bfloat16", 2**-8), ("float16", 2**-11)])
def test_weights_are_rounded_once(run: Path, tmp_path: Path, dtype: str, tolerance: float) -> None:
    made = export(run, tmp_path / "a", dtype)
    lm = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "a", dtype="auto", local_files_only=True)
    assert str(lm.dtype) == f"torch.{dtype}"
    export(run, tmp_path / "b", "float32")
    exact = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "b", local_files_only=True, dtype="auto")
    for a, b in zip(lm.parameters(), exact.parameters(), strict=True):
        assert torch.equal(a, b.to(a.dtype))
        assert float(((a.float() - b) / b.abs().clamp(min=1e-4)).detach().abs().max()) <= tolerance
    assert dtype in (tmp_path / "a/README.md").read_text()
    assert made.parameters == sum(p.numel() for p in lm.parameters())


def test_the_card_says_what_it_is(run: Path, tmp_path: Path) -> None:
    export(run, tmp_path / "a")
    card = (tmp_path / "a/README.md").read_text()
    for part in ("imitation of expert games", "adapters of rank 4, merged, step 2", "tests.toys:ToyWorld", "think_act",
                 str(run.parent / "base"), "| seen | 4 |", "lora_rank = 4", "AutoTokenizer"):  # fmt: skip
        assert part in card


def test_a_card_leaves_out_what_is_no_number_in_the_log(run: Path, tmp_path: Path) -> None:
    """1e308 is not read as a metric."""
    copied = Path(shutil.copytree(run, tmp_path / "run"))
    lines = [json.loads(line) for line in (copied / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        line.update({key: 1e308 for key in line if key.startswith("eval/") and key.endswith(("success", "low"))})
    (copied / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    export(copied, tmp_path / "made")
    assert "tells no success" in (tmp_path / "made" / "README.md").read_text()


def test_a_run_of_our_own_model_and_the_step_one_asks_for(tmp_path: Path) -> None:
    config = toy_config(make_model(tmp_path / "base"), "run.steps=4", "run.eval_every=0", "run.keep_last=5")
    train(config, tmp_path / "run", quiet=True)
    made = export(tmp_path / "run", tmp_path / "a", "float32", step=2)
    assert not made.has_tokenizer
    torch.testing.assert_close(
        their_logits(tmp_path / "a"), our_logits(tmp_path / "run/checkpoints/step-000002/policy"), atol=1e-4, rtol=1e-4
    )
    card = (tmp_path / "a/README.md").read_text()
    assert "has no Hugging Face form" in card
    assert "No evaluation was made at step 2" in card
    assert (
        load_policy(config.policy, config.run).tokenizer.size == load_folder(tmp_path / "a", CPU, "auto").tokenizer.size
    )
    (tmp_path / "run/checkpoints/step-foo").mkdir()
    with pytest.raises(EngineError, match=r"no checkpoint of step 3; it has 2, 4"):
        export(tmp_path / "run", tmp_path / "b", step=3)


def test_nothing_is_overwritten_and_a_failure_leaves_nothing(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(RunError, match="already there and is not overwritten"):
        export(run, tmp_path / "a")
    usage = shutil.disk_usage(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1000))
        with pytest.raises(RunError, match="GiB are free on that disk"):
            export(run, tmp_path / "b")

    def full(*args: object, **kwargs: object) -> str:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("isentrope.loop.export.model_card", full)
        with pytest.raises(RunError, match="No space left on device"):
            export(run, tmp_path / "b")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_the_command(run: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["export", str(run), "--out", str(tmp_path / "a"), "--dtype", "float16"])
    assert result.exit_code == 0, result.output
    assert "float16" in result.output
    again = CliRunner().invoke(app, ["export", str(run), "--out", str(tmp_path / "a")])
    assert again.exit_code == 2
