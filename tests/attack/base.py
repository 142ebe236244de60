"""The whole folders that hostile ones are made from: `python -m tests.attack.base FOLDER`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from isentrope.cli.main import app
from isentrope.config.text import config_to_toml
from isentrope.loop.train import train
from isentrope.study.read import read_study, write_compact
from tests.builders.hostile_logs import make_logs
from tests.builders.run_folders import cell, make_study, whole_run
from tests.builders.toy_runs import WARM_MODEL, toy_config


def make(folder: Path) -> None:
    config = toy_config(WARM_MODEL, "run.steps=1", "run.eval_every=1", "run.checkpoint_every=1")
    train(config, folder / "run", quiet=True)
    (folder / "run" / "events.jsonl").write_text(
        json.dumps({"step": 1, "kind": "alarm", "name": "eruption", "text": "Entropy erupted.", "remedy": "Wait."})
        + "\n"
    )
    (folder / "run" / "trackers.json").write_text(json.dumps({"wandb": "abc"}))
    (folder / "recipe.toml").write_text(config_to_toml(config))
    make_study(folder / "study", [cell("a"), cell("b", against="a")])
    for name in ("a", "b"):
        for seed in (0, 1):
            whole_run(folder / "study", name, seed, 0.5 + 0.1 * seed)
    app(
        ["eval", str(folder / "run"), "--games", "4", "--trust", "--out", str(folder / "eval.json")],
        standalone_mode=False,
    )
    write_compact(read_study(folder / "study"), folder / "compact")
    make_logs(folder / "logs")


if __name__ == "__main__":
    make(Path(sys.argv[1]))
