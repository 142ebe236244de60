from __future__ import annotations

from pathlib import Path

import pytest

from isentrope.config.load import load_config, read_recipe
from isentrope.config.schema import Choice, RunConfig
from isentrope.core.errors import ConfigError


def problems_of(*overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(None, overrides)
    return str(caught.value)


def test_nothing_given_gives_the_defaults() -> None:
    assert load_config(None, []) == RunConfig()


def test_a_recipe_and_overrides(tmp_path: Path) -> None:
    recipe = tmp_path / "a.toml"
    recipe.write_text('methods = ["epo"]\n[learn]\nlr = 1\n[method.epo]\nbeta = 0.5\n[task.options]\nrooms = [1, 2]')
    config = load_config(recipe, ["learn.kl=0", "policy.model=models/7", "task.options.rooms=[3]"])
    assert config.learn.lr == 1.0
    assert isinstance(config.learn.lr, float)
    assert config.learn.kl == 0.0
    assert config.policy.model == "models/7"
    assert config.method == {"epo": {"beta": 0.5}}
    assert config.task.options == {"rooms": [3]}


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("policy.model=7", ("policy", "model", "7")),
        ("policy.model='a b'", ("policy", "model", "a b")),
        ("policy.model=a=b", ("policy", "model", "a=b")),
        ("policy.model=true", ("policy", "model", "true")),
        ("eval.splits=seen", ("eval", "splits", ("seen",))),
        ("eval.splits=['a', 'b']", ("eval", "splits", ("a", "b"))),
        ("eval.splits=a,b", ("eval", "splits", ("a", "b"))),
        ("learn.advantage.divide_by_std=false", ("learn", "advantage", Choice("grpo", {"divide_by_std": False}))),
        ("learn.divide_by_std=false", ("learn", "advantage", Choice("grpo", {"divide_by_std": False}))),
        ("learn.advantage=rloo", ("learn", "advantage", Choice("rloo"))),
        (
            "learn.advantage={kind = 'rloo', stats = 'steps'}",
            ("learn", "advantage", Choice("rloo", {"stats": "steps"})),
        ),
        ("task.sampler=in_turn", ("task", "sampler", Choice("in_turn"))),
        (" run.seed = 3 ", ("run", "seed", 3)),
        ("learn.lr=1e-3", ("learn", "lr", 1e-3)),
        ("learn={lr = 1e-3}", ("learn", "lr", 1e-3)),
    ],
)
def test_values_of_overrides(override: str, expected: tuple[str, str, object]) -> None:
    section, name, value = expected
    assert getattr(getattr(load_config(None, [override]), section), name) == value


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("learn.lrr=1", ["learn.lrr = 1", "did you mean learn.lr?"]),
        ("lr=1", ["did you mean learn.lr or critic.lr or sft.lr?"]),
        ("lern.lr=1", ["lern", "did you mean learn?"]),
        ("run.seed=true", ["run.seed = true: expected an integer of at least 0"]),
        ("run.seed=1.0", ["run.seed = 1.0", "write 1"]),
        ("run.seed=99999999999999999999", ["run.seed"]),
        ("learn.lr='1e-3'", ['learn.lr = "1e-3": expected a number above 0', "without quotes"]),
        ("learn.lr=0", ["learn.lr = 0: expected a number above 0"]),
        ("learn.lr=nan", ["learn.lr = nan"]),
        ("learn.lr=inf", ["learn.lr = inf"]),
        ("learn.lr=1" + "0" * 400, ["learn.lr = 1000"]),
        ("learn.warmup=1.5", ["from 0 to 1"]),
        ("task.invalid_reward=1", ["a number of at most 0"]),
        ("learn.divide_by_std=1", ["learn.advantage.divide_by_std = 1: expected true or false"]),
        ("agent.order=think", ['agent.order = "think": expected one of think_act, act_think, act', "did you mean"]),
        ("eval.splits=[1]", ["eval.splits[0] = 1: expected text"]),
        ("eval.splits=[1", ["eval.splits"]),
        ("task.options=3", ["task.options = 3: expected a table"]),
        ("learn=3", ["learn = 3: expected a table"]),
        ("learn.lr", ["--set learn.lr: expected section.name=value"]),
        ("=3", ["--set =3"]),
        ("run.seed=1\nrun.steps=2", ["run.seed"]),
        ("policy.model=\udcff", ["policy.model"]),
    ],
)
def test_what_is_refused(override: str, words: list[str]) -> None:
    text = problems_of(override)
    for word in words:
        assert word in text


def test_all_problems_are_reported_at_once() -> None:
    text = problems_of("learn.lrr=1", "run.seed=-1", "agent.order=x", "nonsense")
    assert text.startswith("4 problems")
    assert all(word in text for word in ("learn.lrr", "run.seed", "agent.order", "nonsense"))


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["critic.warmup=100", "learn.algorithm=ppo"], "critic.warmup = 100 with"),
        (["learn.algorithm=reinforce", "learn.mini_batches=2"], "2 updates per step"),
        (["learn.algorithm=rloo", "rollout.group_size=1"], "use 2 or more"),
        (["sft.source=own", "sft.orders=['act']"], "leave sft.orders out"),
        (["rollout.temperature=1e-40"], "at least 0.01"),
        (["learn.algorithm=dapoo"], "did you mean dapo?"),
        (["policy.width=100", "policy.heads=3"], "policy.width = 100 must be a multiple of policy.heads = 3"),
        (["policy.width=36", "policy.heads=4"], "must be even"),
        (["rollout.group_size=1"], "every advantage would be 0"),
        (["agent.max_response=4096"], "must be less than agent.max_context"),
        (["learn.mini_batches=17"], "must be at most rollout.groups = 16"),
        (["method.epo.beta=1"], "[method.epo] belongs to a method that is not in `methods`"),
        (["methods=epo", "method.epoo.beta=1"], "did you mean epo?"),
        (["methods=epo", "method.epo=1"], "expected a table"),
        (["methods=epo,epo"], "more than once"),
        (["learn.beta2=1"], "must be below 1"),
        (["run.device=gpu"], "run.device"),
        (["policy.model="], "policy.model is empty"),
    ],
)
def test_impossible_combinations(overrides: list[str], words: str) -> None:
    assert words in problems_of(*overrides)


def test_extends_merges_tables(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "base.toml").write_text("[learn]\nlr = 1e-3\nkl = 0.5\n[run]\nseed = 4")
    (tmp_path / "sub" / "child.toml").write_text('extends = "../base.toml"\n[learn]\nkl = 0.1')
    config = load_config(tmp_path / "sub" / "child.toml")
    assert (config.learn.lr, config.learn.kl, config.run.seed) == (1e-3, 0.1, 4)


def test_a_replaced_choice_takes_its_tables_along(tmp_path: Path) -> None:
    recipe = tmp_path / "a.toml"
    recipe.write_text(
        'methods = ["epo", "aem"]\n[method.epo]\nbeta = 1\n[method.aem]\nx = 2\n[task.options]\nrooms = 3'
    )
    assert load_config(recipe, ["methods=[]"]).method == {}
    assert load_config(recipe, ["methods=aem"]).method == {"aem": {"x": 2}}
    assert load_config(recipe, ["task.world=shop", "task.options.size=1"]).task.options == {"size": 1}
    assert load_config(recipe, ["task.world=household", "task.options.size=1"]).task.options == {"rooms": 3, "size": 1}
    with pytest.raises(ConfigError, match=r"\[method.epo\]"):
        load_config(recipe, ["methods=aem", "method.epo.beta=2"])


def test_a_link_in_a_circle_is_no_recipe(tmp_path: Path) -> None:
    (tmp_path / "a.toml").symlink_to("b.toml")
    (tmp_path / "b.toml").symlink_to("a.toml")
    with pytest.raises(ConfigError, match=r"a\.toml"):
        read_recipe(tmp_path / "a.toml")


def test_circles_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text('extends = "b.toml"')
    (tmp_path / "b.toml").write_text('extends = "a.toml"')
    with pytest.raises(ConfigError, match=r"a.toml -> b.toml -> a.toml"):
        load_config(tmp_path / "a.toml")


@pytest.mark.parametrize(
    "content",
    [b"learn = = 3", b"\xff\xfe", b"extends = 3", b"x = " + b"[" * 5000],
    ids=["syntax", "utf-8", "type", "deep"],
)
def test_broken_files_are_config_errors(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.toml").write_bytes(content)
    with pytest.raises(ConfigError, match=r"a\.toml"):
        load_config(tmp_path / "a.toml")


def test_a_missing_file_names_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "household.toml").write_text("")
    with pytest.raises(ConfigError, match=r"did you mean .*household\.toml\?"):
        load_config(tmp_path / "houshold.toml")
    with pytest.raises(ConfigError, match="could not read"):
        load_config(tmp_path)


@pytest.mark.parametrize("name", ["engine.key", "engine.API-KEY", "hub_token", "engnie.password", "run.my_secret"])
def test_what_may_be_a_secret_is_not_repeated(name: str) -> None:
    with pytest.raises(ConfigError, match="no such setting") as caught:
        load_config(None, [f"{name}=sk-abc"])
    assert "sk-abc" not in str(caught.value)
