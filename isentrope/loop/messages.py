"""The messages of a run: before it starts, at its start, at its end, and when something is not right."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from isentrope.config.schema import RunConfig
from isentrope.config.text import as_table
from isentrope.core.command import command
from isentrope.core.types import FAILURES, Episode
from isentrope.learning.optimiser import learning_rate
from isentrope.loop.progress import Progress
from isentrope.metrics.episodes import ended_by
from isentrope.models.policy import Policy
from isentrope.runs.layout import METRICS, checkpoint_step
from isentrope.runs.log import Record, read_records
from isentrope.runs.writer import RunFolder

CROWDED = 0.25  # seconds of waiting in a second; with free cores it is about 0.01
_TASKS = Path("/proc/self/task")


def waited(tasks: Path = _TASKS) -> float | None:
    """Seconds that the threads of this process were ready to run and had no core, all together; None: not told."""
    nanoseconds, told = 0, False
    for thread in tasks.glob("*/schedstat"):
        try:
            nanoseconds += int(thread.read_text().split()[1])  # computed, waited, slices of time
            told = True
        except (OSError, ValueError, IndexError):
            continue  # a thread that has just ended, or another kernel's form
    return nanoseconds / 1e9 if told else None


class Cores:
    """How long threads waited for a core, in seconds a second, from one look to the next.

    Threads that compute together wait for the last of them, so one that finds no free core holds up all: small matrix
    products on a CPU become many times slower. Linux tells it, other systems do not.
    """

    def __init__(self, tasks: Path = _TASKS) -> None:
        self._tasks = tasks
        self._time, self._waited = time.perf_counter(), waited(tasks)

    def look(self) -> float | None:
        now, waits = time.perf_counter(), waited(self._tasks)
        before, self._time, since, self._waited = self._waited, now, now - self._time, waits
        if waits is None or before is None or since <= 0:
            return None
        return max(0.0, waits - before) / since  # threads that have ended take their count with them


class Crowd:
    """Measures in every step whether other programs keep the cores busy, and says it once."""

    def __init__(self, progress: Progress, device: torch.device, cores: Cores | None = None) -> None:
        self.progress, self.device, self.cores, self.advised = progress, device, cores or Cores(), False

    def begin(self) -> None:
        self.cores.look()  # what comes before a step is not part of it

    def look(self, step: int) -> dict[str, float]:
        waited = self.cores.look()
        if not self.advised and (advice := crowded(waited, self.device)):
            self.progress.say(f"step {step}: {advice}")
            self.advised = True
        return {} if waited is None else {"cores/waited": waited}


def crowded(waited: float | None, device: torch.device, threads: int | None = None) -> str:
    """Advice where other programs keep the cores busy that several threads compute on; empty if there is none."""
    threads = torch.get_num_threads() if threads is None else threads
    if waited is None or waited < CROWDED or device.type != "cpu" or threads == 1:
        return ""
    return (
        f"other programs keep the cores busy: {threads} threads waited for them for {waited:.1f} s in every second, "
        "and wait for each other. One thread alone is then often several times faster: stop with Ctrl-C and go on with "
        "--resume --set run.threads=1"
    )


_LINE_LENGTH = 120
_HAPPENED = {
    "mended/text_cut": "observations were too long and were cut",
    "mended/actions_cut": "lists of actions were too long and were cut",
    "mended/encoding": "observations had characters that do not exist",
    "tasks/workers_replaced": "worker processes were replaced",
    "tasks/replayed": "episodes were played again after their worker fell",
    "tasks/threads_left": "threads were left behind with tasks that hang",
    "tasks/servers_lost": "task servers were lost",
}


def say_start(
    progress: Progress,
    config: RunConfig,
    policy: Policy,
    folder: RunFolder,
    found: Path | None,
    autos: Sequence[str] = (),
) -> None:
    """Who learns what, by which means and where; `found` is the checkpoint that the run goes on from, `autos` are the
    settings that followed the model."""
    if folder.kind == "train" and found and (checkpoint_step(found.name) or 0) >= config.run.steps:
        return  # there is nothing left to do
    if folder.resumed and not found:
        nothing = "nothing to resume" if folder.fresh else "no checkpoint was written"
        progress.say(f"{nothing} at {folder.path}: beginning a new run")
    elif found:
        progress.say(f"{folder.path}: going on from {found.name}")
    learning = sum(p.numel() / 1e6 for p in policy.module.parameters() if p.requires_grad)
    size = f"{policy.size / 1e6:.3g} million parameters"
    size += f", {learning:.2g} million learn" if config.policy.lora_rank else ""
    what = f"{config.policy.model} ({size}, {policy.device}) in {config.task.world}"
    if folder.kind != "train":
        whose = "its own successes" if folder.kind == "rft" else "an expert's games"
        progress.say(f"{folder.kind}: {what} imitates {whose}; folder {folder.path}")
        _say_autos(progress, config, [name for name in autos if name != "learn.lr"])
        return
    methods = f" with {', '.join(config.methods)}" if config.methods else ""
    rollout, steps = config.rollout, config.run.steps
    progress.say(
        f"train: {what} by {config.learn.algorithm}{methods}; {steps} step{'' if steps == 1 else 's'} of "
        f"{rollout.groups} × {rollout.group_size} episodes; folder {folder.path}"
    )
    _say_autos(progress, config, [name for name in autos if name != "sft.lr"])


def _say_autos(progress: Progress, config: RunConfig, names: Sequence[str]) -> None:
    if names:
        table = as_table(config)
        values = [(name, *name.split(".")) for name in names]
        told = ", ".join(f"{name} = {table[section][key]}" for name, section, key in values)
        progress.say(f"auto, for this model: {told}")


def say_extended(progress: Progress, config: RunConfig, before: int, checkpoint: Path | None) -> None:
    """What another number of steps does to the schedules of a run that goes on."""
    learn, done = config.learn, (checkpoint_step(checkpoint.name) or 0) if checkpoint else 0
    each = learn.epochs * learn.mini_batches
    old, new = (
        learning_rate(done * each, steps * each, learn.lr, learn.warmup, learn.floor)
        for steps in (before, config.run.steps)
    )
    progress.say(
        f"run.steps was {before}, now {config.run.steps}: the learning rate follows the schedule of {config.run.steps} "
        f"steps from step {done + 1} on, where it is {new:.3g} (by the schedule of {before}: {old:.3g}); schedules of "
        "methods, such as EPO's, count the new number of steps too"
    )


def summary(metrics: Mapping[str, float], splits: Sequence[str]) -> str:
    """One line, e.g. "seen 71.1 % [67, 75], unseen 70.3 % [66, 74]"."""
    return ", ".join(
        f"{split} {100 * metrics[f'eval/{split}/success']:.1f} % "
        f"[{100 * metrics[f'eval/{split}/low']:.0f}, {100 * metrics[f'eval/{split}/high']:.0f}]"
        + (f" ({metrics[f'eval/{split}/failures']:.0f} lost to a fault)" if f"eval/{split}/failures" in metrics else "")
        + (f" ({metrics[cut]:.0f} out of context)" if (cut := f"eval/{split}/cut/context_limit") in metrics else "")
        for split in splits
        if f"eval/{split}/success" in metrics
    )


def brief(metrics: Mapping[str, float]) -> str:
    """How a step went."""
    return f"success {metrics['success/all']:.2f}  entropy {metrics.get('entropy/token', 0):.2f}"


def say_end(progress: Progress, path: Path) -> None:
    if told := nothing_learnt(read_records(path / METRICS)):
        progress.say(told)
    progress.say(f"done: {path}; its page: {command('report', path)}")


def nothing_learnt(records: Sequence[Record]) -> str:
    """Advice for a run whose rewards taught nothing in any step; empty where one did, or where the alarm said it."""
    steps = [record for record in records if record.get("kind") == "train"]
    idle = [one for one in steps if one.get("advantage/zero_groups") == 1 or one.get("update/count") == 0]
    if not steps or len(idle) < len(steps) or any("alarm/no_signal" in one for one in steps):
        return ""
    solved = sum(float(one.get("success/all") or 0) for one in steps) / len(steps)
    remedy = "harder tasks" if solved > 0.5 else f"a warm-up ({command('sft')}), easier tasks or larger groups"
    return (
        f"WARNING: rewards taught the policy nothing in any of {len(steps)} steps: in every group all episodes did "
        f"equally well ({100 * solved:.0f} % are solved), so every advantage was 0. Try {remedy} (rollout.group_size)"
    )


def say_pause(progress: Progress, path: Path, step: int, why: str) -> None:
    progress.say(
        f"paused after step {step} because of an alarm: {why} To go on: {command('train', '--out', path, '--resume')} "
        "(with --set instruments.on_alarm=nothing it does not pause again)"
    )


def finished(progress: Progress, config: RunConfig, path: Path, steps: int) -> dict[str, float]:
    """For a run that was resumed after its end: its last evaluation, said and given."""
    evaluations = read_records(path / METRICS, "eval")
    last = evaluations[-1] if evaluations else {}
    metrics = {key: float(value) for key, value in last.items() if key.startswith("eval/") and value is not None}
    said = f" Last evaluation, step {last['step']}: {summary(metrics, config.eval.splits)}." if metrics else ""
    progress.say(f"{path} is finished: all {steps} steps are done.{said} Its page: {command('report', path)}")
    return metrics


def failures_in_words(episodes: Sequence[Episode], metrics: Mapping[str, float]) -> str:
    """What went wrong outside of the policy, in a line; empty if nothing did."""
    failed = [episode for episode in episodes if episode.stop in FAILURES]
    parts: list[str] = []
    if short := [episode for episode in episodes if episode.stop == "context_limit" and not episode.turns]:
        parts.append(
            f"{len(short)} of {len(episodes)} episodes had no room for a response (the first, {short[0].split} game "
            f"{short[0].index}: {short[0].detail}); a larger agent.max_context has"
        )
    if failed:
        kinds = ", ".join(f"{count} {kind}" for kind, count in ended_by(FAILURES, episodes).items())
        first = " ".join(failed[0].detail.split())[:_LINE_LENGTH]
        parts.append(
            f"{len(failed)} of {len(episodes)} episodes failed and are not learnt from ({kinds}; first: {first})"
        )
    for key, words in _HAPPENED.items():
        if metrics.get(key):
            parts.append(f"{metrics[key]:.0f} {words}")
    return "; ".join(parts)
