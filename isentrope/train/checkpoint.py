"""Checkpoints that are either whole or not there.

    checkpoints/step-000020/policy/        a Hugging Face model folder
    checkpoints/step-000020/state.json     everything else that a resumed run needs: optimiser, methods, counters
    checkpoints/step-000020/state.safetensors   the tensors of that
    checkpoints/best.json                  which one did best on the evaluation

A checkpoint is written into a folder with a temporary name, flushed to the disk, and renamed at the end: a kill or a
full disk at any moment leaves the older ones as they were. No pickle: tensors as safetensors, the rest as JSON.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save  # pyright: ignore[reportUnknownVariableType]

from isentrope.core.errors import RunError, writing
from isentrope.disk import flush_folder
from isentrope.models.policy import Policy
from isentrope.rollout.files import write_atomically

BEST = "best.json"
TENSORS = "state.safetensors"
ALARM = "alarm"  # an empty file in a checkpoint that was written because of one


def save_checkpoint(
    folder: Path, step: int, policy: Policy, state: dict[str, Any], success: float | None = None, alarm: bool = False
) -> Path:
    """Write the checkpoint of `step` completed steps. `state` may hold tensors at any depth; `alarm` marks it as one
    that was written because of an alarm."""
    final, part = folder / f"step-{step:06d}", folder / f".part-{step:06d}"
    with writing(final):
        folder.mkdir(parents=True, exist_ok=True)
        for leftover in folder.glob(".part-*"):
            shutil.rmtree(leftover)
        (part / "policy").mkdir(parents=True)
        try:
            policy.save(part / "policy")
            tensors, tree = split_tensors(state)
            (part / TENSORS).write_bytes(save(tensors))
            (part / "state.json").write_text(json.dumps({"step": step, "success": success, "tree": tree}, indent=1))
            if alarm:
                (part / ALARM).touch()
            flush_folder(part)
            if final.exists():  # an earlier life of the run got this far: what it wrote is the same
                shutil.rmtree(final)
            part.rename(final)
            flush_folder(folder, deep=False)
        except Exception:
            shutil.rmtree(part, ignore_errors=True)
            raise
    return final


def latest_checkpoint(folder: Path) -> Path | None:
    found = sorted(folder.glob("step-*"))
    return found[-1] if found else None


def read_record(checkpoint: Path) -> dict[str, Any]:
    """What a checkpoint says of itself: step, success on the evaluation, and the state without its tensors."""
    try:
        record: dict[str, Any] = json.loads((checkpoint / "state.json").read_text())
        return record
    except (OSError, ValueError) as error:
        raise _unreadable(checkpoint, error) from error


def load_state(checkpoint: Path) -> dict[str, Any]:
    """The state as it was saved, its tensors on the CPU."""
    record = read_record(checkpoint)
    try:
        return join_tensors(record["tree"], load_file(checkpoint / TENSORS))
    except (OSError, KeyError, SafetensorError) as error:
        raise _unreadable(checkpoint, error) from error


def _unreadable(checkpoint: Path, error: Exception) -> RunError:
    return RunError(
        f"the checkpoint {checkpoint} cannot be read ({error}); delete its folder and resume from the one before"
    )


def mark_best(folder: Path, checkpoint: Path, success: float) -> None:
    write_atomically(folder / BEST, (json.dumps({"name": checkpoint.name, "success": success}) + "\n").encode())


def best_checkpoint(folder: Path) -> tuple[str, float] | None:
    path = folder / BEST
    if not path.is_file():
        return None
    record = json.loads(path.read_text())
    return str(record["name"]), float(record["success"])


def remove_old(folder: Path, keep_last: int) -> None:
    """Keep the newest checkpoints, the newest of those that an alarm wrote, and the best one."""
    best = best_checkpoint(folder)
    found = sorted(folder.glob("step-*"))
    alarms = [checkpoint for checkpoint in found if (checkpoint / ALARM).exists()][-keep_last:]
    for checkpoint in found[:-keep_last]:
        if checkpoint not in alarms and (best is None or checkpoint.name != best[0]):
            shutil.rmtree(checkpoint, ignore_errors=True)


def split_tensors(value: Any, path: str = "") -> tuple[dict[str, torch.Tensor], Any]:
    """A nested state with its tensors taken out: {"tensor": name} stands where each was; integer keys are marked."""
    tensors: dict[str, torch.Tensor] = {}

    def walk(item: Any, path: str) -> Any:
        if isinstance(item, torch.Tensor):
            tensors[path] = item.detach().cpu().contiguous().clone()
            return {"tensor": path}
        if isinstance(item, dict):
            pairs: dict[Any, Any] = item  # type: ignore[assignment]
            return {"dict": [[key, walk(child, f"{path}/{key}")] for key, child in pairs.items()]}
        if isinstance(item, list | tuple):
            children: list[Any] = list(item)  # type: ignore[arg-type]
            return {"list": [walk(child, f"{path}/{i}") for i, child in enumerate(children)]}
        return {"value": item}

    return tensors, walk(value, path)


def join_tensors(value: Any, tensors: dict[str, torch.Tensor]) -> Any:
    if "tensor" in value:
        return tensors[value["tensor"]]
    if "dict" in value:
        return {key: join_tensors(child, tensors) for key, child in value["dict"]}
    if "list" in value:
        return [join_tensors(child, tensors) for child in value["list"]]
    return value["value"]
