"""Mistakes that a new user makes, each with its exit code and the words that decide: what was wrong, what to do.

They are made in a folder that holds a copy of the demo (demo.toml), a copy of a study (quick.toml) and a finished run
(a0).
"""

from __future__ import annotations

import shlex
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from isentrope.cli.main import app
from isentrope.config.load import load_config
from isentrope.config.recipes import find_recipe
from isentrope.core import needs
from isentrope.loop.train import train
from tests.net.faulty import faulty, say

TRAIN = "train demo.toml --out r"
SERVER = "eval --recipe demo.toml --games 2 --set eval.splits=seen --set engine.kind=openai --set engine.retries=0"
SMALL = (
    "run.steps=2", "run.eval_every=0", "run.checkpoint_every=1", "run.device=cpu", "task.max_turns=2", "eval.games=2",
    "eval.quick_games=2", "rollout.groups=2", "rollout.group_size=2", "learn.mini_batches=1",
)  # fmt: skip
ABSENT = ("wandb", "mlflow", "vllm", "Stemmer", "matplotlib", "peft")

# command; words of the answer, each of which has to be there. All end with exit code 2
MISTAKES = (
    # settings
    (f"{TRAIN} --set learn.lrr=1e-4", "learn.lrr = 0.0001: no such setting; did you mean learn.lr?"),
    (f"{TRAIN} --set lr=1e-4", "lr = 0.0001: no such setting; did you mean learn.lr or"),
    (f"{TRAIN} --set learn.lr=fast", 'learn.lr = "fast": expected a number above 0'),
    (f"{TRAIN} --set learn.lr=0", "learn.lr = 0: expected a number above 0"),
    (f"{TRAIN} --set run.steps=1.5", "run.steps = 1.5: expected an integer of at least 1"),
    (f"{TRAIN} --set eval.games=0", "eval.games = 0: expected an integer of at least 1"),
    (f"{TRAIN} --set learn.lr", "--set learn.lr: expected section.name=value, for example learn.lr=1e-5"),
    (f"{TRAIN} --lr 1e-4", "Settings are changed with --set"),
    (f"{TRAIN} --set run.steps 3", "--set run.steps 3: --set run.steps=3"),
    ("config lern", "no recipe, section or setting is called 'lern'; did you mean learn?"),
    (f"{TRAIN} --set task.world=housebold", "no world named 'housebold'", "did you mean household?"),
    (f"{TRAIN} --set task.world=foo:Bar", "could not load the world 'foo:Bar'", "No module named 'foo'"),
    (f"{TRAIN} --set learn.algorithm=grop", 'learn.algorithm = "grop": expected one of', "did you mean grpo?"),
    (f"{TRAIN} --set methods=epo,sael", "unknown method 'sael'; did you mean seal?"),
    (f"{TRAIN} --set agent.max_response=4000", "agent.max_response = 4000 must be less than agent.max_context = 1536"),
    (f"{TRAIN} --set agent.max_response=1", "agent.max_response = 1: the tags of a response", "or to auto"),
    (f"{TRAIN} --set agent.max_context=33", "agent.max_context = 33", "agent.max_context to far more than"),
    (f"{TRAIN} --set rollout.group_size=1", "rollout.group_size = 1", "use 2 or more"),
    (f"{TRAIN} --set run.device=cuda:77", "run.device = 'cuda:77' cannot be used here", "try auto or cpu"),
    ("train nope.toml --out r", "no recipe at", "did you mean", "demo.toml?"),
    ("train quick.toml --out r", "quick.toml is a study, not a recipe", "study", "quick.toml"),
    ("study demo.toml", "demo.toml is a recipe, not a study: it has [task], [agent]", "train", "demo.toml"),
    # models
    (f"{TRAIN} --set policy.model=./nothere", "policy.model = './nothere': expected pocket, new, smollm2"),
    ("eval runs/typo", "runs/typo", "there is no folder runs/typo here"),
    ("eval a00", "policy.model = 'a00'", "did you mean a0?"),
    ("models Qwen/Qwen2.5-7B-Instruct", "is not in the Hugging Face cache", "--get downloads it from the hub"),
    # what is not installed, before a model is loaded
    (f"{TRAIN} --set run.track=wandb", "run.track names wandb, which is not installed", "[wandb]"),
    (f"{TRAIN} --set run.track=mlflow", "run.track names mlflow, which is not installed", "[mlflow]"),
    (f"{TRAIN} --set engine.kind=vllm", "needs vLLM", "install vllm", "engine.kind=torch"),
    (f"{TRAIN} --set task.world=webshop", "the world webshop needs", "Stemmer", "[webshop]"),
    (f"{TRAIN} --set task.world=search_qa", "the world search_qa needs", "Stemmer", "[search]"),
    (f"{TRAIN} --set task.world=scienceworld", "java: apt-get install openjdk-17-jre-headless"),
    (f"{TRAIN} --set task.world=code_repair", "bubblewrap: apt-get install bubblewrap"),
    (f"{TRAIN} --set policy.lora_rank=4", "policy.lora_rank needs", "peft", "[hf]"),
    ("figures a0 --out f --format pdf", "matplotlib, which is not installed", "[figures]", "--format svg"),
    # run folders
    ("train demo.toml --out a0", "a0 already holds a run; continue it with --resume or choose another folder"),
    ("train demo.toml --out /proc/x", "could not write /proc/x", "choose a folder you may write to with --out"),
    ("train --resume", "say which run goes on, with --out"),
    ("eval a0 --split test", "has no split 'test'; it has train, seen, unseen"),
    ("eval a0 --games 0", "'0' is neither a number of games nor all"),
    ("eval a0 --step 77", "the run a0 has no checkpoint of step 77; it kept 1, 2"),
    ("report .", ". is not a run folder", "give the folder of a run, such as a0"),
    ("report nothere", "nothere is not a run folder"),
    ("metrics .", "has no metrics.jsonl: nothing was measured there"),
    ("watch nothere", "nothere is not a folder"),
    ("export a0 --out full", "full is already there and is not overwritten"),
    ("figures a0 --out f --format png", "'png' is not one of 'svg', 'pdf'"),
    ("figures a0 --out f --metric nosuch", "--metric nosuch: none of these runs measured it"),
    # names
    ("trian demo.toml", "No such command 'trian'. Did you mean 'train'?"),
    ("methods gipo", "no algorithm or method is called 'gipo'; did you mean gigpo?"),
    ("docs runs/noise", "kept runs do not come with the package", "/tree/main/docs/runs/noise"),
    ("check-task code_repair", "the world code_repair needs", "bubblewrap: apt-get install bubblewrap"),
    ("tasks houshold", "no world named 'houshold'", "did you mean household?"),
    # servers
    (f"{SERVER} --set engine.url=http://127.0.0.1:1/v1", "Connection refused", "engine.url is its address"),
    ("serve a0 --port PORT", "Address already in use", "choose another --port"),
    ("watch . --port PORT", "Address already in use", "choose another --port"),
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("newcomer")
    for name, recipe in (("demo.toml", "demo"), ("quick.toml", "studies/quick")):
        (place / name).write_bytes(find_recipe(recipe).read_bytes())
    (place / "full").mkdir()
    (place / "full" / "file").touch()
    train(load_config("demo", SMALL), place / "a0", quiet=True)
    return place


@pytest.fixture
def port() -> Iterator[int]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken.getsockname()[1]


@pytest.fixture(autouse=True)
def _here(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the newcomer's folder, without a network and without the extras."""
    monkeypatch.chdir(place)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    find, which = needs.importlib.util.find_spec, needs.shutil.which
    monkeypatch.setattr(
        needs.importlib.util, "find_spec", lambda name, *more: None if name in ABSENT else find(name, *more)
    )
    monkeypatch.setattr(needs.shutil, "which", lambda name: None if name in ("java", "bwrap") else which(name))


def answer(command: str) -> tuple[int, str]:
    """Exit code, and what was said, without the frame around it."""
    done = CliRunner().invoke(app, shlex.split(command), env={"COLUMNS": "100", "NO_COLOR": "1"})
    assert not isinstance(done.exception, Exception) or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, " ".join(done.output.replace("│", " ").split())


@pytest.mark.parametrize(("command", "words"), [(one[0], one[1:]) for one in MISTAKES], ids=[o[0] for o in MISTAKES])
def test_a_mistake_is_answered(command: str, words: tuple[str, ...], port: int) -> None:
    code, said = answer(command.replace("PORT", str(port)))
    for part in words:
        assert part.replace("PORT", str(port)).replace(" ", "") in said.replace(" ", ""), said  # lines may break
    assert (code, "Traceback" in said) == (2, False)
    assert not Path("r/checkpoints").exists() or not any(Path("r/checkpoints").iterdir())


def test_a_server_that_answers_nothing_is_no_success_of_zero() -> None:
    with faulty(say("")) as server:
        code, said = answer(f"{SERVER} --set engine.model=m --set task.max_turns=2 --set engine.url={server.url}")
    assert code == 2
    assert "all 4 responses in 2 episodes were empty, so there is nothing to measure" in said


def test_a_copied_study_finds_its_base() -> None:
    code, said = answer("study quick.toml --dry-run")
    assert (code, "15 runs" in said) == (0, True)


def test_a_finished_run_goes_on_with_more_steps(place: Path) -> None:
    code, said = answer("train --out a0 --resume --set run.steps=3")
    assert (code, "run.steps was 2, now 3" in said) == (0, True)
