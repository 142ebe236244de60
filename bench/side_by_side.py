"""Decode steps of small models, of one process and of several that share a GPU, as in a study.

    python bench/side_by_side.py [1 8 16] [--conversations 64] [--tokens 500] [--seconds 2]

Every process holds a model of the pocket model's shape and draws a token for each conversation, step after step, one
step ahead of the host as the engine does it. First by one kernel for each product, norm and activation, then by the
small model's kernels, which carry tokens from one attention to the next. Processes take turns on a GPU unless NVIDIA's
MPS runs (`nvidia-cuda-mps-control -d` before, and `echo quit | nvidia-cuda-mps-control` after).
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

import numpy as np
import torch

from isentrope.engines.native.device import PAGE, Device
from isentrope.engines.native.weights import Weights
from isentrope.models.llama import Llama, Shape
from isentrope.models.model_adapter import adapt_model

POCKET = Shape(vocabulary=555, width=128, layers=4, heads=4, kv_heads=2, inner=384)


def make(count: int, tokens: int, small: bool) -> Device:
    model = Llama(POCKET)
    model.initialise(torch.Generator().manual_seed(0))
    parts = adapt_model(model.to("cuda"))
    assert parts is not None
    context = -(-(tokens + 64) // PAGE) * PAGE
    device = Device(Weights(parts, torch.float32), count, count * context // PAGE, context, 64, torch.device("cuda"))
    device.forward.small = small
    pages = torch.arange(count * context // PAGE, dtype=torch.int32, device="cuda").reshape(count, -1)
    device.rows.table[:count] = pages
    device.rows.uniforms.uniform_()
    return device


def steps(device: Device, count: int, tokens: int, times: int) -> None:
    device.rows.positions[:count] = tokens
    before = None
    for _ in range(times):
        device.decode(count, tokens + 40, draws=True)
        drawn = device.drawn()
        if before is not None:
            before.wait()
        before = drawn
    assert before is not None
    before.wait()


def one(args: argparse.Namespace) -> None:
    """Get ready, say so, and begin when told to."""
    device = make(args.conversations, args.tokens, args.one == "small")
    steps(device, args.conversations, args.tokens, 10)
    print("ready", flush=True)
    sys.stdin.readline()
    begin, done = time.perf_counter(), 0
    while time.perf_counter() - begin < args.seconds:
        steps(device, args.conversations, args.tokens, 32)
        done += 32
    print(done / (time.perf_counter() - begin))


def together(processes: int, how: str, args: argparse.Namespace) -> float:
    """Steps a second of so many processes, all told to begin when all are ready."""
    command = [sys.executable, __file__, "--one", how, "--conversations", str(args.conversations)]
    command += ["--tokens", str(args.tokens), "--seconds", str(args.seconds)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    started = [subprocess.Popen(command, **pipes) for _ in range(processes)]
    for process in started:
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            sys.exit(f"one of {processes} processes did not start")
    return float(np.sum([float(process.communicate("go\n")[0]) for process in started]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("processes", type=int, nargs="*", default=[1, 8, 16])
    parser.add_argument("--conversations", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=500, help="that each conversation has already")
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--one", choices=["plain", "small"], help=argparse.SUPPRESS)
    args = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("this measures processes that share a GPU, and there is none here")
    if args.one:
        return one(args)
    for processes in args.processes:
        plain, small = (together(processes, how, args) for how in ("plain", "small"))
        print(
            f"{processes:3d} processes: {plain:7.0f} steps/s product by product, {small:7.0f} as a small model: "
            f"{small / plain:.2f} times",
            flush=True,
        )


if __name__ == "__main__":
    main()
