"""Run by test_fits.py without Triton's interpreter: compiles kernels for cards that need not be there.

Prints one JSON object: the bytes of fast memory that a program of each kernel takes. They are known before NVIDIA's
assembler runs, which takes nearly half of the time: so that runs in `make explore` alone. So do kernels that need less
than others, for their card's memory: small ones, and on the larger card those that the smaller one has room for."""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import CUDABackend
from triton.compiler import ASTSource

from isentrope.engines.native import attention, small_model
from tests.builders.sizes import EXPLORE

INTS = dict.fromkeys(("table", "positions", "block_row", "block_first", "block_count", "arrived"), "i32")
FLOATS = dict.fromkeys(("cos", "sin", "parts", "sums"), "fp32")


def taken(kernel: Any, card: int, pointers: list[str], numbers: dict[str, str], fixed: dict[str, Any], **options: int):
    kinds = {name: "*" + {**INTS, **FLOATS}.get(name, "fp32") for name in pointers}
    names = kernel.arg_names
    aligned = {(names.index(name),): [["tt.divisibility", 16]] for name in pointers}
    source = ASTSource(kernel, {**kinds, **numbers, **dict.fromkeys(fixed, "constexpr")}, fixed, aligned)
    return triton.compile(source, target=GPUTarget("cuda", card, 32), options=options).metadata.shared


def prefill(card: int, size: int) -> int:
    block, stages = attention.prefill_tiles(size, torch.float32)
    fixed = {"HEADS": 4, "KV": 2, "SIZE": size, "PAGE": 64, "BLOCK": block, "NEW": attention.NEW_TOKENS}
    pointers = ["q", "out", "keys", "values", "table", "block_row", "block_first", "block_count", "positions"]
    fixed["PRECISION"] = attention.precision(size)
    numbers = {"scale": "fp32", "table_width": "i32"}
    return taken(attention._prefill, card, pointers, numbers, fixed, num_warps=4, num_stages=stages)


def decode(card: int, size: int) -> int:
    fixed = {"KV": 2, "SHARE": 2, "ROWS": attention.ROWS, "SIZE": size, "PAGE": 64, "BLOCK": 64, "WHOLE": False}
    pointers = ["qkv", "out", "keys", "values", "table", "positions", "cos", "sin", "parts", "sums", "arrived"]
    fixed["PRECISION"] = attention.precision(size)
    numbers = dict.fromkeys(("table_width", "qkv_width", "split_length", "splits"), "i32") | {"scale": "fp32"}
    return taken(attention._decode, card, pointers, numbers, fixed, num_warps=max(1, size // 64), num_stages=2)


def between(card: int, width: int, inner: int, stages: int) -> int:
    fixed = {"WIDTH": width, "PADDED": width, "ATTENDED": width, "INNER": inner, "TOKENS": small_model.TOKENS}
    fixed |= {"TILE": small_model._tile(width), "STAGES": stages, "BIASED": False, "GOES_ON": True}
    pointers = ["x", "attended", "o", "norm_out", "gate_up", "down", "norm_next", "weight", "bias", "out"]
    numbers = {"count": "i32", "eps": "fp32", "columns": "i32"}
    return taken(small_model._between, card, pointers, numbers, fixed, num_warps=small_model.WARPS)


def assembles_nothing(*_: object, **__: object) -> bytes:
    return b""


if __name__ == "__main__":
    if not EXPLORE:
        CUDABackend.make_cubin = assembles_nothing
    found = {}
    for card, stages in ((86, 2), (90, 3)):
        if card == 86 or EXPLORE:
            found[f"prefill {card} 128"], found[f"decode {card} 128"] = prefill(card, 128), decode(card, 128)
        if EXPLORE:
            found[f"between {card} pocket"] = between(card, 128, 384, stages)
        found[f"between {card} largest"] = between(card, small_model.LARGEST_WIDTH, small_model.LARGEST_INNER, stages)
    json.dump(found, sys.stdout)
