"""How the page of `isentrope watch` carries 50 runs of 500 steps with 100,000 episodes.

    python bench/watch.py [--runs 50] [--steps 500] [--episodes 100000] [--keep FOLDER]
    python bench/watch.py --runs 200 --steps 5000 --logs 5     long ones: 3 GB of logs, of which 5 are on the disk

Makes the runs in a temporary folder (some minutes, half a GB), starts the command and measures with a real client;
with Chromium and playwright, the page too. Reading everything at once, as a page without an index would, is measured
beside it on one run and scaled up.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from isentrope.core.types import Episode, Turn
from isentrope.runs.episodes import read_episodes, write_episodes
from isentrope.runs.layout import train_path
from tests.builders.episodes import KINDS, TOKENS
from tests.builders.run_folders import CONFIG, eval_record, train_metrics

IN_FILE = 100  # episodes
TURNS = 12
RESPONSE = 30  # tokens


def episode(rng: np.random.Generator, number: int) -> Episode:
    success = bool(rng.random() < 0.5)
    turns = tuple(turn(rng, place, success) for place in range(int(rng.integers(TURNS // 2, TURNS * 3 // 2))))
    stop = "terminated" if success else "turn_limit"
    goal = f"put a clean mug {number} in the cabinet"
    kind = KINDS[number % len(KINDS)]
    return Episode("household", "train", number, kind, goal, number // 8, number % 8, "think_act", turns, success, stop)


def turn(rng: np.random.Generator, place: int, success: bool) -> Turn:
    ids = rng.integers(0, len(TOKENS), RESPONSE).astype(np.int32)
    entropies = rng.exponential(0.3, RESPONSE).astype(np.float32)
    valid = bool(rng.random() < 0.9)
    return Turn(
        observation=f"You arrive at desk {place}. On it you see a mug {int(rng.integers(9))} and a book.",
        admissible=None,
        anchor=str(rng.integers(1 << 40)),
        context_ids=rng.integers(0, len(TOKENS), 40).astype(np.int32),
        continues=place > 0,
        response_ids=ids,
        logprobs=-entropies,
        entropies=entropies,
        temperatures=np.ones(RESPONSE, dtype=np.float32),
        think_span=(1, 20),
        action_span=(22, 29),
        action=f"go to desk {place}" if valid else None,
        verdict="ok" if valid else "inadmissible",
        stop="tag",
        reward=10.0 * success * (place == 0) - 0.1 * (not valid),
    )


def make(root: Path, runs: int, steps: int, episodes: int, logs: int) -> None:
    """Runs differ in their numbers, or as many as `logs`; their episode files are the same few. What is the same is
    linked, so that it takes no more of the disk: what is read is not less."""
    per_run = episodes // runs // IN_FILE
    if not per_run:
        sys.exit(f"--episodes {episodes}: expected {runs * IN_FILE} at least, a file of {IN_FILE} for each run")
    rng = np.random.default_rng(0)
    models: list[Path] = []
    written: list[Path] = []
    for number in range(per_run):
        path = root / ".files" / f"{number}.parquet"
        write_episodes(path, [episode(rng, i) for i in range(IN_FILE)])
        models.append(path)
    for number in range(runs):
        run = root / f"run-{number // 5:02d}-seed{number % 5}"
        run.mkdir()
        lr = json.dumps([f"m{number // 5}"])
        (run / "config.toml").write_text(CONFIG.format(seed=number % 5, steps=steps, model='"pocket"', methods=lr))
        (run / "tokens.json").write_text(json.dumps([list(token.encode()) for token in TOKENS]))
        if number >= logs:
            os.link(written[number % logs], run / "metrics.jsonl")
        written.append(run / "metrics.jsonl")
        with (run / "metrics.jsonl").open("w" if number < logs else "a") as file:
            for step in range(steps if number < logs else 0):
                metrics = train_metrics(rng, step, steps) | {f"plan/extra{i}": rng.random() for i in range(50)}
                metrics = {key: value if np.isfinite(value) else None for key, value in metrics.items()}
                file.write(json.dumps({"step": step, "kind": "train", **metrics}) + "\n")
                if step % 20 == 0:
                    file.write(json.dumps(eval_record(rng, step, 0.5)) + "\n")
        for place, model in enumerate(models):
            target = train_path(run, place * (steps // per_run))
            target.parent.mkdir(exist_ok=True)
            os.link(model, target)


class Client:
    def __init__(self, address: str, pid: int) -> None:
        self.address, self.pid = address, pid

    def ask(self, question: str, **parameters: Any) -> Any:
        url = f"{self.address}api/{question}?{urllib.parse.urlencode(parameters, doseq=True)}"
        with urllib.request.urlopen(url) as answer:
            self.size = len(data := answer.read())
        return json.loads(data)

    def timed(self, what: str, question: str, **parameters: Any) -> Any:
        start = time.perf_counter()
        answer = self.ask(question, **parameters)
        seconds = time.perf_counter() - start
        print(f"  {what:58} {1000 * seconds:8.0f} ms  {self.size / 1e3:8.0f} kB  server {self.memory():5.0f} MB")
        return answer

    def memory(self, what: str = "VmRSS") -> float:
        """In MB; VmHWM is the most so far."""
        return int(re.search(rf"{what}:\s+(\d+)", Path(f"/proc/{self.pid}/status").read_text())[1]) / 1e3  # type: ignore[index]

    def cpu(self) -> float:
        """Seconds of a core since it was started."""
        ticks = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")

    def whole(self, what: str, question: str, **parameters: Any) -> None:
        """Go on from place to place until the end."""
        start, place, total, longest = time.perf_counter(), "", 0, 0.0
        while True:
            begin = time.perf_counter()
            answer = self.ask(question, place=place, **parameters)
            longest = max(longest, time.perf_counter() - begin)
            total += answer["matched"]
            place = answer["next"]
            if not place:
                break
        seconds = time.perf_counter() - start
        print(f"  {what:58} {1000 * seconds:8.0f} ms  {total:8,} hits  longest answer {1000 * longest:.0f} ms")


def questions(client: Client) -> None:
    start = time.perf_counter()
    answer = client.timed("the first list of runs", "runs")
    first = [run for run in answer["runs"] if run["rows"]][:6]
    shown = ",".join(f"{run['id']}:{run['begun']}:0:{run['rows']}:0:0" for run in first)
    client.timed("the first curves", "series", runs=shown, key=["success/all", "entropy/token"])
    while answer["unread"]:
        answer = client.ask("runs")
    seconds = time.perf_counter() - start
    print(f"  {'until all metrics are read':58} {1000 * seconds:8.0f} ms, {client.cpu():.1f} s of a core")
    runs = [run["id"] for run in answer["runs"]]
    client.timed("the list of runs again, as every 2 s", "runs")
    keys = [
        "success/all",
        "entropy/token",
        "entropy/think",
        "entropy/action",
        "valid_ratio",
        "kl/k3",
        "grad_norm",
        "lr",
    ]
    rows = {run["id"]: run for run in client.ask("runs")["runs"]}
    wants = ",".join(f"{run}:0:0:{rows[run]['rows']}:0:0" for run in runs)
    client.timed("8 metrics of 6 runs", "series", runs=",".join(wants.split(",")[:6]), key=keys)
    client.timed("8 metrics of all runs", "series", runs=wants, key=keys)
    every = ",".join(runs)
    client.timed("first page of episodes, nothing indexed", "episodes", runs=every)
    client.timed("first page of episodes again", "episodes", runs=every)
    client.whole("count all episodes, building the index", "count", runs=every)
    client.whole("count the failed ones of a type", "count", runs=every, kind="heat", outcome="failed")
    client.timed("first page: wrong but high reward", "episodes", runs=every, high=1)
    client.timed("first page: text 'mug 7'", "episodes", runs=every, text="mug 7")
    client.timed("first page: says a sentence twice", "episodes", runs=every, duplicated=1)
    client.timed("text that is nowhere: one answer", "episodes", runs=every, text="zebra")
    client.whole("text that is nowhere: all files", "episodes", runs=every, text="zebra")
    row = client.ask("episodes", runs=every)["rows"][0]
    client.timed("open an episode", "episode", run=row["run"], file=row["file"], number=row["number"])


def in_browser(address: str, runs: int) -> None:
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        return print("  (no Chromium: the page was not measured)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1400, "height": 1000})

        def wait(what: str, condition: str, start: float) -> None:
            while not page.evaluate(condition):  # the page's own policy forbids wait_for_function, which evaluates text
                time.sleep(0.02)
            print(f"  {what:58} {1000 * (time.perf_counter() - start):8.0f} ms")

        drawn = "document.querySelectorAll('.plot canvas').length >= 4"
        start = time.perf_counter()
        page.goto(address)
        wait("the page, until the first curves are drawn", drawn, start)
        start = time.perf_counter()
        page.get_by_role("button", name="All", exact=True).click()
        wait(
            "all runs chosen and drawn",
            f"[...document.querySelectorAll('.plot')].slice(0, 2).every((p) => p.dataset.lines == {runs})",
            start,
        )
        start = time.perf_counter()
        page.select_option("#seeds", "range")
        means = -(-runs // 5)
        wait(
            "mean and band over seeds",
            f"[...document.querySelectorAll('.plot')].slice(0, 2).every((p) => p.dataset.lines == {means})",
            start,
        )
        start = time.perf_counter()
        page.keyboard.press("Escape")
        page.get_by_role("button", name="Episodes").click()
        wait(
            "the list of episodes of all runs",
            "document.querySelectorAll('.episode-table tbody tr').length >= 50",
            start,
        )
        browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--episodes", type=int, default=100_000)
    parser.add_argument("--logs", type=int, default=10**6, help="different logs; the other runs have the same ones")
    parser.add_argument("--keep", type=Path, help="make the runs here, or use those that are here")
    given = parser.parse_args()
    root = given.keep or Path(tempfile.mkdtemp())
    if not root.exists() or not any(root.iterdir()):
        root.mkdir(exist_ok=True)
        make(root, given.runs, given.steps, given.episodes, given.logs)
    command = [sys.executable, "-m", "isentrope", "watch", str(root), "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        address = re.search(r"http://\S+", server.stdout.readline())[0]  # type: ignore[union-attr, index]
        time.sleep(1)
        print(f"{given.runs} runs of {given.steps} steps, {given.episodes:,} episodes")
        questions(Client(address, server.pid))
        in_browser(address, given.runs)
        client = Client(address, server.pid)
        now, most = client.memory(), client.memory("VmHWM")
        print(f"  server at the end: {now:.0f} MB, at most {most:.0f} MB, {client.cpu():.1f} s of a core")
    finally:
        server.terminate()
        server.wait()
    one = sorted(path for path in root.rglob("step-*.parquet"))
    start = time.perf_counter()
    for path in one[:5]:
        read_episodes(path)
    each = (time.perf_counter() - start) / 5
    print(f"  for comparison, read_episodes on all {len(one)} files: {each * len(one):.0f} s (from 5 of them)")
    if given.keep is None:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
