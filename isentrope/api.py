"""The public Python API: train, evaluate and look at runs.

    import isentrope as it

    config = it.load_config("demo", {"methods": ["my_module:Mine"], "learn.lr": 3e-4})
    run = it.train(config, out="runs/mine")
    run.curve("entropy/token"), run.episodes(step=12), run.diagnosis().words()
    it.evaluate(run, split="unseen")["unseen"].success

Nothing is printed: what the command line would say goes to the logger `isentrope` (`logging.basicConfig(level="INFO")`
shows it), and `quiet=False` shows the progress as the command line does.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isentrope.config.load import config_from_table, lay_over, read_overrides, read_recipe
from isentrope.config.schema import RunConfig
from isentrope.core.errors import ConfigError, RunError
from isentrope.core.needs import install_command
from isentrope.core.signals import ASKED_TO_END, Interrupted
from isentrope.core.types import Episode
from isentrope.loop.settings import recipe_or_run, table_of
from isentrope.runs.folder import Run as RunFolder
from isentrope.runs.layout import METRICS
from isentrope.runs.lock import held_locks, is_alive

if TYPE_CHECKING:
    from isentrope.analysis.measure import SplitResult
    from isentrope.diagnosis.doctor import Diagnosis

Numbers = NDArray[np.float64]
Settings = Mapping[str, Any] | Sequence[str]


def load_config(recipe: str | Path | None = None, settings: Settings = ()) -> RunConfig:
    """The settings of a run: a recipe's with `settings` laid over them, all checked.

    `recipe` is a file or the name of one that comes with the package (`demo`, `household`); None: all defaults.
    `settings` are names and values, full or nested; a class or a function stands for its `module:Class`. A list of
    `"name=value"` is read as `--set` is. Everything that is wrong is one ConfigError.

        it.load_config("demo", {"run.steps": 20, "methods": ["epo"], "method": {"epo": {"alpha": 0.2}}})
        it.load_config("demo", ["run.steps=20"])
    """
    from isentrope.methods.options import option_problems

    problems: list[str] = []
    below = read_recipe(recipe) if recipe is not None else {}
    above = table_of(settings) if isinstance(settings, Mapping) else read_overrides(settings, problems)
    return config_from_table(lay_over(below, above), problems, str(recipe or ""), option_problems)


def train(
    config: RunConfig, out: str | Path, *, resume: bool = False, quiet: bool = True, from_step: int | None = None
) -> Run:
    """Train by reinforcement learning in the run folder `out`.

    `resume` goes on from the last checkpoint there, if there is one, or from that of `from_step`. SIGTERM, SIGHUP and
    SIGUSR1 save the run and end the program with status 143, if this is its main thread.

        run = it.train(it.load_config("demo", {"run.steps": 3}), out="runs/first")
    """
    from isentrope.engines.registry import check_training
    from isentrope.loop.train import train as run_training

    check_training(config)
    with _ending():
        run_training(config, Path(out), resume, quiet, from_step)
    return Run(out)


@contextmanager
def _ending() -> Generator[None]:
    """A signal that asked a run to end asked the program."""
    try:
        yield
    except Interrupted:
        raise SystemExit(ASKED_TO_END) from None


def warm_up(
    config: RunConfig, out: str | Path, *, resume: bool = False, quiet: bool = True, from_step: int | None = None
) -> Run:
    """Imitate games of the world's expert (sft). The run's folder can be the next one's `policy.model`.

    warm = it.warm_up(it.load_config("demo", {"sft.games": 24}), out="runs/warm")
    it.train(it.load_config("demo", {"policy.model": str(warm.path)}), out="runs/rl")
    """
    return _imitate(config, out, resume, quiet, "expert", from_step)


def rft(
    config: RunConfig, out: str | Path, *, resume: bool = False, quiet: bool = True, from_step: int | None = None
) -> Run:
    """Let the policy play, then imitate the games that it solved.

    it.rft(it.load_config("demo", {"policy.model": "runs/warm", "sft.games": 48}), out="runs/rft")
    """
    return _imitate(config, out, resume, quiet, "own", from_step)


def _imitate(config: RunConfig, out: str | Path, resume: bool, quiet: bool, source: str, from_step: int | None) -> Run:
    from isentrope.loop.imitate import warm_up as run_imitation

    with _ending():
        run_imitation(replace(config, sft=replace(config.sft, source=source)), Path(out), resume, quiet, from_step)
    return Run(out)


def evaluate(
    model: Run | str | Path,
    *,
    split: str | Sequence[str] = (),
    games: int | None = None,
    temperature: float | None = None,
    checkpoint: str | int | None = None,
    config: RunConfig | None = None,
    trust: bool = False,
    quiet: bool = True,
) -> dict[str, SplitResult]:
    """Play a run's checkpoint, or a model, on held-out games: success with its 95 % interval, by split.

    A run brings its own settings; a model needs a `config`. `checkpoint` is best, last or a step. A run whose settings
    name code of somebody's own (`module:Class`) is refused unless you `trust` it or give a `config` that names it.

        result = it.evaluate(run, split="unseen", games=64)["unseen"]
        result.success.value, result.success.low, result.success.high
    """
    from isentrope.loop.evaluate import Exam, evaluate_model

    path = model.path if isinstance(model, Run) else Path(model)
    if config is None:
        if not (path / METRICS).is_file():
            raise ConfigError(f"{model} is not a run folder, so it brings no settings; give a config")
        config = recipe_or_run(None, path, (), trust)
    wanted = {"games": games, "temperature": temperature}
    chosen = {name: value for name, value in wanted.items() if value is not None}
    splits = (split,) if isinstance(split, str) else tuple(split)
    settings = replace(config.eval, **chosen, **({"splits": splits} if splits else {}))
    config = replace(config, eval=settings)
    record = evaluate_model(config, str(path), Exam(checkpoint=checkpoint), quiet=quiet)
    return dict(record.evaluations[-1].splits)


def runs(folder: str | Path = "runs") -> list[Run]:
    """All runs in a folder and below it, by their paths.

    best = max(it.runs("runs"), key=lambda run: run.curve("eval/unseen/success").values[-1])
    """
    if not Path(folder).is_dir():
        raise RunError(f"{folder} is not a folder; give one with runs in it")
    return [Run(path.parent) for path in sorted(Path(folder).rglob(METRICS))]


class Curve(NamedTuple):
    """A metric over the steps at which it was measured: `plt.plot(*run.curve("entropy/token"))`."""

    steps: NDArray[np.int64]
    values: Numbers


class Run:
    """A run folder as it is when it is opened; `reload()` reads it again. The run may still be going.

    run = it.Run("runs/first")
    run.curve("entropy/token").values, run.setting("learn.lr"), run.alive
    """

    def __init__(self, path: str | Path) -> None:
        self._folder = RunFolder.open(path)

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r}, {self.kind}, {self._folder.last_step} steps)"

    @property
    def path(self) -> Path:
        return self._folder.path

    @property
    def name(self) -> str:
        return self._folder.name

    @property
    def kind(self) -> str:
        """The command that made it: train, sft or rft."""
        return self._folder.kind

    @property
    def config(self) -> Mapping[str, Any]:
        """The settings as recorded, nested tables. Nothing in it is imported."""
        return self._folder.config

    def setting(self, name: str, default: Any = None) -> Any:
        """A setting by its full name: `run.setting("learn.lr")`."""
        return self._folder.setting(name, default)

    @property
    def alive(self) -> bool:
        """Whether a process of this machine is writing to the folder now."""
        return is_alive(self.path, held_locks())

    @property
    def events(self) -> list[dict[str, Any]]:
        """Alarms, warnings, changes of phase and what was done: `[event["text"] for event in run.events]`."""
        return list(self._folder.events)

    def reload(self) -> Run:
        """The run as it is now: `run = run.reload()`."""
        return Run(self.path)

    def keys(self, prefix: str = "") -> list[str]:
        """The metrics that were measured: `run.keys("entropy/")`."""
        return [key for key in self._folder.keys(prefix) if "/" in key or key not in ("step", "kind", "nonfinite")]

    def curve(self, key: str) -> Curve:
        """A metric over the steps: `steps, values = run.curve("success/all")`. Empty if it was not measured."""
        found = self._folder.curve(key)
        return Curve(np.array(found.steps, dtype=np.int64), np.array(found.values, dtype=np.float64))

    def metrics(self, kind: str = "") -> dict[str, Numbers]:
        """All metrics of the training steps as arrays of one length, `step` first; NaN where one was not measured.
        `kind="eval"` gives those of evaluations.

            run.metrics()["entropy/token"].mean()
        """
        records = self._folder.of_kind(kind or ("train" if self.kind == "train" else "sft"))
        keys = ["step", *sorted({key for record in records for key in record} - {"step", "kind", "nonfinite"})]
        rows = [[record.get(key) for key in keys] for record in records]
        table = np.array([[v if isinstance(v, int | float) else np.nan for v in row] for row in rows], dtype=np.float64)
        return {key: table[:, place] if len(rows) else np.zeros(0) for place, key in enumerate(keys)}

    def frame(self, kind: str = "") -> Any:
        """The same as a pandas DataFrame, if pandas is installed: `run.frame().plot(y="entropy/token")`."""
        try:
            import pandas as pd  # pyright: ignore
        except ImportError as error:
            raise ConfigError(
                f"Run.frame needs pandas: {install_command('pandas')}; Run.metrics gives arrays"
            ) from error
        metrics = self.metrics(kind)
        steps = metrics.pop("step").astype(np.int64)
        return pd.DataFrame(metrics, index=pd.Index(steps, name="step"))  # pyright: ignore

    def episodes(self, step: int, split: str | None = None) -> list[Episode]:
        """The stored episodes of a training step, or of the evaluation of a split at that step.

        [turn.action for turn in run.episodes(step=3)[0].turns]
        """
        return self._folder.episodes(step, split)

    def diagnosis(self) -> Diagnosis:
        """What the numbers show, and what to try: `print(run.diagnosis().words())`."""
        from isentrope.diagnosis.doctor import diagnose

        return diagnose(self._folder)

    def report(self, out: str | Path | None = None) -> Path:
        """Write the run's page, one HTML file: `run.report()` gives its path."""
        from isentrope.report.page import write_report

        return write_report(self.path, Path(out) if out is not None else None)

    def show(self, *keys: str) -> Picture:
        """A picture for a notebook: success and entropy, or the metrics that are named.

        run.show(); run.show("entropy/think", "entropy/action")
        """
        from isentrope.charts.svg import picture
        from isentrope.report.figures import draw, success_chart
        from isentrope.report.plots import Plot
        from isentrope.report.story import story_of

        story = story_of(self._folder)
        charts = [] if keys else [success_chart(self._folder, self._folder.warmup(), story)]
        for key in keys or ("entropy/token",):
            kind = "eval" if key.startswith("eval/") else "train" if self.kind == "train" else "sft"
            charts.append(draw(Plot(key, {key: key}), self._folder.of_kind(kind), story))
        drawn = [chart for chart in charts if chart is not None]
        if not drawn:
            raise RunError(f"{self.path} has measured nothing of {', '.join(keys) or 'success and entropy'} yet")
        return Picture(picture(*drawn))

    def _repr_html_(self) -> str:
        try:
            return self.show().svg
        except RunError:
            return f"<pre>{repr(self).replace('<', '&lt;')}</pre>"


class Picture:
    """An SVG picture, which notebooks show: `run.show()`. `run.show().svg` is its text."""

    def __init__(self, svg: str) -> None:
        self.svg = svg

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, path: str | Path) -> Path:
        """`run.show().save("run.svg")`"""
        from isentrope.runs.atomic import write_atomically

        write_atomically(Path(path), self.svg.encode("utf-8", "replace"))
        return Path(path)
