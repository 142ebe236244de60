"""The files of a model folder that hold its weights, and what their headers say: safetensors, nothing else."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, cast

from isentrope.errors import EngineError

HEADER_LIMIT = 100_000_000  # bytes; what the safetensors format allows
SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")


def weight_shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """The shapes of all weights, from the headers of the safetensors files."""
    files = _parts(folder) if (folder / INDEX).is_file() else [folder / SINGLE]
    missing = [file.name for file in files if not file.is_file()]
    if missing == [SINGLE] and len(files) == 1:
        raise EngineError(_why_none(folder))
    if missing:
        raise EngineError(f"{folder} is not whole: {missing[0]} is missing ({len(missing)} of {len(files)} files)")
    return {name: shape for file in files for name, shape in _header(file).items()}


def _parts(folder: Path) -> list[Path]:
    """What the index names. It may come from anywhere, and the loader follows it: to a pickle too, or out of the
    folder."""
    table: object = read_json(folder / INDEX, "download the model again").get("weight_map")
    named = list(cast("dict[str, object]", table).values()) if isinstance(table, dict) else []
    if not named:
        raise EngineError(f"{folder / INDEX} names no files of weights (weight_map); download the model again")
    for name in named:
        if not isinstance(name, str) or Path(name).name != name or not name.endswith(".safetensors"):
            raise EngineError(
                f"{folder / INDEX} names {name!r}, which is not loaded: expected names of safetensors files in the "
                "same folder; take the model from a place that you trust"
            )
    return [folder / name for name in sorted(set(cast("list[str]", named)))]


def _why_none(folder: Path) -> str:
    pickles = [file.name for pattern in PICKLES for file in folder.glob(pattern)]
    if pickles:
        return (
            f"{folder} has its weights as {pickles[0]}, a pickle, which can run code when it is read and is not "
            "loaded; look for the model's safetensors version, or convert it where you trust it: "
            "AutoModelForCausalLM.from_pretrained(…).save_pretrained(…)"
        )
    others = sorted(file.name for file in folder.glob("*.safetensors"))
    if others:
        return f"{folder} has {others[0]}, but neither {SINGLE} nor {INDEX}; copy the whole folder"
    return f"{folder} has a config.json but no weights (*.safetensors); copy the whole folder"


def _header(file: Path) -> dict[str, tuple[int, ...]]:
    """Names and shapes. Every number is held against the file's size before it is believed."""
    try:
        size = file.stat().st_size
        with file.open("rb") as opened:
            length = int.from_bytes(opened.read(8), "little")
            if length > min(HEADER_LIMIT, size):
                raise ValueError("its header is longer than the file")
            table = cast("dict[str, Any]", json.loads(opened.read(length)))
        entries = {name: entry for name, entry in table.items() if name != "__metadata__"}
        shapes = {name: tuple(map(int, entry["shape"])) for name, entry in entries.items()}
        wanted = 8 + length + max((int(entry["data_offsets"][1]) for entry in entries.values()), default=0)
        if wanted != size:
            raise ValueError(f"its header tells of {wanted:,} bytes, and it has {size:,}")
        if any(min(shape, default=0) < 0 or math.prod(shape) > 8 * size for shape in shapes.values()):
            raise ValueError("a tensor that is larger than the file")
        return shapes
    except (OSError, ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise EngineError(f"{file} is not a whole safetensors file ({error}); copy it again") from error


def read_json(path: Path, advice: str) -> dict[str, Any]:
    try:
        table: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise EngineError(f"cannot read {path} ({error}); {advice}") from error
    if not isinstance(table, dict):
        raise EngineError(f"{path} is not a JSON object; {advice}")
    return cast("dict[str, Any]", table)
