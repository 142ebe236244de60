"""What a run warns of: before its first step and in its first steps, said and recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from isentrope.config.load import load_config
from isentrope.config.text import config_to_toml
from isentrope.diagnosis.doctor import diagnose
from isentrope.diagnosis.remedies import rate_first
from isentrope.loop.checks import no_valid_action
from isentrope.loop.rate import unfit_rate
from isentrope.loop.train import train
from isentrope.loop.warned import Repeats, Warned, other_form, short_games, turns_needed
from isentrope.runs.folder import Run
from isentrope.runs.layout import CONFIG, METRICS
from isentrope.watch.runs import Run as Watched
from isentrope.worlds.household.world import HouseholdOptions, HouseholdTask, HouseholdWorld
from tests.builders.episodes import episode
from tests.builders.toy_runs import make_model, toy_config
from tests.builders.turns import said
from tests.loop.test_rate import policy

DEMO = ("task.world=household", "agent.prompt=brief", "task.options.rooms=small")


def taught(folder: Path, *changes: str) -> Path:
    """A run folder that says how its model was taught."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / CONFIG).write_text(config_to_toml(load_config(None, [*DEMO, *changes])))
    (folder / METRICS).touch()
    return folder


def warned(model: object, *changes: str) -> str:
    found = other_form(load_config(None, [*DEMO, f"policy.model={model}", *changes]))
    return found.text if found else ""


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("agent.context=window", "agent.context is window, and the model was taught full"),
        ("agent.order=act", "agent.order is act, and the model was taught think_act"),
        ("agent.action_tags=['do']", "agent.action_tags is do, and the model was taught action"),
        ("agent.prompt=full", "agent.prompt is full, and the model was taught brief"),
        ("agent.show_admissible=true", "agent.show_admissible is True, and the model was taught False"),
        ("agent.window=7", ""),  # which whole conversations do not read
        ("agent.overflow=end", ""),
        ("agent.max_response=64", ""),
        ("learn.lr=1", ""),
    ],
)
def test_another_form_than_was_taught(change: str, told: str, tmp_path: Path) -> None:
    run = taught(tmp_path / "warm")
    assert warned(run, change).endswith(told)
    assert bool(warned(run, change)) == bool(told)
    inside = run / "checkpoints" / "step-000003" / "policy"
    inside.mkdir(parents=True)
    assert bool(warned(inside, change)) == bool(told)


def test_what_was_taught_is_what_was_imitated(tmp_path: Path) -> None:
    run = taught(tmp_path / "warm", "sft.orders=['think_act', 'act']", "agent.context=window", "agent.window=2")
    assert warned(run, "agent.order=act", "agent.context=window") == ""
    assert "agent.window is 0, and the model was taught 2" in warned(run, "agent.context=window", "agent.window=0")
    assert "agent.order is act_think, and the model was taught think_act, act" in warned(
        run, "agent.order=act_think", "agent.context=window"
    )


def test_a_model_of_which_nothing_is_known(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / CONFIG).write_text("theme = 'dark'\n")  # no run's
    for model in (tmp_path / "plain", tmp_path / "other", "Qwen/Qwen2.5-0.5B", "new", "x" * 5000):
        assert warned(model, "agent.context=window") == ""
    assert "agent.context is window" in warned("pocket", "agent.context=window")  # this one is ours
    assert warned("pocket", "agent.order=act") == ""


@pytest.fixture(autouse=True)
def an_expert_has_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("isentrope.loop.warned.SECONDS", 60.0)


def look(turns: int, *changes: str) -> Warned | None:
    config = load_config(None, [*DEMO, f"task.max_turns={turns}", *changes])
    return short_games(config, HouseholdWorld(HouseholdOptions(rooms="small")))


def test_games_that_most_cannot_be_won_in() -> None:
    few = look(6)
    assert few is not None
    assert few.text == (
        "task.max_turns = 6 is too few for most games: the world's expert needs more in 20 of 32 training games, 7 "
        "turns in the middle one and 12 at most"
    )
    assert few.remedy == "--set task.max_turns=20"
    assert look(7) is None
    assert look(12) is None


@pytest.mark.parametrize("change", ["task.workers=2", "task.where=http://127.0.0.1:1", "task.where=processes"])
def test_an_expert_plays_only_where_playing_takes_nothing(change: str) -> None:
    assert look(3) is not None
    assert look(3, change) is None


def test_a_world_that_breaks_or_has_no_expert_is_passed_over() -> None:
    class Broken(HouseholdWorld):
        def open(self) -> HouseholdTask:
            raise RuntimeError("closed")

    class Alone(HouseholdWorld):
        def expert(self, seed: int) -> Any:
            return None

    config = load_config(None, [*DEMO, "task.max_turns=3", "task.where=local"])
    for world in (Broken, Alone):
        assert turns_needed(config, world(HouseholdOptions(rooms="small"))) == []


def steps(games: int, groups: int = 4, count: int = 5, watch: Repeats | None = None, first: int = 1) -> list[str]:
    watch, told = watch or Repeats(), list[str]()
    for step in range(first, first + count):
        played = [
            episode(said([1]), index=(groups * step + g) % games, group=g, member=m)
            for g in range(groups)
            for m in (0, 1)
        ]
        if (found := watch.look(step, played)) is not None:
            told.append(found.line(step))
    return told


def test_the_same_games_again_and_again() -> None:
    assert steps(1) == [
        "step 3: training plays the same games again and again: one different game in the 12 groups of its first 3 "
        "steps; try a task.sampler that plays more of them, or more games in the training split"
    ]
    assert [line.split(":")[0] for line in steps(2)] == ["step 4"]
    assert steps(4) == []
    assert steps(1000) == []
    assert steps(1, groups=2) == []  # ten groups say little


def test_a_resumed_run_goes_on_looking() -> None:
    first, then = Repeats(), Repeats()
    assert steps(1, count=2, watch=first) == []
    then.load_state_dict(first.state_dict())
    assert steps(1, count=3, watch=then, first=3) == steps(1)
    assert steps(1, count=3, first=3) == []  # without what it saw


@pytest.mark.parametrize(("rate", "name"), [("0.0099", ""), ("0.02", "rate_high"), ("1e-8", "rate_low"), ("1e-5", "")])
def test_a_rate_that_fits_no_model_of_this_size(rate: str, name: str) -> None:
    found = unfit_rate(load_config(None, [f"learn.lr={rate}"]), policy(), "train")
    assert (found.name if found else "") == name
    if name == "rate_high":
        assert found is not None
        assert "200 times the 0.0001 that fits that size; try --set learn.lr=0.0001" in found.line()


@pytest.mark.parametrize(
    ("refused", "told", "remedy"),
    [
        ({"inadmissible": 0.97, "too_long": 0.03}, "97 % of them were in the form", "agent.show_admissible=true"),
        ({"too_long": 0.94, "no_think": 0.06}, "94 % of them were cut off at agent.max_response", "a longer response"),
        ({"no_action": 1.0}, "100 % of them were refused as no_action (no tag of an action)", "a warm-up"),
    ],
)
def test_why_nothing_was_valid_is_told_by_what_was_refused(refused: dict[str, float], told: str, remedy: str) -> None:
    found = no_valid_action({f"verdict/{reason}": share for reason, share in refused.items()})
    assert told in found.text
    assert ("does not know the form" in found.text) == (told.find("no_action") > 0)
    assert found.remedy.startswith(remedy)


def test_a_rate_far_too_high_comes_first() -> None:
    remedy = "more learn.kl; a smaller learn.lr; the method seal"
    assert rate_first(remedy, 9.9) == remedy
    assert rate_first(remedy, 10) == "a smaller learn.lr; more learn.kl; the method seal"
    assert rate_first("", 1000) == ""  # a change of phase has none


def test_warnings_are_said_and_recorded_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = make_model(taught(tmp_path / "warm", "agent.context=window"))
    changes = ("methods=[]", "learn.lr=0.05", "run.eval_every=0", "eval.games=2", "run.checkpoint_every=1")
    out = tmp_path / "a"
    train(toy_config(model, *changes, "run.steps=2"), out)
    text = " ".join(capsys.readouterr().out.split())
    run = Run.open(out)
    events = [(event["step"], event["name"]) for event in run.events if event["kind"] == "warning"]
    assert events == [(0, "rate_high"), (0, "form"), (1, "answers")]
    assert all(str(event["text"]).replace("\n", " ") in text for event in run.events)
    train(toy_config(model, *changes, "run.steps=3"), out, resume=True, quiet=True)
    assert Run.open(out).events == run.events
    words = diagnose(Run.open(out)).words()
    assert "500 times the 0.0001 that fits that size" in words
    assert "agent.context is full, and the model was taught window" in words
    watched = Watched(out, "a")
    watched.refresh()
    assert [event["name"] for event in watched.events] == [name for _, name in events]
