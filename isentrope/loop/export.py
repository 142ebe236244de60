"""Exports a run's policy, or any model folder, as a Hugging Face folder with a README; adapters are merged."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from isentrope.analysis.tables import markdown_table
from isentrope.config.load import load_config
from isentrope.config.schema import RunConfig
from isentrope.config.text import config_to_toml
from isentrope.core.errors import EngineError, RunError, writing
from isentrope.core.limits import real
from isentrope.models.load import load_folder
from isentrope.models.lora import Base, is_adapter, merged
from isentrope.models.policy import Policy
from isentrope.models.sources.find import find_folder
from isentrope.runs.atomic import flush_folder, share_as
from isentrope.runs.checkpoints import best_step, kept_checkpoints
from isentrope.runs.folder import about_or_nothing, kind_of
from isentrope.runs.integrity import check_settings
from isentrope.runs.layout import CHECKPOINTS, METRICS, POLICY, checkpoint_path, checkpoint_step, recorded_config
from isentrope.runs.log import read_records
from isentrope.runs.recovery import refuse_damaged

LOADING = """```python
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained("PATH")  # of this folder
tokenizer = AutoTokenizer.from_pretrained("PATH")
```

Talk to it by its chat template, and stop an answer where its form ends: it was trained to be cut off there, not to
write an end-of-text token. The form is in the list above; `think_act` and `act` end with `</action>`, `act_think`
with `</think>`.
"""
NO_TOKENIZER = """The weights load with `transformers` (`AutoModelForCausalLM`) and elsewhere as a Llama model. The
tokenizer is Isentrope's own (`pocket_tokens.json`) and has no Hugging Face form: `isentrope eval`, `play` and `train`
read this folder, other programs have to be given token ids.
"""


def model_card(source: Path, folder: Path, made: Path, dtype: str, parameters: int, has_tokenizer: bool) -> str:
    """`source` is what the user named, `folder` the model folder in it, `made` the new one."""
    run = real(folder).parents[2] if len(real(folder).parents) > 2 else None
    if run is None or checkpoint_step(folder.parent.name) is None or not recorded_config(run):
        run = None  # it is not the policy of a run's checkpoint
    header = ["---", "library_name: transformers", "pipeline_tag: text-generation", "tags: [isentrope]", "---"]
    lines = [*header, "", f"# {real(source).name}", ""]
    kind = json.loads((made / "config.json").read_text()).get("model_type", "unknown")
    lines += [f"A {kind} model of {parameters:,} parameters, {dtype}, exported by Isentrope.", ""]
    lines += _training(run, folder) if run else [f"Made of the model folder `{_plain(str(folder))}`.", ""]
    lines += ["## Loading it", "", LOADING if has_tokenizer else NO_TOKENIZER]
    if run:
        lines += ["## Recipe", "", "```toml", _plain(config_to_toml(_config(run))).strip(), "```", ""]
    return "\n".join(lines)


def _config(run: Path) -> RunConfig:
    if (recorded := recorded_config(run)) is not None:
        check_settings(recorded)
    return load_config(recorded, [])


def _training(run: Path, folder: Path) -> list[str]:
    config = _config(run)
    kind = kind_of(about_or_nothing(run), imitates=False)
    step = checkpoint_step(folder.parent.name) or 0
    base = Base.load(folder).name if is_adapter(folder) else config.policy.model
    how = "all weights" if not config.policy.lora_rank else f"adapters of rank {config.policy.lora_rank}, merged"
    what = {"sft": "imitation of expert games", "rft": "imitation of its own successes"}
    trained = what.get(kind, f"reinforcement learning ({config.learn.algorithm})")
    lines = [
        f"- base: `{_plain(base)}`; its licence holds for this model too",
        f"- task: `{_plain(config.task.world)}`, answers in the form `{config.agent.order}`",
        f"- training: {trained}, {how}, step {step}",
    ]
    began = Path(config.policy.model)
    if before := about_or_nothing(began):
        lines.append(f"- before that: {what.get(before.get('kind', ''), 'another run')} (`{_plain(str(began))}`)")
    if config.methods:
        lines.append(f"- methods: {', '.join(_plain(name) for name in config.methods)}")
    return [*lines, "", *_success(run, step, config)]


def _success(run: Path, step: int, config: RunConfig) -> list[str]:
    records = read_records(run / METRICS) if (run / METRICS).is_file() else []
    found = [r for r in records if r.get("kind") == "eval" and r.get("step") == step]
    if not found:
        return [f"No evaluation was made at step {step} of the run.", ""]
    # a log has None for what is no number
    last: dict[str, float] = {key: value for key, value in found[-1].items() if isinstance(value, int | float)}
    rows = [_row(last, split) for split in config.eval.splits if f"eval/{split}/success" in last]
    if not rows:
        return [f"The evaluation at step {step} of the run tells no success.", ""]
    table = markdown_table(("split", "games", "success", "95 % interval"), rows)
    return [f"Measured in the run at step {step}, temperature {config.eval.temperature:g}:", "", table, ""]


def _row(record: dict[str, float], split: str) -> list[str]:
    base = f"eval/{split}"
    low, high = (100 * record.get(f"{base}/{end}", float("nan")) for end in ("low", "high"))
    games = str(round(record.get(f"{base}/games", 0)) or "")
    return [_plain(split), games, f"{100 * record[f'{base}/success']:.1f} %", f"{low:.1f} to {high:.1f}"]


def _plain(text: str) -> str:
    """Text from a recipe cannot end the code it stands in."""
    return text.replace("`", "'")


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
    refuse_damaged(folder)
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
            standard = (part / "tokenizer.json").is_file()
            _write_generation_config(part / "generation_config.json", policy)
            (part / "README.md").write_text(model_card(source, folder, part, dtype, parameters, standard), "utf-8")
            share_as(part / "README.md")
            flush_folder(part)
            part.rename(out)
            flush_folder(real(out.parent), deep=False)
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
    parent = real(out).parent
    while not parent.exists():
        parent = parent.parent
    wanted += 64 << 20
    free = shutil.disk_usage(parent).free
    if free < wanted:
        raise RunError(
            f"{out} needs about {wanted / 2**30:.1f} GiB, {free / 2**30:.1f} GiB are free on that disk; make room or "
            "choose another --out"
        )


def _write_generation_config(path: Path, policy: Policy) -> None:
    """The model's own, with the tokens at which an answer ends here: other engines would talk on without them."""
    config: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {}
    config |= {"eos_token_id": sorted(policy.tokenizer.eos_ids), "pad_token_id": policy.tokenizer.pad_id}
    path.write_text(json.dumps(config, indent=2) + "\n")
