from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from packaging.requirements import Requirement
from typer.testing import CliRunner, Result

from isentrope import __version__
from isentrope.cli.main import app
from isentrope.config.load import load_config
from isentrope.config.schema import RunConfig
from isentrope.core.errors import RunError
from isentrope.methods.options import with_options

COMMANDS = (
    "train", "sft", "rft", "eval", "table", "serve", "export", "watch", "analyze", "report", "figures", "retrieve",
    "tasks", "play", "check-task", "serve-task", "build-repairs", "serve-openenv", "methods", "models", "config",
    "check-method", "docs", "doctor", "bench", "study", "claims", "recipes", "metrics",
    "import", "plan",
)  # fmt: skip
TOY = "tests.toys:ToyWorld"


def invoke(*arguments: str, typed: str = "") -> Result:
    return CliRunner().invoke(app, list(arguments), input=typed, env={"COLUMNS": "200", "NO_COLOR": "1"})


@dataclass
class Recorder:
    """Stands in for a module that the command calls."""

    calls: list[tuple[Any, ...]] = field(default_factory=list)
    answer: Any = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.calls.append((*args, kwargs))
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Any:
    def put(module: str, name: str, answer: Any = None) -> Recorder:
        recorder = Recorder(answer=answer)
        fake = ModuleType(module)
        setattr(fake, name, recorder)
        monkeypatch.setitem(sys.modules, module, fake)
        return recorder

    return put


def test_help_is_quick_and_light() -> None:
    code = (
        "import sys, isentrope.cli.main as m; sys.argv = ['isentrope', '--help']\n"
        "try: m.main()\nexcept SystemExit: pass\n"
        "heavy = {'torch', 'numpy', 'pyarrow', 'transformers'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    best = float("inf")
    for _ in range(3):  # processor time, the best of three: other programs must not count
        began = _time_of_children()
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
        best = min(best, _time_of_children() - began)
    assert best < 1.0


def _time_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_every_command_is_listed_and_teaches_by_example() -> None:
    listed = invoke("--help").stdout
    assert sorted(command.name or "" for command in app.registered_commands) == sorted(COMMANDS)
    for name in COMMANDS:
        assert name in listed
        page = invoke(name, "--help")
        assert page.exit_code == 0
        assert "Examples:" in page.stdout
        assert f"isentrope {name}" in page.stdout
    assert invoke("--version").stdout.strip() == f"isentrope {__version__}"


@pytest.mark.parametrize(("command", "module", "name"), [
    ("train", "isentrope.loop.train", "train"),
    ("sft", "isentrope.loop.imitate", "warm_up"),
])  # fmt: skip
def test_train_and_sft(stand_in: Any, tmp_path: Path, command: str, module: str, name: str) -> None:
    called = stand_in(module, name)
    recipe = tmp_path / "a.toml"
    recipe.write_text("[learn]\nlr = 1e-4")
    done = invoke(command, str(recipe), "--out", "runs/x", "--set", "run.steps=7", "--set", "methods=epo")
    assert done.exit_code == 0, done.output
    ((config, out, rest),) = called.calls
    assert config == load_config(recipe, ["run.steps=7", "methods=epo"])
    assert (out, rest) == (Path("runs/x"), {"resume": False, "from_step": None})


def test_resuming_needs_no_recipe(stand_in: Any, tmp_path: Path) -> None:
    called = stand_in("isentrope.loop.train", "train")
    (tmp_path / "config.toml").write_text("[run]\nseed = 9")
    assert invoke("train", "--out", str(tmp_path), "--resume").exit_code == 0
    assert called.calls[0][0].run.seed == 9
    assert called.calls[0][2] == {"resume": True, "from_step": None}


def test_report(stand_in: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "report.html"
    called = stand_in("isentrope.report.page", "write_report", page)
    opened = Recorder()
    monkeypatch.setattr("webbrowser.open", opened)
    assert invoke("report", str(tmp_path)).stdout.strip() == str(page)
    assert not opened.calls
    invoke("report", str(tmp_path), "--open")
    assert called.calls[1][0] == tmp_path
    assert opened.calls[0][0] == page.as_uri()


def test_our_errors_are_one_panel(stand_in: Any) -> None:
    stand_in("isentrope.loop.train", "train", RunError("the disk [red]is full[/red]\x1b[2J"))
    done = invoke("train", "--out", "x")
    assert done.exit_code == 2
    assert "Run folder" in done.stderr
    assert "the disk [red]is full[/red]" in done.stderr
    assert "Traceback" not in done.output
    wrong = invoke("train", "--out", "x", "--set", "learn.lrr=1", "--set", "method.epo.x=1")
    assert wrong.exit_code == 2
    assert "did you mean learn.lr?" in wrong.stderr


@pytest.mark.parametrize("arguments", [("export", "smolm2", "--out", "never"), ("serve", "smolm2")])
def test_a_model_that_is_not_there(arguments: tuple[str, ...]) -> None:
    done = invoke(*arguments)
    assert done.exit_code == 2
    assert done.stderr.startswith("loading smolm2 …\n")
    assert "did you mean smollm2?" in " ".join(done.stderr.replace("│", " ").split())
    assert "policy.model" not in done.stderr  # the name was an argument


def test_a_task_server_says_how_it_is_used_and_what_it_refuses() -> None:
    assert "task.where=http://127.0.0.1:8100" in invoke("serve-task", "--help").stdout
    for refused, words in (
        (("--host", "0.0.0.0"), "can be reached by others"),
        (("--key-env", "NO_SUCH_VARIABLE"), "environment variable"),
        (("--set", "task.where=http://127.0.0.1:1"), "plays its tasks itself"),
    ):
        result = invoke("serve-task", "household", *refused)
        assert result.exit_code == 2
        assert words in " ".join((result.stdout + result.stderr).replace("│", " ").split())


def test_the_example_of_a_server_names_its_address() -> None:
    assert "engine.url=http://127.0.0.1:8000/v1" in invoke("serve", "--help").stdout


def test_a_bug_keeps_its_traceback(stand_in: Any) -> None:
    stand_in("isentrope.loop.train", "train", ZeroDivisionError("bug"))
    assert isinstance(invoke("train", "--out", "x").exception, ZeroDivisionError)


def test_interrupting(stand_in: Any) -> None:
    stand_in("isentrope.loop.train", "train", KeyboardInterrupt())
    done = invoke("train", "--out", "x")
    assert done.exit_code == 130
    assert done.stderr == "loading pocket …\nStopped. The run continues with --resume.\n"
    stand_in("isentrope.report.page", "write_report", KeyboardInterrupt())
    done = invoke("report", "x")
    assert done.exit_code == 130
    assert done.stderr == "Stopped.\n"  # there is nothing to resume


def test_interrupting_a_real_process() -> None:
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "isentrope", "play", TOY]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, env=environment, text=True, **pipes) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            assert process.stdout.readline(), process.stderr.read()  # the game has begun, however long that took
            process.send_signal(signal.SIGINT)
            assert process.wait(300) == 130  # a busy machine takes its time; only a hang takes this long
            assert "Traceback" not in process.stderr.read()
        finally:
            process.kill()  # else a failure would wait for it for ever


def test_config_lists_settings_and_values(tmp_path: Path) -> None:
    everything = invoke("config").stdout
    assert "learn.loss.clip_high" in everything
    assert "peak learning rate" in everything
    resolved = invoke("config", "--set", "learn.lr=0.25").stdout
    assert "0.25" in resolved
    written = tmp_path / "a.toml"
    written.write_text(invoke("config", "--toml", "--set", "learn.lr=0.25").stdout)
    again = with_options(load_config(written))
    assert again == with_options(load_config(None, ["learn.lr=0.25"])) != with_options(RunConfig())
    assert "task.options.flavour" in invoke("config", "--world", TOY).stdout


def test_config_shows_what_belongs_to_methods_and_worlds(tmp_path: Path) -> None:
    changes = ("--set", "task.world=household", "--set", "methods=epo,no_think", "--set", "method.epo.alpha=0.5")
    shown = invoke("config", *changes).stdout
    rows = {cells[1].strip(): cells[2].strip() for line in shown.splitlines() if len(cells := line.split("│")) > 3}
    assert rows["method.epo.alpha"] == "0.5"
    assert rows["method.epo.kappa_high"] == "2.0"
    assert "task.options.rooms" in rows
    assert rows["task.world"] == '"household"'
    assert "method" not in rows
    written = tmp_path / "a.toml"
    written.write_text(invoke("config", *changes, "--toml").stdout)
    assert load_config(written).method == {"epo": with_options(load_config(None, ["methods=epo"])).method["epo"] | {
        "alpha": 0.5}}  # fmt: skip
    assert "rooms" in load_config(written).task.options
    other = invoke("config", "--set", "task.world=webshop")  # a world that is not installed
    assert other.exit_code == 0
    assert "task.options" in other.stdout
    foreign = invoke("config", "--set", f"task.world={TOY}", "--set", "methods=epo")  # to describe runs no code
    assert "not imported: tests.toys:ToyWorld" in " ".join(foreign.output.split())


def test_config_is_not_cut_off_in_a_narrow_terminal() -> None:
    done = CliRunner().invoke(app, ["config", "--set", "methods=higher_temperature"], env={"COLUMNS": "80"})
    assert done.exit_code == 0
    assert "…" not in done.stdout


@pytest.mark.parametrize("arguments", [(), ("learn",), ("--find", "rate"), ("demo",), ("--world", "webshop")])
def test_config_is_a_list_in_a_narrow_terminal(arguments: tuple[str, ...]) -> None:
    done = CliRunner().invoke(app, ["config", *arguments], env={"COLUMNS": "80"})
    assert done.exit_code == 0, done.output
    assert all(len(line) <= 80 for line in done.stdout.splitlines())
    assert not set("│…") & set(done.stdout)  # no columns, nothing cut


def test_config_of_a_section_and_by_words() -> None:
    assert "run.seed" not in invoke("config", "learn").stdout
    assert "learn.loss.clip_low" in invoke("config", "learn").stdout
    loss = invoke("config", "learn.loss").stdout
    assert "learn.loss.kind" in loss
    assert "learn.lr" not in loss
    found = invoke("config", "--find", "learning rate").stdout
    assert "learn.lr" in found
    assert "share of the updates in which the learning rate rises" in found  # by its meaning
    assert "learn.kl" not in found
    assert "0.0001" in invoke("config", "demo", "--find", "peak").stdout
    assert "No setting has 'nonsense'" in invoke("config", "--find", "nonsense").stdout


def test_config_describes_without_importing() -> None:
    for arguments in (["config", "learn"], ["config", "demo"], ["metrics", "--help"]):
        code = (
            f"import sys; sys.argv = ['isentrope', *{arguments}]\nfrom isentrope.cli.main import main\n"
            "try: main()\nexcept SystemExit: pass\nsys.exit('torch' in sys.modules)"
        )
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_the_help_of_the_commands_is_in_groups_of_one_line_each() -> None:
    listed = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "80"}).stdout
    titles = [line.split("─ ")[1].split(" ─")[0] for line in listed.splitlines() if line.startswith("╭")]
    assert titles[:3] == ["Options", "Train", "Look at runs"]
    assert "Commands" not in titles  # each has its group
    rows = [line for line in listed[listed.index("Train") :].splitlines() if line.startswith("│")]
    assert all(line[2] != " " for line in rows)  # no description goes on in a second line


def test_faults_of_methods_and_settings_come_together() -> None:
    done = invoke("train", "--out", "x", "--set", "methods=epo,ppo", "--set", "method.epo.x=1", "--set", "learn.lrr=1")
    assert done.exit_code == 2
    for part in ("3 problems", "learn.lrr", "method.epo.x", "ppo is an algorithm: --set learn.algorithm=ppo"):
        assert part in done.stderr


@pytest.mark.parametrize("value", ["expert", "'expert'", "nonsense"])
def test_rft_does_not_imitate_an_expert(stand_in: Any, value: str) -> None:
    called = stand_in("isentrope.loop.imitate", "warm_up")
    done = invoke("rft", "--out", "x", "--set", f"sft.source={value}")
    assert done.exit_code == 2
    assert "for an expert's use isentrope sft" in " ".join(done.stderr.replace("│", " ").split())
    assert not called.calls
    assert invoke("rft", "--out", "x", "--set", "sft.source=own").exit_code == 0
    assert called.calls[0][0].sft.source == "own"


def test_resuming_nothing_needs_a_recipe(stand_in: Any, tmp_path: Path) -> None:
    called = stand_in("isentrope.loop.train", "train")
    done = invoke("train", "--out", str(tmp_path / "a"), "--resume")
    assert done.exit_code == 2
    assert "nothing to resume" in done.stderr
    recipe = tmp_path / "recipe.toml"
    recipe.write_text("")
    assert invoke("train", str(recipe), "--out", str(tmp_path / "a"), "--resume").exit_code == 0
    assert len(called.calls) == 1


def test_check_task() -> None:
    done = invoke("check-task", TOY, "--games", "2", "--set", "task.options.goal=2")
    assert done.exit_code == 0, done.output
    assert "solved 4 of 4" in done.stdout
    assert "BROKEN" not in done.stdout
    assert invoke("check-task", "nowhere").exit_code == 2


def test_check_task_fails_for_a_broken_world(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.toys.ToyExpert.act", lambda self, view: 1 / 0)
    done = invoke("check-task", TOY)
    assert done.exit_code == 1
    assert "raised ZeroDivisionError" in done.stdout


def test_replaying_recordings(stand_in: Any, tmp_path: Path) -> None:
    checks = [
        SimpleNamespace(game="a", line=1, steps=3, difference=None),
        SimpleNamespace(game="b", line=2, steps=4, difference="at step 2, 'look': \x1b[2J[red]differs"),
    ]
    called = stand_in("isentrope.worlds.household.transcripts", "check_transcripts", checks)
    done = invoke("check-task", "household", "--transcripts", "x.jsonl")
    assert called.calls[0][0] == Path("x.jsonl")
    assert done.exit_code == 1
    assert "line 2, b\n  at step 2, 'look': [red]differs" in done.stdout
    assert "2 games, 7 steps: 1 different" in done.stdout
    called.answer = checks[:1]
    assert invoke("check-task", "--transcripts", "x.jsonl").exit_code == 0
    called.answer = []
    assert invoke("check-task", "--transcripts", "x.jsonl").exit_code == 2
    assert invoke("check-task", TOY, "--transcripts", "x.jsonl").exit_code == 2


def test_doctor(monkeypatch: pytest.MonkeyPatch) -> None:
    done = invoke("doctor")
    assert done.exit_code == 0, done.output
    for word in (
        "python",
        "torch",
        "extras",
        "cores",
        "memory",
        "disk",
        "matrix product",
        "bubblewrap",
        "java",
    ):
        assert word in done.stdout
    monkeypatch.setattr("isentrope.cli.machine.CORE", ("no-such-package",))
    monkeypatch.setattr("isentrope.cli.machine.PURPOSES", {"dream": "dreaming"})
    monkeypatch.setattr("isentrope.cli.machine._declared", lambda: {"dream": [Requirement("no-such-package")]})
    for owner in ("cli.machine", "core.needs"):
        monkeypatch.setattr(f"isentrope.{owner}.PROGRAMS", {"java": (("no-such-program",), "coffee", "drinking")})
    assert done.stdout.startswith("Training works here.")
    ill = invoke("doctor")
    assert ill.exit_code == 1
    assert ill.stdout.startswith("Training cannot work here.")
    narrow = CliRunner().invoke(app, ["doctor"], env={"COLUMNS": "80"}).stdout
    assert any(line.endswith("pip install no-such-package") for line in narrow.splitlines())  # in one piece, to copy
    assert "pip install no-such-package" in ill.stdout
    assert "[dream]'" in ill.stdout
    assert "apt-get install coffee" in ill.stdout
