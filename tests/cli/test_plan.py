"""`isentrope plan` as a user calls it."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from isentrope.bench import rates as measuring
from isentrope.cli.main import app
from isentrope.cluster.plan.rates import H200, read_rates
from isentrope.config.load import load_config
from isentrope.models.auto import follow_model
from isentrope.models.sources.find import find_facts
from tests.builders.run_folders import make_run

SMALL = ["plan", "alfworld", "--set", "policy.model=qwen2.5-1.5b", "--set", "rollout.groups=2", "--turns", "6"]


def called(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    return " ".join(result.output.split())


def refused(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200"})
    assert result.exit_code == 2, result.output
    return " ".join(result.output.replace("│", " ").split())


def test_a_plan_is_printed_drawn_and_given_as_data(tmp_path: Path) -> None:
    told = called(*SMALL, "--gpus", "1,4", "--card", "h100", "--plot", str(tmp_path / "step.svg"))
    assert "Rates of NVIDIA H100 SXM: scaled by datasheet from those of NVIDIA H200 SXM, not measured." in told
    assert "one card; synchronous" in told
    assert "all 4 do both; synchronous" in told
    assert "Not possible yet" in told
    picture = ET.fromstring((tmp_path / "step.svg").read_text("utf-8"))
    texts = " ".join(node.text or "" for node in picture.iter() if node.tag.endswith("text"))
    assert "tokens" in texts
    assert "update" in texts
    data: dict[str, Any] = json.loads(
        CliRunner().invoke(app, [*SMALL, "--gpus", "1,4", "--card", "h100", "--json"]).output
    )
    assert [plan["cards"] for plan in data["plans"]] == [1, 4]
    for plan in data["plans"]:
        assert sum(layout["recommended"] for layout in plan["layouts"]) == 1
        assert all(layout["seconds"]["step"] > 0 for layout in plan["layouts"])


@pytest.mark.parametrize("kind", ["auto", "fast", "torch"])
def test_every_engine_of_ours_can_be_planned_for(kind: str) -> None:
    assert "one card; synchronous" in called(*SMALL, "--gpus", "1", "--set", f"engine.kind={kind}")


def test_bad_input_is_told_with_what_to_do(tmp_path: Path) -> None:
    assert "plan with --set engine.kind=auto" in refused(*SMALL, "--set", "engine.kind=vllm")
    assert "did you mean h100?" in refused(*SMALL, "--card", "h1000")
    assert "expected numbers of cards from 1 to 4,096" in refused(*SMALL, "--gpus", "0")
    assert "expected numbers of cards" in refused(*SMALL, "--gpus", "8;64")
    assert "These would fit: " in refused("plan", "alfworld", "--set", "policy.model=qwen2.5-7b", "--card", "l4")
    assert "did you mean qwen2.5-7b?" in refused("plan", "alfworld", "--set", "policy.model=qwen-2.5-7b")
    assert "task.max_turns is 24" in refused(*SMALL[:-2], "--turns", "30")
    assert "do not fit into agent.max_context" in refused(*SMALL, "--prompt", "5000")
    assert "ends with .svg" in refused(*SMALL, "--plot", "step.png")
    assert "engine.kind" in refused(*SMALL, "--set", "engine.kind=vllm")
    assert "not a run folder" in refused("plan", "alfworld", "--run", str(tmp_path / "none"))
    for text in ("[]", "{", json.dumps(H200.data() | {"products": 0}), json.dumps(H200.data() | {"turn": "long"}),
                 json.dumps(H200.data() | {"steps": [{"read": [[1]], "new": [[-1]], "group_size": 1}]})):  # fmt: skip
        (tmp_path / "rates.json").write_text(text, "utf-8")
        assert "expected what" in refused(*SMALL, "--rates", str(tmp_path / "rates.json"))


def test_turns_and_lengths_of_a_run(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", steps=2)
    told = called("plan", "demo", "--run", str(run))
    assert f"as in {run}" in told


def test_rates_of_this_machine(tmp_path: Path) -> None:
    """What was measured gives back about what it took: the fit has no free hand. No times are asserted."""
    config = follow_model(load_config("demo", ["run.threads=1", "run.device=cpu", "task.max_turns=2"]))
    facts = find_facts("pocket", False)[1]
    measured = measuring.measure(config, facts, ((1, 2), (2, 2)))
    assert [step.lengths.episodes for step in measured.steps] == [2, 4]
    assert measured.rates.together
    measuring.write_measured(tmp_path / "here.json", measured)
    rates, kept = read_rates(tmp_path / "here.json")
    assert rates == measured.rates
    assert [lengths.written for lengths in kept] == [step.lengths.written for step in measured.steps]
    told = called("plan", "demo", "--rates", str(tmp_path / "here.json"))
    assert "measured here" in told
    assert "as in the steps that were measured" in told
    assert "leave out --gpus" in refused("plan", "demo", "--rates", str(tmp_path / "here.json"), "--gpus", "2")


def test_the_fit_finds_what_made_the_seconds() -> None:
    rng = np.random.default_rng(0)
    table = rng.random((40, 4)) + 0.1
    assert measuring.nonnegative(table, table @ [1, 2, 0, 4]) == pytest.approx([1, 2, 0, 4], abs=1e-9)
    assert (measuring.nonnegative(table, table @ [1, 2, -0.5, 4]) >= 0).all()


def test_torch_is_not_imported() -> None:
    code = (
        "import sys; from typer.testing import CliRunner; from isentrope.cli.main import app;"
        f"r = CliRunner().invoke(app, {SMALL}); assert r.exit_code == 0, r.output;"
        "sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])
