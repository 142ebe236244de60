"""Whether a model learns a data set by a reward function: before and after, with intervals.

    python bench/questions.py --out runs/dataset            SmolLM2-135M, three seeds, one GPU
    python bench/questions.py --out runs/small --small      a tiny run on a CPU, to see that it works

Questions are sums and differences in words, made here. Those for training and for tests share no pair of numbers. Each
seed trains by the recipe `dataset` with the reward functions `numeric` and `brief` (below) and evaluates at step 0 and
at the end on the same 512 questions; success, Wilson's 95 % interval and the difference are printed.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from pathlib import Path

import isentrope as it

THINGS = ("apples", "coins", "letters", "shells", "stamps", "books", "eggs", "keys")
NAMES = ("Ann", "Ben", "Cleo", "Dan", "Eve", "Finn", "Gus", "Hana")
FORMS = (
    "{name} has {a} {thing} and gets {b} more. How many {thing} does {name} have now?",
    "{name} had {a} {thing} and gave {b} of them away. How many {thing} are left?",
    "There are {a} boxes with {b} {thing} each. How many {thing} are there?",
)
SMALL = {
    "policy.model": "pocket", "agent.order": "act", "agent.max_action": 1000, "run.device": "cpu", "run.steps": 2,
    "rollout.groups": 2, "rollout.group_size": 2, "learn.mini_batches": 1, "eval.games": 8, "eval.quick_games": 8,
}  # fmt: skip


def brief(response: str) -> float:
    """1 for a response of up to 200 characters, 0 for one of 600 or more."""
    return min(1.0, max(0.0, (600 - len(response)) / 400))


def questions(seed: int = 0) -> list[dict[str, str]]:
    """One for each pair of numbers and form, in a random order."""
    draw = random.Random(seed)
    rows: list[dict[str, str]] = []
    for kind, form in enumerate(FORMS):
        high = 20 if kind == 2 else 100
        for a in range(2, high):
            for b in range(2, a if kind == 1 else high):
                words = {"name": draw.choice(NAMES), "thing": draw.choice(THINGS)}
                answer = (a + b, a - b, a * b)[kind]
                split = "test" if (7 * min(a, b) + 3 * max(a, b)) % 10 == 0 else "train"  # of the pair, in any order
                row = {"question": form.format(a=a, b=b, **words), "answer": str(answer), "kind": f"form{kind}"}
                rows.append({**row, "split": split})
    draw.shuffle(rows)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--small", action="store_true")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    file = given.out / "questions.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in questions()))
    sys.path.insert(0, str(Path(__file__).parent))  # where reward workers find this module, too
    for seed in range(given.seeds):
        settings = {
            "task.options.file": str(file), "task.options.split_column": "split", "task.options.kind": "kind",
            "task.options.rewards": ["numeric", "questions:brief"], "task.options.weights": [1.0, 0.1],
            "policy.model": given.model, "run.steps": given.steps, "run.seed": seed,
        }  # fmt: skip
        if given.small:
            settings |= SMALL
        run = it.train(it.load_config("dataset", settings), out=given.out / f"seed-{seed}", quiet=True)
        print(f"seed {seed}: {told(run)}", flush=True)


def told(run: it.Run) -> str:
    shown = {part: run.curve(f"eval/test/{part}").values for part in ("success", "low", "high")}
    ends = [{part: 100 * float(values[place]) for part, values in shown.items()} for place in (0, -1)]
    before, after = (f"{end['success']:.1f} % [{end['low']:.1f}, {end['high']:.1f}]" for end in ends)
    return f"before {before}, after {after}, {ends[1]['success'] - ends[0]['success']:+.1f} points"


if __name__ == "__main__":
    main()
