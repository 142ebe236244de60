"""The native engine on a GPU: against `transformers.generate`, and against what the memory's bandwidth allows.

    python bench/rollout.py                        # all parts, SmolLM2-135M's shape with random weights
    python bench/rollout.py --parts decode         # only the time of a decode step
    python bench/rollout.py --parts episodes --model FOLDER --games 256    # household episodes with a real model

decode     one step for 64 to 1024 conversations of equal length, sampling, log-prob and entropy included. The limit
           is the time to read weights and cache once at the bandwidth that a large copy reaches in the same run.
prompts    256 prompts of 313 to 512 tokens that share nothing, 64 new tokens each, prefill included.
episodes   whole household episodes, many turns: the cache kept over turns, conversations of uneven length. The peer
           answers each turn with `generate`, as a trainer without an engine does.
agreement  log-probs of both engines and of the pass that trains, against the same model in float32.
Times of steps are the best of several rounds; prompts are medians over rounds, both sides in turn.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from isentrope.bench.sampling import PROMPTS, AnyWord, EngineSampler, Sampler, never, seconds_of
from isentrope.bench.work import llama_settings
from isentrope.config.load import load_config
from isentrope.config.schema import RunConfig
from isentrope.core.engine import Request, Sampled
from isentrope.core.types import RolloutPlan
from isentrope.engines.native.device import Device
from isentrope.engines.native.engine import FastEngine
from isentrope.engines.native.weights import Weights
from isentrope.engines.torch import TorchEngine
from isentrope.models.hugging_face import HuggingFaceModel, register_attention
from isentrope.models.load import load_policy
from isentrope.models.model_adapter import adapt_model
from isentrope.models.policy import Policy
from isentrope.models.sources.find import POCKET
from isentrope.rollout.collector import Collector

Row = dict[str, Any]
SHAPE = llama_settings("smollm2") | {"rope_theta": 100000.0}


def random_policy(dtype: torch.dtype = torch.bfloat16) -> Policy:
    """SmolLM2-135M's shape. Its weights are random, so it never ends a response by itself."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(**SHAPE, attn_implementation=register_attention())
    lm = LlamaForCausalLM(config).to("cuda", dtype).eval()
    return Policy(HuggingFaceModel(lm), AnyWord.load(POCKET), torch.device("cuda"), dtype)


def fast_engine(policy: Policy, rows: int, context: int) -> FastEngine:
    parts = adapt_model(policy.model)
    assert parts is not None
    return FastEngine(policy, parts, rows, context, memory=0.7)


def timed(run: Callable[[], object], rounds: int) -> float:
    """Seconds, the best of some rounds."""
    best = float("inf")
    for _ in range(rounds):
        torch.cuda.synchronize()
        began = time.perf_counter()
        run()
        torch.cuda.synchronize()
        best = min(best, time.perf_counter() - began)
    return best


# decode


def bandwidth() -> float:
    """Bytes a second, read and written, of a large copy."""
    source = torch.empty(1 << 30, dtype=torch.int8, device="cuda")
    target = torch.empty_like(source)
    target.copy_(source)
    return 2 * len(source) / timed(lambda: [target.copy_(source) for _ in range(20)], 5) * 20


def decode(policy: Policy, sizes: Sequence[tuple[int, int]]) -> list[Row]:
    parts = adapt_model(policy.model)
    assert parts is not None
    weights, speed, rows = Weights(parts, policy.dtype), bandwidth(), list[Row]()
    heavy = sum(p.numel() * p.element_size() for p in policy.module.parameters())
    for count, length in sizes:
        seconds = decode_step(weights, policy.device, count, length)
        cache = 2 * len(parts.layers) * parts.kv_heads * parts.head_size * 2 * length * count
        limit = (heavy + cache) / speed
        rows.append(
            {
                "what": f"decode {count} x {length}",
                "value": seconds * 1e3,
                "unit": "ms a step",
                "ratio": limit / seconds,
                "peer": "bandwidth limit",
                "bar": {256: 0.45, 512: 0.6}.get(count if length == 576 else 0),
                "note": f"{count / seconds:,.0f} tokens/s; limit {limit * 1e3:.2f} ms at {speed / 1e12:.2f} TB/s",
            }
        )
    return rows


def decode_step(weights: Weights, device: torch.device, count: int, length: int, steps: int = 60) -> float:
    """Seconds of a step, around this length."""
    context = -(-(length + steps) // 64) * 64
    unit = Device(weights, count, count * context // 64, context, 64, device)
    table = np.arange(count * context // 64, dtype=np.int32).reshape(count, -1)
    unit.rows.table[:count] = torch.from_numpy(table).to(device)
    uniforms = np.random.default_rng(0).random((count, 64), dtype=np.float32)
    unit.rows.uniforms[:count] = torch.from_numpy(uniforms).to(device)

    def run() -> None:
        for _ in range(steps):
            unit.decode(count, length + steps // 2, draws=True)

    best = float("inf")
    for _ in range(5):  # the first records
        unit.rows.positions[:count] = length - steps // 2
        unit.rows.counts.zero_()
        best = min(best, timed(run, 1) / steps)
    return best


# prompts


def prompts(policy: Policy, rounds: int) -> list[Row]:
    engine, words = fast_engine(policy, PROMPTS.conversations, 1024), policy.model.head_weight().shape[0]
    sides: dict[str, Sampler] = {"ours": EngineSampler(engine), "generate": EngineSampler(Generate(policy))}
    found: dict[str, list[float]] = {name: [] for name in sides}
    for seed in range(rounds + 1):
        for name, side in sides.items():
            seconds = seconds_of(side, PROMPTS, words, seed)
            if seed:  # the first warms up
                found[name].append(PROMPTS.tokens / seconds)
    engine.close()
    rates = {name: statistics.median(each) for name, each in found.items()}
    return [
        {"what": PROMPTS.name, "value": rates["ours"], "unit": "new tokens/s",
         "ratio": rates["ours"] / rates["generate"], "peer": "transformers.generate", "bar": 12,
         "note": f"generate {rates['generate']:,.0f}"}
    ]  # fmt: skip


def as_hugging_face(policy: Policy) -> Any:
    """Our own model, as transformers loads it."""
    with tempfile.TemporaryDirectory() as folder:
        policy.save(Path(folder))
        return HuggingFaceModel.load(Path(folder)).lm.to(policy.device, policy.dtype).eval()


class Generate:
    """The peer: each turn by `generate` over whole prompts, padded on the left; ends when all responses have ended."""

    def __init__(self, policy: Policy) -> None:
        self.policy, self.tokenizer = policy, policy.tokenizer
        self.lm: Any = policy.model.lm if isinstance(policy.model, HuggingFaceModel) else as_hugging_face(policy)
        known = min(self.tokenizer.size, self.lm.config.vocab_size)
        self.pieces = self.tokenizer.pieces(range(known)) + [b""] * (self.lm.config.vocab_size - known)

    def open(self, slots: Sequence[int]) -> None: ...

    def keep(self, slots: Sequence[int]) -> None: ...

    def refresh(self) -> None: ...

    def close(self) -> None: ...

    def notes(self) -> dict[str, float]:
        return {}

    @torch.no_grad()
    def sample(self, requests: Sequence[Request]) -> list[Sampled]:
        from transformers import StoppingCriteriaList

        width, new = max(len(r.prompt) for r in requests), max(len(r.uniforms) for r in requests)
        ids = np.full((len(requests), width), self.tokenizer.pad_id, dtype=np.int64)
        mask = np.zeros_like(ids)
        for i, request in enumerate(requests):
            ids[i, width - len(request.prompt) :], mask[i, width - len(request.prompt) :] = request.prompt, 1
        ends = np.zeros(len(requests), dtype=np.int64)
        eos = sorted(self.tokenizer.eos_ids)

        def ended(given: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
            length = given.shape[1] - width
            last = given[:, -1].tolist()
            for i in np.flatnonzero(ends == 0):
                if b">" in self.pieces[last[i]]:  # which every closing tag ends with
                    tail = b"".join(self.pieces[t] for t in given[i, width:].tolist())
                    ends[i] = length if requests[i].stop(tail[-64:]) else 0
            return torch.tensor(ends > 0, device=given.device)

        self.lm.set_attn_implementation("sdpa")
        out = self.lm.generate(
            input_ids=torch.from_numpy(ids).cuda(), attention_mask=torch.from_numpy(mask).cuda(), max_new_tokens=new,
            do_sample=True, temperature=requests[0].temperature or 1.0, top_k=0, top_p=1.0,
            pad_token_id=self.tokenizer.pad_id, eos_token_id=[word for word in eos if word < len(self.pieces)] or None,
            stopping_criteria=StoppingCriteriaList([ended]),
        )[:, width:].cpu().numpy()  # fmt: skip
        self.lm.set_attn_implementation(register_attention())
        return [self._sampled(row, int(end), eos) for row, end in zip(out, ends, strict=True)]

    def _sampled(self, row: np.ndarray, end: int, eos: Sequence[int]) -> Sampled:
        stop, count = ("tag", end) if end else ("length", len(row))
        closing = np.flatnonzero(np.isin(row[:count], eos))
        if len(closing):
            stop, count = "eos", int(closing[0]) + 1
        nothing = np.zeros(count, dtype=np.float32)
        return Sampled(row[:count].astype(np.int32), nothing, nothing, nothing + 1, stop)


# episodes


def episodes(config: RunConfig, policy: Policy, games: int, rounds: int) -> list[Row]:
    """Sampled tokens a second over whole rollouts, tasks included."""
    found: dict[str, list[float]] = {}
    rows: list[Row] = []
    makers = {"fast": lambda: fast_engine(policy, config.rollout.batch, config.agent.max_context),
              "torch": lambda: TorchEngine(policy), "generate": lambda: Generate(policy)}  # fmt: skip
    for name, make in makers.items():
        with Collector(config, make()) as collector:  # type: ignore[arg-type]
            plan = RolloutPlan(config.agent.order, 1.0)
            wanted = replace(config.rollout, groups=games // config.rollout.group_size)
            instances = [collector.world.instance("train", i) for i in range(wanted.groups)]
            for r in range(rounds if name == "fast" else 1):
                if name == "fast" or r == 0:
                    torch.cuda.synchronize()
                began = time.perf_counter()
                played = collector.play(instances, wanted.group_size, plan, "bench")
                seconds = time.perf_counter() - began
                tokens = sum(len(turn.response_ids) for episode in played for turn in episode.turns)
                turns = sum(len(episode.turns) for episode in played)
                found.setdefault(name, []).append(tokens / seconds)
                solved = np.mean([episode.success for episode in played])
                print(f"  {name}: {len(played)} episodes, {turns} turns, {tokens} tokens, {seconds:.2f} s, "
                      f"solved {solved:.2f} {collector.notes()}", flush=True)  # fmt: skip
    best = {name: max(rates) for name, rates in found.items()}
    for name in ("fast", "torch"):
        rows.append(
            {"what": f"household episodes, {name}", "value": best[name], "unit": "sampled tokens/s",
             "ratio": best[name] / best["generate"], "peer": "transformers.generate",
             "bar": 8 if name == "fast" else None,
             "note": f"generate {best['generate']:,.0f}"}
        )  # fmt: skip
    return rows


# agreement


def agreement(policy: Policy, count: int = 32) -> list[Row]:
    """Mean distance of log-probs from those of the same weights in float32."""
    rng = np.random.default_rng(1)
    asked = [
        Request(s, rng.integers(300, 49000, int(n)).tolist(), rng.random(32, dtype=np.float32), 1.0, never)
        for s, n in enumerate(rng.integers(100, 400, count))
    ]
    exact = random_policy(torch.float32)
    rows: list[Row] = []
    for name, engine in (("fast", fast_engine(policy, count, 512)), ("torch", TorchEngine(policy))):
        engine.open(range(count))
        sampled = engine.sample(asked)
        off = {"sampler": list[float](), "trainer": list[float](), "between": list[float]()}
        for request, answer in zip(asked, sampled, strict=True):
            true, trained = (whole_pass(one, request, answer) for one in (exact, policy))
            off["sampler"] += np.abs(answer.logprobs - true).tolist()
            off["trainer"] += np.abs(trained - true).tolist()
            off["between"] += np.abs(trained - answer.logprobs).tolist()
        mean = {key: float(np.mean(values)) for key, values in off.items()}
        rows.append(
            {"what": f"log-prob error, {name}", "value": mean["sampler"], "unit": "nats a token",
             "ratio": mean["sampler"] / mean["trainer"], "peer": "the training pass in bfloat16", "bar": None,
             "note": f"trainer {mean['trainer']:.4f}, between them {mean['between']:.4f}"}
        )  # fmt: skip
        engine.close()
    return rows


@torch.no_grad()
def whole_pass(policy: Policy, request: Request, answer: Sampled) -> np.ndarray:
    ids = torch.tensor([[*request.prompt, *answer.ids.tolist()]], device="cuda")
    places = torch.arange(ids.shape[1], device="cuda")[None]
    hidden = policy.model.hidden(ids, places, torch.zeros_like(ids))[0, len(request.prompt) - 1 : -1]
    words = torch.log_softmax(hidden.float() @ policy.model.head_weight().float().T, -1)
    return words.gather(1, ids[0, len(request.prompt) :, None]).squeeze(1).cpu().numpy()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", default=["decode", "prompts", "agreement", "episodes"])
    parser.add_argument("--model", default="pocket", help="for episodes: a name or a folder")
    parser.add_argument("--recipe", type=Path, default=Path("demo"))
    parser.add_argument("--set", dest="settings", action="append", default=[])
    parser.add_argument("--games", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("bench/rollout.py measures a GPU, and there is none here")
    rows: list[Row] = []
    policy = random_policy() if set(args.parts) - {"episodes"} else None
    shown = 0
    for part in args.parts:
        if part == "decode":
            assert policy is not None
            rows += decode(policy, [(64, 576), (256, 576), (512, 576), (1024, 576), (256, 2048)])
        elif part == "prompts":
            assert policy is not None
            rows += prompts(policy, args.rounds)
        elif part == "agreement":
            assert policy is not None
            rows += agreement(policy)
        elif part == "episodes":
            sets = [f"policy.model={args.model}", f"rollout.batch={args.games}", "run.device=cuda", *args.settings]
            config = load_config(args.recipe, sets)
            rows += episodes(config, load_policy(config.policy, config.run), args.games, args.rounds)
        for row in rows[shown:]:
            print_row(row)
        shown = len(rows)
    if args.json:
        result = {
            "name": "rollout",
            "machine": torch.cuda.get_device_name(),
            "date": time.strftime("%Y-%m-%d"),
            "rows": rows,
        }
        args.json.write_text(json.dumps(result, indent=1))


def print_row(row: Row) -> None:
    bar = "" if row["bar"] is None else f"  (bar {row['bar']:g})"
    print(
        f"{row['what']:38} {row['value']:12,.3f} {row['unit']:18} {row['ratio']:8.2f} x {row['peer']}{bar}",
        f" {row['note']}",
    )


if __name__ == "__main__":
    main()
