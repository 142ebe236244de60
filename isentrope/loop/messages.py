"""The messages of a run: before it starts, at its start, at its end, and when something is not right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from isentrope.config.schema import RunConfig
from isentrope.core.errors import ConfigError, TaskError
from isentrope.core.types import FAILURES, Episode
from isentrope.loop.progress import Progress
from isentrope.metrics.episodes import failures_by_kind
from isentrope.models.load import LARGE
from isentrope.models.policy import Policy
from isentrope.runs.layout import METRICS, checkpoint_step
from isentrope.runs.log import read_records
from isentrope.runs.writer import RunFolder

HIGH_RATE = 2e-4
"""A learning rate above which large models usually fall apart when all of their weights learn."""
_DETAIL_LENGTH = 400
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


def check_prompt(config: RunConfig) -> None:
    """The pocket model has never read the full prompt: nothing that it answers there is valid."""
    if config.policy.model == "pocket" and config.agent.prompt == "full":
        raise ConfigError(
            'agent.prompt = "full" with policy.model = "pocket": the pocket model can read the brief prompt alone, so '
            "none of its answers would be valid. Name a language model (--set policy.model=smollm2, a model folder or "
            "a name on the Hugging Face hub), or keep the pocket model: with its own recipe (for eval: "
            "--recipe recipes/demo.toml) or with --set agent.prompt=brief"
        )


def _size(policy: Policy, config: RunConfig) -> str:
    learning = sum(p.numel() / 1e6 for p in policy.module.parameters() if p.requires_grad)
    adapted = f", {learning:.2g} million learn" if config.policy.lora_rank else ""
    return f"{policy.size / 1e6:.3g} million parameters{adapted}"


def warn_of_rate(progress: Progress, policy: Policy, rate: float) -> None:
    """For imitation."""
    learning = sum(p.numel() for p in policy.module.parameters() if p.requires_grad)
    if learning >= LARGE and rate > HIGH_RATE:
        progress.say(
            f"sft.lr = {rate:g} is high for {learning / 1e6:.0f} million weights that learn; 1e-5 is a usual choice "
            "(the default, 1e-3, is the pocket model's)"
        )


def say_start(progress: Progress, config: RunConfig, policy: Policy, folder: RunFolder, found: Path | None) -> None:
    """Who learns what, by which means and where; `found` is the checkpoint that the run goes on from."""
    if folder.kind == "train" and found and (checkpoint_step(found.name) or 0) >= config.run.steps:
        return  # there is nothing left to do
    if folder.resumed and not found:
        nothing = "nothing to resume" if folder.fresh else "no checkpoint was written"
        progress.say(f"{nothing} at {folder.path}: beginning a new run")
    elif found:
        progress.say(f"{folder.path}: going on from {found.name}")
    what = f"{config.policy.model} ({_size(policy, config)}, {policy.device}) in {config.task.world}"
    if folder.kind != "train":
        whose = "its own successes" if folder.kind == "rft" else "an expert's games"
        progress.say(f"{folder.kind}: {what} imitates {whose}; folder {folder.path}")
        return
    methods = f" with {', '.join(config.methods)}" if config.methods else ""
    rollout, steps = config.rollout, config.run.steps
    progress.say(
        f"train: {what} by {config.learn.algorithm}{methods}; {steps} step{'' if steps == 1 else 's'} of "
        f"{rollout.groups} × {rollout.group_size} episodes; folder {folder.path}"
    )


def summary(metrics: Mapping[str, float], splits: Sequence[str]) -> str:
    """One line, e.g. "seen 71.1 % [67, 75], unseen 70.3 % [66, 74]"."""
    return ", ".join(
        f"{split} {100 * metrics[f'eval/{split}/success']:.1f} % "
        f"[{100 * metrics[f'eval/{split}/low']:.0f}, {100 * metrics[f'eval/{split}/high']:.0f}]"
        + (f" ({metrics[f'eval/{split}/failures']:.0f} lost to a fault)" if f"eval/{split}/failures" in metrics else "")
        for split in splits
        if f"eval/{split}/success" in metrics
    )


def brief(metrics: Mapping[str, float]) -> str:
    """How a step went."""
    return f"success {metrics['success/all']:.2f}  entropy {metrics.get('entropy/token', 0):.2f}"


def say_end(progress: Progress, path: Path) -> None:
    progress.say(f"done: {path}; its page: isentrope report {path}")


def say_pause(progress: Progress, path: Path, step: int, why: str) -> None:
    progress.say(
        f"paused after step {step} because of an alarm: {why} To go on: isentrope train --out {path} --resume (with "
        "--set instruments.on_alarm=nothing it does not pause again)"
    )


def finished(progress: Progress, config: RunConfig, path: Path, steps: int) -> dict[str, float]:
    """For a run that was resumed after its end: its last evaluation, said and given."""
    evaluations = [record for record in read_records(path / METRICS) if record.get("kind") == "eval"]
    last = evaluations[-1] if evaluations else {}
    metrics = {key: float(value) for key, value in last.items() if key.startswith("eval/") and value is not None}
    said = f" Last evaluation, step {last['step']}: {summary(metrics, config.eval.splits)}." if metrics else ""
    progress.say(f"{path} is finished: all {steps} steps are done.{said} Its page: isentrope report {path}")
    return metrics


def look_at_rollout(progress: Progress, step: int, episodes: Sequence[Episode], metrics: Mapping[str, float]) -> None:
    """Stop where every task failed, say what failed, and say so if the policy does not know how to answer."""
    check_tasks(episodes)
    if told := failures_in_words(episodes, metrics):
        progress.say(f"step {step}: {told}")
    if step == 1 and metrics.get("valid_ratio") == 0:
        progress.say(
            "WARNING: not one response of the first rollout was a valid action. The policy does not know the form of "
            "an answer (tags around its action), so there is nothing yet to learn from. Warm it up on expert games "
            "(isentrope sft RECIPE --out runs/warm) and train from there (--set policy.model=runs/warm); if it should "
            "know, see in the report what it writes, and whether agent.max_response is long enough"
        )


def failures_in_words(episodes: Sequence[Episode], metrics: Mapping[str, float]) -> str:
    """What went wrong outside of the policy, in a line; empty if nothing did."""
    failed = [episode for episode in episodes if episode.stop in FAILURES]
    parts: list[str] = []
    if failed:
        kinds = ", ".join(f"{count} {kind}" for kind, count in failures_by_kind(episodes).items())
        first = " ".join(failed[0].detail.split())[:_LINE_LENGTH]
        parts.append(
            f"{len(failed)} of {len(episodes)} episodes failed and are not learnt from ({kinds}; first: {first})"
        )
    for key, words in _HAPPENED.items():
        if metrics.get(key):
            parts.append(f"{metrics[key]:.0f} {words}")
    return "; ".join(parts)


def check_tasks(episodes: Sequence[Episode], purpose: str = "learn from", stops: Sequence[str] = FAILURES) -> None:
    """A world whose every task fails is broken: nothing can be learnt from it, and nothing is measured by it."""
    failed = [episode for episode in episodes if episode.stop in stops and not episode.success]
    if failed and len(failed) == len(episodes):
        first = failed[0]
        advice = {
            "engine_error": "",
            "clock": "; raise it, or play fewer games at once (rollout.batch): it counts from the start of them all",
        }.get(first.stop, "; isentrope check-task WORLD tests a world alone")
        raise TaskError(
            f"all {len(failed)} episodes failed, so there is nothing to {purpose}. The first, {first.split} game "
            f"{first.index}, ended as {first.stop}: {first.detail[:_DETAIL_LENGTH] or 'no detail'}{advice}"
        )
