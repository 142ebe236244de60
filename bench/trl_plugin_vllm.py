"""Methods inside TRL's GRPOTrainer with vLLM in its process: are all numbers finite, and what does a step cost beyond
the plain one?

    python -m bench.trl_plugin_vllm                                # a GPU, Qwen2.5-1.5B's shape: one to two minutes
    python -m bench.trl_plugin_vllm --methods seal --shape smollm2-135m
    python -m bench.trl_plugin_vllm --shape small --device cpu --groups 2 --turns 2 --response 8

One trainer, one vLLM: its steps are in turn with the methods and without, where it does what GRPOTrainer does. The work
is that of bench/trl.py: household episodes of forced lengths, random weights, one update a rollout. A first step, with
the methods, is not counted. Fails if a loss or a metric is not finite. Needs TRL, vLLM and datasets.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from isentrope.bench.results import Row, finish
from isentrope.bench.sampling import SHAPES
from isentrope.bench.trl_peer import Colocated, TrlPeer, missing
from isentrope.bench.trl_vllm import DEFAULTS, with_model_in
from isentrope.bench.work import Spent, Work, device_named, typical
from isentrope.core.needs import is_here


@dataclass
class Seen:
    """What a trainer recorded, by step; the first is number 0."""

    trainer: Any = None
    metrics: list[dict[str, list[float]]] = field(default_factory=list[dict[str, list[float]]])

    def step(self) -> None:
        found: Mapping[str, list[float]] = self.trainer._metrics["train"]
        self.metrics.append({key: list(values) for key, values in found.items() if values})
        self.trainer._metrics["train"].clear()

    def not_finite(self) -> list[str]:
        names = {key for step in self.metrics for key, values in step.items() if not all(map(math.isfinite, values))}
        return sorted(names)


def maker(methods: Sequence[str], seen: Seen) -> Callable[..., Any]:
    """Makes trainers whose steps 0, 2, 4 ... have the methods, and the others none."""
    from isentrope.plugins.trl import EntropyGRPOTrainer

    class InTurn(EntropyGRPOTrainer):
        def _acting(self) -> bool:
            return self.state.global_step % 2 == 0 and super()._acting()

        def after_update(self) -> None:
            if self._acting():
                super().after_update()

        def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Any:
            loss = super()._compute_loss(model, inputs)
            self._metrics["train"]["loss of a micro-batch"].append(loss.item())
            return loss

    def make(**given: Any) -> Any:
        seen.trainer = InTurn(methods=methods, **given)
        return seen.trainer

    return make


def measure(work: Work, given: argparse.Namespace, until: float) -> tuple[list[Spent], Seen, float]:
    """All counted steps, plain and with the methods in turn; what was recorded; seconds until the first of them."""
    began, start, seen = time.monotonic(), 0.0, Seen()
    config = work.config([f"run.threads={given.threads}"])
    vllm = Colocated(given.share) if given.sampler == "vllm" else None
    peer = TrlPeer(work, config, min(given.micro, work.episodes), given.threads, vllm, maker(given.methods, seen))

    def between(step: int) -> None:
        nonlocal start
        seen.step()
        start = start or time.monotonic() - began
        if step:
            kind = "plain" if step % 2 else "with methods"
            print(f"step {step}, {kind}: {peer.spent[-1].step:.2f} s", file=sys.stderr, flush=True)

    spent = peer.run(2 * given.pairs, min(given.warm_turns, work.turns), between, until)
    return spent, seen, start


def rows_of(spent: Sequence[Spent], seen: Seen, start: float, methods: Sequence[str]) -> list[Row]:
    plain, acting = spent[::2], spent[1::2]
    named = " + ".join(methods)
    rows = [Row("until counted", start, "s")]
    for what, steps in (("plain GRPOTrainer: a step", plain), (f"{named}: a step", acting)):
        notes = ", ".join(f"{one.rollout:.2f} + {one.update:.2f}" for one in steps)
        if steps:
            ratio = typical(plain).step / typical(steps).step if steps is acting else None
            against = "" if ratio is None else "plain"
            rows.append(Row(what, typical(steps).step, "s", ratio, against, note=f"rollout and update: {notes}"))
    last = seen.metrics[len(acting) * 2] if acting else {}
    own = [key for key in last if key.split("/")[0] in (*methods, "loss of a micro-batch")]
    rows += [Row(key, math.fsum(last[key]) / len(last[key]), "mean of the last step") for key in own]
    values = sum(len(values) for step in seen.metrics for values in step.values())
    wrong = seen.not_finite()
    note = ", ".join(wrong) or f"of {values:,} values, losses of all micro-batches among them"
    return [*rows, Row("metrics that are not finite", len(wrong), "", note=note)]


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", default=["epo", "aem"])
    parser.add_argument("--shape", default="qwen2.5-1.5b", help=f"of {', '.join(SHAPES)}, or a model folder")
    parser.add_argument("--device", default="auto")
    sizes = {"groups": 4, "group_size": 8, "turns": 8, "response": 64, "context": 4096, "micro": 4, "warm_turns": 2}
    for name, value in sizes.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=value)
    parser.add_argument("--pairs", type=int, default=2, help="counted steps of each kind")
    parser.add_argument("--sampler", default="vllm", choices=("vllm", "transformers"))
    parser.add_argument("--share", type=float, default=Colocated().memory, help="of the card's memory for vLLM")
    parser.add_argument("--threads", type=int, default=0, help="torch threads on a CPU; 0: all cores")
    parser.add_argument("--seconds", type=float, default=90, help="no step that would end later")
    parser.add_argument("--json", type=Path, default=None, help="write the result there")
    return parser


def main() -> None:
    given, until = options().parse_args(), time.monotonic()
    os.environ.update({**DEFAULTS, **os.environ})
    absent = "" if given.sampler != "vllm" or is_here("vllm") else "vLLM is not installed"
    if reason := missing() or absent:
        raise SystemExit(f"TRL cannot be measured here: {reason}")
    sizes = {name: getattr(given, name) for name in ("groups", "group_size", "turns", "response", "context")}
    with tempfile.TemporaryDirectory(prefix="isentrope-trl-plugin-") as folder:
        work = with_model_in(Work(given.shape, device_named(given.device), **sizes), Path(folder))
        spent, seen, start = measure(work, given, until + given.seconds)
    finish("trl_plugin_vllm", rows_of(spent, seen, start, given.methods), given.json)
    sys.stdout.flush()
    os._exit(1 if seen.not_finite() else 0)  # without vLLM's own end, which may take long and changes nothing any more


if __name__ == "__main__":
    main()
