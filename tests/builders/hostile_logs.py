"""Hostile logs of other programs, for `isentrope import`: families of damage, each made anew from a seed.

make_logs(folder)                               # one whole log of each kind
FAMILIES["strange_log"](Random(3), place)       # those in place/logs are hostile now
"""

from __future__ import annotations

import json
import math
import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from random import Random

from isentrope.imports.tensorboard import masked_crc32c
from isentrope.imports.wandb import BEGINNING
from tests.imports.logs import DATA, EVENT_FILE, event, framed, part, unpacked, wandb_log

LOGS = {
    "tensorboard": "tensorboard",
    "wandb": "wandb",
    "state": "trainer_state.json",
    "jsonl": "log.jsonl",
    "csv": "log.csv",
    "console": "console.log",
}
NAMES = (
    "a/b", "\x1b]0;title\x07", "\u202ereversed", "</script><script>alert(1)</script>", "x" * 5000, "", "step", "kind",
    "nonfinite", "=cmd()", "../../etc/passwd", "eval/a/b/c/d", "failures", "success/all", "\x00", "[bold]",
)  # fmt: skip
NUMBERS = (0.0, -1.0, 1e308, -1e308, 3e38, math.nan, math.inf, -math.inf, 1e-320, 1e100, 0.5)
STEPS = (0, -1, 1, 2, 2**53, 2**63 - 1, -(2**63), 5, 5, 3, 10**15)


def make_logs(folder: Path) -> None:
    folder.mkdir()
    unpacked("trl-events.out.tfevents", folder / "tensorboard" / EVENT_FILE)
    unpacked("trl.wandb", folder / "wandb" / "run-a.wandb")
    (folder / "trainer_state.json").write_bytes((DATA / "trainer_state.json").read_bytes())
    (folder / "log.jsonl").write_bytes((DATA / "verl.jsonl").read_bytes())
    (folder / "console.log").write_bytes((DATA / "verl-console.txt").read_bytes())
    rows = [f"{step},{0.5 / step},{1 - 0.5 / step}" for step in range(1, 30)]
    (folder / "log.csv").write_text("\n".join(["step,entropy,reward", *rows]) + "\n")


def paths(place: Path) -> dict[str, Path]:
    """Each log's file."""
    logs = place / "logs"
    found = {kind: logs / name for kind, name in LOGS.items()}
    return found | {
        "tensorboard": logs / "tensorboard" / EVENT_FILE,
        "wandb": logs / "wandb" / "run-a.wandb",
    }


def damaged_log(random: Random, place: Path) -> None:
    """Cut, flipped, full of rubbish, of no size that a disk has, or no plain file."""
    how = random.randrange(7)
    for path in paths(place).values():
        data = bytearray(path.read_bytes())
        if how == 0:
            del data[random.randrange(len(data)) :]
        elif how == 1:
            for _ in range(random.choice((1, 10, 200))):
                data[random.randrange(len(data))] = random.randrange(256)
        elif how == 2:
            data = bytearray(data[: random.choice((0, 7, 12))] + random.randbytes(3_000_000))
        elif how == 3:
            os.truncate(path, 2**38)
            continue
        elif how == 4:
            path.unlink()
            os.mkfifo(path)
            continue
        elif how == 5:
            path.unlink()
            path.symlink_to(random.choice(("/dev/zero", "/proc/self/mem", "/dev/stdin", path.name)))
            continue
        else:
            piece = bytes(data[random.randrange(len(data)) :])
            data[random.randrange(len(data)) : 0] = piece
        path.write_bytes(bytes(data))


def strange_log(random: Random, place: Path) -> None:
    """Whole logs whose names, numbers and steps make no sense, by several writers."""
    found = paths(place)
    rows = [
        (random.choice(STEPS), {name: random.choice(NUMBERS) for name in random.sample(NAMES, 4)}) for _ in range(400)
    ]
    rows += [(step, {"entropy": random.choice(NUMBERS), "reward": random.choice(NUMBERS), "reward_std": 1.0,
                     "actor/entropy": random.choice(NUMBERS)}) for step in range(60)]  # fmt: skip
    for number in range(3):
        some = rows[number::3]
        events = b"".join(
            event(
                step,
                {name: value if abs(value) < 3.1e38 or value != value else math.inf for name, value in row.items()},
            )
            for step, row in some
        )
        (found["tensorboard"].parent / f"events.out.tfevents.17000{number}.a.1.{number}").write_bytes(events)
    found["wandb"].write_bytes(wandb_log([(abs(step) % 2**62, row) for step, row in rows]))
    records = [{**row, "step": step} for step, row in rows]
    texts = [json.dumps(record).replace("0.5", random.choice(("1e400", "9" * 400, "0.5"))) for record in records]
    found["jsonl"].write_text("\n".join(texts) + "\n")
    found["state"].write_text('{"log_history": [' + ",".join(texts) + random.choice(("]}", "", ', {"a":' * 5000)))
    lines = [" - ".join([f"step:{step}", *(f"{n}:{v}" for n, v in row.items())]) for step, row in rows]
    found["console"].write_text("\n".join(lines))
    head = ["step", *(json.dumps(name) for name in NAMES)]
    cells = [[str(random.choice(STEPS)), *(str(random.choice(NUMBERS)) for _ in NAMES)] for _ in range(400)]
    found["csv"].write_text(
        "\n".join(",".join(row) for row in [head, *cells]) + '\n"' + "x," * 100_000, errors="replace"
    )


def large_log(random: Random, place: Path) -> None:
    """More than anybody reads: names, records, lengths, depth, lines."""
    found = paths(place)
    how = random.randrange(4)
    if how == 0:  # a name of its own for every number
        found["tensorboard"].write_bytes(b"".join(event(n, {f"n{n}": 1.0}) for n in range(20_000)))
        found["wandb"].write_bytes(wandb_log([(n, {f"n{n * 20 + k}": 1.0 for k in range(20)}) for n in range(2000)]))
        lines = [json.dumps({"step": n} | {f"n{n * 100 + k}": 1 for k in range(100)}) for n in range(2000)]
        found["jsonl"].write_text("\n".join(lines))
        found["state"].write_text('{"log_history": [' + ",".join(lines) + "]}")
        found["csv"].write_text(",".join(["step", *(f"n{n}" for n in range(100_000))]) + "\n" + "1," * 100_000 + "\n")
        found["console"].write_text("\n".join(f"step:{n} - " + " - ".join(["a:1"] * 1000) for n in range(500)))
    elif how == 1:  # records of nothing, and one that says it is large
        length = struct.pack("<Q", random.choice((2**62, 2**40, 2**20)))
        tail = length + struct.pack("<I", masked_crc32c(length))
        found["tensorboard"].write_bytes(framed(b"") * 500_000 + tail)
        empty = struct.pack("<IHB", zlib.crc32(b"\x01"), 0, 1)
        block = empty * (32768 // 7) + bytes(32768 % 7)
        found["wandb"].write_bytes(BEGINNING + empty * 4680 + bytes(1) + block * 100)
        found["jsonl"].write_bytes(b"{}\n" * 1_000_000)
        found["state"].write_text('{"log_history": [' + "{}," * 1_000_000)
        found["csv"].write_bytes(b"step,a\n" + b"\n" * 3_000_000 + b"1\n" * 300_000)
        found["console"].write_bytes(b"step:1 - a:1\n" + b"step:" * 5_000_000)
    elif how == 2:  # depth and length
        message = b""
        for _ in range(2000):
            message = part(1, message)
        found["tensorboard"].write_bytes(framed(part(2, 1) + part(5, message)) * 200)
        found["wandb"].write_bytes(wandb_log([(1, {"x" * 900_000: 1}), (2, {"a": "y" * 3_000_000}), (3, {"b": 1})]))
        found["jsonl"].write_bytes(
            b'{"step": 1, "a": ' + b"[" * 100_000 + b"\n" + b'{"a":' * 200_000 + b"\n" + b"x" * (40 << 20)
        )
        found["state"].write_text('{"log_history": [' + '{"a": ' * 100_000 + "[{},{}," * 2_000_000)
        found["csv"].write_bytes(b'step,"' + b"a," * (20 << 20))
        found["console"].write_bytes(b"step:1 - " + b"a" * (40 << 20))
    else:  # a long run
        steps = 20_000
        rows = [
            json.dumps({"step": n, "reward": random.random(), "reward_std": 0.1, "entropy": 1.0}) for n in range(steps)
        ]
        found["jsonl"].write_text("\n".join(rows))
        found["state"].write_text('{"log_history": [' + ",".join(rows) + "]}")
        found["tensorboard"].write_bytes(
            b"".join(event(n, {"reward": 1.0, "entropy": random.random()}) for n in range(steps))
        )
        found["wandb"].write_bytes(wandb_log([(n, {"entropy": random.random()}) for n in range(5000)]))
        found["csv"].write_text("step,entropy\n" + "".join(f"{n},{random.random()}\n" for n in range(steps)))


FAMILIES: dict[str, Callable[[Random, Path], None]] = {
    function.__name__: function for function in (damaged_log, strange_log, large_log)
}
