"""Drafts by lookup in the native engine, on a GPU: the same work with and without, in turn in one process.

    python bench/native_drafts.py episodes --model FOLDER            # whole household episodes of a warmed-up model
    python bench/native_drafts.py grid                               # where nothing repeats: 4 sizes × 4 batches
    python bench/native_drafts.py same --model FOLDER                # float32: the same tokens over 100,000 draws
    python bench/native_drafts.py costs                              # what a pass costs, by rows and tokens in it
    python bench/native_drafts.py profile --model FOLDER             # kernels of a rollout with drafts
    python bench/native_drafts.py make FOLDER                        # half a billion random weights, to warm up

FOLDER is what `isentrope sft` wrote. `episodes` plays new games at every step, with drafts and without; what is
remembered goes on from step to step, as in training. The first steps are not counted: kernels are compiled and passes
recorded. The bars are 2 times the sampled tokens a second in episodes, and 0.98 in every place of the grid. `--seconds`
is when no further round is begun; `--json FILE` keeps what was found.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from isentrope.bench.sampling import SHAPES, EngineSampler, SamplingWork, random_policy, seconds_of, wait
from isentrope.bench.work import SHAPES as TO_WARM_UP
from isentrope.bench.work import write_random_model
from isentrope.config.load import load_config
from isentrope.config.schema import RunConfig
from isentrope.core.engine import Request, Sampled
from isentrope.core.types import Episode
from isentrope.engines.native import engine
from isentrope.engines.native.available import fast_engine
from isentrope.engines.native.device import Device
from isentrope.engines.native.drafting import WIDTHS, Guesses, PassCost
from isentrope.engines.native.engine import FastEngine
from isentrope.engines.native.weights import Weights
from isentrope.models.load import load_policy
from isentrope.models.model_adapter import adapt_model
from isentrope.models.policy import Policy
from isentrope.models.sources.find import POCKET
from isentrope.rollout.collector import Collector

BAR, LEAST = 2.0, 0.98
GRID = ("smollm2-135m", "qwen2.5-0.5b", "qwen2.5-1.5b", "qwen2.5-7b")
BATCHES = (1, 16, 64, 256)
Row = dict[str, Any]


def config_of(given: argparse.Namespace, model: str) -> RunConfig:
    batch = f"rollout.batch={given.batch}"
    return load_config(Path(given.recipe), [f"policy.model={model}", batch, *given.set])


class Side:
    """One engine with its collector, and the rates of its steps."""

    def __init__(self, config: RunConfig, policy: Policy, drafts: int) -> None:
        made = fast_engine(policy, config.rollout.batch, config.agent.max_context, 0.2, drafts)
        self.drafts, self.collector = drafts, Collector(config, made)
        self.rates: list[float] = []

    def play(self, step: int) -> list[Episode]:
        wait()
        began = time.perf_counter()
        rollout = self.collector.collect(step)
        wait()
        seconds = time.perf_counter() - began
        self.collector.refresh()
        episodes, told = rollout.episodes, {k.removeprefix("engine/"): v for k, v in rollout.metrics.items()}
        turns = sum(len(episode.turns) for episode in episodes)
        tokens = sum(len(turn.response_ids) for episode in episodes for turn in episode.turns)
        self.rates.append(tokens / seconds)
        solved = float(np.mean([episode.success for episode in episodes]))
        passes = told.get("rows", 0) * told.get("steps", 0)
        self.told = {name: round(value, 3) for name, value in {**told, **rollout.seconds}.items()}
        print(
            f"  step {step}, drafts {self.drafts}: {tokens} tokens of {len(episodes)} episodes and {turns} turns in "
            f"{seconds:.2f} s: {tokens / seconds:,.0f} a second; {tokens / max(passes, 1):.2f} a row and pass; "
            f"solved {solved:.2f}; {self.told}",
            flush=True,
        )
        return episodes


def episodes(given: argparse.Namespace) -> list[Row]:
    config = config_of(given, given.model)
    config = replace(config, rollout=replace(config.rollout, groups=given.groups))
    policy = load_policy(config.policy, config.run, max_context=config.agent.max_context)
    sides = [Side(config, policy, drafts) for drafts in (0, given.drafts)]
    print(f"{given.model}: {policy.dtype}, {given.groups} groups of {config.rollout.group_size}, batch {given.batch}")
    until = time.monotonic() + given.seconds
    for step in range(1, given.warm + given.steps + 1):
        if step > given.warm + 1 and time.monotonic() > until:
            break
        for side in sides if step % 2 else reversed(sides):
            side.play(step)
    plain, drafted = (side.rates[given.warm :] for side in sides)
    ratios = [b / a for a, b in zip(plain, drafted, strict=True)]
    ratio = statistics.mean(drafted) / statistics.mean(plain)
    print(
        f"drafts {given.drafts}: {statistics.mean(drafted):,.0f} sampled tokens a second against "
        f"{statistics.mean(plain):,.0f}: {ratio:.2f} times (bar {BAR}), steps {min(ratios):.2f} to {max(ratios):.2f}"
    )
    return [{"what": "episodes", "model": given.model, "ratio": ratio, "ratios": ratios, "plain": plain,
             "drafted": drafted, "bar": BAR}]  # fmt: skip


def grid(given: argparse.Namespace) -> list[Row]:
    """Conversations of random words with random weights; each with a control, without against without."""
    rows: list[Row] = []
    for shape in given.shapes.split(","):
        policy = random_policy(shape)
        for batch in map(int, given.batches.split(",")):
            work = SamplingWork("grid", batch, 4, 32, 64, 200, 200)
            engines = [fast_engine(policy, batch, work.room, 0.1, drafts) for drafts in (0, 0, given.drafts)]
            samplers, taken = [EngineSampler(one) for one in engines], [list[float]() for _ in engines]
            words = SHAPES[shape].config().vocab_size
            for seed in range(given.rounds + 1):
                order = [(seed + i) % 3 for i in range(3)]
                for i in order:
                    seconds = seconds_of(samplers[i], work, words, seed)
                    if seed:
                        taken[i].append(seconds)
            best = [min(times) for times in taken]
            middle = [statistics.median(times) for times in taken]
            row = {
                "what": "grid", "shape": shape, "batch": batch, "ratio": (middle[0] + middle[1]) / 2 / middle[2],
                "best": (best[0] + best[1]) / 2 / best[2], "control": middle[0] / middle[1],
                "rate": work.tokens / middle[2], "notes": engines[2].notes(), "bar": LEAST,
            }  # fmt: skip
            rows.append(row)
            print(
                f"{shape}, {batch}: {row['ratio']:.3f} times (best of each {row['best']:.3f}), {row['rate']:,.0f} a "
                f"second; without against without {row['control']:.3f}; {row['notes'].get('drafted', 0):.0f} drafted",
                flush=True,
            )
            for one in engines:
                one.close()
            del engines, samplers
            torch.cuda.empty_cache()
        del policy
        torch.cuda.empty_cache()
    print(f"least: {min(row['ratio'] for row in rows):.3f} times (bar {LEAST})")
    return rows


# The same tokens


def speak(side: FastEngine, words: int, rows: int, room: int, turns: int, seed: int) -> list[tuple[Request, Sampled]]:
    """Conversations in groups of four that begin alike, at several temperatures; prompts do not depend on responses."""
    rng = np.random.default_rng(seed)
    side.open(range(rows))
    opening = rng.integers(9, words, (rows, 60))
    prompts = {slot: opening[slot // 4].tolist() for slot in range(rows)}
    said: list[tuple[Request, Sampled]] = []
    for _ in range(turns):
        requests = [
            Request(s, prompts[s], rng.random(room, dtype=np.float32), [0.2, 0.5, 1.0, 0.0][s % 4], lambda tail: False)
            for s in range(rows)
        ]
        new = rng.integers(9, words, (rows, 9)).tolist()
        for request, sampled in zip(requests, side.sample(requests), strict=True):
            said.append((request, sampled))
            prompts[request.slot] = [*prompts[request.slot], *new[request.slot], *opening[0].tolist()]
    return said


@torch.no_grad()
def distance(policy: Policy, request: Request, ids: list[int]) -> float:
    """How far the uniform number of the last of these tokens is from the nearest border between two words; for a greedy
    one how much likelier the likeliest word is than the next."""
    tokens = torch.tensor([[*request.prompt, *ids[:-1]]], device=policy.device)
    places = torch.arange(tokens.shape[1], device=policy.device)[None]
    hidden = policy.model.hidden(tokens, places, torch.zeros_like(tokens))[0, -1]
    p = torch.softmax((hidden @ policy.model.head_weight().T).double() / (request.temperature or 1), -1)
    if not request.temperature:
        first, second = p.topk(2).values.tolist()
        return first - second
    return float((p.cumsum(-1) / p.sum() - float(request.uniforms[len(ids) - 1])).abs().min())


def same(given: argparse.Namespace) -> list[Row]:
    """Tokens, log-probs and entropies of float32, drafted and not."""
    torch.backends.cuda.matmul.allow_tf32 = False
    config = load_config(Path(given.recipe), [f"policy.model={given.model}", "run.dtype=float32", *given.set])
    policy = load_policy(config.policy, config.run)
    words = min(policy.tokenizer.size, 2000)
    plain, drafting = (fast_engine(policy, 64, 1024, 0.2, drafts) for drafts in (0, given.drafts))
    draws, seed, far, parted = 0, 0, list[float](), list[float]()
    off: dict[float, float] = {}  # by temperature
    notes = {"drafted": 0.0, "accepted": 0.0}
    until = time.monotonic() + given.seconds
    while draws < given.draws and time.monotonic() < until:
        seed += 1
        sides = [speak(side, words, 64, 48, 6, seed) for side in (plain, drafting)]
        for (request, one), (_, other) in zip(*sides, strict=True):
            pairs = enumerate(zip(one.ids.tolist(), other.ids.tolist(), strict=False))
            at = next((i for i, (a, b) in pairs if a != b), None)
            upto = min(len(one.ids), len(other.ids)) if at is None else at
            draws += upto
            for name in ("logprobs", "entropies"):
                if upto:
                    apart = float(np.abs(getattr(one, name)[:upto] - getattr(other, name)[:upto]).max())
                    off[request.temperature] = max(off.get(request.temperature, 0.0), apart)
            if at is not None:
                parted.append(distance(policy, request, one.ids[: at + 1].tolist()))
            elif (one.stop, len(one.ids)) != (other.stop, len(other.ids)):
                far.append(float("nan"))
        for name, value in drafting.notes().items():
            notes[name] = notes.get(name, 0.0) + value
    far += [gap for gap in parted if gap > 1e-5]
    print(
        f"float32: {draws} draws, {len(parted)} parted, at most {max(parted, default=0):.2e} from a border, "
        f"{len(far)} of them further than 1e-5; log-probs and entropies at most {max(off.values()):.2e} apart "
        f"(by temperature {off}); {notes['accepted']:.0f} of {notes['drafted']:.0f} drafted were right"
    )
    return [{"what": "same", "draws": draws, "parted": parted, "far": len(far), "off": off, **notes}]


# What a pass costs


def costs(given: argparse.Namespace) -> list[Row]:
    """Milliseconds of passes over conversations of 800 tokens, by rows and tokens; in brackets what the table says."""
    found: list[Row] = []
    for shape in given.shapes.split(","):
        policy = random_policy(shape)
        parts = adapt_model(policy.model)
        assert parts is not None
        weights = Weights(parts, policy.dtype)
        cost = PassCost.of(weights)
        print(f"{shape}: {cost}", flush=True)
        for rows in map(int, given.batches.split(",")):
            found += passes(shape, weights, cost, policy, rows, given)
        del policy, parts, weights
        torch.cuda.empty_cache()
    return found


def passes(
    shape: str, weights: Weights, cost: PassCost, policy: Policy, rows: int, given: argparse.Namespace
) -> list[Row]:
    held, context = given.held, 2 * given.held
    guesses = Guesses(given.drafts, policy.device, cost)
    pages = rows * (context // 64)
    device = Device(weights, rows, pages, context, 64, policy.device, guesses.memory, guesses.longest)
    guesses.memory.tell(
        [([0] * 8, [0] * 4000)]
    )  # with uniform numbers of 0 every draw is word 0, and every guess is right
    state = device.rows
    state.table.copy_(torch.arange(pages, device=policy.device).view(rows, -1)[:, : state.table.shape[1]])
    state.limits.fill_(1 << 30)
    state.tail.zero_()

    def begin() -> None:
        state.positions[:rows] = held
        state.counts.zero_()

    def timed(run: Callable[[], object]) -> float:
        best = float("inf")
        for turn in range(4):
            begin()
            wait()
            began = time.perf_counter()
            for _ in range(10):
                run()
            wait()
            best = min(best, (time.perf_counter() - began) / 10) if turn else best
        return best * 1e3

    plain = timed(lambda: device.decode(rows, held + 200, draws=True))
    said = [f"decode {plain:.3f} [{1e3 * cost.single(rows, rows * held):.3f}]"]
    found = [{"what": "pass", "shape": shape, "rows": rows, "tokens": 0, "ms": plain}]
    for width in WIDTHS:
        tokens = -(-int(device.size_for(rows) * width) // 8) * 8
        if tokens > device.most_tokens:
            break
        ms = timed(lambda: device.draft(rows, held + 200, tokens, (guesses.longest,) * 9))  # noqa: B023
        said.append(f"{tokens}: {ms:.3f} [{1e3 * cost.with_runs(tokens, rows * held):.3f}]")
        found.append({"what": "pass", "shape": shape, "rows": rows, "tokens": tokens, "ms": ms})
    print(f"{shape}, {rows} rows: " + ", ".join(said), flush=True)
    return found


def profile(given: argparse.Namespace) -> list[Row]:
    """Where the time of a rollout with drafts goes: kernels on the device, and functions on the host."""
    import cProfile
    import pstats

    config = config_of(given, given.model)
    policy = load_policy(config.policy, config.run, max_context=config.agent.max_context)
    side = Side(config, policy, given.drafts)
    for step in range(1, given.warm + 1):
        side.play(step)
    hosts = cProfile.Profile()
    hosts.enable()
    side.play(given.warm + 1)
    hosts.disable()
    pstats.Stats(hosts).sort_stats("tottime").print_stats(28)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as kernels:
        side.play(given.warm + 2)
    print(kernels.key_averages().table(sort_by="cuda_time_total", row_limit=24, max_name_column_width=70))
    return []


def make(given: argparse.Namespace) -> list[Row]:
    TO_WARM_UP.setdefault("half", (151_936, 896, 24, 14, 2, 4864))
    write_random_model("half", Path(given.folder))
    return []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = {"episodes": episodes, "grid": grid, "same": same, "costs": costs, "profile": profile, "make": make}
    parser.add_argument("part", choices=parts)
    parser.add_argument("folder", nargs="?", default="half")
    parser.add_argument("--model", default=str(POCKET), help="folder of a warmed-up model")
    parser.add_argument("--recipe", default="alfworld")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of the recipe")
    parser.add_argument("--drafts", type=int, default=8)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--groups", type=int, default=32)
    parser.add_argument("--warm", type=int, default=2, help="steps that are not counted")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3, help="of the grid")
    parser.add_argument("--shapes", default=",".join(GRID))
    parser.add_argument("--batches", default=",".join(map(str, BATCHES)))
    parser.add_argument("--held", type=int, default=768, help="of costs: tokens of each conversation")
    parser.add_argument("--draws", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=400.0)
    parser.add_argument("--ahead", type=int, default=engine.AHEAD_GUESSING, help="passes under way")
    parser.add_argument("--patience", type=int, default=engine.PATIENCE_GUESSING, help="passes that a prompt waits")
    parser.add_argument(
        "--share", type=int, default=engine.SHARE_GUESSING, help="a prompt waits for 1/share of the rows"
    )
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    engine.AHEAD_GUESSING, engine.PATIENCE_GUESSING = given.ahead, given.patience
    engine.SHARE_GUESSING = given.share
    began = time.monotonic()
    rows = parts[given.part](given)
    print(f"{given.part}: {time.monotonic() - began:.0f} s")
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
