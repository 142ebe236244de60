"""The list of benchmarks and which of them suit this machine; each is run in a process of its own."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from isentrope.bench.results import Result, read_result
from isentrope.core.command import page
from isentrope.core.errors import ConfigError, RunError, writing
from isentrope.core.needs import install_command

SOURCES = Path(__file__).parents[2]
SHIPPED = Path(__file__).parent / "scripts"  # in a wheel: what a checkout has in bench/


@dataclass(frozen=True)
class Machine:
    """What decides which benches make sense."""

    cuda: bool
    hugging_face: bool
    trl: bool
    vllm: bool = False


@dataclass(frozen=True)
class Bench:
    name: str
    what: str
    gpu: tuple[str, ...] | None = None  # arguments there; None: it says nothing there
    cpu: tuple[str, ...] | None = None
    quick: tuple[str, ...] = ()  # more arguments that make it short
    trl: bool = False  # measured against TRL
    vllm: bool = False  # measured against vLLM
    timed: bool = False  # takes --seconds, and ends in time with what it has
    hugging_face: bool = True
    minutes: float = 2.0  # about, at most, on the machine it was made for


BENCHES = (
    Bench("rollout", "sampling on a GPU, against transformers and the memory's bandwidth", gpu=(),
          quick=("--parts", "decode", "prompts")),
    Bench("vllm", "sampling at several models' shapes, against vLLM", gpu=(),
          quick=("--rounds", "1", "--shapes", "smollm2-135m", "qwen2.5-1.5b"), vllm=True, timed=True, minutes=12),
    Bench("update", "the update, against padded rows with whole logits", gpu=(), cpu=("--tiny",),
          quick=("--rounds", "1")),
    Bench("trl", "a whole step of 128 episodes, against TRL", gpu=(), quick=("--steps", "1", "--turns", "5"), trl=True,
          minutes=4),
    Bench("trl_vllm", "a whole step of Qwen2.5-1.5B's shape, against TRL with vLLM in its process", gpu=(),
          quick=("--steps", "1"), trl=True, vllm=True, timed=True, minutes=6),
    Bench("cpu", "a whole step on a CPU, against TRL", cpu=(), quick=("--steps", "1", "--groups", "2"), trl=True,
          minutes=8),
    Bench("growth", "how a step grows with episodes, turns and context", gpu=(), cpu=("--tiny",),
          quick=("--seconds", "3"), minutes=4),
    Bench("hardware", "what fits on the card: a step's seconds and memory by model, against the estimate", gpu=(),
          quick=("--only", "135m", "0.5b, all"), timed=True, minutes=9),
)  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """A result, or the reason why there is none; `failed`, with both, where a part of it is missing."""

    bench: Bench
    result: Result | None = None
    reason: str = ""
    failed: bool = False
    seconds: float = 0.0


def this_machine() -> Machine:
    import torch

    def there(name: str) -> bool:
        return importlib.util.find_spec(name) is not None

    trl = there("trl") and there("datasets")
    return Machine(torch.cuda.is_available(), there("transformers") and there("tokenizers"), trl, there("vllm"))


def chosen(names: Sequence[str]) -> list[Bench]:
    known = {bench.name: bench for bench in BENCHES}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ConfigError(f"no bench is called {', '.join(map(repr, unknown))}; there are {', '.join(known)}")
    return [known[name] for name in dict.fromkeys(names)] if names else list(BENCHES)


def arguments(bench: Bench, machine: Machine, quick: bool) -> list[str] | str:
    """What to call it with here, or why it is left out."""
    given = bench.gpu if machine.cuda else bench.cpu
    if target(bench.name) is None:
        return "is a script of the sources: run it from a checkout"
    if given is None:
        return "measures a CPU, and this machine has a GPU" if machine.cuda else "measures a GPU, and there is none"
    if bench.hugging_face and not machine.hugging_face:
        return f"needs transformers: {install_command('hf')}"
    if bench.trl and not machine.trl:
        return "needs TRL: pip install trl==1.16.0 datasets"
    if bench.vllm and not machine.vllm:
        return f"needs vLLM, best in an environment of its own ({page('engines')})"
    return [*given, *(bench.quick if quick else ())]


def target(name: str) -> list[str] | None:
    """How Python finds the bench: a script of the sources or of the wheel, else a module of the installed package."""
    script, shipped = SOURCES / "bench" / f"{name}.py", SHIPPED / f"{name}.py"
    if script.is_file() and (SOURCES / "pyproject.toml").is_file():
        return [str(script)]
    if shipped.is_file():
        return [str(shipped)]
    if importlib.util.find_spec(f"isentrope.bench.{name}"):
        return ["-m", f"isentrope.bench.{name}"]
    return None


def run(bench: Bench, machine: Machine, quick: bool, out: Path, limit: float) -> Outcome:
    """Run one bench; its result goes to `out`/NAME.json and what it said to `out`/NAME.log."""
    given, where = arguments(bench, machine, quick), target(bench.name)
    if isinstance(given, str) or where is None:
        return Outcome(bench, reason=str(given))
    file, log = out / f"{bench.name}.json", out / f"{bench.name}.log"
    ends = ["--seconds", f"{limit * 0.9:.0f}"] if bench.timed else []
    command = [sys.executable, *where, *given, *ends, "--json", str(file.resolve())]
    paths = [str(SOURCES), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    began = time.monotonic()
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as told:
            try:
                code = subprocess.run(
                    command, stdout=told, stderr=subprocess.STDOUT, timeout=limit, env=environment
                ).returncode
            except subprocess.TimeoutExpired:
                return Outcome(bench, reason=f"took longer than {limit:.0f} s (--limit)", failed=True, seconds=limit)
    seconds = time.monotonic() - began
    reason = f"ended with {code}: {_last_line(log)} (all of it: {log})"
    try:
        result = read_result(file)
    except RunError:
        return Outcome(bench, reason=reason, failed=True, seconds=seconds)
    if code and result.met:  # not for a missed bar: something is missing in the result, or wrong
        return Outcome(bench, result, reason, failed=True, seconds=seconds)
    return Outcome(bench, result, seconds=seconds)


def _last_line(log: Path) -> str:
    lines = [line.strip() for line in log.read_text("utf-8", "replace").splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it said nothing"
