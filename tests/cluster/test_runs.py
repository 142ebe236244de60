"""Runs that lose samplers say so: a message, a metric, an event; and one process notices nothing of all this."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest

from isentrope.cluster.engine import ClusterEngine
from isentrope.cluster.messages import Ask, Renew
from isentrope.config.schema import RunConfig
from isentrope.core.errors import ConfigError
from isentrope.loop import session
from isentrope.loop.train import train
from isentrope.models.policy import Policy
from isentrope.runs.layout import EVENTS, METRICS
from isentrope.runs.log import read_records
from tests.builders.toy_runs import WARM_MODEL, toy_config
from tests.cluster.inline import Fault, Inline
from tests.cluster.kills import differences, run_of
from tests.cluster.test_engine import once, stale

TWO = ("cluster.kind=processes", "cluster.engines=2")


def run_with(fault: Fault, out: Path, monkeypatch: pytest.MonkeyPatch, *changes: str) -> None:
    def inline(config: RunConfig, policy: Policy | None) -> ClusterEngine:
        assert policy is not None
        return ClusterEngine(policy, config, Inline(fault))

    monkeypatch.setattr(session, "open_engine", inline)
    train(toy_config(WARM_MODEL, "run.steps=3", *TWO, *changes), out, quiet=True)


def test_a_run_that_loses_a_sampler_says_so_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    wanted, _ = run_of(tmp_path / "local", "run.steps=3")
    asked = 0

    def fault(link: object, order: object) -> str:
        """The second rollout's first batch, after the first evaluation."""
        nonlocal asked
        asked += isinstance(order, Ask)
        return "dies" if isinstance(order, Ask) and asked == 14 else ""

    with caplog.at_level(logging.INFO, "isentrope"):
        run_with(fault, tmp_path / "run", monkeypatch)
    records = read_records(tmp_path / "run" / METRICS, "train")
    assert sum(record["engine/samplers_lost"] for record in records) == 1
    assert sum(record["engine/requests_moved"] for record in records) >= 1
    assert differences(wanted, records, 1e-4) == []
    (event,) = [event for event in read_records(tmp_path / "run" / EVENTS) if event["name"] == "samplers"]
    assert event["kind"] == "warning"
    assert "one sampler lost" in event["text"]
    assert "was ended by a test" in caplog.text
    assert "one sampler lost" in caplog.text


def test_weights_that_did_not_arrive_are_told_even_if_an_evaluation_comes_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The evaluation after the second step is where it is seen; the third step tells of it."""
    behind = stale([5], 0)
    renewals = 0

    def fault(link: object, order: object) -> str:
        nonlocal renewals
        renewals += isinstance(order, Renew)
        return behind(link, order) if renewals == 3 else ""  # type: ignore[arg-type]

    run_with(fault, tmp_path / "run", monkeypatch, "run.eval_every=2")
    records = read_records(tmp_path / "run" / METRICS, "train")
    assert [record["engine/weights_refused"] for record in records] == [0, 0, 1]


def test_a_killed_sampler_changes_no_metric_with_adapters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("peft")
    changes = ("policy.lora_rank=2", "run.steps=3")
    wanted, _ = run_of(tmp_path / "local", *changes)
    run_with(once(Ask, "dies", 9), tmp_path / "run", monkeypatch, *changes)
    assert differences(wanted, read_records(tmp_path / "run" / METRICS, "train"), 1e-4) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("cluster.engines=2",), 'cluster.engines = 2 with cluster.kind = "local"'),
        (("cluster.kind=processes", "engine.drafts=4"), "engine.drafts = 4 with cluster.kind"),
        (("cluster.kind=processes", "engine.kind=openai"), "a server samples, not this machine"),
        (("cluster.kind=ray",), "expected .*local.*processes"),
        (("cluster.kind=processes", "cluster.engines=0"), "expected an integer from 1 to 64"),
    ],
)
def test_settings_that_cannot_be_are_refused(change: tuple[str, ...], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        toy_config(WARM_MODEL, *change)


@pytest.mark.slow(4)
def test_one_process_loads_nothing_of_it(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from isentrope.loop.train import train\n"
        "from tests.builders.toy_runs import WARM_MODEL, toy_config\n"
        f"train(toy_config(WARM_MODEL, 'run.steps=1'), Path({str(tmp_path / 'run')!r}), quiet=True)\n"
        "sys.exit(any(name.startswith('isentrope.cluster') for name in sys.modules))"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])
