"""Models from strangers: what is tried in a child, what is kept of a folder, and that every command takes that door."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from isentrope.cli.main import app
from isentrope.config.schema import PolicySettings, RunSettings
from isentrope.core.errors import EngineError
from isentrope.core.limits import MIB
from isentrope.models import trial
from isentrope.models.chat.template import PLAIN
from isentrope.models.chat.tokenizer import ChatTokens
from isentrope.models.load import load_folder, load_policy
from isentrope.models.sources.small_files import LIMITS, laid_out, read_small
from isentrope.sandbox import own_child
from isentrope.sandbox.base import Limits
from tests.builders import hostile_models
from tests.builders.hostile_models import add_code, change, make_model, put, read
from tests.builders.sizes import EXPLORE

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("whole") / "model")


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    for file in whole.iterdir():
        (tmp_path / "model").mkdir(exist_ok=True)
        (tmp_path / "model" / file.name).write_bytes(file.read_bytes())
    return tmp_path / "model"


class Children:
    """Counts the children that are begun, or refuses everything."""

    def __init__(self, refuse: str = "") -> None:
        self.begun = list[list[str]]()
        self.refuse, self.real = refuse, trial.in_child

    def __call__(self, trials: Any, limits: Any = None) -> Any:
        self.begun.append([one.what for one in trials])
        return [{"refused": self.refuse}] if self.refuse else self.real(trials)


@pytest.fixture
def children(real_trials: None, monkeypatch: pytest.MonkeyPatch) -> Children:
    counted = Children()
    monkeypatch.setattr(trial, "in_child", counted)
    return counted


@pytest.mark.slow(8)
def test_one_child_for_a_model_and_none_for_one_that_is_known(folder: Path, children: Children) -> None:
    before = load_folder(folder, CPU, "float32")
    assert children.begun == [["tokenizer", "model"]]
    trial._known.clear()  # as another process that finds the note
    again = load_folder(folder, CPU, "float32")
    assert len(children.begun) == 1
    assert again.tokenizer.opening("a", "b") == before.tokenizer.opening("a", "b")
    change(folder / "config.json", rope_theta=5000.0)
    children.refuse = "tried again"
    with pytest.raises(EngineError, match="tried again"):
        load_folder(folder, CPU, "float32")
    assert children.begun[1:] == [["tokenizer", "model"]]  # both read config.json


@pytest.mark.slow(8)
@pytest.mark.usefixtures("real_trials")
def test_a_template_that_takes_all_memory_is_ended_in_the_child(folder: Path) -> None:
    doubling = next(text for text in hostile_models.TEMPLATES if "ns.s + ns.s" in text)
    put(folder / "chat_template.jinja", doubling + (folder / "chat_template.jinja").read_text())
    with pytest.raises(EngineError, match=r"chat template (was tried in a process of its own, which|cannot be used)"):
        ChatTokens.load(folder)


@pytest.mark.slow(12)
@pytest.mark.skipif(not EXPLORE, reason="ISENTROPE_EXPLORE=1: seconds of a core until the kernel ends it")
@pytest.mark.usefixtures("real_trials")
def test_a_template_that_never_ends_is_ended_in_the_child(folder: Path) -> None:
    put(folder / "chat_template.jinja", hostile_models.LOOP)
    with pytest.raises(EngineError, match=r"its chat template was tried .* used more seconds of a core than an honest"):
        ChatTokens.load(folder)


def test_what_becomes_of_a_child_is_said(monkeypatch: pytest.MonkeyPatch, real_trials: None) -> None:
    one = [trial.tokenizer_trial({})]
    for program, ended in (
        (
            "print('stage its tokenizer', flush=True); import time; time.sleep(60)",
            "its tokenizer .* did not end within",
        ),
        ("print('stage it'); import os; os.kill(os.getpid(), 24)", "used more seconds of a core"),
        ("x = bytearray(200 << 20); import time; time.sleep(60)", r"took more than 100 MiB"),
        ("import os; os.abort()", "ended by signal 6"),
        ("print('x' * 300_000)", "passed its limit of output"),
        ("print('[]'); raise SystemExit(3)", "broke off"),
    ):
        monkeypatch.setattr(own_child, "START", program.replace("{", "{{").replace("}", "}}"))
        [answer] = trial.in_child(one, Limits(seconds=2.0, memory=100 << 20, output=200_000))
        assert re.search(ended, answer["refused"]), answer


@pytest.mark.slow(6)
def test_what_libraries_map_to_themselves_does_not_count(folder: Path) -> None:
    """Torch with CUDA maps more addresses than a trial may take."""
    request = {"what": "model", "folder": str(folder), "memory": 600 * MIB, "parameters": 10_000_000}
    command = [sys.executable, "-P", "-c", own_child.START.format(path=own_child.import_path(), module=trial.CHILD)]
    ended = subprocess.run(command, input=json.dumps([request]).encode(), capture_output=True, timeout=120)
    assert "numbers" in ended.stdout.decode().splitlines()[-1], ended.stdout


def test_the_template_is_not_run_where_the_parts_are_known(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ChatTokens.load(folder)
    monkeypatch.setattr("isentrope.models.chat.tokenizer.renderer", lambda _: pytest.fail("a template was run"))
    assert ChatTokens.load(folder).opening("a", "b")


def test_a_note_that_is_spoilt_is_not_believed(folder: Path, children: Children, tmp_path: Path) -> None:
    children.refuse = "asked again"
    files = read_small(folder)
    one = trial.tokenizer_trial(files)
    note = tmp_path / "tried-cache" / "tried" / f"{one.key}.json"
    note.parent.mkdir(parents=True)
    for text in ("", "{", "[]", '{"parts": {"opening": "x"}}', '{"parts": 5}', "null"):
        note.write_text(text)
        with pytest.raises(EngineError, match="asked again"):
            trial.chat_parts(folder, one)


def test_what_is_tried_is_what_is_loaded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder changes once the files were read: no matter."""
    real = trial.in_child

    def meanwhile(trials: Any, limits: Any = None) -> Any:
        put(folder / "tokenizer.json", "{}")
        return real(trials)

    monkeypatch.setattr(trial, "_known", {})
    monkeypatch.setattr(trial, "_noted", lambda _: False)
    monkeypatch.setattr(trial, "in_child", meanwhile)
    assert ChatTokens.load(folder).opening("a", "b")


def test_keys_that_fetch_or_load_code_are_dropped(folder: Path) -> None:
    add_code(folder)
    config = {
        "auto_map": {"AutoConfig": "evil.EvilConfig"}, "_name_or_path": "evil/model", "num_labels": 10**9,
        "attn_implementation": "kernels-community/x", "_attn_implementation": "evil/x", "rope_theta": 9.0,
        "text_config": {"auto_map": {"AutoConfig": "x"}, "hidden_size": 4}, "base_model_tp_plan": {"a": "b"},
    }  # fmt: skip
    change(folder / "config.json", **config)
    change(folder / "tokenizer_config.json", auto_map={"AutoTokenizer": ["a.B", None]}, vocab_file="/etc/passwd",
           tokenizer_file="/dev/zero", sp_model_kwargs={}, name_or_path="x", cls_token="<c>")  # fmt: skip
    files = read_small(folder)
    assert set(files) == {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
                          "chat_template.jinja"}  # fmt: skip
    kept, before = json.loads(files["config.json"]), read(folder / "config.json")
    assert kept["text_config"] == {"hidden_size": 4}
    assert set(before) - set(kept) == {
        "auto_map", "_name_or_path", "num_labels", "attn_implementation", "_attn_implementation", "base_model_tp_plan"
    }  # fmt: skip
    assert kept["rope_theta"] == 9.0
    words = json.loads(files["tokenizer_config.json"])
    assert set(read(folder / "tokenizer_config.json")) - set(words) == {
        "auto_map", "vocab_file", "tokenizer_file", "sp_model_kwargs", "name_or_path"
    }  # fmt: skip
    assert words["cls_token"] == "<c>"
    assert "custom_generate" not in json.loads(files["generation_config.json"])
    with laid_out(files, {"model.safetensors": folder / "model.safetensors"}) as place:
        assert {file.name for file in place.iterdir()} == {*files, "model.safetensors"}
    assert not place.exists()


@pytest.mark.parametrize("name", sorted(LIMITS))
def test_a_pipe_in_the_place_of_a_small_file(folder: Path, name: str) -> None:
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    with pytest.raises(EngineError, match=f"cannot read .*{name} .*is not a file"):
        read_small(folder)


def test_a_pipe_beside_them_is_not_waited_for(folder: Path) -> None:
    for name in ("README.md", "isentrope.json", "processor_config.json"):
        os.mkfifo(folder / name)
    assert load_folder(folder, CPU, "float32").size > 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_hidden_layers": 10**9}, "num_hidden_layers = 1000000000; expected a whole number from 1 to 20"),
        ({"vocab_size": 10**9}, "vocab_size = 1000000000; expected a whole number"),
        ({"hidden_size": -1}, "hidden_size = -1; expected"),
        ({"hidden_size": "x"}, "hidden_size = x; expected"),
        ({"intermediate_size": 2500}, "its config.json makes a model of .* numbers, and its weights have"),
        ({"rope_theta": 10**400}, "rope_theta is inf; expected a finite number"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps is nan"),
        ({"dtype": "load"}, "dtype is 'load'; expected one of float32"),
        ({"pad_token_id": 2**50}, "pad_token_id is 1125899906842624; expected a number below"),
        ({"layer_types": ["full_attention"] * 20_000}, "layer_types is a list of 20,000"),
    ],
)
def test_a_config_that_asks_for_too_much(folder: Path, changes: dict[str, Any], message: str) -> None:
    change(folder / "config.json", **changes)
    if "intermediate_size" in changes:
        change(folder / "config.json", num_hidden_layers=20)
    with pytest.raises(EngineError, match=message):
        load_folder(folder, CPU, "float32")


def test_a_base_that_is_not_here_is_not_fetched(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("isentrope.models.sources.find.download", lambda *_: pytest.fail("fetched"))
    hostile_models.nth_adapter(folder, 0)
    put(folder / "base.json", {"name": "evil/model", "folder": "/nowhere", "fingerprint": "x"})
    with pytest.raises(EngineError, match="adapters on evil/model, which is not here; if you trust it, fetch it:"):
        load_policy(PolicySettings(model=str(folder)), RunSettings(device="cpu"))
    put(folder / "base.json", {"name": "evil/model", "folder": "\0", "fingerprint": "x"})
    with pytest.raises(EngineError, match="adapters on"):
        load_policy(PolicySettings(model=str(folder)), RunSettings(device="cpu"))


@pytest.mark.parametrize("number", range(1, len(hostile_models.ADAPTERS)))
def test_adapters_of_strangers(folder: Path, number: int) -> None:
    """They load as ours do, or are refused with a sentence: nothing that they name is imported or made."""
    hostile_models.nth_adapter(folder, number)
    harmless = {"base_model_name_or_path", "init_lora_weights", "runtime_config", "eva_config", "revision"}
    named = set(hostile_models.ADAPTERS[number])
    if named <= harmless:
        assert load_folder(folder, CPU, "float32").size > 0
        return
    with pytest.raises(EngineError, match=r"adapters in .*"):
        load_folder(folder, CPU, "float32")


COMMANDS = {
    "train": ("train", "demo", "--out", "out", "--set", "policy.model=model"),
    "sft": ("sft", "demo", "--out", "out", "--set", "policy.model=model"),
    "rft": ("rft", "demo", "--out", "out", "--set", "policy.model=model"),
    "eval": ("eval", "model", "--games", "1"),
    "serve": ("serve", "model", "--port", "0"),
    "export": ("export", "model", "--out", "out"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_that_loads_a_model_takes_the_door(
    folder: Path, name: str, children: Children, monkeypatch: pytest.MonkeyPatch
) -> None:
    children.refuse = "it was seen at the door"
    monkeypatch.chdir(folder.parent)
    result = CliRunner().invoke(app, COMMANDS[name])
    assert result.exit_code == 2
    assert "it was seen at the door" in result.output
    assert children.begun == [["tokenizer", "model"]]


def test_looking_at_a_model_begins_no_child(folder: Path, children: Children, monkeypatch: pytest.MonkeyPatch) -> None:
    children.refuse = "a child"
    monkeypatch.chdir(folder.parent)
    assert CliRunner().invoke(app, ["models", "model"]).exit_code == 0
    assert CliRunner().invoke(app, ["models", "pocket"]).exit_code == 0
    load_policy(PolicySettings(model="pocket"), RunSettings(device="cpu"))
    assert children.begun == []


def test_a_template_of_one_s_own_is_tried_too(folder: Path, children: Children, tmp_path: Path) -> None:
    children.refuse = "tried"
    (tmp_path / "own.jinja").write_text(PLAIN)
    with pytest.raises(EngineError, match="tried"):
        ChatTokens.load(folder, str(tmp_path / "own.jinja"))
    os.mkfifo(tmp_path / "pipe.jinja")
    with pytest.raises(EngineError, match="cannot be read"):
        ChatTokens.load(folder, str(tmp_path / "pipe.jinja"))
