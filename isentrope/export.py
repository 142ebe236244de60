"""A run's policy, or any model folder, as a standard Hugging Face folder: adapters added to the weights."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from isentrope.core.errors import EngineError, RunError, writing
from isentrope.export_card import model_card
from isentrope.models.load import load_folder
from isentrope.models.lora.adapters import merged
from isentrope.models.policy import Policy
from isentrope.models.sources.find import find_folder
from isentrope.runs.atomic import flush_folder, share_as
from isentrope.runs.checkpoints import best_step, kept_checkpoints
from isentrope.runs.layout import CHECKPOINTS, POLICY, checkpoint_path

DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}


@dataclass(frozen=True)
class Exported:
    folder: Path
    source: Path  # the model folder it was made of
    parameters: int
    has_tokenizer: bool  # one that transformers loads


def export(source: Path, out: Path, dtype: str = "bfloat16", step: int | None = None) -> Exported:
    """Write `source`, a run or a model folder, as a model folder at `out`, which must not be there yet."""
    if out.exists():
        raise RunError(f"{out} is already there and is not overwritten; choose another folder with --out")
    folder = _chosen(source, step)
    policy = merged(load_folder(folder, torch.device("cpu"), "float32", "float32"))
    parameters = sum(p.numel() for p in policy.module.parameters())
    _check_space(out, parameters * DTYPES[dtype].itemsize)
    for parameter in policy.module.parameters():
        parameter.data = parameter.data.to(DTYPES[dtype])
    part = out.with_name(f".part-{out.name}-{os.getpid()}")
    with writing(out):
        part.mkdir(parents=True)
        try:
            policy.save(part)
            standard = _has_tokenizer(part)
            _write_generation_config(part, policy)
            (part / "README.md").write_text(model_card(source, folder, part, dtype, parameters, standard), "utf-8")
            share_as(part / "README.md")
            flush_folder(part)
            part.rename(out)
            flush_folder(out.parent.resolve(), deep=False)
        except BaseException:
            shutil.rmtree(part, ignore_errors=True)
            raise
    return Exported(out, folder, parameters, standard)


def _chosen(source: Path, step: int | None) -> Path:
    checkpoints = source / CHECKPOINTS
    if step is None:
        return find_folder(str(source), setting="")
    folder = checkpoint_path(source, step) / POLICY
    if not folder.is_dir():
        there, best = kept_checkpoints(checkpoints), best_step(checkpoints)
        found = f"it has {', '.join(map(str, there))}" if there else "it has none"
        raise EngineError(
            f"{source} has no checkpoint of step {step}; {found}" + (f" (best: {best})" if best is not None else "")
        )
    return folder


def _check_space(out: Path, wanted: int) -> None:
    """Of the weights and a little for the rest."""
    parent = out.resolve().parent
    while not parent.exists():
        parent = parent.parent
    wanted += 64 << 20
    free = shutil.disk_usage(parent).free
    if free < wanted:
        raise RunError(
            f"{out} needs about {wanted / 2**30:.1f} GiB, {free / 2**30:.1f} GiB are free on that disk; make room or "
            "choose another --out"
        )


def _has_tokenizer(folder: Path) -> bool:
    return (folder / "tokenizer.json").is_file()


def _write_generation_config(folder: Path, policy: Policy) -> None:
    """The model's own, with the tokens at which an answer ends here: other engines would talk on without them."""
    path = folder / "generation_config.json"
    config: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {}
    config |= {"eos_token_id": sorted(policy.dialect.eos_ids), "pad_token_id": policy.dialect.pad_id}
    path.write_text(json.dumps(config, indent=2) + "\n")
