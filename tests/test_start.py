"""The pages that say how a run is started elsewhere: SLURM's script and Kubernetes' Job are what they say they are."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from isentrope.cli import cluster_machine
from isentrope.cli.main import app
from isentrope.config.load import load_config

DOCS = Path(__file__).parents[1] / "docs"


def block(page: str, language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", (DOCS / page).read_text("utf-8"), re.DOTALL)
    assert found is not None
    return found[1]


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """The script, and stand-ins for the run and for SLURM that write down what they are told."""
    (tmp_path / "run.sbatch").write_text(block("slurm.md", "bash"))
    (tmp_path / "isentrope").write_text(
        '#!/bin/bash\necho "$@" >> called\ntrap "trap : USR1; sleep 0.2; echo saved >> called; exit 143" USR1\n'
        "echo ready >> called\nfor i in $(seq 200); do sleep 0.05; [ -e done ] && exit $(cat done); done; exit 1\n"
    )
    (tmp_path / "scontrol").write_text('#!/bin/bash\necho "$@" >> requeued\n')
    for name in ("isentrope", "scontrol"):
        (tmp_path / name).chmod(0o755)
    return tmp_path


def started(job: Path) -> subprocess.Popen[bytes]:
    told = {"PATH": f"{job}:{os.environ['PATH']}", "SLURM_JOB_ID": "17"}
    process = subprocess.Popen(["bash", "run.sbatch"], cwd=job, env=told)
    while not (job / "called").exists() or "ready" not in (job / "called").read_text():
        assert process.poll() is None
        time.sleep(0.02)
    return process


def test_slurms_script_is_bash_and_its_command_is_ours() -> None:
    script = block("slurm.md", "bash")
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    assert re.search(r"^#SBATCH --signal=B:USR1@60", script, re.MULTILINE)
    grace = re.search(r"run\.grace=(\d+)", script)
    assert grace is not None
    assert int(grace[1]) < 60


def test_a_job_whose_time_is_up_hands_the_signal_on_and_goes_back_into_the_queue(job: Path) -> None:
    process = started(job)
    while process.poll() is None:  # the script may not know its run's number yet
        process.send_signal(signal.SIGUSR1)
        time.sleep(0.3)
    assert process.returncode == 143
    assert (job / "called").read_text().splitlines() == [
        "train household --out runs/long --set run.grace=50 --resume", "ready", "saved"
    ]  # fmt: skip
    assert (job / "requeued").read_text() == "requeue 17\n"


@pytest.mark.parametrize("status", [0, 2])
def test_a_run_that_ends_by_itself_is_not_repeated(job: Path, status: int) -> None:
    process = started(job)
    (job / "done").write_text(str(status))
    assert process.wait(20) == status
    assert not (job / "requeued").exists()


def test_kubernetes_job_is_whole_and_its_command_is_ours() -> None:
    yaml: Any = pytest.importorskip("yaml")
    claim, job = yaml.safe_load_all(block("kubernetes.md", "yaml"))
    pod = job["spec"]["template"]["spec"]
    container = pod["containers"][0]
    command, *arguments = container["args"]
    commands: Any = get_command(app)
    params: Any = commands.commands[command].make_context(command, arguments).params
    assert params["resume"]
    config = load_config(params["recipe"], params["sets"])
    assert config.run.grace < pod["terminationGracePeriodSeconds"]
    (volume,) = pod["volumes"]
    assert volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    assert container["volumeMounts"] == [{"name": volume["name"], "mountPath": container["workingDir"]}]
    rules = job["spec"]["podFailurePolicy"]["rules"]
    assert [rule["action"] for rule in rules] == ["Ignore", "FailJob"]
    assert pod["restartPolicy"] == "Never"  # a podFailurePolicy wants that
    assert rules[1]["onExitCodes"]["containerName"] == container["name"]
    assert 143 not in rules[1]["onExitCodes"]["values"]


def test_doctor_of_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_machine, "SENT", 4 << 20)
    reads = cluster_machine._READS.replace(str(256 << 20), str(4 << 20))  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(cluster_machine, "_READS", reads)
    result = CliRunner().invoke(app, ["doctor", "--cluster", "--folder", str(tmp_path / "runs")])
    assert result.exit_code == 0, result.output
    told = " ".join(result.output.split())
    assert "can be written, renamed in and locked" in told
    assert "GB/s from process to process" in told
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr(cluster_machine, "__version__", "0.0.1")
    (tmp_path / "file").write_text("")
    bad = CliRunner().invoke(app, ["doctor", "--cluster", "--folder", str(tmp_path / "file" / "runs")])
    assert bad.exit_code == 1
    assert "two installations" in " ".join(bad.output.split())
    assert CliRunner().invoke(app, ["doctor", "--cluster", str(tmp_path)]).exit_code == 2
