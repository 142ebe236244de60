"""What to know of the results in a row, said below the table."""

from __future__ import annotations

from collections.abc import Sequence

from isentrope.results.measure import Evaluation, SplitResult
from isentrope.results.source import Source


def lost(name: str, split: str, results: Sequence[SplitResult]) -> list[str]:
    """Episodes that came out as they did for a reason outside the policy."""
    broken = sum(result.failures for result in results)
    clock, context = (sum(result.cut.get(stop, 0) for result in results) for stop in ("clock", "context_limit"))
    notes = [f"{name}: {broken} episodes on {split} were lost to a fault and count as not solved"] if broken else []
    if clock:
        notes.append(f"{name}: {clock} episodes on {split} were cut off by the clock (task.episode_seconds)")
    if context:
        notes.append(f"{name}: {context} episodes on {split} ended for want of context (agent.max_context)")
    return notes


def choice(name: str, picked: Sequence[tuple[Source, Evaluation]]) -> list[str]:
    """Checkpoints that were chosen by their success, or for want of another."""
    untrained = [source.path for source, one in picked if source.is_run and not one.step]
    notes = [f"{name}: {path} has no evaluation after step 0 yet: that one is shown" for path in untrained]
    best = [source.path for source, _ in picked if source.settings.get("eval.checkpoint") == "best"]
    return notes + [
        f"{name}: {path} is of the checkpoint that did best in its run's evaluations: where those played the same "
        "games, its success is too high (isentrope eval --checkpoint last)"
        for path in best
    ]
