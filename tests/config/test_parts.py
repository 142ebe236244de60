"""Parts by name: ours, those of installed packages, and one's own as module:Class."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from isentrope.config import parts as parts_of
from isentrope.config.load import load_config, read_recipe
from isentrope.config.parts import GROUPS, Parts, code_names, is_offered, load_object, name_of, refuse_foreign
from isentrope.core.errors import ConfigError, TaskError
from isentrope.core.method import Method
from isentrope.core.part import Part
from isentrope.engines.registry import ENGINES
from isentrope.learning.registry import ADVANTAGES, LOSSES
from isentrope.methods.epo import Epo
from isentrope.methods.registry import METHODS
from isentrope.rollout.reward import REWARDS
from isentrope.rollout.sampler import SAMPLERS

MINE = "from isentrope import Method\n\nclass Mine(Method):\n    name = 'mine'\n\nclass Outer:\n    Inner = Mine\n"


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """Modules, search path and the list of what is installed are those of before."""
    modules, path = set(sys.modules), list(sys.path)
    parts_of._offered.cache_clear()
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name.startswith("made_up"):
            del sys.modules[name]
    parts_of._offered.cache_clear()


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A distribution on the search path, as pip leaves it."""
    site = tmp_path / "site"
    folder = site / "made_up-1.0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: made-up\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text(
        "[isentrope.methods]\nmine = made_up_part:Mine\nepo = made_up_part:Mine\nbroken = made_up_broken:Mine\n"
        "gone = made_up_part:Nothing\n[isentrope.losses]\nhinge = made_up_part:Mine\n"
    )
    (site / "made_up_part.py").write_text(MINE)
    (site / "made_up_broken.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(site)
    return site


def refused(parts: Parts, name: str) -> str:
    with pytest.raises(parts.error) as caught:
        parts.load(name)
    return str(caught.value)


# Ours


@pytest.mark.parametrize("parts", [METHODS, ADVANTAGES, LOSSES, SAMPLERS], ids=lambda parts: parts.what)
def test_ours_are_called_what_their_classes_say(parts: Parts) -> None:
    for name in parts.inside:
        kind = parts.load(name)
        assert issubclass(kind, Part)
        assert kind.name == name
        assert kind is parts[name]


def test_every_kind_of_a_table_is_a_part_with_the_same_settings() -> None:
    from isentrope.config.kinds import KINDS

    found = {"learn.advantage": ADVANTAGES, "learn.loss": LOSSES, "task.sampler": SAMPLERS, "engine": ENGINES}
    assert set(found) == set(KINDS) == set(GROUPS)
    for path, parts in found.items():
        assert set(parts.inside) == set(KINDS[path])
        assert parts.group == GROUPS[path]
        if path != "engine":
            assert {name: parts.load(name).options_class for name in parts.inside} == dict(KINDS[path])


def test_they_are_a_mapping() -> None:
    assert METHODS["epo"] is Epo
    assert "epo" in METHODS
    assert "epoo" not in METHODS
    assert METHODS.get("epoo") is None
    assert len(METHODS) == len(list(METHODS)) == len(METHODS.inside)
    assert METHODS["isentrope.methods.epo:Epo"] is Epo


@pytest.mark.parametrize(
    ("parts", "name", "said"),
    [
        (METHODS, "epoo", "no method named 'epoo' (one of your own is named by package.module:Class); did you mean"),
        (LOSSES, "Clip", "no loss named 'Clip' (one of your own is named by package.module:Class); did you mean clip?"),
        (ADVANTAGES, "zzz", "there is: gae, gigpo, gigpo_mixed, grpo, reinforce, rloo"),
        (REWARDS, "zzz", "no reward function named 'zzz'"),
        (METHODS, "", "no method named ''"),
    ],
)
def test_an_unknown_name_is_told_the_nearest(parts: Parts, name: str, said: str) -> None:
    assert said in refused(parts, name)


# Those of installed packages


def test_an_installed_package_offers_parts(installed: Path) -> None:
    assert "mine" in METHODS
    assert "hinge" in LOSSES
    assert "hinge" not in METHODS
    assert "made_up_part" not in sys.modules  # nothing is imported before it is asked for
    kind = METHODS.load("mine")
    assert issubclass(kind, Method)
    assert kind.__module__ == "made_up_part"
    assert set(METHODS) == {*METHODS.inside, "mine", "broken", "gone"}
    assert len(METHODS) == len(METHODS.inside) + 3
    assert is_offered("learn.loss", "hinge")
    assert not is_offered("engine", "hinge")


def test_ours_cannot_be_replaced(installed: Path) -> None:
    assert METHODS.load("epo") is Epo
    assert METHODS["epo"] is Epo


def test_a_name_near_an_offered_one(installed: Path) -> None:
    assert "did you mean hinge?" in refused(LOSSES, "hing")


def test_an_offered_part_that_cannot_be_loaded(installed: Path) -> None:
    said = refused(METHODS, "broken")
    assert said == "could not load the method 'broken' from made_up_broken:Mine: ZeroDivisionError: division by zero"
    said = refused(METHODS, "gone")
    assert said.startswith("could not load the method 'gone' from made_up_part:Nothing: ")
    assert "Nothing" in said.partition("made_up_part:Nothing: ")[2]


def test_an_offered_kind_is_taken_by_the_settings(installed: Path) -> None:
    config = load_config(None, ["learn.loss=hinge", "learn.loss.margin=2"])
    assert (config.learn.loss.kind, config.learn.loss.options) == ("hinge", {"margin": 2})
    with pytest.raises(ConfigError, match=r'learn\.advantage\.kind = "hinge": expected one of'):
        load_config(None, ["learn.advantage=hinge"])


# One's own


def test_ones_own_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "made_up_folder").mkdir()
    (tmp_path / "made_up_folder" / "inner.py").write_text(MINE)
    monkeypatch.syspath_prepend(tmp_path)
    kind = METHODS.load("made_up_folder.inner:Mine")
    assert kind.name == "mine"
    assert METHODS.load("made_up_folder.inner:Outer.Inner") is kind
    assert name_of(kind) == "made_up_folder.inner:Mine"
    assert METHODS.load(name_of(kind)) is kind


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("raise RuntimeError('no licence')", "RuntimeError: no licence"),
        ("import made_up_missing", "No module named 'made_up_missing'"),
        ("class Mine(", "SyntaxError: "),
        ("", "module 'made_up_bad' has no attribute 'Mine'"),
    ],
)
def test_a_module_that_cannot_be_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, told: str
) -> None:
    (tmp_path / "made_up_bad.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    said = refused(METHODS, "made_up_bad:Mine")
    assert said.startswith("could not load the method 'made_up_bad:Mine': ")
    assert told in said


@pytest.mark.parametrize("name", ["made_up_nowhere:Mine", ":Mine", "made_up_nowhere:", ".x:Mine", "a b:Mine"])
def test_what_is_no_module(name: str) -> None:
    assert refused(METHODS, name).startswith(f"could not load the method {name!r}: ")


def test_each_kind_has_its_own_error() -> None:
    world = Parts("world", "isentrope.worlds", error=TaskError)
    with pytest.raises(TaskError, match="no world named 'x'"):
        world.load("x")
    with pytest.raises(TaskError, match="could not load the world 'made_up_nowhere:X'"):
        world.load("made_up_nowhere:X")


# The current folder


def test_the_current_folder_is_searched_for_what_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "made_up_here.py").write_text(MINE)
    (tmp_path / "json.py").write_text("raise RuntimeError('the wrong one')")
    (tmp_path / "made_up_unnamed.py").write_text("raise RuntimeError('nobody asked')")
    before = list(sys.path)
    assert [part for part in before if part in ("", os.getcwd())] == []
    assert (list(METHODS), METHODS.load("epo")) == (list(METHODS.inside), Epo)
    load_object("json:loads")
    assert sys.path == before  # nothing has been asked for that is not found elsewhere
    assert METHODS.load("made_up_here:Mine").name == "mine"
    assert sys.path == [*before, os.getcwd()]  # behind all others, so that nothing is hidden
    load_object("json.decoder:JSONDecoder")
    METHODS.load("made_up_here:Outer")
    assert sys.path == [*before, os.getcwd()]
    assert "made_up_unnamed" not in sys.modules


# Names


def test_what_has_no_name_to_import_it_by() -> None:
    class Local(Method):
        name = "local"

    assert name_of("my_module:Mine") == "my_module:Mine"
    assert name_of(Epo) == "isentrope.methods.epo:Epo"
    assert name_of(load_config) == "isentrope.config.load:load_config"
    for part in (Local, lambda: 3, Epo(), 3):
        with pytest.raises(ConfigError, match="has no name to import it by"):
            name_of(part)


# Code that only a recorded run names

NAMING = {
    "task.world": "[task]\nworld = 'other.code:Thing'",
    "task.sampler": "[task]\nsampler = 'other.code:Thing'",
    "task.sampler.kind": "[task.sampler]\nkind = 'other.code:Thing'\nrate = 1",
    "task.reward": "[task]\nreward = 'other.code:Thing'",
    "methods": "methods = ['epo', 'other.code:Thing']",
    "engine": "engine = 'other.code:Thing'",
    "engine.kind": "[engine]\nkind = 'other.code:Thing'",
    "learn.advantage": "[learn]\nadvantage = 'other.code:Thing'",
    "learn.advantage.kind": "[learn.advantage]\nkind = 'other.code:Thing'",
    "learn.loss": "[learn]\nloss = 'other.code:Thing'",
    "learn.loss.kind": "[learn.loss]\nkind = 'other.code:Thing'",
    "instruments.on_alarm": "[instruments]\non_alarm = 'switch:other.code:Thing'",
    "task.options.describe": "[task]\nworld = 'gym'\n[task.options]\ndescribe = 'other.code:Thing'",
    "task.options.opponent": "[task]\nworld = 'textarena'\n[task.options]\nopponent = 'other.code:Thing'",
    "task.options.env_id": "[task]\nworld = 'gym'\n[task.options]\nenv_id = 'other.code:Thing'",
}
AGAIN = {
    "methods": "methods=epo,other.code:Thing",
    "instruments.on_alarm": "instruments.on_alarm=switch:other.code:Thing",
}


@pytest.mark.parametrize("path", NAMING)
def test_a_run_folder_that_names_code_is_refused(tmp_path: Path, path: str) -> None:
    file = tmp_path / "config.toml"
    file.write_text(NAMING[path])
    recorded = read_recipe(file)
    [(where, name)] = code_names(recorded)
    assert name == "other.code:Thing"
    assert where in (path, f"{path}.kind")
    with pytest.raises(ConfigError) as caught:
        refuse_foreign(recorded, {}, "a/config.toml")
    said = str(caught.value)
    assert said.startswith(f"a/config.toml names code that is not part of isentrope: {where} = 'other.code:Thing'")
    assert "would import other.code. " in said
    assert "--trust" in said
    # the advice works: what it says, laid over the file, names all that the file does
    again = said.partition("name it again (--set ")[2].partition("; in Python")[0]
    assert again == AGAIN.get(path, f"{where}=other.code:Thing")
    from isentrope.config.load import read_overrides

    given = read_overrides([again], [])
    refuse_foreign(recorded, given, "a/config.toml")
    assert code_names(given) == code_names(recorded)
    with pytest.raises(ConfigError, match="names code"):
        refuse_foreign(recorded, {"task": {"world": "other.code:Another"}}, "a/config.toml")


def test_several_names_are_all_said() -> None:
    recorded = {"methods": ["a:A", "epo", "b:B"], "learn": {"loss": {"kind": "c:C"}}}
    assert code_names(recorded) == [("methods", "a:A"), ("methods", "b:B"), ("learn.loss.kind", "c:C")]
    with pytest.raises(ConfigError) as caught:
        refuse_foreign(recorded, {"methods": ["a:A"]}, "x")
    assert "a:A'" not in str(caught.value)
    assert all(name in str(caught.value) for name in ("'b:B' would import b", "'c:C' would import c"))
    assert "--set methods=a:A,epo,b:B --set learn.loss.kind=c:C;" in str(caught.value)


@pytest.mark.parametrize(
    "recorded",
    [
        {},
        {"methods": ["epo"], "task": {"world": "household", "reward": ""}, "engine": {"kind": "torch"}},
        {"instruments": {"on_alarm": "switch:seal"}, "task": {"where": "http://127.0.0.1:8100"}},
        {"engine": {"kind": "openai", "url": "http://127.0.0.1:8000/v1"}, "policy": {"model": "C:/models/a"}},
        {"methods": 3, "task": ["a:b"], "learn": {"loss": 7}, "engine": None, "instruments": {"on_alarm": ["a:b"]}},
        {"methods": [{"a": "b:c"}, 3]},
    ],
)
def test_a_run_folder_without_any_is_not(recorded: dict[str, object]) -> None:
    assert code_names(recorded) == []
    refuse_foreign(recorded, {}, "x")
