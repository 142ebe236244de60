"""Runs that would do nothing: they stop with the reason, on the record, and can be resumed. Where only some episodes do
nothing, the run goes on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from isentrope.core.engine import Request, Sampled
from isentrope.core.errors import ConfigError, EngineError, IsentropeError, TaskError, TrainError
from isentrope.engines.torch import TorchEngine
from isentrope.learning.optimiser import Optimiser
from isentrope.loop.evaluate import Exam, evaluate_model
from isentrope.loop.imitate import warm_up
from isentrope.loop.messages import nothing_learnt
from isentrope.loop.train import train
from isentrope.models.load import load_policy
from isentrope.runs.folder import Run
from isentrope.runs.layout import EVENTS, METRICS, checkpoint_path, own_path
from isentrope.runs.log import read_records
from isentrope.runs.writer import learnt
from isentrope.worlds.contract import Expert, Instance, Move, Step, View
from tests.builders.toy_runs import WARM_MODEL, make_model, toy_config
from tests.toys import ToyTask, ToyWorld

HERE = "tests.loop.test_nothing"
AHEAD = ("rollout.ahead=1", "learn.old_logprobs=recompute", "learn.mismatch=truncate")
SHORT = ("run.steps=2", "run.eval_every=0", "eval.games=2", "methods=[]", "learn.mini_batches=1")


class Long(ToyTask):
    """Every other game begins with a page that fits into no context."""

    def start(self, instance: Instance) -> View:
        view = super().start(instance)
        return replace(view, text="look " * 500) if instance.index % 2 and instance.split == "train" else view


class AllLong(ToyTask):
    def start(self, instance: Instance) -> View:
        return replace(super().start(instance), text="look " * 500)


class Fails(ToyTask):
    """Every other game cannot be started."""

    def start(self, instance: Instance) -> View:
        if instance.index % 2 and instance.split == "train":
            raise RuntimeError("the shop is closed")
        return super().start(instance)


class Breaks(ToyTask):
    def start(self, instance: Instance) -> View:
        if BreaksWorld.broken and instance.split == "train":
            raise RuntimeError("gone for good")
        return super().start(instance)


class AtOnce(ToyTask):
    """Over after the first step, whatever it was."""

    def step(self, action: str) -> Step:
        return replace(super().step(action), reward=0.0, terminated=True, success=False)


class Odd(ToyWorld):
    task: type[ToyTask] = ToyTask

    def __init__(self) -> None:
        super().__init__()

    def open(self) -> ToyTask:
        return self.task(self._options)


class LongWorld(Odd):
    task = Long


class AllLongWorld(Odd):
    task = AllLong


class FailsWorld(Odd):
    task = Fails


class AtOnceWorld(Odd):
    task = AtOnce


class BreaksWorld(Odd):
    task, broken = Breaks, False


class NoTrainingGames(Odd):
    def size(self, split: str) -> int | None:
        return 0 if split == "train" else super().size(split)


class NoGames(Odd):
    def size(self, split: str) -> int | None:
        return 0 if split == "seen" else super().size(split)


class Lost:
    def start(self, view: View, instance: Instance) -> None: ...

    def act(self, view: View) -> Move:
        return Move("No idea.", "look")


class LostExpert(Odd):
    def expert(self, seed: int) -> Expert:  # type: ignore[override]
        return Lost()


class Silent(TorchEngine):
    """Answers nothing."""

    def __init__(self, policy: Any, config: Any, options: Any) -> None:
        super().__init__(policy)

    def sample(self, requests: Sequence[Request]) -> list[Sampled]:
        none = np.zeros(0, dtype=np.float32)
        return [Sampled(none.astype(np.int32), none, none, none, "eos") for _ in requests]


class SilentInTraining(Silent):
    def sample(self, requests: Sequence[Request]) -> list[Sampled]:
        return super().sample(requests) if requests[0].temperature == 1 else TorchEngine.sample(self, requests)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("model"))


def world(name: str) -> str:
    return f"task.world={HERE}:{name}"


NOTHING: list[tuple[Callable[..., Any], tuple[str, ...], type[IsentropeError], str]] = [
    (
        train,
        ("agent.max_context=16", "agent.max_response=15"),
        ConfigError,
        "16: the prompt has",
    ),
    (train, (world("AllLongWorld"),), ConfigError, r"not one of 2 episodes had room.*nothing to measure.*seen game 0"),
    (train, ("agent.max_response=1",), ConfigError, r"agent\.max_response = 1: the tags"),
    (train, (f"engine.kind={HERE}:Silent",), EngineError, r"all 8 responses in 2 episodes were empty.*measure"),
    (train, (f"engine.kind={HERE}:SilentInTraining",), EngineError, "all 24 responses in 6 episodes.*learn from"),
    (train, (f"engine.kind={HERE}:SilentInTraining", *AHEAD), EngineError, "all 24 responses in 6 episodes"),
    (train, (world("NoTrainingGames"),), TaskError, "toy has no games in 'train'"),
    (train, (world("NoGames"),), TaskError, "toy has no games in 'seen'"),
    (train, ("eval.splits=['nope']",), TaskError, "no split 'nope'; it has train, seen"),
    (train, ("run.track=trackio",), ConfigError, r"run\.track names trackio, which is not installed: .*\[trackio\]'"),
    (train, ("engine.kind=vllm",), EngineError, "needs vLLM, best in an environment of its own: .*install vllm"),
    (train, ("task.world=webshop",), TaskError, r"the world webshop needs .*Stemmer.*\[webshop\]'"),
    (train, ("task.world=scienceworld",), TaskError, r"the world scienceworld needs .*java: apt-get install openjdk"),
    (train, ("policy.lora_rank=2",), EngineError, r"policy\.lora_rank needs .*peft: .*\[hf\]'"),
    (train, ("policy.model=smollm2",), EngineError, r"policy\.model = smollm2 needs .*transformers.*\[smollm2\]'"),
    (warm_up, ("agent.max_context=60",), TaskError, r"6 outgrow agent\.max_context = 60, 0 are not solved"),
    (warm_up, (world("LostExpert"),), TaskError, r"none of the expert's 6 games.*6 are not solved in task\.max_turns"),
    (
        warm_up,
        ("agent.max_response=300", "agent.max_context=310", "agent.overflow=end"),
        ConfigError,
        "first prompt of every expert game",
    ),
    (warm_up, ("sft.source=own", world("AllLongWorld")), ConfigError, "not one of 24 episodes.*nothing to imitate"),
    (warm_up, ("sft.source=own",), TaskError, "solved none of its 24 games"),
]


@pytest.mark.parametrize(
    ("run", "changes", "kind", "words"), NOTHING, ids=[f"{one[0].__name__} {' '.join(one[1])}" for one in NOTHING]
)
def test_a_run_that_would_do_nothing_stops_with_the_reason(
    run: Callable[..., Any], changes: tuple[str, ...], kind: type[IsentropeError], words: str, model: Path,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Whatever the machine has: extras are missing here."""
    from isentrope.core import needs

    absent = {"trackio", "vllm", "Stemmer", "peft", "transformers"}
    find = needs.importlib.util.find_spec
    monkeypatch.setattr(needs.importlib.util, "find_spec", lambda name: None if name in absent else find(name))
    monkeypatch.setattr(needs.shutil, "which", lambda name: None)
    if any(one in str(changes) for one in ("webshop", "science", "vllm", "smollm2", "lora", "track")):
        monkeypatch.setattr("isentrope.loop.session.load_policy", lambda *_: pytest.fail("a model was loaded"))
    with pytest.raises(kind, match=words):
        run(toy_config(model, *SHORT, *changes), tmp_path / "a", quiet=True)


def contents(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


def test_the_reason_is_on_the_record_and_other_settings_may_go_on(model: Path, tmp_path: Path) -> None:
    """The same settings stop again in the same words; others begin anew in the folder, and leave no trace of it."""
    out, short = tmp_path / "a", toy_config(model, *SHORT, "agent.max_context=60")
    for resume in (False, True):
        with pytest.raises(ConfigError, match="not one of 2 episodes had room") as stopped:
            train(short, out, resume=resume, quiet=True)
        (event,) = Run.open(out).events
        assert (event["step"], event["kind"], event["name"]) == (0, "stop", "ConfigError")
        assert event["text"] == str(stopped.value)
    (out / EVENTS).write_text((out / EVENTS).read_text() + '{"step": 0, "ki')  # a kill while a line was written
    with pytest.raises(ConfigError, match="the tags of a response"):  # before the log is cut to where the run goes on
        train(toy_config(model, *SHORT, "agent.max_response=1"), out, resume=True, quiet=True)
    assert [event["text"].split()[0] for event in Run.open(out).events] == ["agent.max_context", "agent.max_response"]
    train(toy_config(model, *SHORT), out, resume=True, quiet=True)
    train(toy_config(model, *SHORT), tmp_path / "b", quiet=True)
    for name in (METRICS, EVENTS, "config.toml"):
        assert contents(out / name) == contents(tmp_path / "b" / name)
    assert Run.open(out).last_step == 2


def events(out: Path) -> list[Any]:
    """Without warnings: nothing that the toy model says is valid, and the run says so."""
    return [event for event in Run.open(out).events if event["kind"] != "warning"]


def test_a_stop_later_on_is_on_the_record_until_the_run_goes_on(model: Path, tmp_path: Path) -> None:
    """The world breaks down after two steps, and is mended in the end."""
    out, changes = tmp_path / "a", (*SHORT, world("BreaksWorld"))
    train(toy_config(model, *changes), out, quiet=True)
    more = toy_config(model, *changes, "run.steps=3")
    BreaksWorld.broken = True
    try:
        for _ in range(2):
            with pytest.raises(TaskError, match=r"all 6 episodes failed.*gone for good"):
                train(more, out, resume=True, quiet=True)
            assert [(one["step"], one["kind"]) for one in events(out)] == [(3, "stop")]
    finally:
        BreaksWorld.broken = False
    train(more, out, resume=True, quiet=True)
    assert (Run.open(out).last_step, events(out)) == (3, [])


def test_what_belongs_to_the_settings_of_a_run(tmp_path: Path) -> None:
    """Own games and checkpoints do, whatever the log says; an evaluation does not."""
    (tmp_path / METRICS).write_text('{"step": 0, "kind": "eval"}\n{"step": 1, "kind": "train", "success/all": 0.0}\n')
    assert not learnt(tmp_path)
    for made in (own_path(tmp_path), checkpoint_path(tmp_path, 2) / "state.json"):
        made.parent.mkdir(parents=True, exist_ok=True)
        made.touch()
        assert learnt(tmp_path)
        made.unlink()
        if made.name == "state.json":
            made.parent.rmdir()
        assert not learnt(tmp_path)
    (tmp_path / METRICS).write_text('{"step": 1, "kind": "train", "update/count": 1.0}\n')
    assert learnt(tmp_path)


def test_a_run_that_learnt_something_keeps_its_settings(model: Path, tmp_path: Path) -> None:
    changes = (*SHORT, "run.checkpoint_every=1")
    train(toy_config(model, *changes), tmp_path / "a", quiet=True)
    with pytest.raises(IsentropeError, match=r"begun with other settings: agent\.max_context was 400, now 500"):
        train(toy_config(model, *changes, "agent.max_context=500"), tmp_path / "a", resume=True, quiet=True)
    train(toy_config(model, *changes, "task.episode_seconds=900", "rollout.batch=2"), tmp_path / "a", True, quiet=True)


@pytest.mark.parametrize(("name", "words"), [
    ("LongWorld", "3 of 6 episodes had no room for a response (the first, train game "),
    ("FailsWorld", "3 of 6 episodes failed and are not learnt from"),
])  # fmt: skip
def test_where_only_some_episodes_are_lost_the_run_goes_on(
    name: str, words: str, model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "isentrope"):
        train(toy_config(model, *SHORT, world(name)), tmp_path / "a", quiet=True)
    assert caplog.text.count(words) == 2  # in each of its two steps
    steps = [one for one in read_records(tmp_path / "a" / METRICS) if one["kind"] == "train"]
    assert [one["update/count"] for one in steps] == [1, 1]


@pytest.mark.parametrize("changes", [(), (world("AtOnceWorld"),), ("rollout.batch=4096",), ("learn.resample=1",)])
def test_rewards_that_teach_nothing_are_said_once_and_the_run_goes_on(
    changes: tuple[str, ...], model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = toy_config(model, *SHORT, "run.steps=3", "task.invalid_reward=0", *changes)
    with caplog.at_level(logging.INFO, "isentrope"):
        train(config, tmp_path / "a", quiet=True)
    assert caplog.text.count("rewards taught the policy nothing in any of 3 steps") == 1
    assert "(0 % are solved)" in caplog.text
    assert Run.open(tmp_path / "a").last_step == 3


def test_a_run_that_learns_is_not_told_that_it_does_not() -> None:
    idle = {"step": 1, "kind": "train", "advantage/zero_groups": 1.0, "success/all": 1.0}
    assert "harder tasks" in nothing_learnt([idle, idle])
    assert not nothing_learnt([idle, {**idle, "advantage/zero_groups": 0.5}])
    assert not nothing_learnt([idle, {**idle, "alarm/no_signal": 1.0}])  # which was said
    assert not nothing_learnt([{"step": 0, "kind": "eval"}])


def test_games_that_are_not_imitated_are_counted(model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Odd games take four moves, even ones three."""
    with caplog.at_level(logging.INFO, "isentrope"):
        warm_up(toy_config(model, *SHORT, "sft.epochs=1", "task.max_turns=3"), tmp_path / "a", quiet=True)
    assert "expert games: 3 of 6 are imitated; 0 outgrow agent.max_context = 400, 3 are not solved" in caplog.text


@pytest.mark.parametrize(("run", "name"), [(train, "learn.lr"), (warm_up, "sft.lr")])
def test_a_rate_that_moves_nothing_is_told_before_the_run(
    run: Callable[..., Any], name: str, model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "isentrope"):
        run(toy_config(model, *SHORT, f"{name}=1e-9", "sft.epochs=1"), tmp_path / "a", quiet=True)
    assert f"{name} = 1e-09 is low for" in caplog.text.split("folder")[0]


def test_frozen_weights_are_refused() -> None:
    frozen = torch.nn.Parameter(torch.zeros(2), requires_grad=False)
    with pytest.raises(TrainError, match="no weight may learn"):
        Optimiser([frozen])


def test_an_evaluation_of_nothing_is_no_success_of_zero(model: Path) -> None:
    for changes, kind in (((world("AllLongWorld"),), ConfigError), ((f"engine.kind={HERE}:Silent",), EngineError)):
        with pytest.raises(kind, match="nothing to measure"):
            evaluate_model(toy_config(model, *changes), str(model), Exam(), quiet=True)


def test_the_toy_policy_can_play(model: Path) -> None:
    """Else the tests above would hold whatever the code does."""
    config = toy_config(WARM_MODEL)
    assert load_policy(config.policy, config.run).size > 0
    record = evaluate_model(toy_config(model, "eval.games=2"), str(model), Exam(), quiet=True)
    assert record.evaluations[0].splits["seen"].success.games == 2
