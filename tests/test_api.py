"""The public Python API: its names and signatures, that every one is explained, and what a user does with it."""

from __future__ import annotations

import inspect
import json
import logging
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import is_dataclass
from functools import cached_property
from pathlib import Path
from textwrap import fill
from typing import Any, Protocol

import numpy as np
import pytest

import isentrope as it
from isentrope import api
from tests.builders.toy_runs import WARM_MODEL

ROOT = Path(__file__).parents[1]
TINY = {
    "task": {"world": "tests.toys:ToyWorld", "max_turns": 4},
    "agent": {"prompt": "brief", "max_response": 10, "max_context": 400},
    "policy.model": str(WARM_MODEL),
    "run": {"threads": 1, "device": "cpu", "steps": 2, "checkpoint_every": 1},
    "rollout": {"groups": 2, "group_size": 3},
    "learn.mini_batches": 1,
    "eval": {"splits": ["seen"], "games": 3, "quick_games": 3},
    "sft": {"games": 6, "batch_games": 3, "epochs": 1, "samples": 4},
}

# What is promised: a change here is a change for users. Every name, then what a class offers.
PUBLIC = """
Advantage(options=None)
    what: attribute
    name: attribute
    summary: attribute
    paper: attribute
    options_class: attribute
    metrics: attribute
    off: attribute
    declares(key)
    compares_groups: attribute
    needs_critic: attribute
    estimate(outcomes)
Capabilities(trains=True, loads_policy=True, exact=True)
ConfigError(message)
Engine
    tokenizer: value
    open(slots)
    keep(slots)
    sample(requests)
    refresh()
    notes()
    close()
EngineError(message)
Episode(world, split, index, kind, goal, group, member, order, turns, success, stop, detail='', score=None,
        rewards=...)
    ret: value
Estimate(advantage_N, return_N=None, metrics=...)
Expert
    start(view, instance)
    act(view)
Instance(world, split, index, kind)
IsentropeError(message)
Loss(options=None)
    what: attribute
    name: attribute
    summary: attribute
    paper: attribute
    options_class: attribute
    metrics: attribute
    off: attribute
    declares(key)
    by_response: attribute
    on_policy: attribute
    per_token(batch, stats)
    clip: value
    with_clip_high(value)
Method(options=None, steps=1, seed=0)
    what: attribute
    name: attribute
    summary: attribute
    paper: attribute
    options_class: attribute
    metrics: attribute
    off: attribute
    declares(key)
    orders: attribute
    clip_high: attribute
    impossible()
    plan(step, plan)
    evaluation(plan)
    begin(step, tokens)
    shape(step, tokens, advantage_N)
    weigh(batch, stats)
    loss(batch, stats)
    updated(applied)
    state_dict()
    load_state_dict(state)
Metric(key, meaning, unit='as the method says', reduction='mean')
    match(key)
Move(thought, action)
Outcomes(episodes, tokens, reward_U, episode_U, group_U, turn_N, last_U, penalty_N=None, value_N=None)
    net_reward_U: value
    return_E: value
    group_E: value
    per_token(value_U)
Request(slot, prompt, uniforms, temperature, stop, temperature_of=None, closings=())
RolloutPlan(order='think_act', temperature=1.0, temperature_rule=None, notes=...)
Run(path)
    path: value
    name: value
    kind: value
    config: value
    setting(name, default=None)
    alive: value
    events: value
    reload()
    keys(prefix='')
    curve(key)
    metrics(kind='')
    frame(kind='')
    episodes(step, split=None)
    diagnosis()
    report(out=None)
    show(*keys)
RunConfig(run=..., task=..., agent=..., policy=..., engine=..., cluster=..., rollout=..., learn=..., critic=...,
        sft=..., eval=..., instruments=..., methods=(), method=...)
RunError(message)
Sampled(ids, logprobs, entropies, temperatures, stop, detail='')
Shaped(advantage_N, metrics)
Step(view, reward=0.0, terminated=False, truncated=False, success=False, valid=True, info=...)
StepTokens(target_N, temperature_N, sampled_at_N, logp_N, entropy_N, episode_N, turn_N, group_N, part_N, success_N,
        episode_U, place_U, valid_U, kind_E, solved_E, failed_E)
    length_U: value
Task
    start(instance)
    step(action)
    close()
TaskError(message)
TaskSampler(options=None, seed=0)
    what: attribute
    name: attribute
    summary: attribute
    paper: attribute
    options_class: attribute
    metrics: attribute
    off: attribute
    declares(key)
    begin(world)
    pick(size, count, step, attempt)
    played(step, episodes)
    state_dict()
    load_state_dict(state)
Term(loss, metrics=...)
TokenBatch(ids_BT, segments_BT, positions_BT, row_N, col_N, target_N, temperature_N, old_logp_N, advantage_N,
        ref_logp_N, success_N, part_N, turn_N, number_N, mini_batch, weights, return_N=None, old_value_N=None,
        mismatch_N=None, parents_BT=None, spans=None)
TokenStats(logp_N, entropy_N, hidden_ND, states_BTD)
TrainError(message)
Turn(observation, admissible, anchor, context_ids, continues, response_ids, logprobs, entropies, temperatures,
        think_span, action_span, action, verdict, stop, reward, dropped=0, mended='')
    valid: value
View(text, admissible, goal='', rules='', mended=())
World
    splits()
    size(split)
    instance(split, index)
    open()
    expert(seed)
    name: attribute
    kinds: attribute
evaluate(model, *, split=(), games=None, temperature=None, checkpoint=None, config=None, trust=False, quiet=True)
load_config(recipe=None, settings=())
rft(config, out, *, resume=False, quiet=True, from_step=None)
runs(folder='runs')
setting(default, doc, *, choices=None, low=None, high=None, above=None)
train(config, out, *, resume=False, quiet=True, from_step=None)
warm_up(config, out, *, resume=False, quiet=True, from_step=None)
"""


def parameters(thing: Any) -> str:
    """A signature without its types."""
    try:
        signature = inspect.signature(thing)
    except ValueError:  # an exception's class
        return "(message)"
    plain = [p.replace(annotation=p.empty) for p in signature.parameters.values() if p.name not in ("self", "cls")]
    return str(inspect.Signature(plain)).replace("<factory>", "...")


def members(kind: type) -> Iterator[tuple[str, str]]:
    """What a class offers beside its constructor, what it inherits from classes of ours included."""
    found: dict[str, str] = {}
    for owner in reversed(kind.__mro__):
        if owner.__module__.split(".")[0] != "isentrope":
            continue
        for name, value in vars(owner).items():
            if name.startswith("_") or (is_dataclass(owner) and name in owner.__dataclass_fields__):
                continue
            if isinstance(value, property | cached_property):
                found[name] = ": value"
            else:
                plain = isinstance(value, type) or not callable(value)
                found[name] = ": attribute" if plain else parameters(value)
        if Protocol in owner.__bases__:
            found |= dict.fromkeys(inspect.get_annotations(owner), ": attribute")
    yield from found.items()


def offered() -> Iterator[str]:
    """One line for each name and each member; a line goes on with eight spaces."""
    for name in it.__all__:
        thing = getattr(it, name)
        protocol = Protocol in getattr(thing, "__bases__", ())
        yield name + ("" if protocol else parameters(thing))
        if isinstance(thing, type):
            yield from (f"    {member}{told}" for member, told in members(thing))


def test_names_and_signatures_are_those_that_are_promised() -> None:
    told = [fill(line, 116, subsequent_indent=" " * 8, break_on_hyphens=False) for line in offered()]
    assert "\n".join(told).splitlines() == PUBLIC.strip("\n").splitlines()


def test_every_name_is_explained_on_the_page_about_python() -> None:
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    assert [name for name in it.__all__ if not re.search(rf"\b{name}\b", page)] == []


OURS = [api.load_config, api.train, api.warm_up, api.rft, api.evaluate, api.runs, api.Curve, api.Run, api.Picture]
METHODS = [value for name, value in vars(it.Run).items() if not name.startswith("_") and inspect.isfunction(value)]


@pytest.mark.parametrize("thing", [*OURS, *METHODS], ids=lambda thing: thing.__qualname__)
def test_what_the_api_offers_has_an_example(thing: Any) -> None:
    assert re.search(r"\b(it|run)\.\w+|\brun = ", thing.__doc__ or ""), thing.__doc__


def test_editors_see_the_names_that_there_are() -> None:
    text = (ROOT / "isentrope" / "__init__.py").read_text(encoding="utf-8").partition("if TYPE_CHECKING:")[2]
    imported = re.findall(r"import (.+)", text)
    assert sorted(name for line in imported for name in line.split(", ")) == it.__all__
    assert set(it.__all__) <= set(dir(it))


def test_importing_loads_neither_torch_nor_numpy() -> None:
    code = "import sys, isentrope; print([name for name in ('torch', 'numpy', 'isentrope.api') if name in sys.modules])"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert told.stdout.strip() == "[]"


def test_an_unknown_name_tells_those_that_there_are() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'trane'; public names: .*train"):
        _ = it.trane  # type: ignore[attr-defined]


class Mine(it.Method):
    name = "mine"


def my_reward(episode: it.Episode) -> float:
    return float(episode.success)


def test_settings_as_mappings_with_full_names_and_nested() -> None:
    config = it.load_config("demo", {"run.steps": 7, "learn": {"lr": 0.5}, "learn.kl": 0.25})
    assert (config.run.steps, config.learn.lr, config.learn.kl) == (7, 0.5, 0.25)
    assert config.task.max_turns == 18  # the recipe's
    again = it.load_config(ROOT / "recipes" / "demo.toml", ["run.steps=7", "learn.lr=0.5", "learn.kl=0.25"])
    assert again == config
    assert it.load_config() == it.RunConfig()


def test_settings_with_classes_and_functions() -> None:
    config = it.load_config(None, {"methods": [Mine, "epo"], "task.reward": my_reward})
    assert config.methods == (f"{__name__}:Mine", "epo")
    assert config.task.reward == f"{__name__}:my_reward"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"learn.lrr": 1e-3}, "did you mean learn.lr"),
        ({"methods": ["eppo"]}, "did you mean epo"),
        ({"learn": {"algorithm": "grpoo"}}, "did you mean grpo"),
        ({"learn.loss": "clipp"}, "did you mean clip"),
        ({"methods": [lambda: 0]}, "has no name to import it by"),
        ({"run.steps": "many"}, "run.steps"),
        ({"run.steps": object()}, "run.steps"),
        (["run.steps"], "run.steps"),
    ],
    ids=range(8),
)
def test_settings_that_are_wrong(settings: Any, said: str) -> None:
    with pytest.raises(it.ConfigError, match=said):
        it.load_config(None, settings)


def test_all_that_is_wrong_is_one_error() -> None:
    with pytest.raises(it.ConfigError, match=r"(?s)learn\.lrr.*unknown method 'eppo'"):
        it.load_config("demo", {"learn.lrr": 1, "methods": ["eppo"]})
    with pytest.raises(it.ConfigError, match="did you mean demo"):
        it.load_config("demoo")


def test_an_unknown_world_is_told_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(it.TaskError, match="did you mean household"):
        it.train(it.load_config("demo", {"task.world": "housold", "run.device": "cpu"}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> it.Run:
    return it.train(it.load_config(None, TINY), out=tmp_path_factory.mktemp("api") / "runs" / "first")


def test_a_run_and_what_it_measured(trained: it.Run) -> None:
    assert repr(trained) == f"Run('{trained.path}', train, 2 steps)"
    assert (trained.name, trained.kind, trained.alive) == ("first", "train", False)
    assert trained.setting("rollout.groups") == trained.config["rollout"]["groups"] == 2
    assert trained.setting("rollout.nothing", 5) == 5
    curve = trained.curve("entropy/token")
    assert curve.steps.tolist() == [1, 2]
    metrics = trained.metrics()
    assert next(iter(metrics)) == "step"
    assert np.array_equal(metrics["entropy/token"], curve.values)
    assert {len(column) for column in metrics.values()} == {2}
    assert trained.metrics("eval")["step"].tolist() == [0, 2]
    assert trained.keys("entropy/")
    assert not {"step", "kind"} & set(trained.keys())
    assert len(trained.curve("nothing").values) == 0
    assert all("text" in event for event in trained.events)


def test_episodes_diagnosis_report_and_picture(trained: it.Run, tmp_path: Path) -> None:
    assert len(trained.episodes(step=2)) == 6
    assert len(trained.episodes(2, split="seen")) == 3
    with pytest.raises(it.RunError, match="no episodes of training at step 9; stored are those of: 1, 2"):
        trained.episodes(9)
    assert "too few" in trained.diagnosis().words()
    assert trained.report(tmp_path / "page.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert trained.show("entropy/token").save(tmp_path / "a.svg").read_text(encoding="utf-8").startswith("<svg")
    assert trained._repr_html_() == trained.show().svg
    with pytest.raises(it.RunError, match="measured nothing of nothing/at_all"):
        trained.show("nothing/at_all")


def test_a_frame_if_pandas_is_there(trained: it.Run) -> None:
    pandas = pytest.importorskip("pandas")
    frame = trained.frame()
    assert isinstance(frame, pandas.DataFrame)
    assert frame.index.tolist() == [1, 2]
    assert frame["entropy/token"].tolist() == trained.curve("entropy/token").values.tolist()


def test_a_frame_without_pandas(trained: it.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(it.ConfigError, match="pip install pandas"):
        trained.frame()


def test_runs_in_a_folder(trained: it.Run, tmp_path: Path) -> None:
    assert [run.path for run in it.runs(trained.path.parent)] == [trained.path]
    assert it.runs(tmp_path) == []
    with pytest.raises(it.RunError, match="is not a folder"):
        it.runs(tmp_path / "nothing")


def test_a_run_is_resumed_and_read_again(tmp_path: Path) -> None:
    run = it.train(it.load_config(None, {**TINY, "run.steps": 1}), tmp_path / "run")
    with pytest.raises(it.RunError):
        it.train(it.load_config(None, TINY), run.path)  # there is a run already
    it.train(it.load_config(None, TINY), run.path, resume=True)
    assert (run.curve("loss/total").steps.tolist(), run.reload().curve("loss/total").steps.tolist()) == ([1], [1, 2])


def test_warm_up_then_imitate_the_own_games(tmp_path: Path) -> None:
    warm = it.warm_up(it.load_config(None, TINY), tmp_path / "warm")
    assert warm.kind == "sft"
    assert len(warm.metrics()["step"]) > 0
    own = it.rft(it.load_config(None, {**TINY, "policy.model": str(warm.path)}), tmp_path / "own")
    assert own.kind == "rft"


def test_evaluate_a_run_or_a_model(trained: it.Run) -> None:
    with pytest.raises(it.ConfigError, match=r"task\.world = 'tests\.toys:ToyWorld' would import tests\.toys"):
        it.evaluate(trained)  # its world is somebody's own
    result = it.evaluate(trained, split="seen", games=2, checkpoint=1, trust=True)
    assert list(result) == ["seen"]
    assert 0 <= result["seen"].success.low <= result["seen"].success.value <= result["seen"].success.high <= 1
    named = it.evaluate(trained.path, games=2, config=it.load_config(None, TINY))
    assert list(named) == ["seen"]
    assert it.evaluate(WARM_MODEL, games=2, temperature=0.0, config=it.load_config(None, TINY))["seen"].outcomes
    with pytest.raises(it.ConfigError, match="brings no settings; give a config"):
        it.evaluate("pocket")


def test_nothing_is_printed_and_the_log_tells_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    config = it.load_config(None, {**TINY, "run.steps": 1})
    with caplog.at_level(logging.INFO, logger="isentrope"):
        run = it.train(config, tmp_path / "quiet")
        it.evaluate(run, games=1, trust=True)
        run.report()
    assert capfd.readouterr() == ("", "")
    assert any("step 1: seen" in record.getMessage() for record in caplog.records)
    it.train(config, tmp_path / "loud", quiet=False)
    assert "step 1: seen" in "".join(capfd.readouterr())


RECORD = {"step": 1, "kind": "train", "entropy/token": 0.5, "success/all": 0.1}
DAMAGED = {
    "no folder": ("", ""),
    "no TOML": ("config.toml", "[[["),
    "settings of bytes": ("config.toml", b"\xff\xfe"),
}
LEFT_OUT = {
    "no JSON": ("metrics.jsonl", "hello\n" * 3),
    "no objects": ("metrics.jsonl", "[1]\n3\n"),
    "a folder": ("metrics.jsonl", None),
    "an event without a step": ("events.jsonl", '{"kind": "alarm"}\n{"kind": "alarm"}\n'),
}
HOSTILE = {
    "text": ("metrics.jsonl", json.dumps(RECORD | {"entropy/token": "<script>"}) + "\n"),
    "a list": ("metrics.jsonl", json.dumps(RECORD | {"entropy/token": [1, 2]}) + "\n"),
    "a number without end": ("metrics.jsonl", json.dumps(RECORD | {"entropy/token": 10**400}) + "\n"),
    "a step without end": ("metrics.jsonl", json.dumps(RECORD | {"step": 10**400}) + "\n"),
    "brackets": ("metrics.jsonl", "[" * 100_000 + "\n"),
    "markup as a key": ("metrics.jsonl", json.dumps(RECORD | {"<script>": 1.0, "": 2.0}) + "\n"),
    "a kind that is none": ("metrics.jsonl", json.dumps(RECORD | {"kind": ["x"]}) + "\n"),
    "code in the settings": ("config.toml", 'methods = ["antigravity:fly"]\n[task]\nworld = "antigravity:World"\n'),
    "tables that are none": ("config.toml", "learn = 3\n[run]\nsteps = [1]\n"),
    "about": ("run.json", '{"kind": ["a"], "metrics": {"x": [1]}, "started": {}}'),
    "events": ("events.jsonl", '{"step": 1, "kind": ["a"], "text": {}}\n{"step": 1, "kind": "switch", "name": [1]}\n'),
    "episodes": ("episodes/step-000001.parquet", b"PAR1 nothing"),
}


def spoilt(folder: Path, file: str, content: str | bytes | None) -> Path:
    """A run folder with one record, one of whose files is something else."""
    target = folder / file
    if file:
        target.parent.mkdir(parents=True)
        (folder / "metrics.jsonl").write_text(json.dumps(RECORD) + "\n")
        target.unlink(missing_ok=True)
    if content is None:
        target.mkdir()
    elif file:
        target.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_folder_is_a_run_error(tmp_path: Path, case: str) -> None:
    with pytest.raises(it.RunError):
        it.Run(spoilt(tmp_path / "run", *DAMAGED[case]))


@pytest.mark.parametrize("case", LEFT_OUT)
def test_damaged_lines_are_left_out_and_said(tmp_path: Path, case: str, caplog: pytest.LogCaptureFixture) -> None:
    run = it.Run(spoilt(tmp_path / "run", *LEFT_OUT[case]))
    assert len(run.metrics().get("step", [])) <= 1
    assert LEFT_OUT[case][0] in caplog.text


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_folder_can_be_looked_at_or_is_a_run_error(tmp_path: Path, case: str) -> None:
    run = it.Run(spoilt(tmp_path / "run", *HOSTILE[case]))
    looks = [
        lambda: repr(run), run.keys, run.metrics, run.diagnosis, run.show, run._repr_html_, run.report, run.reload,
        lambda: run.curve("entropy/token"), lambda: run.show("entropy/token"), lambda: run.episodes(1),
        lambda: (run.alive, run.events, run.config, run.setting("run.steps.x"), run.metrics("eval")),
    ]  # fmt: skip
    for look in looks:
        try:
            shown = look()
        except it.RunError:
            continue
        assert "<script>" not in (shown if isinstance(shown, str) else "")
    assert "antigravity" not in sys.modules


def test_the_wheel_has_the_marker_of_types_and_the_recipes(tmp_path: Path) -> None:
    pytest.importorskip("hatchling", reason="building a wheel needs hatchling")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    assert {"isentrope/py.typed", "isentrope/recipes/demo.toml"} <= set(zipfile.ZipFile(wheel).namelist())


def test_the_marker_of_types_is_there() -> None:
    assert (ROOT / "isentrope" / "py.typed").is_file()
