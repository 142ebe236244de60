"""Saves and reads checkpoints. The newest few are kept, the newest few that an alarm wrote, and the best one.

A checkpoint is written into a folder with a temporary name, flushed to the disk, and renamed at the end: a kill or a
full disk at any moment leaves the older ones as they were. No pickle: tensors as safetensors, the rest as JSON. The
SHA-256 of every file is kept with it (integrity.py). Torch is imported where tensors are: which checkpoints there are
can be asked without it.
"""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from isentrope.config.schema import RunConfig
from isentrope.core.errors import RunError, writing
from isentrope.core.limits import NOTE_BYTES, STATE_BYTES, read_bounded, read_json
from isentrope.runs.atomic import flush_folder, write_atomically
from isentrope.runs.integrity import with_sum, without_sum, write_sums
from isentrope.runs.layout import (
    ALARM,
    BEST,
    CONFIG,
    POLICY,
    SETTINGS,
    STATE,
    TENSORS,
    checkpoint_name,
    checkpoint_step,
)

if TYPE_CHECKING:
    import torch


State = dict[str, Any]


class Savable(Protocol):
    def save(self, folder: Path) -> None: ...


class CheckpointRetention:
    """Saves the checkpoints of a run. The success on the first of `eval.splits` decides which one is best."""

    def __init__(self, folder: Path, config: RunConfig) -> None:
        self.folder, self.keep_last, self.split = folder, config.run.keep_last, config.eval.splits[0]

    def save(
        self, step: int, policy: Savable, state: State, metrics: Mapping[str, float] | None = None, alarm: bool = False
    ) -> None:
        """`metrics` of an evaluation made at this very step, if there was one; `alarm`: one is the reason to save."""
        success = (metrics or {}).get(f"eval/{self.split}/success")
        self.settle(save_checkpoint(self.folder, step, policy, state, success, alarm, self.folder.parent))

    def settle(self, checkpoint: Path) -> None:
        """Compare the newest checkpoint with the best and clear old ones away. Called again when a run is resumed:
        it may have been killed before it got here."""
        if (success := read_record(checkpoint)["success"]) is not None:
            best = best_checkpoint(self.folder)
            if best is None or success >= best[1] or best[0] == checkpoint.name:
                _write_best(self.folder, checkpoint.name, success)
        remove_old(self.folder, self.keep_last)


def save_checkpoint(
    folder: Path,
    step: int,
    policy: Savable,
    state: State,
    success: float | None = None,
    alarm: bool = False,
    run: Path | None = None,
) -> Path:
    """Write the checkpoint of `step` completed steps. `state` may hold tensors at any depth, and functions, which are
    asked now for what stands in their place; `alarm` marks it as one
    that was written because of an alarm. With the folder of its `run` it has a copy of the settings and says how far
    the logs had come."""
    final, part = folder / checkpoint_name(step), folder / f".part-{step:06d}"
    with writing(final):
        folder.mkdir(parents=True, exist_ok=True)
        for leftover in folder.glob(".part-*"):
            shutil.rmtree(leftover)
        (part / POLICY).mkdir(parents=True)
        try:
            policy.save(part / POLICY)
            tensors, tree = split_tensors(state, copies=False)  # moments on the host fill half of its memory
            _write_tensors(tensors, part / TENSORS)
            (part / STATE).write_text(json.dumps({"step": step, "success": success, "tree": tree}, indent=1))
            if alarm:
                (part / ALARM).touch()
            if run is not None and (run / CONFIG).is_file():
                shutil.copyfile(run / CONFIG, part / SETTINGS)
            write_sums(part, step, run)
            flush_folder(part)
            if final.exists():  # an earlier life of the run got this far: what it wrote is the same
                shutil.rmtree(final)
            part.rename(final)
            flush_folder(folder, deep=False)
        except Exception:
            shutil.rmtree(part, ignore_errors=True)
            raise
    return final


def _write_tensors(tensors: dict[str, torch.Tensor], path: Path) -> None:
    from safetensors import SafetensorError
    from safetensors.torch import save_file  # pyright: ignore[reportUnknownVariableType]

    try:
        save_file(tensors, path)
    except SafetensorError as error:  # how safetensors reports a full disk
        raise OSError(errno.ENOSPC, str(error)) from error


def latest_checkpoint(folder: Path) -> Path | None:
    return max(folder.glob("step-*"), default=None)


def read_record(checkpoint: Path) -> State:
    """What a checkpoint says of itself: step, success on the evaluation, and the state without its tensors."""
    try:
        record: Any = json.loads(read_bounded(checkpoint / STATE, STATE_BYTES))
        if not isinstance(record, dict) or not {"success", "tree"} <= record.keys():
            raise ValueError(f"{STATE} has not what a checkpoint says of itself")
        success: Any = cast("State", record)["success"]
        if success is not None and not (type(success) in (int, float) and not success < 0 and not success > 1):
            raise ValueError(f"{STATE} has the success {success!r:.40}")
        return cast("State", record)
    except (OSError, ValueError, RecursionError) as error:
        raise _unreadable(checkpoint, error) from error


def readable(checkpoint: Path) -> str:
    """Why a checkpoint cannot be read, in words; empty if all its parts are there."""
    missing = [name for name in (STATE, TENSORS, POLICY) if not (checkpoint / name).exists()]
    if missing:
        return f"{missing[0]} is missing"
    try:
        read_record(checkpoint)["tree"]
    except (RunError, LookupError, TypeError) as error:
        return f"{STATE} cannot be read ({error.__cause__ or repr(error)})"
    return ""


def load_state(checkpoint: Path) -> dict[str, Any]:
    """The state as it was saved, its tensors on the CPU."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file  # pyright: ignore[reportUnknownVariableType]

    record = read_record(checkpoint)
    try:
        return join_tensors(record["tree"], load_file(checkpoint / TENSORS))
    except (OSError, LookupError, TypeError, ValueError, RecursionError, SafetensorError) as error:
        raise _unreadable(checkpoint, error) from error


@contextmanager
def restoring(checkpoint: Path) -> Generator[None]:
    """Parts of a run take their state from a checkpoint: what they cannot use is the checkpoint's fault."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        if type(error).__name__ == "OutOfMemoryError":  # torch's: nothing is wrong with the checkpoint
            raise
        raise _unreadable(checkpoint, error) from error


def _unreadable(checkpoint: Path, error: Exception) -> RunError:
    todo = "delete its folder and resume from the one before"
    return RunError(f"the checkpoint {checkpoint} cannot be read ({error}); {todo}")


def best_checkpoint(folder: Path) -> tuple[str, float] | None:
    """Name and success of the checkpoint that did best on the evaluation; None where there was none yet."""
    best = _read_best(folder, ("name", "success"))
    return (str(best[0]), float(best[1])) if best else None


def best_step(folder: Path) -> int | None:
    """The step of the checkpoint that did best, which must still be there; None where there was none yet."""
    best = _read_best(folder, ("name",))
    if best is None:
        return None
    step = checkpoint_step(best[0]) if isinstance(best[0], str) else None
    if step is None or step not in kept_checkpoints(folder):
        path = folder / BEST
        raise RunError(f"{path} names {best[0]!r}, which is no checkpoint in that folder; {_without_best(path)}")
    return step


def choose_best(folder: Path) -> None:
    """Write anew which of the checkpoints that are there was best, the newest of equals."""
    told = [
        (success, path.name) for path in kept_checkpoints(folder).values() if (success := _success(path)) is not None
    ]
    if told:
        success, name = max(told)
        _write_best(folder, name, success)
    else:
        (folder / BEST).unlink(missing_ok=True)


def _success(checkpoint: Path) -> float | None:
    try:
        return read_record(checkpoint)["success"]
    except RunError:
        return None


def _write_best(folder: Path, name: str, success: float) -> None:
    write_atomically(folder / BEST, (json.dumps(with_sum({"name": name, "success": success})) + "\n").encode())


def _read_best(folder: Path, keys: Sequence[str]) -> list[Any] | None:
    path = folder / BEST
    if not path.is_file():
        return None
    try:
        record = without_sum(read_json(path, NOTE_BYTES))
        return [record[key] for key in keys]
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise RunError(f"cannot read which checkpoint was best ({error!r}); {_without_best(path)}") from error


def _without_best(path: Path) -> str:
    return f"delete {path}, and the last checkpoint is taken"


def kept_checkpoints(folder: Path) -> dict[int, Path]:
    """The checkpoints of a run by step, in their order."""
    found = {checkpoint_step(path.name): path for path in folder.glob("step-*") if path.is_dir()}
    return {step: found[step] for step in sorted(step for step in found if step is not None)}


def remove_old(folder: Path, keep_last: int) -> None:
    """Keep the newest checkpoints, the newest of those that an alarm wrote, and the best one."""
    best = best_checkpoint(folder)
    found = sorted(folder.glob("step-*"))
    alarms = [checkpoint for checkpoint in found if (checkpoint / ALARM).exists()][-keep_last:]
    for checkpoint in found[:-keep_last]:
        if checkpoint not in alarms and (best is None or checkpoint.name != best[0]):
            shutil.rmtree(checkpoint, ignore_errors=True)


def split_tensors(value: Any, path: str = "", copies: bool = True) -> tuple[dict[str, torch.Tensor], Any]:
    """A nested state with its tensors taken out: {"tensor": name} stands where each was; integer keys are marked.
    Without `copies` tensors that are in main memory are those of the state itself, unless two of them share it."""
    import torch

    tensors: dict[str, torch.Tensor] = {}
    places = set[int]()

    def walk(item: Any, path: str) -> Any:
        item = item() if callable(item) else item
        if isinstance(item, torch.Tensor):
            there = item.detach().cpu().contiguous()
            place = there.untyped_storage().data_ptr()
            tensors[path] = there.clone() if copies or place in places else there
            places.add(place)
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
