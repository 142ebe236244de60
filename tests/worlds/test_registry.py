from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from isentrope.core.errors import ConfigError, TaskError
from isentrope.worlds.registry import WORLDS, make_world, world_options
from tests.toys import ToyOptions, ToyWorld

ROOT = Path(__file__).parents[2]


def needs_two(options: ToyOptions, more: int) -> ToyWorld:
    return ToyWorld(options)


def needs_nothing() -> ToyWorld:
    return ToyWorld()


def test_a_world_of_ones_own() -> None:
    world = make_world("tests.toys:ToyWorld", {"goal": 2})
    assert world.open().start(world.instance("train", 0)).goal == "reach 2"
    assert world_options("tests.toys:ToyWorld") is ToyOptions
    assert make_world("tests.worlds.test_registry:needs_nothing").name == "toy"


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("houshold", {}, "did you mean household?"),
        ("tests.toys:Nothing", {}, "could not load the world"),
        ("tests.nowhere:World", {}, "could not load the world"),
        ("tests.toys:ACTIONS", {}, "not a world's class"),
        ("tests.worlds.test_registry:needs_two", {}, "must take one argument"),
        ("tests.worlds.test_registry:needs_nothing", {"goal": 1}, "has no options"),
    ],
)
def test_what_is_refused(name: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(TaskError, match=words.replace("?", r"\?")):
        make_world(name, options)


def test_options_are_checked() -> None:
    with pytest.raises(
        ConfigError, match=r"task\.options\.goall = 3: no such setting; did you mean task\.options\.goal"
    ):
        make_world("tests.toys:ToyWorld", {"goall": 3})


@pytest.mark.parametrize("name", WORLDS)
def test_every_world_of_the_package_can_be_made_or_says_what_it_needs(name: str) -> None:
    """Options are there without the extra; what has to be given or installed is named."""
    world_options(name)
    refusal, world = "", None
    try:
        world = make_world(name)
    except TaskError as error:
        refusal = str(error)
    if world is None:
        assert "task.options." in refusal or "install" in refusal
    else:
        assert world.name == name
        getattr(world, "close", lambda: None)()


@pytest.mark.parametrize("name", WORLDS)
def test_every_world_has_a_page(name: str) -> None:
    assert (ROOT / "docs" / f"{WORLDS[name].page(name)}.md").is_file()


def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, module, extra in (
        ("gym", "gymnasium", "gym"),
        ("textarena", "textarena", "textarena"),
        ("reasoning_gym", "reasoning_gym", "reasoning-gym"),
        ("openenv", "openenv.core", "openenv"),
        ("verifiers", "verifiers", "verifiers"),
    ):
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(TaskError, match=rf"install .*\[{extra}\]'"):
            make_world(name)


def test_bm25s_leaves_the_gpu_to_the_trainer(tmp_path: Path) -> None:
    """bm25s asks JAX for a top-k as it is imported, and JAX takes three quarters of a GPU unless it is told not to."""
    (tmp_path / "jax").mkdir()
    (tmp_path / "jax" / "__init__.py").write_text("import os\nprint('platforms', os.environ.get('JAX_PLATFORMS'))\n")
    (tmp_path / "jax" / "lax.py").write_text("raise ImportError('only looked at')\n")
    code = "from isentrope.core.needs import require; require('bm25s', 'search', 'a search')"
    environment = {name: value for name, value in os.environ.items() if name != "JAX_PLATFORMS"}
    environment["PYTHONPATH"] = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    pytest.importorskip("bm25s")
    told = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert told.stdout == "platforms cpu\n"
