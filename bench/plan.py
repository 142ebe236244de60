"""What `isentrope plan` says of larger steps of the demo, from rates of small ones, beside what they take here.

python -m bench.plan --threads 1 --json plan-cpu.json     # two minutes of a core; docs/plan-cpu.json is two of them
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from isentrope.bench.rates import SIZES, measure
from isentrope.bench.results import machine
from isentrope.cluster.plan.cards import this_machine
from isentrope.cluster.plan.layouts import Task
from isentrope.config.load import load_config
from isentrope.models.auto import follow_model
from isentrope.models.sources.find import find_facts
from tools.plan_docs import parts_of

LARGER = ((1, 4), (6, 8), (12, 8))  # the first warms up and is not kept


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", default="demo")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--set", dest="sets", action="append", default=[], metavar="SECTION.KEY=VALUE")
    parser.add_argument("--json", type=Path, help="add the run to this file")
    given = parser.parse_args(arguments)
    config = load_config(given.recipe, [f"run.threads={given.threads}", "run.device=cpu", *given.sets])
    config = follow_model(config)
    facts = find_facts(config.policy.model, False)[1]
    small = measure(config, facts, SIZES)
    larger = measure(config, facts, LARGER).steps[1:]
    task = Task(config, facts, this_machine(0), small.rates, small.rates.turn, False)
    for step in [*small.steps, *larger]:
        took = {"rollout": step.rollout, "score": step.score, "update": step.update}
        told = parts_of(task, step.lengths)
        parts = ", ".join(f"{part} {told[part]:.2f} / {took[part]:.2f} s" for part in told)
        whole = sum(told.values()) / sum(took.values()) - 1
        print(f"{step.lengths.episodes:4} episodes, foretold / measured: {parts}; the step {whole:+.0%}", flush=True)
    if given.json:
        kept: dict[str, list[Any]] = json.loads(given.json.read_text("utf-8")) if given.json.is_file() else {"runs": []}
        threads = "one thread" if given.threads == 1 else f"{given.threads} threads"
        kept["runs"].append({
            "machine": f"{threads} of {machine()}", "date": time.strftime("%-d %B %Y"),
            "command": "python -m bench.plan",
            "rates": small.rates.data() | {"steps": [step.data() for step in small.steps]},
            "steps": [step.data() for step in larger],
        })  # fmt: skip
        given.json.write_text(json.dumps(kept, separators=(",", ":")) + "\n", "utf-8")


if __name__ == "__main__":
    main()
