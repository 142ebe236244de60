"""Does what a user does with a run folder, each time in a child process, and tells what came of it.

python -m tests.loop.reader     reads [ACTION, RUN, ANSWER]; writes to the file ANSWER what was found and what came out
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

import torch
import torch.utils.tensorboard  # pyright: ignore[reportUnusedImport]

from isentrope.core.errors import IsentropeError
from isentrope.loop.evaluate import Exam, evaluate_model
from isentrope.loop.export import export
from isentrope.loop.settings import recipe_or_recorded, recipe_or_run
from isentrope.loop.train import train
from isentrope.report.page import write_report
from isentrope.runs.checkpoints import latest_checkpoint
from tests.builders.toy_runs import WARM_MODEL, toy_config


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def resume(run: Path) -> Any:
    train(recipe_or_recorded(None, run, None, trust=True), run, resume=True, quiet=True)
    last = latest_checkpoint(run / "checkpoints")
    assert last is not None
    files = [run / "metrics.jsonl", run / "checkpoints" / "best.json", *(p for p in last.rglob("*") if p.is_file())]
    return {str(p.relative_to(run)): digest(p) for p in sorted(files) if p.name not in ("sha256.json", "settings.toml")}


def evaluate(run: Path) -> Any:
    record = evaluate_model(recipe_or_run(None, run, None, trust=True), str(run), Exam(), quiet=True)
    return repr(record.evaluations)


def write_out(run: Path) -> Any:
    made = export(run, run.parent / f"{run.name}-exported")
    return {path.name: digest(path) for path in sorted(made.folder.iterdir())}


def report(run: Path) -> Any:
    return write_report(run).read_text().replace(run.name, "RUN").replace(str(run.parent), "")


ACTIONS = {"resume": resume, "evaluate": evaluate, "export": write_out, "report": report}


class Heard(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def answer(action: str, run: str) -> dict[str, Any]:
    heard = Heard()
    logging.getLogger("isentrope").setLevel(logging.INFO)
    logging.getLogger("isentrope").addHandler(heard)
    told: dict[str, Any] = {"said": heard.lines}
    try:
        told["result"] = ACTIONS[action](Path(run))
    except IsentropeError as error:
        told["refused"] = str(error)
    except BaseException:
        told["traceback"] = traceback.format_exc()
    return told


def main() -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        train(toy_config(WARM_MODEL, "run.steps=1"), Path(place) / "first", quiet=True)
        write_report(Path(place) / "first")
    for line in sys.stdin:
        action, run, path = json.loads(line)
        child = os.fork()
        if child == 0:
            try:
                Path(path).write_text(json.dumps(answer(action, run)))
            finally:
                os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
