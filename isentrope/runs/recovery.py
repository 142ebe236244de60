"""Chooses the checkpoint that a run goes on from: the newest one without damage, if the logs reach it.

A damaged checkpoint is passed over and kept aside, and the run goes on from the one before it: it computes again what
it had computed. Logs that are shorter than a checkpoint says, or changed, cannot be computed again from that
checkpoint on, so the user chooses: `--from-step` names the checkpoint.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from isentrope.core.command import command
from isentrope.core.errors import RunError, writing
from isentrope.runs.checkpoints import best_checkpoint, choose_best, kept_checkpoints, readable
from isentrope.runs.integrity import folder_damage, log_damage
from isentrope.runs.layout import (
    CHECKPOINTS,
    CONFIG,
    EVENTS,
    POLICY,
    REFERENCE,
    aside_name,
    checkpoint_path,
    checkpoint_step,
)
from isentrope.runs.log import append_record, truncate_logs

ASIDE_KEPT = 2  # checkpoints that were passed over, the newest ones


@dataclass(frozen=True)
class GoingOn:
    checkpoint: Path | None = None
    said: tuple[str, ...] = ()  # what was damaged, and what is done about it


def damage(checkpoint: Path) -> str:
    """What is wrong with a checkpoint, in words; empty if nothing is."""
    return folder_damage(checkpoint) or readable(checkpoint)


def sound_steps(run: Path) -> list[int]:
    """The steps of the checkpoints without damage."""
    return [step for step, path in kept_checkpoints(run / CHECKPOINTS).items() if not damage(path)]


def refuse_damaged(folder: Path) -> None:
    """Stop if a model folder is the policy of a damaged checkpoint, or a damaged reference."""
    checkpoint = folder.parent
    if folder.name == POLICY and checkpoint_step(checkpoint.name) is not None:
        if problem := folder_damage(checkpoint, f"{POLICY}/"):
            sound = ", ".join(map(str, sound_steps(checkpoint.parents[1]))) or "none"
            raise RunError(
                f"the checkpoint {checkpoint} is damaged: {problem}. Put the file back from a copy, or take another: "
                f"without damage are those of the steps: {sound} (--step of eval and export; elsewhere name the folder "
                f"{checkpoint.parent}/step-…/{POLICY})"
            )
    elif problem := folder_damage(folder):
        todo = "Put the file back from a copy"
        if folder.name == REFERENCE:
            todo += f", or begin the run once more elsewhere, with the settings of {folder.parent / CONFIG}, and copy "
            todo += f"its folder {REFERENCE} here: that is written at the start and has the same content"
        raise RunError(f"{folder} is damaged: {problem}. {todo}")


def going_on(run: Path, kind: str, from_step: int | None = None) -> GoingOn:
    """The checkpoint to go on from, which is then the newest in the folder; `kind` is the command of the run."""
    kept = kept_checkpoints(run / CHECKPOINTS)
    if from_step is not None:
        return _from(run, kept, from_step)
    damaged: dict[int, str] = {}
    for step in sorted(kept, reverse=True):
        if not (problem := damage(kept[step])):
            break
        damaged[step] = problem
    if not kept:
        return GoingOn()
    if len(damaged) == len(kept):
        raise RunError(_nothing_left(run, kind, kept, damaged))
    chosen = max(kept.keys() - damaged.keys())
    if problem := log_damage(run, kept[chosen]):
        raise RunError(_choices(run, kind, kept, chosen, problem))
    said = [
        f"The checkpoint {kept[step].name} is damaged: {problem}. The run goes on from {kept[chosen].name} and "
        f"computes again what came after it. The damaged one is kept as {CHECKPOINTS}/{aside_name(step)}."
        for step, problem in damaged.items()
    ]
    try:
        best_checkpoint(run / CHECKPOINTS)
    except RunError as error:
        said.append(f"Which checkpoint was best is chosen anew from what each says of itself ({error.__cause__}).")
    _pass_over(run, kept, chosen, said)
    return GoingOn(kept[chosen], tuple(said))


def _from(run: Path, kept: dict[int, Path], step: int) -> GoingOn:
    """From the checkpoint that the user named, whatever the logs say."""
    if problem := damage(kept[step]) if step in kept else "it is not there":
        sound = ", ".join(map(str, sound_steps(run))) or "none"
        raise RunError(
            f"--from-step {step}: {checkpoint_path(run, step)} cannot be gone on from: {problem}. Without damage are "
            f"the checkpoints of the steps: {sound}"
        )
    said: list[str] = []
    later = [kept[number].name for number in sorted(kept) if number > step]
    if later:
        said.append(
            f"The run was taken back to {kept[step].name}. Later checkpoints ({', '.join(later)}) are set aside, the "
            f"newest {ASIDE_KEPT} kept in {CHECKPOINTS}."
        )
    if problem := log_damage(run, kept[step]):
        said.append(
            f"The run goes on from {kept[step].name} as it was asked to, though {problem}: numbers of earlier steps "
            "are lost or wrong."
        )
    _pass_over(run, kept, step, said)
    return GoingOn(kept[step], tuple(said))


def _pass_over(run: Path, kept: dict[int, Path], chosen: int, said: Sequence[str]) -> None:
    """Make the chosen checkpoint the newest one, and record why."""
    if not said:
        return
    truncate_logs(run, chosen, damaged=True)  # or a line that was cut off would stand in the way of the next one
    for text in said:
        event = {"step": chosen, "kind": "recovery", "name": "checkpoint", "text": text, "remedy": ""}
        append_record(run / EVENTS, event)
    folder = run / CHECKPOINTS
    with writing(folder):
        for step in sorted(step for step in kept if step > chosen):
            shutil.rmtree(folder / aside_name(step), ignore_errors=True)
            kept[step].rename(folder / aside_name(step))
        for old in sorted(folder.glob("aside-*"))[:-ASIDE_KEPT]:
            shutil.rmtree(old, ignore_errors=True)
    choose_best(folder)


def _nothing_left(run: Path, kind: str, kept: dict[int, Path], damaged: dict[int, str]) -> str:
    newest = max(kept)
    told = "; ".join(f"{kept[step].name}: {damaged[step]}" for step in sorted(damaged, reverse=True))
    weights = kept[newest] / POLICY
    usable = weights.is_dir() and not folder_damage(kept[newest], f"{POLICY}/")
    choices = ["put the damaged file back from a copy, and resume"]
    if usable:
        again = command(kind, run / CONFIG, "--out", f"{run}-again", "--set", f"policy.model={weights}")
        choices.append(f"begin a new run from the weights of {kept[newest].name}, which are sound: {again}")
    choices.append(f"begin it once more: {command(kind, run / CONFIG, '--out', f'{run}-again')}")
    numbered = ". ".join(f"({number}) {choice[0].upper()}{choice[1:]}" for number, choice in enumerate(choices, 1))
    return f"{run} cannot go on: no checkpoint is without damage ({told}). {numbered}"


def _choices(run: Path, kind: str, kept: dict[int, Path], chosen: int, problem: str) -> str:
    def line(step: int) -> str:
        return command(kind, "--out", run, "--resume", "--from-step", step)

    reached = [s for s in kept if s < chosen and not damage(kept[s]) and not log_damage(run, kept[s])]
    text = (
        f"{run} does not go on by itself: by the checkpoint {kept[chosen].name}, {problem}. Choose: put the file back "
    )
    text += "from a copy, and resume; "
    if reached:
        text += f"go on from step {max(reached)}, up to which the logs are whole, and compute the rest again: "
        text += f"{line(max(reached))}; "
    text += f"or go on from step {chosen} with numbers of earlier steps lost or wrong: {line(chosen)}"
    return text
