from __future__ import annotations

from dataclasses import fields

import pytest
from typer.testing import CliRunner, Result

from isentrope.cli.main import app
from isentrope.cli.method_sheets import sheet, sheets
from isentrope.config.algorithms import ALGORITHMS
from isentrope.config.kinds import KINDS
from isentrope.config.schema import CriticSettings
from isentrope.core.method import Method
from isentrope.core.metric import Metric
from isentrope.methods.registry import METHODS
from isentrope.metrics.glossary import sentence
from isentrope.runs.folder import leaves


def invoke(*arguments: str, columns: int = 300) -> Result:
    return CliRunner().invoke(app, ["methods", *arguments], env={"COLUMNS": str(columns), "NO_COLOR": "1"})


def rows(text: str) -> dict[str, list[str]]:
    """First cell -> the others, of all tables."""
    lines = [[cell.strip() for cell in line.split("│")[1:-1]] for line in text.splitlines() if "│" in line]
    return {line[0]: line[1:] for line in lines}


def test_the_list() -> None:
    done = invoke()
    assert done.exit_code == 0, done.output
    found = rows(done.stdout)
    assert set(found) == {*ALGORITHMS, *METHODS.inside}
    for name, algorithm in ALGORITHMS.items():
        assert found[name] == [algorithm.summary, algorithm.paper]
    for name in METHODS.inside:
        kind = METHODS.load(name)
        assert found[name] == [kind.summary, kind.paper]


@pytest.mark.parametrize("name", [*ALGORITHMS, *METHODS.inside])
def test_one_of_them(name: str) -> None:
    done = invoke(name)
    assert done.exit_code == 0, done.output
    sheet, found = sheets()[name], rows(done.stdout)
    assert sheet.summary[1:] in done.stdout
    assert sheet.paper in done.stdout
    assert f"isentrope docs {sheet.page.removesuffix('.md')}" in done.stdout
    assert sheet.command in done.stdout
    for info, _ in sheet.knobs:
        assert found[info.path][-3:] == [info.default, info.allowed, info.doc]
    for key in sheet.metrics:
        assert found[key][-1] == sentence(key)
    assert len(found) == len(sheet.knobs) + len(sheet.metrics)


@pytest.mark.parametrize("name", METHODS.inside)
def test_every_option_of_a_method_is_a_knob(name: str) -> None:
    options = {f"method.{name}.{item.name}" for item in fields(METHODS[name].options_class)}
    assert {info.path for info, _ in sheets()[name].knobs} == options


@pytest.mark.parametrize("name", ALGORITHMS)
def test_what_an_algorithm_changes_is_shown_beside_the_default(name: str) -> None:
    values = {info.path.removeprefix("learn."): (value, info.default) for info, value in sheets()[name].knobs}
    changed = {key for key, (value, default) in values.items() if value != default}
    settings = set(leaves(ALGORITHMS[name].settings))
    assert changed <= settings <= set(values)
    for part in ("advantage", "loss"):
        options = KINDS[f"learn.{part}"][values[f"{part}.kind"][0].strip('"')]
        assert {f"{part}.{item.name}" for item in fields(options)} <= set(values)


def test_dapo() -> None:
    found = rows(invoke("dapo").stdout)
    assert found["learn.loss.clip_high"][:2] == ["0.28", "0.2"]
    assert found["learn.kl"][:2] == ["0.0", "0.01"]
    assert "learn.resample_by" in found  # comes with learn.resample
    assert "learn.kl_estimator" not in found  # there is no KL to estimate
    assert "resample/missing" in found
    assert "critic.lr" not in found


def test_ppo_shows_its_critic() -> None:
    found = rows(invoke("ppo").stdout)
    assert {f"critic.{item.name}" for item in fields(CriticSettings)} <= set(found)
    assert "critic/explained" in found


def test_names_stay_whole_on_a_narrow_terminal() -> None:
    done = invoke("higher_temperature", columns=60)
    assert done.exit_code == 0
    assert "method.higher_temperature.temperature" in done.stdout
    assert sheets()["higher_temperature"].command in done.stdout


@pytest.mark.parametrize("name", [*ALGORITHMS, *METHODS.inside])
def test_nothing_is_cut_off_at_80_columns(name: str) -> None:
    done = invoke(name, columns=80)
    assert done.exit_code == 0
    assert "…" not in done.stdout


def test_ppo_is_shown_with_a_critic_that_suits_the_demo() -> None:
    assert "--set critic.lr=1e-3 --set critic.warmup=2" in invoke("ppo").stdout
    assert "critic" not in sheets()["grpo"].command


@pytest.mark.parametrize(
    ("name", "hint"),
    [("epoo", "did you mean epo?"), ("GiGPO", "did you mean gigpo?"), ("xyz", "there is: actre, aem, dapo")],
)
def test_an_unknown_name(name: str, hint: str) -> None:
    done = invoke(name)
    assert done.exit_code == 2
    assert f"no algorithm or method is called '{name}'" in done.stderr
    assert hint in done.stderr
    assert "Traceback" not in done.output


def test_help_teaches_by_example() -> None:
    page = invoke("--help").stdout
    assert "Examples:" in page
    assert "isentrope methods epo" in page


def test_the_config_command_checks_what_only_a_method_knows() -> None:
    unknown = CliRunner().invoke(app, ["config", "--set", "methods=epoo"])
    assert unknown.exit_code != 0
    both = CliRunner().invoke(app, ["config", "--set", "methods=actre,no_think"])
    assert both.exit_code != 0
    assert CliRunner().invoke(app, ["config", "--set", "methods=actre,epo", "--toml"]).exit_code == 0


class FromOutside(Method):
    name = "from_outside"
    metrics = (Metric("from_outside/weight", "Mean weight given to a response.", "weight"),)


def test_a_method_from_outside_is_explained() -> None:
    told = sheet(f"{__name__}:FromOutside")
    assert (told.name, told.page, told.metrics) == ("from_outside", "", ("from_outside/weight",))
    result = invoke(f"{__name__}:FromOutside")
    assert result.exit_code == 0, result.output
    assert "Mean weight given to a response." in result.output
    assert "isentrope docs" not in result.output
