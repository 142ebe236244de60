"""The names of everything in a run folder.

config.toml                        the settings, all written out
run.json                           which command made the folder, when, by which version, from which weights; of each
                                   start the command line, the machine and versions
run.lock                           held while the run lasts; its process
metrics.jsonl  timings.jsonl       the numbers of each step, and what the clock said
events.jsonl                       alarms, changes of phase, methods switched on, the error that stopped the run
episodes/step-000012.parquet       training, step 12; scores-000012: what the update made of its tokens;
                                   dropped-000012: played and left out by dynamic sampling
episodes/eval-000012-unseen.parquet   evaluation at step 12 on the split "unseen"
episodes/own.parquet               own successes that `isentrope rft` imitates
checkpoints/step-000012/           policy/, a model folder; state.json and state.safetensors, all else that a resumed
                                   run needs; alarm, an empty file where an alarm had it written; settings.toml, a
                                   copy of config.toml; sha256.json, what tells damage
checkpoints/aside-000012/          a damaged checkpoint that a resumed run passed over
checkpoints/best.json              which checkpoint did best on the evaluation
reference/                         the policy at step 0
tokens.json                        what each token reads as
trackers.json                      what wandb, mlflow and trackio call the run
tensorboard/  mlflow/              for those programs
warmup/                            the run folder of a warm-up, if somebody put it there
report.html                        written by `isentrope report`
"""

from __future__ import annotations

import re
from pathlib import Path

from isentrope.core.errors import RunError
from isentrope.core.limits import leads_out

CONFIG, ABOUT, LOCK = "config.toml", "run.json", "run.lock"
METRICS, TIMINGS, EVENTS = "metrics.jsonl", "timings.jsonl", "events.jsonl"
EPISODES, CHECKPOINTS, REFERENCE = "episodes", "checkpoints", "reference"
TOKENS, TRACKERS, REPORT = "tokens.json", "trackers.json", "report.html"
TENSORBOARD, MLFLOW, WARMUP = "tensorboard", "mlflow", "warmup"
POLICY, STATE, TENSORS, ALARM = "policy", "state.json", "state.safetensors", "alarm"  # of a checkpoint
SETTINGS, SUMS = "settings.toml", "sha256.json"  # of a checkpoint too
BEST = "best.json"  # beside the checkpoints

MARKS = (METRICS, CONFIG, ABOUT, EPISODES)  # a folder that has one of these is a run folder
NOT_RUNS = (EPISODES, CHECKPOINTS, REFERENCE, TENSORBOARD, POLICY)  # folders in a run folder that hold no runs
FOR_TRAINING = (CHECKPOINTS, REFERENCE, EPISODES, TENSORBOARD)  # folders that a run's numbers can do without

_NAME = re.compile(r"[\w.-]{1,64}")
_CHECKPOINT = re.compile(r"step-([0-9]{6,12})")


def train_path(run: Path, step: int) -> Path:
    return run / EPISODES / f"step-{step:06d}.parquet"


def dropped_path(run: Path, step: int) -> Path:
    return run / EPISODES / f"dropped-{step:06d}.parquet"


def scores_path(run: Path, step: int) -> Path:
    return run / EPISODES / f"scores-{step:06d}.parquet"


def eval_path(run: Path, step: int, split: str) -> Path:
    return run / EPISODES / eval_name(step, split)


def names_a_file(split: str) -> bool:
    return _NAME.fullmatch(split) is not None


def eval_name(step: int | None, split: str) -> str:
    """`isentrope eval` also stores episodes of models that have no step. A split is named by the task's world, which
    may be anybody's: its name must not lead out of the folder."""
    if not names_a_file(split):
        raise RunError(f"the split {split!r:.80} cannot name a file: expected 1 to 64 letters, digits, . _ and -")
    return f"eval-{split}.parquet" if step is None else f"eval-{step:06d}-{split}.parquet"


def own_path(run: Path) -> Path:
    return run / EPISODES / "own.parquet"


def checkpoint_path(run: Path, step: int) -> Path:
    return run / CHECKPOINTS / checkpoint_name(step)


def checkpoint_name(step: int) -> str:
    return f"step-{step:06d}"


def aside_name(step: int) -> str:
    return f"aside-{step:06d}"


def checkpoint_step(name: str) -> int | None:
    """A checkpoint's step from the name of its folder; None if no checkpoint is called so."""
    match = _CHECKPOINT.fullmatch(name)
    return int(match[1]) if match else None


def recorded_config(run: Path | None) -> Path | None:
    """The file of a run's settings, if there is a run and it has one."""
    path = run / CONFIG if run is not None else None
    if path is None or not path.is_file():
        return None
    if leads_out(path):
        raise RunError(f"{path} is a link that leads out of the run folder; copy the file there if it is yours")
    return path
