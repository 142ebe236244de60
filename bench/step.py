"""Where a step of training spends its time: rollout, scoring, update, and what the first step takes beyond that.

    python -m bench.step                       # one GPU: the recipe alfworld at Qwen2.5-1.5B's shape, two minutes
    python -m bench.step --profile             # and what the GPU does in a step's scoring and update, kernel by kernel
    python -m bench.step --again --steps 2     # two processes, one after the other: what the second finds compiled
    python -m bench.step --shape small --set rollout.groups=2 --set task.max_turns=3 --set agent.max_response=8

Random weights that never end a response: with the recipe's sizes 128 episodes of 24 turns of 64 tokens, 196,608 sampled
tokens. The floor is what the passes' matrix products take at 790 TFLOP/s, which an H200 was measured to reach. With
$OUT set, or with --json, the figures go to step.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

_BEGAN = time.perf_counter()

import numpy as np  # noqa: E402
import torch  # noqa: E402

from bench.update import turn  # noqa: E402
from isentrope.bench.results import machine  # noqa: E402
from isentrope.bench.sampling import SHAPES, random_policy, wait  # noqa: E402
from isentrope.config.load import load_config  # noqa: E402
from isentrope.config.schema import RunConfig  # noqa: E402
from isentrope.core.types import Episode  # noqa: E402
from isentrope.engines.registry import make_engine  # noqa: E402
from isentrope.learning.learner import Credited, Learner  # noqa: E402
from isentrope.learning.tokens import TokenSequence  # noqa: E402
from isentrope.loop.session import use_threads  # noqa: E402
from isentrope.models.model_adapter import adapt_model  # noqa: E402
from isentrope.models.policy import Policy, snapshot  # noqa: E402
from isentrope.rollout.collector import Collector  # noqa: E402

CEILING = 790e12
"""Bfloat16 operations a second that an H200 was measured to reach."""
KINDS = (  # of kernels, by what is in their names; the first that fits
    ("attention", ("flash", "fmha", "attention")),
    ("token head", ("_stats", "_gradient")),
    ("matrix products", ("gemm", "nvjet", "cutlass", "cublas", "splitk", "gemv")),
    ("compiled pieces", ("triton_",)),
    ("optimiser", ("multi_tensor", "adam")),
    ("copies", ("memcpy", "memset", "copy", "fill", "cat")),
    ("gathers", ("index", "gather", "scatter")),
)
PHASES = {  # of torch.compile, as it names them; each is a part of the first
    "_compile.compile_inner": "in all",
    "OutputGraph.call_user_compiler": "behind tracing",
    "AOTAutogradCache.inductor_load": "loading what is cached",
    "fx_codegen_and_compile": "making kernels",
    "compile_fx.<locals>.bw_compiler": "of backward passes",
    "async_compile.wait": "waiting for kernels",
}


@dataclass
class Spent:
    """Seconds of a step and what was done in them."""

    rollout: float
    score: float
    credit: float  # the rest of assigning credit
    update: float
    refresh: float
    sampled: int
    read: int  # tokens of all conversations
    compiled: dict[str, float] = field(default_factory=dict[str, float])
    metrics: dict[str, float] = field(default_factory=dict[str, float])

    @property
    def whole(self) -> float:
        return self.rollout + self.score + self.credit + self.update + self.refresh


@dataclass(frozen=True)
class Passes:
    """What the forward passes of a step read."""

    sequences: int
    tokens: int  # all conversations whole
    computed: int  # what is common counted once, padding included
    pieces: int
    packing: float  # seconds of the host to lay one pass out, while the GPU has nothing to do
    products: float  # operations of one forward pass without its head
    attention: float
    head: float

    def floor(self, forward: float, updates: int) -> float:
        """Seconds of so many passes forward, and forward and back, where the head computes its logits twice."""
        body = self.products + self.attention
        return (forward * (body + self.head) + updates * (3 * body + 4 * self.head)) / CEILING


@contextmanager
def said(what: str) -> Generator[None]:
    begin = time.perf_counter()
    yield
    wait()
    print(f"{what}: {time.perf_counter() - begin:.1f} s", flush=True)


def settings(shape: str, recipe: str, sets: Sequence[str]) -> RunConfig:
    tiny = ["agent.max_context=2048", "run.device=cpu"] if shape == "small" else []
    return load_config(recipe, [*tiny, "run.eval_every=0", "eval.splits=train", "learn.lr=1e-6", *sets])


class Stopwatch:
    """Seconds within functions of other modules, while they run as they always do."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.calls: dict[str, int] = {}
        self.cached: dict[str, int] = {}  # of the first step: found in torch.compile's caches, or not

    def watch(self, owner: Any, name: str, what: str) -> None:
        plain: Callable[..., Any] = getattr(owner, name)

        def timed(*given: Any, **named: Any) -> Any:
            begin = time.perf_counter()
            try:
                return plain(*given, **named)
            finally:
                self.seconds[what] = self.seconds.get(what, 0.0) + time.perf_counter() - begin
                self.calls[what] = self.calls.get(what, 0) + 1

        setattr(owner, name, timed)

    def watch_compilers(self) -> None:
        """What a first step does besides the work; recording includes the kernels that are compiled for it."""
        from isentrope.engines.native import device

        self.watch(device, "record", "graphs recorded")
        try:
            from triton.runtime.jit import JITFunction

            self.watch(JITFunction, "_do_compile", "Triton kernels made ready")
        except (ImportError, AttributeError):
            print("Triton's compiler cannot be watched here")

    def take(self) -> dict[str, float]:
        """Since the last time; torch.compile's own times and what was watched, with the number of calls."""
        from torch._dynamo.utils import compilation_time_metrics, counters

        found = {f"{what} ({self.calls[what]} times)": seconds for what, seconds in self.seconds.items()}
        for phase, what in PHASES.items():
            if phase in compilation_time_metrics:
                times = compilation_time_metrics[phase]
                found[f"torch.compile, {what} ({len(times)} times)"] = sum(times)
        cached = {f"{kind}, {name}": count for kind in ("aot_autograd", "inductor")
                  for name, count in counters[kind].items() if "cache" in name}  # fmt: skip
        self.seconds, self.calls, self.cached = {}, {}, cached | self.cached
        compilation_time_metrics.clear()
        return found


class Steps:
    """Steps as the loop makes them, each part by itself: the GPU is done before the next begins."""

    def __init__(self, config: RunConfig, policy: Policy) -> None:
        self.config = config
        reference = snapshot(policy) if config.learn.kl else None
        self.learner = Learner(policy, reference, config)
        self.collector = Collector(config, make_engine(config, policy))
        self.stopwatch = Stopwatch()
        if policy.device.type == "cuda":
            self.stopwatch.watch_compilers()

    def step(self, number: int, around: Callable[[str], Any] | None = None) -> tuple[Spent, Credited]:
        times = [self._now()]
        rollout = self.collector.collect(number)
        times.append(self._now())
        with around("score") if around else _nothing():
            credited = self.learner.credit(number, rollout.learnt)
            times.append(self._now())
        with around("update") if around else _nothing():
            update = self.learner.update(credited)
            times.append(self._now())
        self.collector.refresh()
        times.append(self._now())
        played, credit, updated, refreshed = (b - a for a, b in pairwise(times))
        score = credited.seconds["score"]
        sampled, read = counted(rollout.episodes)
        told = {k: v for k, v in update.metrics.items() if k.startswith(("mismatch", "grad", "loss", "ratio", "kl"))}
        told |= rollout.metrics | {f"rollout_seconds/{k}": v for k, v in rollout.seconds.items()}
        spent = Spent(
            played, score, credit - score, updated, refreshed, sampled, read, self.stopwatch.take(), told
        )  # fmt: skip
        return spent, credited

    def _now(self) -> float:
        wait()
        return time.perf_counter()

    def passes(self, credited: Credited) -> Passes:
        """Of one pass over all sequences; packing is timed by itself."""
        learner = self.learner
        pieces = learner._pieces  # pyright: ignore[reportPrivateUsage]
        begin = time.perf_counter()
        batches = [(b.ids_BT.numel(), b.spans) for b in pieces(credited.sequences, credited.tokens, None)]
        packing = self._now() - begin
        parts = adapt_model(learner.policy.model)
        assert parts is not None
        weights = [w for x in parts.layers for w in (x.q, x.k, x.v, x.o, x.gate, x.up, x.down)]
        computed = sum(count for count, _ in batches)
        pairs = sum(len(s.ids) ** 2 / 2 for s in credited.sequences)
        return Passes(
            len(credited.sequences),
            sum(len(s.ids) for s in credited.sequences),
            computed,
            len(batches),
            packing,
            2.0 * sum(w.numel() for w in weights) * computed,
            4.0 * pairs * parts.heads * parts.head_size * len(parts.layers),
            2.0 * parts.head.numel() * sum(_count(s) for s in credited.sequences),
        )


def _count(sequence: TokenSequence) -> int:
    return len(sequence.tokens)


@contextmanager
def _nothing() -> Generator[None]:
    yield


def made_up(config: RunConfig, words: int) -> list[Episode]:
    """Episodes of the sizes that those of random weights have, of random tokens: nothing is played."""
    rng, found = np.random.default_rng(1), list[Episode]()
    new, sizes = config.agent.max_response, config.rollout
    for group in range(sizes.groups):
        prompt = rng.integers(0, words, int(rng.integers(430, 480)))
        for member in range(sizes.group_size):
            turns = [turn(rng, prompt, new, False, words)]
            turns += [turn(rng, rng.integers(0, words, 9), new, True, words) for _ in range(config.task.max_turns - 1)]
            won = bool(rng.random() < 0.5)
            found.append(
                Episode("bench", "train", group, "", "", group, member, "think_act", tuple(turns), won, "terminated")
            )
    return found


VARIANTS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {  # constants, settings
    "as it is": ({}, ()),
    "beginnings shared from a quarter on": ({"share": 0.25}, ()),
    "gate and up computed twice": ({"kept": 0.5}, ()),
    "smaller chunks of the head": ({"rows": 1}, ()),
    "all scored before the update": ({"first": True}, ()),
    "twice the tokens a pass": ({}, ("learn.micro_tokens=32768",)),
}


def compare(shape: str, recipe: str, sets: Sequence[str], names: Sequence[str]) -> list[dict[str, Any]]:
    """Scoring and updates alone, of made-up episodes, in several ways."""
    import gc

    from isentrope.kernels import compiled, forward
    from isentrope.learning import prefix_sharing
    from isentrope.models import memory

    rows, policy = list[dict[str, Any]](), random_policy(shape)
    reference = snapshot(policy)
    usual = (forward.ROOMY, prefix_sharing.MIN_SAVED_SHARE["cuda"], memory.LEARNING_ROWS)
    for name in names:
        constants, more = VARIANTS[name]
        forward.ROOMY = constants.get("kept", usual[0])
        prefix_sharing.MIN_SAVED_SHARE["cuda"] = constants.get("share", usual[1])
        memory.LEARNING_ROWS = constants.get("rows", usual[2])
        compiled.compiled.cache_clear()
        torch._dynamo.reset()  # pyright: ignore[reportPrivateUsage]
        config = settings(shape, recipe, [*sets, *more])
        learner = Learner(policy, reference if config.learn.kl else None, config)
        learner.mismatch.failed = constants.get("first", False)
        episodes, times = made_up(config, policy.model.head_weight().shape[0]), list[tuple[float, float]]()
        if torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()
        for step in (1, 2):
            wait()
            begin = time.perf_counter()
            credited = learner.credit(step, episodes)
            wait()
            middle = time.perf_counter()
            learner.update(credited)
            wait()
            times.append((middle - begin, time.perf_counter() - middle))
        score, update = (min(pair[i] for pair in times[1:]) for i in (0, 1))
        first = sum(times[0]) - score - update
        rows.append({"name": name, "score": score, "update": update, "first": first, "peak_gib": peak()})
        print(f"{name:44}score {score:6.2f} s, update {update:6.2f} s, the first {first:5.1f} s longer, "
              f"peak {peak():.1f} GiB", flush=True)  # fmt: skip
        del learner
        gc.collect()
        torch.cuda.empty_cache()
    return rows


def counted(episodes: Sequence[Episode]) -> tuple[int, int]:
    turns = [turn for episode in episodes for turn in episode.turns]
    sampled = sum(len(turn.response_ids) for turn in turns)
    return sampled, sampled + sum(len(turn.context_ids) for turn in turns)


class Profile:
    """What the GPU does within a part of a step."""

    def __init__(self, top: int) -> None:
        self.top, self.found = top, dict[str, dict[str, Any]]()

    @contextmanager
    def __call__(self, part: str) -> Generator[None]:
        from torch.profiler import ProfilerActivity, profile

        wait()
        begin = time.perf_counter()
        cuda = torch.cuda.is_available()
        with profile(activities=[ProfilerActivity.CUDA if cuda else ProfilerActivity.CPU], acc_events=True) as seen:
            yield
            wait()
        wall = time.perf_counter() - begin
        names: dict[str, list[float]] = {}
        for row in seen.key_averages():
            seconds = (row.self_device_time_total if cuda else row.self_cpu_time_total) / 1e6
            if seconds > 0:
                names[row.key] = [seconds, row.count]
        kinds: dict[str, float] = {}
        for name, (seconds, _) in names.items():
            kinds[kind_of(name)] = kinds.get(kind_of(name), 0.0) + seconds
        ranked = sorted(names.items(), key=lambda item: -item[1][0])[: self.top]
        self.found[part] = {"wall": wall, "busy": sum(kinds.values()), "kinds": kinds, "kernels": dict(ranked)}

    def show(self) -> None:
        for part, seen in self.found.items():
            print(
                f"\n{part}: the GPU was busy {seen['busy']:.2f} of {seen['wall']:.2f} s, the profiler's cost included"
            )
            for kind, seconds in sorted(seen["kinds"].items(), key=lambda item: -item[1]):
                print(f"  {kind:18}{seconds:8.3f} s {seconds / max(seen['busy'], 1e-9):6.1%}")
            for name, (seconds, count) in seen["kernels"].items():
                print(f"  {seconds:8.3f} s {count:7,.0f} x  {name[:110]}")


def kind_of(kernel: str) -> str:
    low = kernel.lower()
    return next((kind for kind, parts in KINDS if any(part in low for part in parts)), "others")


def show(rows: Sequence[Spent], passes: Passes, config: RunConfig, ready: float, cached: dict[str, int]) -> None:
    names = ("rollout", "score", "credit", "update", "refresh", "whole")
    print(f"\nready to play after {ready:.1f} s of the process\n{'step':>5}" + "".join(f"{n:>9}" for n in names))
    for number, spent in enumerate(rows, 1):
        rate = spent.read / spent.whole
        values = "".join(f"{getattr(spent, n):9.2f}" for n in names)
        print(f"{number:5}{values}   {spent.sampled:,} sampled of {spent.read:,} tokens, {rate:,.0f} tokens/s")
    for what, count in cached.items():
        print(f"  first step: {what}: {count}")
    for what, seconds in rows[0].compiled.items():
        print(f"  first step: {what}: {seconds:.1f} s")
    for number, spent in enumerate(rows[1:], 2):
        for what, seconds in spent.compiled.items():
            print(f"  step {number}: {what}: {seconds:.2f} s")
    later = rows[1:] or rows
    print(f"the first step took {rows[0].whole - min(s.whole for s in later):.1f} s longer than the quickest after it")
    print(f"one pass: {passes.sequences} conversations, {passes.tokens:,} tokens, {passes.computed:,} computed in "
          f"{passes.pieces} pieces; laid out in {passes.packing:.2f} s of the host")  # fmt: skip
    learn, updates = config.learn, config.learn.epochs
    own = 1 / learn.mini_batches  # this share takes the log-probs of its own forward pass as the old ones
    scored = (1 - own) * (learn.old_logprobs != "sampler") + (learn.kl > 0)
    print(f"floors at {CEILING / 1e12:.0f} TFLOP/s: a pass forward {passes.floor(1, 0):.2f} s, {scored:g} of them "
          f"{passes.floor(scored, 0):.2f} s; an update {passes.floor(0, updates):.2f} s", flush=True)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", default="qwen2.5-1.5b", choices=list(SHAPES))
    parser.add_argument("--recipe", default="alfworld")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--set", dest="sets", action="append", default=[], metavar="SECTION.KEY=VALUE")
    parser.add_argument("--profile", action="store_true", help="one step more, with what the GPU did in it")
    parser.add_argument("--top", type=int, default=28, help="kernels that --profile names")
    parser.add_argument("--again", action="store_true", help="two processes like this one, one after the other")
    parser.add_argument("--variants", type=int, default=0, metavar="N", help="so many ways to score and update instead")
    parser.add_argument("--json", type=Path, help="write the figures there")
    given = parser.parse_args(arguments)
    if given.again:
        plain = [a for a in (sys.argv[1:] if arguments is None else arguments) if a != "--again"]
        return written({"processes": again(plain)}, given.json, "again.json")
    if given.variants:
        rows = compare(given.shape, given.recipe, given.sets, [*VARIANTS][: given.variants])
        return written({"machine": machine(), "shape": given.shape, "variants": rows}, given.json, "variants.json")
    print(f"imported after {time.perf_counter() - _BEGAN:.1f} s", flush=True)
    config = settings(given.shape, given.recipe, given.sets)
    use_threads(config)
    with said("policy"):
        policy = random_policy(given.shape)
    with said("learner, reference, engine, tasks"):
        steps = Steps(config, policy)
    ready, rows = time.perf_counter() - _BEGAN, list[Spent]()
    profile, credited = Profile(given.top), None
    for number in range(1, given.steps + 1 + given.profile):
        profiled = number > given.steps
        spent, credited = steps.step(number, profile if profiled else None)
        print(f"step {number}: {spent.whole:.2f} s, peak {peak():.1f} GiB", flush=True)
        if not profiled:
            rows.append(spent)
    assert credited is not None
    passes = steps.passes(credited)
    show(rows, passes, config, ready, steps.stopwatch.cached)
    profile.show()
    steps.collector.close()
    result = {"machine": machine(), "settings": given.sets, "shape": given.shape, "ready": ready, "peak_gib": peak(),
              "steps": [{**asdict(s), "whole": s.whole} for s in rows], "passes": asdict(passes),
              "cached": steps.stopwatch.cached, "profile": profile.found}  # fmt: skip
    return written(result, given.json, "step.json")


def again(arguments: Sequence[str]) -> list[dict[str, Any]]:
    """The same in two processes that use the same caches: this one leaves the GPU to them."""
    found = list[dict[str, Any]]()
    with TemporaryDirectory() as folder:
        for number in (1, 2):
            path = Path(folder) / f"{number}.json"
            print(f"\nprocess {number}", flush=True)
            subprocess.run([sys.executable, "-m", "bench.step", *arguments, "--json", str(path)], check=True)
            found.append(json.loads(path.read_text()))
    print()
    for number, one in enumerate(found, 1):
        first, later = one["steps"][0]["whole"], min(s["whole"] for s in one["steps"][1:] or one["steps"])
        print(f"process {number}: ready after {one['ready']:.1f} s, first step {first:.1f} s, "
              f"{first - later:.1f} s longer than the quickest after it ({later:.2f} s)", flush=True)  # fmt: skip
    return found


def written(result: dict[str, Any], path: Path | None, name: str) -> dict[str, Any]:
    path = path or (Path(os.environ["OUT"]) / name if "OUT" in os.environ else None)
    if path:
        path.write_text(json.dumps(result, indent=1) + "\n")
    return result


def peak() -> float:
    return torch.cuda.max_memory_allocated() / 2**30 if torch.cuda.is_available() else 0.0


if __name__ == "__main__":
    main()
