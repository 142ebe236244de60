"""Makes the runs of rows.toml or another file of rows, many side by side, and collects them without their weights.

    python bench/broken_runs/run_all.py --work runs/examined --smollm2 FOLDER [--games FOLDER] [--minutes 9.3]
        [--side-by-side 16] [--smollm2-side-by-side 8] [--out FOLDER] [--only r01,r02] [--rows FILE] [--tiny]

Warm-ups come first; a row begins as soon as its own is done. What is done stays, so the same command goes on. At the
deadline what is under way is ended and named. `--out` (default: $OUT, else the work folder) gets broken_runs.tar.xz:
a folder a row, logs and results.json, at most 15 MB; what judge.py says of each row is printed. Without `--smollm2`
the rows of that model are left out. `--tiny` runs every row for three steps with the pocket model on the CPU: do all
settings and parts load? Small runs share a GPU through NVIDIA MPS, which is started if it is there and not running.

The own parts that rows name (own_parts.py, fourth_parts.py, fifth_parts.py) are found beside the file of rows.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from judge import ROWS, judge_all, outcome, planned_steps, read_rows, show

HERE, TREE = Path(__file__).resolve().parent, Path(__file__).resolve().parents[2]
LIMIT = 15_000_000  # bytes of the archive
COLLECT_SECONDS = 20.0  # of the deadline, kept for collecting
TINY = (
    "run.steps=3", "run.eval_every=0", "run.device=cpu", "run.threads=1", "rollout.groups=4", "rollout.group_size=2",
    "eval.games=4", "eval.quick_games=4", "instruments.probe_every=0", "task.max_turns=5", "run.store_episodes=1",
    "critic.warmup=1",
)  # fmt: skip
TINY_WARMUP = ("sft.games=6", "sft.epochs=4", "sft.batch_games=6")
STAND_IN = (
    "policy.model=pocket", "agent.prompt=brief", "agent.max_context=1536", "run.dtype=float32", "run.weights=float32",
    "rollout.groups=2",
)  # fmt: skip


@dataclass
class Job:
    name: str
    family: str
    folder: Path
    command: list[str]
    steps: int  # 0: a warm-up
    needs: Path | None = None  # the run folder that it begins from
    process: subprocess.Popen[bytes] | None = None
    began: float = 0.0
    tries: int = 0

    @property
    def note(self) -> Path:
        return self.folder.with_name(self.folder.name + ".done")

    @property
    def log(self) -> Path:
        return self.folder.with_name(self.folder.name + ".log")


def main() -> None:
    args = arguments()
    end = time.monotonic() + 60 * args.minutes - COLLECT_SECONDS
    args.work.mkdir(parents=True, exist_ok=True)
    jobs = plan(args)
    with mps(args.mps and not args.tiny):
        unfinished = run(jobs, args, end)
    for line in unfinished:
        print(f"not done: {line}")
    collect(args)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--smollm2", type=Path, help="transformers folder of SmolLM2-135M")
    parser.add_argument("--games", type=Path, help="ALFWorld's games; without it games are generated")
    parser.add_argument("--minutes", type=float, default=9.3, help="deadline, collecting included")
    parser.add_argument("--side-by-side", type=int, default=min(16, os.cpu_count() or 1))
    parser.add_argument("--smollm2-side-by-side", type=int, default=8, help="of them, kept free for that model's runs")
    parser.add_argument("--pocket-device", default="auto", help="run.device of the pocket model's runs")
    parser.add_argument("--out", type=Path, default=Path(os.environ["OUT"]) if os.environ.get("OUT") else None)
    parser.add_argument("--rows", type=Path, default=ROWS, help="the rows' file; their own parts lie beside it")
    parser.add_argument("--only", default="", help="rows by name, with commas between them")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--no-mps", dest="mps", action="store_false")
    args = parser.parse_args()
    args.work, args.rows = args.work.resolve(), args.rows.resolve()
    args.out = (args.out or args.work).resolve()
    return args


def plan(args: argparse.Namespace) -> list[Job]:
    """Warm-ups, then rows in their order: the slow ones stand first."""
    table = tomllib.loads(args.rows.read_text())
    families, warmups = table["family"], table["warmup"]
    only = set(filter(None, args.only.split(",")))
    rows = [row for row in read_rows(args.rows) if not only or row["name"] in only]
    if args.smollm2 is None and not args.tiny:
        rows = [row for row in rows if row["family"] != "smollm2"]
    jobs: list[Job] = []
    for name in dict.fromkeys(row["start"] for row in rows if row["start"]):
        family = warmups[name]["family"]
        settings = [*families[family]["set"], *warmups[name]["set"], *machine(args, family)]
        settings += base_model(args, family)
        if args.tiny:
            settings += [*TINY, *TINY_WARMUP]
            settings += STAND_IN if family == "smollm2" else ()
        jobs.append(job(args, "sft", f"warmup-{name}", family, families[family]["recipe"], settings, 0, None))
    for row in rows:
        family = row["family"]
        needs = args.work / f"warmup-{row['start']}" if row["start"] else None
        settings = [*families[family]["set"], *row["set"], *machine(args, family), f"run.seed={row['seed']}"]
        settings += [f"policy.model={needs}"] if needs else base_model(args, family)
        if args.tiny:
            stand_in = [s for s in STAND_IN if not (needs and s.startswith("policy.model"))]
            settings += [*TINY, *(stand_in if family == "smollm2" else ())]
        settings += TINY_WARMUP if args.tiny and row["what"] == "sft" else ()
        steps = 3 if args.tiny else planned_steps(row, families[family])
        jobs.append(job(args, row["what"], row["name"], family, families[family]["recipe"], settings, steps, needs))
    return jobs


def machine(args: argparse.Namespace, family: str) -> list[str]:
    """Settings that belong to the machine and not to the experiment."""
    if family == "smollm2":
        games = [f"task.options.games={games_file(args.games)}"] if args.games else ["task.options.rooms=medium"]
        return ["engine.memory=0.03", "run.threads=1", *games]
    on_gpu = args.pocket_device != "cpu" and shutil.which("nvidia-smi") is not None and not args.tiny
    wide = ["engine.memory=0.01", "learn.micro_tokens=32768"] if on_gpu else ["engine.memory=0.01"]
    return [*wide, "run.threads=1", f"run.device={args.pocket_device}"]


def games_file(folder: Path) -> Path:
    for name in ("games.jsonl.zst", "games.jsonl"):
        if (folder / name).is_file():
            return (folder / name).resolve()
    return folder.resolve()


def base_model(args: argparse.Namespace, family: str) -> list[str]:
    return [f"policy.model={args.smollm2.resolve()}"] if family == "smollm2" and args.smollm2 else []


def job(
    args: argparse.Namespace, what: str, name: str, family: str, recipe: str, settings: list[str], steps: int,
    needs: Path | None,
) -> Job:  # fmt: skip
    folder = args.work / name
    sets = [part for setting in settings for part in ("--set", setting)]
    command = [sys.executable, "-m", "isentrope", what, recipe, "--out", str(folder), "--resume", *sets]
    return Job(name, family, folder, command, steps, needs)


# Running.


def run(jobs: list[Job], args: argparse.Namespace, end: float) -> list[str]:
    """Runs what is not done; gives a line for each that is not done in the end."""
    waiting = [one for one in jobs if not one.note.exists()]
    running: list[Job] = []
    failed: list[str] = []
    began = time.monotonic()
    try:
        while (waiting or running) and time.monotonic() < end:
            for one in [one for one in running if one.process is not None and one.process.poll() is not None]:
                running.remove(one)
                failed += (why := ended(one, time.monotonic() - began))
                if why and "out of memory" in why[0].lower() and one.tries < 2:
                    waiting.append(one)
            for one in [one for one in waiting if ready(one)]:
                if has_room(one, running, waiting, args):
                    waiting.remove(one)
                    start(one, args)
                    running.append(one)
            if not running:
                break
            time.sleep(0.2)
    finally:
        stop(running)
    for one in running:
        failed += ended(one, time.monotonic() - began)
    return [
        *(line for line in failed if line.partition(":")[0] not in {one.name for one in jobs if one.note.exists()}),
        *(f"{one.name}: not begun" for one in waiting),
    ]


def has_room(one: Job, running: list[Job], waiting: list[Job], args: argparse.Namespace) -> bool:
    """Runs of the large model take longest: as long as there are any, places are kept for them."""
    large = sum(other.family == "smollm2" for other in running)
    if one.family == "smollm2":
        return large < args.smollm2_side_by_side and len(running) < args.side_by_side
    to_come = sum(other.family == "smollm2" for other in waiting)
    kept = min(args.smollm2_side_by_side, large + to_come)
    return len(running) - large < max(1, args.side_by_side - kept)


def ready(one: Job) -> bool:
    return one.needs is None or one.needs.with_name(one.needs.name + ".done").exists()


def start(one: Job, args: argparse.Namespace) -> None:
    path = os.pathsep.join([str(args.rows.parent), str(HERE), str(TREE), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    if "TRITON_CACHE_DIR" not in environment:
        environment["TRITON_CACHE_DIR"] = str(args.work / "triton")  # kernels are compiled once for all
    one.began, one.tries = time.monotonic(), one.tries + 1
    with one.log.open("ab") as log:
        one.process = subprocess.Popen(
            one.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, cwd=args.work,
            start_new_session=True,
        )  # fmt: skip


def stop(running: list[Job]) -> None:
    """End what is under way, with the processes that it started. Nothing is saved: a checkpoint takes too long."""
    for one in running:
        if one.process is not None and one.process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(one.process.pid, signal.SIGKILL)
    for one in running:
        if one.process is not None:
            one.process.wait()


def ended(one: Job, at: float) -> list[str]:
    """Notes a run that is done and frees its room; gives why it is not done, if it is not."""
    assert one.process is not None
    took = time.monotonic() - one.began
    if one.process.poll() == 0:
        one.note.write_text(f"{took:.1f}\n")
        if one.steps:
            for name in ("checkpoints", "reference", "tensorboard"):
                shutil.rmtree(one.folder / name, ignore_errors=True)
        print(f"{at:6.1f} s  {one.name} done in {took:.1f} s", flush=True)
        return []
    last = [line for line in one.log.read_text(errors="replace").splitlines() if line.strip(" │╰╯─")][-12:]
    print(f"{at:6.1f} s  {one.name} ended with {one.process.poll()} after {took:.1f} s", flush=True)
    return [f"{one.name}: exit status {one.process.poll()} after {took:.0f} s: {' | '.join(last)}"]


@contextmanager
def mps(wanted: bool) -> Any:
    """NVIDIA's Multi-Process Service while the block lasts, if it is here and not running already."""
    program = shutil.which("nvidia-cuda-mps-control")
    if not wanted or program is None or subprocess.run(["pgrep", "-x", "nvidia-cuda-mps"], capture_output=True).stdout:
        yield
        return
    with tempfile.TemporaryDirectory() as place:
        for name in ("pipe", "log"):
            (Path(place) / name).mkdir()
            key = "CUDA_MPS_PIPE_DIRECTORY" if name == "pipe" else "CUDA_MPS_LOG_DIRECTORY"
            os.environ[key] = str(Path(place) / name)
        subprocess.run([program, "-d"], check=False)
        try:
            yield
        finally:
            subprocess.run([program], input=b"quit\n", check=False, timeout=10)


# Collecting.


def collect(args: argparse.Namespace) -> None:
    rows = read_rows(args.rows)
    source = tomllib.loads(args.rows.read_text())
    families, warmups = source["family"], [f"warmup-{name}" for name in source["warmup"]]
    seen = {row["name"]: outcome(args.work / row["name"], row["onset"]) for row in rows}
    table = judge_all(rows, seen, {row["name"]: planned_steps(row, families[row["family"]]) for row in rows})
    (args.work / "results.json").write_text(json.dumps(table, indent=1) + "\n")
    print(show(table))
    share_tokens(args.work)
    args.out.mkdir(parents=True, exist_ok=True)
    archive = args.out / "broken_runs.tar.xz"
    for share in (0.85, 0.6, 0.3, 0.0):  # of the limit, for episodes
        with tarfile.open(archive, "w:xz", preset=2) as tar:
            packed = chosen(args.work, warmups, rows, share * LIMIT)
            for path in packed:
                tar.add(path, path.relative_to(args.work))
        if archive.stat().st_size <= LIMIT:
            break
    print(f"{archive}: {archive.stat().st_size / 1e6:.1f} MB")
    with_episodes = {path.parent.parent.name for path in packed if path.parent.name == "episodes"}
    bare = [row["name"] for row in rows if row["name"] not in with_episodes]
    print(f"without episodes: {', '.join(bare) or 'none'}")


def share_tokens(work: Path) -> None:
    """One file for all runs of a model: the archive then holds it once, as links."""
    known: dict[bytes, Path] = {}
    for path in sorted(work.glob("*/tokens.json")):
        first = known.setdefault(path.read_bytes(), path)
        if not path.samefile(first):
            path.unlink()
            os.link(first, path)


def chosen(work: Path, warmups: list[str], rows: list[dict[str, Any]], room: float) -> list[Path]:
    """Numbers, settings and logs of all runs; then episodes by turns, while there is room: the last training step of
    each run, its last evaluation, and so on. Those of warm-ups are left out."""
    watch = {row["name"]: row["watch"] for row in rows}
    paths = [work / "results.json"]
    episodes: list[list[list[Path]]] = []
    for name in [*warmups, *watch]:
        folder = work / name
        paths += [path for path in (work / f"{name}.log", work / f"{name}.done") if path.is_file()]
        paths += sorted(path for path in folder.glob("*") if path.is_file() and path.name != "run.lock")
        episodes.append(by_worth(folder / "episodes", watch[name] == "eval") if name in watch else [])
    for place in range(max(map(len, episodes), default=0)):
        for files in (of_run[place] for of_run in episodes if place < len(of_run)):
            size = sum(path.stat().st_size for path in files)
            if size <= room:
                room -= size
                paths += files
    return paths


def by_worth(folder: Path, evaluated: bool) -> list[list[Path]]:
    """A run's files of episodes, most wanted first; the scores of a step go with its episodes. Where the fault is in
    the evaluation its episodes come with the training's."""
    steps = [
        [path, *folder.glob(path.name.replace("step-", "scores-"))] for path in sorted(folder.glob("step-*.parquet"))
    ]
    tests = [[path] for path in sorted(folder.glob("eval-*.parquet"))]
    last = [*steps[-1:], *tests[-1:]]
    if evaluated:
        last = [[path for files in last for path in files]]
    return [*last, *steps[:1][: len(steps) - 1], *tests[:1][: len(tests) - 1], *steps[1:-1], *tests[1:-1]]


if __name__ == "__main__":
    main()
