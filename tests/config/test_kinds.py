"""Parts with a kind and settings of their own: `[learn.advantage]`, `[learn.loss]`, `[engine]`, `[task.sampler]`."""

from __future__ import annotations

import logging
import tomllib
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from isentrope.config.algorithms import ALGORITHMS
from isentrope.config.convert import parse_choice
from isentrope.config.kinds import KINDS, ClipOptions, GaeOptions, GigpoOptions, GpuOptions, ServerOptions
from isentrope.config.load import load_config
from isentrope.config.older import SHARED, hint, upgraded
from isentrope.config.schema import Choice, RunConfig
from isentrope.config.text import as_table, config_to_toml, table_to_toml
from isentrope.core.errors import ConfigError
from isentrope.core.loss import Loss
from isentrope.learning.registry import make_advantage, make_loss
from isentrope.methods.options import option_problems, with_options
from isentrope.runs.folder import leaves
from isentrope.runs.writer import differences
from tests.config.test_older import KEPT, kept_configs, nested

# Settings that stood in [learn] itself -> a value that is not the default of any algorithm
FLAT: dict[str, dict[str, Any]] = {
    "learn.advantage": {
        "divide_by_std": False, "stats": "steps", "discount": 0.5, "step_weight": 0.25, "anchor": "similar",
        "anchor_similarity": 0.75, "gae_lambda": 0.5, "credit": "token",
    },
    "learn.loss": {"clip_low": 0.125, "clip_high": 0.375},
}  # fmt: skip
FLAT_KEYS = [(path, key) for path, values in FLAT.items() for key in values]


class OutsideLoss(Loss):
    name = "outside"
    options_class = ClipOptions

    def per_token(self, batch: Any, stats: Any) -> Any:
        return -batch.advantage_N * stats.logp_N


OUTSIDE = f"{__name__}:OutsideLoss"


@pytest.fixture
def hints(caplog: pytest.LogCaptureFixture) -> Iterator[list[str]]:
    """What was said about settings; a hint is said once in a process."""
    hint.cache_clear()
    said: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())

    handler, logger = Keep(), logging.getLogger("isentrope")
    logger.addHandler(handler)
    yield said
    logger.removeHandler(handler)
    hint.cache_clear()


def loaded(folder: Path, text: str, *changes: str) -> RunConfig:
    (folder / "recipe.toml").write_text(text)
    return load_config(folder / "recipe.toml", changes)


def value_text(value: Any) -> str:
    return f"'{value}'" if isinstance(value, str) else str(value).lower()


def reads(choice: Choice, path: str, key: str) -> bool:
    return key in {item.name for item in fields(KINDS[path][choice.kind])}


def part_of(config: RunConfig, path: str) -> Choice:
    section, _, name = path.partition(".")
    found = getattr(config, section)
    return getattr(found, name) if name else found


# Ways to say it


@pytest.mark.parametrize("path", KINDS)
def test_the_kind_alone_is_short_for_its_table(tmp_path: Path, path: str) -> None:
    section, _, name = path.rpartition(".")
    for kind in KINDS[path]:
        config = load_config(None, [f"{path}={kind}"])
        assert part_of(config, path) == Choice(kind)
        assert load_config(None, [f"{path}.kind={kind}"]) == config
        assert load_config(None, [f"{path}={{kind = '{kind}'}}"]) == config
        assert loaded(tmp_path, f"[{path}]\nkind = '{kind}'\n") == config
        assert loaded(tmp_path, f"[{section}]\n{name} = '{kind}'\n" if section else f"{name} = '{kind}'\n") == config


def test_options_stand_beside_the_kind(tmp_path: Path) -> None:
    text = "[learn]\nalgorithm = 'gigpo'\n[learn.advantage]\nstep_weight = 0.5\n[learn.loss]\nclip_high = 0.3\n"
    config = loaded(tmp_path, text + "[engine]\nkind = 'vllm'\nmemory = 0.2\n", "learn.advantage.anchor=similar")
    expected = Choice("gigpo", {"discount": 0.95, "step_weight": 0.5, "anchor": "similar"})
    assert config.learn.advantage == expected
    assert config.learn.loss == Choice("clip", {"clip_high": 0.3})
    assert config.engine == Choice("vllm", {"memory": 0.2})
    assert vars(make_advantage(config.learn).options)["step_weight"] == 0.5
    assert make_loss(config.learn).clip == (0.2, 0.3)
    assert parse_choice(GpuOptions, config.engine, "engine") == GpuOptions(0.2)


def test_text_that_looks_like_a_number_stays_text() -> None:
    assert load_config(None, ["engine.kind=openai", "engine.model=7"]).engine.options == {"model": "7"}
    assert load_config(None, ["engine=openai", "engine.retries=7"]).engine.options == {"retries": 7}


def test_a_config_with_options_is_read_back(tmp_path: Path) -> None:
    for algorithm in ALGORITHMS:
        config = with_options(load_config(None, [f"learn.algorithm={algorithm}"]))
        again = loaded(tmp_path, config_to_toml(config))
        assert again.learn == config.learn
        assert with_options(again) == with_options(config) == config
        assert differences(config, with_options(again)) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (["learn.advantage=grpoo"], 'learn.advantage.kind = "grpoo": expected one of reinforce, rloo, grpo, gigpo'),
        (["learn.advantage=3"], 'learn.advantage.kind = "3": expected one of'),
        (["learn.loss.kind=true"], 'learn.loss.kind = "true": expected one of clip, sequence, policy_gradient, or mod'),
        (["learn.loss={kind = 7}"], "learn.loss.kind = 7: expected one of"),
        (["engine=tortch"], "did you mean torch?"),
        (
            ["task.sampler=random"],
            'task.sampler.kind = "random": expected one of in_turn, pass_rate, kinds, schedule, or module:Class',
        ),
        (
            ["learn.loss.clip_hihg=0.3"],
            "learn.loss.clip_hihg = 0.3: no such setting; did you mean learn.loss.clip",
        ),
        (["learn.loss.clip_high=0"], "learn.loss.clip_high = 0: expected a number above 0"),
        (["learn.clip_high=0"], "learn.loss.clip_high = 0: expected a number above 0"),
        (["learn.loss=sequence", "learn.loss.clip_low=x"], 'learn.loss.clip_low = "x": expected a number above 0'),
        (
            ["learn.algorithm=gigpo", "learn.advantage.anchor=exakt"],
            'learn.advantage.anchor = "exakt": expected',
        ),
        (["learn.algorithm=ppo", "learn.advantage.gae_lambda=2"], "learn.advantage.gae_lambda = 2: expected a number"),
        (["engine=vllm", "engine.memory=2"], "engine.memory = 2: expected a number above 0 and of at most 1"),
        (["engine=openai", "engine.timeout=0"], "engine.timeout = 0: expected a number above 0"),
        (["task.sampler.rate=1"], "task.sampler.rate = 1: no such setting"),
    ],
)
def test_options_are_checked_with_their_full_names(changes: list[str], words: str) -> None:
    for check in (None, option_problems):
        with pytest.raises(ConfigError) as caught:
            load_config(None, changes, check)
        assert words in str(caught.value)
        assert str(caught.value).startswith("1 problem")


def test_options_of_a_part_from_outside_are_checked_by_its_own_dataclass() -> None:
    changes = [f"learn.loss={OUTSIDE}", "learn.loss.clip_high=-1", "learn.loss.margin=3"]
    assert load_config(None, changes).learn.loss == Choice(OUTSIDE, {"clip_high": -1, "margin": 3})
    with pytest.raises(ConfigError) as caught:
        load_config(None, changes, option_problems)
    assert "learn.loss.clip_high = -1: expected a number above 0" in str(caught.value)
    assert "learn.loss.margin = 3: no such setting" in str(caught.value)
    config = with_options(load_config(None, [f"learn.loss={OUTSIDE}", "learn.loss.clip_high=0.5"], option_problems))
    assert config.learn.loss == Choice(OUTSIDE, {"clip_low": 0.2, "clip_high": 0.5})
    with pytest.raises(ConfigError, match=r"learn\.loss\.kind: could not load the loss 'made_up_nowhere:X'"):
        load_config(None, ["learn.loss=made_up_nowhere:X"], option_problems)


# Old names


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize(("path", "key"), FLAT_KEYS)
def test_an_old_name_means_the_same(tmp_path: Path, algorithm: str, path: str, key: str, hints: list[str]) -> None:
    given = True if (algorithm, key) == ("dr_grpo", "divide_by_std") else FLAT[path][key]  # its own is false
    value = value_text(given)
    named = f"learn.algorithm={algorithm}"
    old, new = (load_config(None, [named, f"{where}.{key}={value}"]) for where in ("learn", path))
    assert old == new
    assert f"learn.{key} is {path}.{key} now; the old name still works" in hints
    recipe = f"[learn]\nalgorithm = '{algorithm}'\n{key} = {value}\n"
    assert loaded(tmp_path, recipe) == new
    (tmp_path / "above.toml").write_text(f"extends = 'recipe.toml'\n[learn]\nlr = 0.5\n{key} = {value}\n")
    loaded(tmp_path, f"[learn]\nalgorithm = '{algorithm}'\n")
    assert replace(load_config(tmp_path / "above.toml"), learn=new.learn) == new
    complete, plain = with_options(new), with_options(load_config(None, [named]))
    if reads(part_of(new, path), path, key):
        assert part_of(complete, path).options[key] == given
        assert complete != plain
    else:  # it changed nothing before either, and is not recorded
        assert complete == plain
        assert any(f"{path}.{key} = " in said and "changes nothing here" in said for said in hints)


def test_both_names_at_once_the_new_one_wins() -> None:
    assert load_config(None, ["learn.clip_high=0.5", "learn.loss.clip_high=0.3"]).learn.loss.options["clip_high"] == 0.3
    assert load_config(None, ["learn.loss.clip_high=0.3", "learn.clip_high=0.5"]).learn.loss.options["clip_high"] == 0.3


def test_an_old_name_over_a_new_one_below_it_wins(tmp_path: Path) -> None:
    text = "[learn.loss]\nclip_high = 0.3\n"
    assert loaded(tmp_path, text, "learn.clip_high=0.5").learn.loss == Choice("clip", {"clip_high": 0.5})


def test_every_setting_that_moved_is_known() -> None:
    assert {path: frozenset(values) for path, values in FLAT.items()} == {
        path: names for path, names in SHARED.items() if path != "engine"
    }
    assert all(not part.keys() & as_table(RunConfig())["learn"].keys() for part in FLAT.values())


# Layers


@pytest.mark.parametrize(
    ("below", "above", "expected"),
    [
        ("kind = 'gigpo'\nstep_weight = 2.0", "learn.advantage=grpo", Choice("grpo")),
        ("kind = 'gigpo'\nstep_weight = 2.0", "learn.advantage=gigpo", Choice("gigpo", {"step_weight": 2.0})),
        ("kind = 'gigpo'\ndivide_by_std = false", "learn.advantage.kind=grpo", Choice("grpo")),
        ("divide_by_std = false", "learn.advantage=grpo", Choice("grpo", {"divide_by_std": False})),
        ("kind = 'grpo'", "learn.advantage.stats=steps", Choice("grpo", {"stats": "steps"})),
        ("kind = 'grpo'\nstats = 'steps'", "learn.advantage={kind = 'rloo', stats = 'episodes'}",
         Choice("rloo", {"stats": "episodes"})),
    ],
)  # fmt: skip
def test_another_kind_begins_anew(tmp_path: Path, below: str, above: str, expected: Choice) -> None:
    """The options of the kind before were not meant for it."""
    assert loaded(tmp_path, f"[learn.advantage]\n{below}\n", above).learn.advantage == expected


def test_another_kind_than_the_algorithms(tmp_path: Path) -> None:
    config = load_config(None, ["learn.algorithm=gigpo", "learn.advantage=gae"])
    assert with_options(config).learn.advantage == Choice("gae", as_table(GaeOptions()))  # not GiGPO's discount
    config = load_config(None, ["learn.algorithm=gspo", "learn.loss=clip"])
    assert make_loss(config.learn).clip == (0.2, 0.2)
    (tmp_path / "base.toml").write_text("[learn]\nalgorithm = 'dapo'\n[learn.loss]\nkind = 'clip'\nclip_low = 0.1\n")
    config = loaded(tmp_path, "extends = 'base.toml'\n[learn.loss]\nkind = 'sequence'\n")
    assert make_loss(config.learn).clip == (0.2, 0.2)
    assert config.learn.kl == 0.0


def test_an_engine_of_another_kind(tmp_path: Path) -> None:
    text = "[engine]\nkind = 'openai'\nurl = 'http://127.0.0.1:1/v1'\n"
    assert loaded(tmp_path, text, "engine=vllm").engine == Choice("vllm")
    assert loaded(tmp_path, text, "engine=openai").engine.options == {"url": "http://127.0.0.1:1/v1"}


def old_record(config: RunConfig) -> dict[str, Any]:
    """As earlier versions recorded it: the settings of all kinds in [learn] and [engine] themselves."""
    table = as_table(with_options(config))
    advantage, loss = table["learn"].pop("advantage"), table["learn"].pop("loss")
    unread = {**vars(GaeOptions()), **vars(GigpoOptions()), **vars(ClipOptions())}
    kinds = {"advantage": advantage.pop("kind"), "loss": loss.pop("kind")}
    table["learn"] |= {**unread, **advantage, **loss, **kinds}
    table["engine"] = {**vars(GpuOptions()), **vars(ServerOptions()), **table["engine"]}
    del table["task"]["sampler"], table["task"]["reward"]
    return table


@pytest.mark.parametrize("before", ALGORITHMS)
def test_an_earlier_record_is_read_as_todays(tmp_path: Path, before: str) -> None:
    config = with_options(load_config(None, [f"learn.algorithm={before}", "learn.loss.clip_low=0.1"]))
    (tmp_path / "config.toml").write_text(table_to_toml(old_record(config)))
    again = load_config(tmp_path / "config.toml")
    assert (again.learn, again.engine) == (config.learn, config.engine)
    assert with_options(again) == config


@pytest.mark.parametrize("record", [lambda config: as_table(with_options(config)), old_record], ids=["now", "earlier"])
@pytest.mark.parametrize("before", ALGORITHMS)
def test_any_recorded_run_becomes_any_algorithm(tmp_path: Path, before: str, record: Any) -> None:
    file = tmp_path / "config.toml"
    file.write_text(table_to_toml(record(load_config(None, [f"learn.algorithm={before}", "learn.lr=0.5"]))))
    for after in ALGORITHMS:
        config = load_config(file, [f"learn.algorithm={after}"])
        assert with_options(config) == with_options(load_config(None, [f"learn.algorithm={after}", "learn.lr=0.5"]))


@pytest.mark.parametrize("record", [lambda config: as_table(with_options(config)), old_record], ids=["now", "earlier"])
def test_what_the_run_chose_itself_stays(tmp_path: Path, record: Any) -> None:
    file = tmp_path / "config.toml"
    chosen = ["learn.algorithm=dapo", "learn.loss.clip_low=0.1", "learn.advantage.stats=steps", "learn.resample=5"]
    file.write_text(table_to_toml(record(load_config(None, chosen))))
    config = with_options(load_config(file, ["learn.algorithm=gspo"]))
    assert config.learn.loss.kind == "sequence"
    assert config.learn.loss.options["clip_high"] == 4e-4
    assert config.learn.advantage == with_options(load_config(None, ["learn.advantage.stats=steps"])).learn.advantage
    assert config.learn.resample == 5


# What is kept


def test_every_kept_run_is_read_as_it_was() -> None:
    """Every value that a kept run has, and whose part still reads it, is there under its name of today."""
    tables = {str(path): tomllib.loads(path.read_text()) for path in sorted(KEPT.rglob("config.toml"))}
    tables |= {name: nested(flat) for name, flat in kept_configs()}
    assert len(tables) > 100
    for name, table in tables.items():
        config = with_options(load_from(table))
        now = leaves(as_table(config))
        for key, value in leaves(table).items():
            section, _, rest = key.partition(".")
            moved = [path for path, values in FLAT.items() if section == "learn" and rest in values]
            if key in ("learn.advantage", "learn.loss", "learn.algorithm"):
                found = now[key if key in now else f"{key}.kind"]
                assert found == value or (value, found) == ("gigpo", "gigpo_mixed"), (name, key)
            elif moved and reads(part_of(config, moved[0]), moved[0], rest):
                assert now[f"{moved[0]}.{rest}"] == value, (name, key)
            elif section == "engine" and reads(config.engine, "engine", rest):
                assert now[key] == value, (name, key)
            elif section not in ("engine", "methods") and not moved and key != "learn.step_std" and value != {}:
                assert as_list(now[key]) == as_list(value), (name, key)


def load_from(table: dict[str, Any]) -> RunConfig:
    from isentrope.config.load import config_from_table

    return config_from_table(upgraded(table))


def as_list(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
