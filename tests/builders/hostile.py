"""Hostile run folders, studies and result files: families of damage, each made anew from a seed.

    place = copy_base(base, folder)      # run/, study/, compact/, eval.json, recipe.toml: all of them whole
    FAMILIES["fifo"](Random(3), place)   # one or more of its files are hostile now

Nothing here runs long or takes much memory: what it makes is small, and what is large is sparse.
"""

from __future__ import annotations

import json
import lzma
import os
import shutil
import socket
import tomllib
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, cast

from isentrope.config.text import table_to_toml
from isentrope.runs.episodes import _SCHEMA, _scores_schema, pa, pq  # pyright: ignore[reportPrivateUsage]
from tests.builders import hostile_logs
from tests.builders.bombs import write_bomb

SECRET = "the-secret-of-somebody-else"
LOGS = ("metrics.jsonl", "timings.jsonl", "events.jsonl")
JSON = ("run.json", "tokens.json", "trackers.json", "checkpoints/best.json", "checkpoints/step-000001/state.json")
MODEL = "checkpoints/step-000001/policy"
EPISODES = ("step-000001", "eval-000000-seen", "eval-000001-seen")
NUMBERS = (
    "1e308", "-1e308", "1e309", "1e-320", "9" * 400, "-" + "9" * 400, "9" * 5000, "NaN", "Infinity", "-Infinity",
    "-0.0", "9223372036854775807", "1" * 18, "1e19", "0." + "3" * 400, "1e" + "9" * 400,
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, "", "x", "\x1b]0;title\x07\u202e", "</script><script>alert(1)</script>", "[bold]", "9" * 400, [], {},
    [[]], {"a": {"b": []}}, 1e308, -1e308, 2**62, -(2**62), 10**400, 0.1, -1, "../../../etc/passwd", "a\0b", "\ud800",
)  # fmt: skip


def files_of(place: Path) -> list[Path]:
    """All that a family may spoil, without the logs of other programs."""
    found = [path for path in sorted(place.rglob("*")) if path.is_file() and not path.is_symlink()]
    return [path for path in found if not path.name.startswith("events.out") and path.name != "secret.txt"]


def some_file(random: Random, place: Path) -> Path:
    """A file of the run, mostly; else one of the study and what lies beside them."""
    names = ["config.toml", *LOGS, *JSON, "run.lock"]
    names += [f"episodes/{name}.parquet" for name in EPISODES]
    choices = [place / "run" / name for name in names if (place / "run" / name).exists()]
    return random.choice(choices if random.random() < 0.7 else files_of(place))


def copy_base(base: Path, folder: Path) -> Path:
    shutil.copytree(base, folder, symlinks=True)
    return folder


def replaced(path: Path, data: bytes | str) -> None:
    path.unlink(missing_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else data.encode("utf-8", "surrogatepass"))


# -- what is no plain file


def whole(random: Random, place: Path) -> None:
    """Nothing is wrong: what fails here is the attack's own fault."""


def fifo(random: Random, place: Path) -> None:
    for _ in range(2):
        path = some_file(random, place)
        path.unlink()
        os.mkfifo(path)


def fifo_of_each(random: Random, place: Path) -> None:
    """A pipe in the place of what every command reads first."""
    path = place / "run" / random.choice(("config.toml", "run.json", *LOGS))
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def device(random: Random, place: Path) -> None:
    path = some_file(random, place)
    path.unlink()
    path.symlink_to(random.choice(("/dev/zero", "/dev/urandom", "/dev/full", "/proc/self/mem", "/dev/stdin")))


def link_out(random: Random, place: Path) -> None:
    """A link to a file of somebody else, which is valid where it is read. `watch .` passes over its folder."""
    path = place / "run" / random.choice(("config.toml", "run.json", "metrics.jsonl", "events.jsonl", "tokens.json"))
    secret = place / ".outside" / path.name
    secret.parent.mkdir()
    if path.name == "config.toml":
        secret.write_text(path.read_text() + f'\n[registry]\ntoken = "{SECRET}"\n')
    elif path.suffix == ".jsonl":
        event = {"step": 1, "kind": "alarm", "name": SECRET, "text": SECRET, "remedy": SECRET, f"a/{SECRET}": 1.0}
        secret.write_text((path.read_text() if path.exists() else "") + json.dumps(event) + "\n")
    elif path.name == "tokens.json":
        secret.write_text(json.dumps([list(f" {SECRET}".encode())] * 400))
    else:
        secret.write_text(json.dumps({"kind": "train", "version": SECRET, "metrics": {SECRET: ["", SECRET]}}))
    path.unlink(missing_ok=True)
    path.symlink_to(secret)


def link_in_the_way(random: Random, place: Path) -> None:
    """Links where a command writes: what they lead to must stay as it is."""
    target = place / "outside" / "precious"
    target.parent.mkdir()
    target.write_text("precious")
    for name in (
        ".report.html.tmp",
        "report.html",
        "run.lock",
        ".metrics.jsonl.tmp",
        "timings.jsonl",
        ".config.toml.tmp",
    ):
        path = place / "run" / name
        path.unlink(missing_ok=True)
        path.symlink_to(target)


def loop(random: Random, place: Path) -> None:
    path = some_file(random, place)
    path.unlink()
    path.symlink_to(path.name)


def folder_for_a_file(random: Random, place: Path) -> None:
    path = some_file(random, place)
    path.unlink()
    if random.random() < 0.5:
        path.mkdir()
    else:
        with socket.socket(socket.AF_UNIX) as made:
            os.chdir(path.parent)
            made.bind(path.name)


def file_for_a_folder(random: Random, place: Path) -> None:
    path = place / "run" / random.choice(("episodes", "checkpoints", "checkpoints/step-000001", MODEL, "reference"))
    shutil.rmtree(path)
    how = random.randrange(4)
    if how == 0:
        path.write_text("no folder")
    elif how == 1:
        os.mkfifo(path)
    else:
        path.symlink_to(("/proc", "/dev")[how - 2])


def unreadable(random: Random, place: Path) -> None:
    some_file(random, place).chmod(0)


def circles(random: Random, place: Path) -> None:
    """Runs in runs, warm-ups of warm-ups, folders that lead to themselves."""
    run = place / "run"
    (run / "warmup").symlink_to(random.choice((".", "..", run, place)))
    (run / "again").symlink_to(run)
    (run / "episodes" / "episodes").symlink_to(run)
    deep = run
    for _ in range(40):
        deep = deep / "d"
        deep.mkdir()
    (deep / "metrics.jsonl").write_text("")
    text = (run / "config.toml").read_text()
    (run / "config.toml").write_text(with_model(text, random.choice(("..", ".", str(run), "again/again"))))


def many_files(random: Random, place: Path) -> None:
    run = place / "run"
    for number in range(3000):
        (run / "episodes" / f"step-{number + 10:06d}.parquet").write_bytes(b"")
    for number in range(300):
        (run / "checkpoints" / f"step-{number + 10:06d}").mkdir()
    for name in ("step-999999999999.parquet", "eval-000000-\x1b[2J.parquet", "eval-1-<b>.parquet", "step-0x1.parquet"):
        (run / "episodes" / name).write_bytes(b"PAR1")
    os.truncate(run / "episodes" / "step-000010.parquet", random.choice((4, 8, 12)))


# -- size


def sparse(random: Random, place: Path) -> None:
    """Hundreds of gigabytes that take no space."""
    os.truncate(some_file(random, place), random.choice((2**33, 2**38)))


def long_line(random: Random, place: Path) -> None:
    path = place / "run" / random.choice(LOGS)
    with path.open("ab") as file:
        file.write(b'{"step": 2, "kind": "train", "x": "' + b"y" * (40 << 20) + b'"}\n')


def many_lines(random: Random, place: Path) -> None:
    path = place / "run" / random.choice(LOGS)
    line = random.choice((b'{"step":7}\n', b'{"step":3,"kind":"train","entropy/token":0.5}\n', b"\n", b"{}\n"))
    with path.open("ab") as file:
        file.write(line * (3_000_000 if len(line) < 20 else 1_000_000))


def many_keys(random: Random, place: Path) -> None:
    path = place / "run" / random.choice(LOGS[:2])
    record = {"step": 2, "kind": "train"} | {f"{random.choice('abc')}/{n}": n * 0.5 for n in range(60_000)}
    with path.open("a") as file:
        file.write((json.dumps(record) + "\n") * random.choice((1, 20)))


def new_keys_in_every_line(random: Random, place: Path) -> None:
    with (place / "run" / "metrics.jsonl").open("a") as file:
        for step in range(2, 20_002):
            record = {f"entropy/{step}-{n}": 0.5 for n in range(10)} | {"step": step, "kind": "train"}
            file.write(json.dumps(record) + "\n")


def long_strings(random: Random, place: Path) -> None:
    text = random.choice(("x", "\x1b[31m", "<b>", "é", "\u202e", " ")) * (1 << 19)
    records = [
        {"step": 2, "kind": "train", text: 1.0, "entropy/token": 0.5},
        {"step": 2, "kind": "alarm", "name": text, "text": text, "remedy": text},
        {"step": 3, "kind": "switch", "name": text, "text": text},
    ]
    for name in LOGS:
        with (place / "run" / name).open("a") as file:
            file.writelines(json.dumps(record) + "\n" for record in records)
    about = json.loads((place / "run" / "run.json").read_text())
    replaced(place / "run" / "run.json", json.dumps({**about, "version": text, "begun": text, "start": text}))


def declared(random: Random, place: Path) -> None:
    """Metrics that run.json declares, whose names would take for ever to match, or cannot be matched at all."""
    names = ("".join(f"{{x{n}}}" for n in range(20)) + "!", "{a}/{a}", "{1a}", "{}", "}{", "a" * 5000, "{a}" * 60)
    about = json.loads((place / "run" / "run.json").read_text())
    metrics: dict[str, Any] = {f"{name}/{n}": ["u", "m"] for n, name in enumerate(names * 20)}
    metrics |= {"entropy/token": ["\x1b[2J", "<b>"], "mine": [1, 2], "b": "x", "c": [[], {}]}
    replaced(place / "run" / "run.json", json.dumps({**about, "metrics": metrics}))
    record = {"step": 1, "kind": "train", "a" * 200: 0.5, "mine": 0.5, "ab/ab/1": 0.5}
    with (place / "run" / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(record) + "\n")


def huge_table(random: Random, place: Path) -> None:
    """JSON and TOML of more entries than anybody writes."""
    rows = random.choice((["[1]"] * 6_000_000, ['"' + "x" * 2000 + '"'] * 30_000, ["[" + "1," * 999 + "1]"] * 20_000))
    replaced(place / "run" / "tokens.json", "[" + ",".join(rows) + "]")
    path = place / "run" / "config.toml"
    extra = random.choice(("".join(f"k{n} = {n}\n" for n in range(100_000)), f"[{'.'.join('a' * 20_000)}]\n"))
    path.write_text(extra + path.read_text() if random.random() < 0.5 else path.read_text() + extra)


# -- form


def deep(random: Random, place: Path) -> None:
    depth = random.choice((500, 900, 5000, 200_000))
    run = place / "run"
    record = '{"step": 2, "kind": "train", "x": ' + "[" * depth + "]" * depth + "}\n"
    nested = '{"a":' * depth + "1" + "}" * depth
    for name in random.sample(LOGS, 2):
        with (run / name).open("a") as file:
            file.write(record)
    for name in random.sample(JSON, 2):
        if (run / name).exists():
            replaced(run / name, nested)
    path = run / "config.toml"
    how = random.randrange(4)
    if how == 0:
        path.write_text(path.read_text() + "\n[x]\ny = " + "[" * depth + "]" * depth + "\n")
    elif how == 1:
        path.write_text(path.read_text() + f"\n[{'.'.join(['x'] * min(depth, 5000))}]\ny = 1\n")
    elif how == 2:
        replaced(place / "study" / "study.json", nested)
    else:
        replaced(place / "eval.json", nested)


def cut(random: Random, place: Path) -> None:
    path = some_file(random, place)
    os.truncate(path, random.randrange(path.stat().st_size + 1))


def flipped(random: Random, place: Path) -> None:
    path = some_file(random, place)
    data = bytearray(path.read_bytes())
    for _ in range(random.choice((1, 3, 40))):
        if data:
            data[random.randrange(len(data))] = random.randrange(256)
    replaced(path, bytes(data))


def rubbish(random: Random, place: Path) -> None:
    start = random.choice((b"", b"\xff\xfe", b"\xef\xbb\xbf", b"\0" * 100, b"PAR1", b"\x1f\x8b", b"{", b"[[[", b'"'))
    replaced(some_file(random, place), start + random.randbytes(random.choice((0, 10, 5000))))


def _spoilt(random: Random, value: Any, share: float) -> Any:
    """The value with some of its parts replaced by others."""
    if random.random() < share:
        return random.choice(VALUES)
    if isinstance(value, dict):
        entries = cast("dict[str, Any]", value).items()
        return {key: _spoilt(random, item, share) for key, item in entries if random.random() > share / 4}
    if isinstance(value, list):
        return [_spoilt(random, item, share) for item in cast("list[Any]", value)]
    return value


def wrong_types(random: Random, place: Path) -> None:
    """JSON with values of other kinds, here and there."""
    paths = [path for path in files_of(place) if path.suffix in (".json", ".jsonl")]
    for path in random.sample(paths, min(6, len(paths))):
        lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
        some = [json.dumps(_spoilt(random, json.loads(line), random.choice((0.02, 0.1, 0.5)))) for line in lines]
        replaced(path, "\n".join(some) + "\n")


def wrong_types_of_the_log(random: Random, place: Path) -> None:
    for name in LOGS:
        path = place / "run" / name
        records = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        more = [
            {"step": n, "kind": kind, "name": "epo", "text": "t"}
            for n in range(3)
            for kind in ("alarm", "phase", "switch")
        ]
        records = [_spoilt(random, record, 0.15) for record in [*records, *more]]
        replaced(path, "".join(json.dumps(record) + "\n" for record in records))


def numbers(random: Random, place: Path) -> None:
    """Numbers that no float or no 64 bits hold, everywhere."""
    paths = [path for path in files_of(place) if path.suffix in (".json", ".jsonl")]
    for path in [place / "run" / "metrics.jsonl", *random.sample(paths, 4)]:
        lines = path.read_text().splitlines()
        replaced(path, "\n".join(_with_numbers(random, line) for line in lines) + "\n")
    config = place / "run" / "config.toml"
    lines = config.read_text().splitlines()
    for number, line in enumerate(lines):
        name, equals, value = line.partition(" = ")
        if equals and value[:1].isdigit() and random.random() < 0.2:
            lines[number] = f"{name} = {random.choice(NUMBERS).lower().replace('infinity', 'inf')}"
    config.write_text("\n".join(lines) + "\n")


def _with_numbers(random: Random, line: str) -> str:
    parts = line.split(": ")
    for place, part in enumerate(parts[1:], start=1):
        head = part.split(",")[0].split("}")[0]
        if head[:1].isdigit() and random.random() < 0.4 and not parts[place - 1].endswith('"step"'):
            parts[place] = random.choice(NUMBERS) + part[len(head) :]
    return ": ".join(parts)


def great_numbers(random: Random, place: Path) -> None:
    """1e308 in every metric: sums and squares of it are no numbers."""
    for name in LOGS[:2]:
        path = place / "run" / name
        records = [json.loads(line) for line in path.read_text().splitlines()]
        lines: list[str] = []
        for step in range(random.choice((1, 30))):
            for record in records:
                great = {
                    key: random.choice((1e308, -1e308, 1.7e308, 1e300)) if isinstance(value, float) else value
                    for key, value in record.items()
                }
                lines.append(json.dumps(great | {"step": int(record["step"]) + step}))
        replaced(path, "\n".join(lines) + "\n")


def strange_steps(random: Random, place: Path) -> None:
    steps = (-1, -(2**62), 2**62, 10**17, 0, 0, 5, 3, 2**53 + 1, True, 1.5, "7", None, 10**400)
    for name in LOGS:
        path = place / "run" / name
        records = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        records += [
            {"step": 1, "kind": kind, "name": "eruption", "text": "t", "remedy": "r"} for kind in ("alarm", "phase")
        ]
        some = [record | {"step": random.choice(steps)} for record in records for _ in range(random.choice((1, 12)))]
        random.shuffle(some)
        replaced(path, "".join(json.dumps(record) + "\n" for record in some))


def a_long_run(random: Random, place: Path) -> None:
    """A hundred thousand steps, as a run may have them, with numbers that jump."""
    path = place / "run" / "metrics.jsonl"
    record = next(json.loads(line) for line in path.read_text().splitlines() if '"train"' in line)
    keys = [key for key, value in record.items() if isinstance(value, float)][:20]
    wild = random.random() < 0.5
    with path.open("w") as file:
        for step in range(100_000):
            values = {key: random.random() if not wild else random.choice((0.0, 1e9, -1e9, 0.5)) for key in keys}
            file.write(json.dumps({"step": step, "kind": "train"} | values) + "\n")


# -- settings


def with_model(text: str, model: str) -> str:
    lines = [f"model = {json.dumps(model)}" if line.startswith("model = ") else line for line in text.splitlines()]
    return "\n".join(lines) + "\n"


def settings(random: Random, place: Path) -> None:
    path = place / random.choice(("run/config.toml", "recipe.toml", "run/config.toml"))
    lines = path.read_text().splitlines()
    texts = (
        '""', '"\\u0000"', '"/dev/zero"', '"x"', "[]", "{}", "[[]]", "true", "-1", "0", "1e308", "inf", "nan",
        "1979-05-27T07:32:00Z", "9" * 400, "[1, 'a']", '"' + "a" * 5000 + '"', '"../../../.."', "{a = {b = 1}}",
    )  # fmt: skip
    for number, line in enumerate(lines):
        if " = " in line and random.random() < random.choice((0.02, 0.2)):
            lines[number] = line.partition(" = ")[0] + " = " + random.choice(texts)
    if random.random() < 0.3:
        random.shuffle(lines)
    path.write_text("\n".join(lines) + "\n")


def model_elsewhere(random: Random, place: Path) -> None:
    path = place / "run" / "config.toml"
    os.mkfifo(place / "run" / "pipe")
    places = (
        "/dev/zero",
        "pipe",
        str(place / "run" / "pipe"),
        "/proc/self/fd/0",
        "a" * 5000,
        "a\\u0000b",
        "~/x",
        "/proc",
    )
    path.write_text(with_model(path.read_text(), random.choice(places)))
    shutil.rmtree(place / "run" / "warmup", ignore_errors=True)


def hostile_model(random: Random, place: Path) -> None:
    folder = place / "run" / MODEL
    path = random.choice(sorted(folder.iterdir()))
    how = random.randrange(5)
    if how == 0:
        path.unlink()
        os.mkfifo(path)
    elif how == 1:
        os.truncate(path, 2**38)
    elif how == 2:
        replaced(path, '{"a":' * 100_000)
    elif how == 3:
        config = json.loads((folder / "config.json").read_text())
        replaced(folder / "config.json", json.dumps(_spoilt(random, config, 0.3)))
    else:
        replaced(folder / "model.safetensors", (2**40).to_bytes(8, "little") + b"{}" * 100)


def checkpoint_state(random: Random, place: Path) -> None:
    """What a resumed run reads."""
    folder = place / "run" / "checkpoints" / "step-000001"
    state = json.loads((folder / "state.json").read_text())
    how = random.randrange(4)
    if how == 0:
        replaced(folder / "state.json", json.dumps(_spoilt(random, state, random.choice((0.01, 0.1)))))
    elif how == 1:
        depth = random.choice((300, 480, 5000))
        tree = '{"list": [' * depth + '{"tensor": "x"}' + "]}" * depth
        replaced(folder / "state.json", f'{{"step": 1, "success": 0.5, "tree": {tree}}}')
    elif how == 2:
        replaced(folder / "state.safetensors", random.randbytes(200))
    else:
        told = ('"../../..", "success": 1e308', "{}", '"step-000001", "success": "x"', '"x", "success": ' + "9" * 400)
        replaced(place / "run/checkpoints/best.json", f'{{"name": {random.choice(told)}}}')


# -- code

PAYLOAD = (
    "from pathlib import Path\nPath({mark!r}).write_text('imported')\nimport tests.toys\nWorld = tests.toys.ToyWorld\n"
)
CODE: tuple[dict[str, Any], ...] = (
    {"task": {"world": "payload:World", "options": {}}},
    {"task": {"reward": "payload:reward"}},
    {"task": {"sampler": {"kind": "payload:Sampler"}}},
    {"methods": ["payload:Mine"]},
    {"learn": {"loss": {"kind": "payload:Loss"}}},
    {"learn": {"advantage": {"kind": "payload:Mean"}}},
    {"learn": {"advantage": "payload:Mean"}},
    {"engine": {"kind": "payload:Engine"}},
    {"engine": "payload:Engine"},
    {"instruments": {"on_alarm": "switch:payload:Mine"}},
    {"task": {"world": "gym", "options": {"module": "payload"}}},
    {"task": {"world": "gym", "options": {"env_id": "payload:Env-v0"}}},
    {"task": {"world": "gym", "options": {"describe": "payload:words"}}},
    {"task": {"world": "verifiers", "options": {"env": "payload"}}},
    {"task": {"world": "textarena", "options": {"opponent": "payload:player"}}},
    {"policy": {"model": "payload:Model"}},
    {"run": {"track": "payload"}},
)


PAYLOADS = ("payload", "conftest", "usercustomize", "sitecustomize", "isentrope_payload", "wandb", "minigrid")


def foreign_code(random: Random, place: Path) -> None:
    """Settings that name code, which lies in the run folder and in the current one."""
    (place / "outside").mkdir()
    code = PAYLOAD.format(mark=str(place / "outside" / "imported"))
    for folder in (place, place / "run", place / "study"):
        for name in PAYLOADS:
            (folder / f"{name}.py").write_text(code)
    for path in (place / "recipe.toml", *place.rglob("config.toml")):
        table = tomllib.loads(path.read_text())
        table.setdefault("task", {}).update({"world": "household", "options": {}})
        table["methods"] = []
        for section, entries in random.choice(CODE).items():
            if isinstance(entries, dict) and isinstance(table.get(section), dict):
                table[section] |= entries
            else:
                table[section] = entries
        path.write_text(table_to_toml(table))


# -- episodes


def bomb(random: Random, place: Path) -> None:
    """A few kilobytes that hold gigabytes."""
    kinds: list[dict[str, Any]] = [
        {"rows": 50_000_000}, {"rows": 1, "elements": 10**9}, {"rows": 5000, "text": "x" * 2**19}, {"rows": 3_000_000},
        {"rows": 1, "elements": 10**9, "told": 1}, {"rows": 50_000_000, "told": 7}, {"rows": 0},
        {"rows": 2, "told": 2**40},
    ]  # fmt: skip
    kind = random.choice(kinds)
    _bomb(place, kind)


def lying_page(random: Random, place: Path) -> None:
    """The footer says one number, the page says a billion."""
    _bomb(place, {"rows": 1, "elements": random.choice((10**8, 10**9)), "told": 1})


def text_bomb(random: Random, place: Path) -> None:
    _bomb(place, {"rows": random.choice((5000, 20_000)), "text": "y" * 2**19})


def _bomb(place: Path, kind: dict[str, Any]) -> None:
    for name in EPISODES:
        write_bomb(place / "run" / "episodes" / f"{name}.parquet", _SCHEMA, **kind)
    scores = place / "run" / "episodes" / "scores-000001.parquet"
    write_bomb(scores, _scores_schema(True), key=b"isentrope.scores", **kind)


def other_columns(random: Random, place: Path) -> None:
    """Columns that are missing, of other types, or full of nulls, with our label on the file."""
    for name in EPISODES:
        path = place / "run" / "episodes" / f"{name}.parquet"
        table = pq.read_table(path, partitioning=None)
        label = table.schema.metadata
        for column in random.sample(table.column_names, random.choice((1, 5, 20))):
            at, how = table.column_names.index(column), random.randrange(6)
            if how == 0:
                table = table.remove_column(at)
            elif how == 1:
                table = table.set_column(at, column, pa.nulls(table.num_rows))
            elif how == 2:
                table = table.set_column(at, column, pa.nulls(table.num_rows, table.schema.field(column).type))
            elif how == 3:
                table = table.set_column(
                    at, column, pa.array([random.choice((1e308, -1.0, float("nan")))] * table.num_rows)
                )
            elif how == 4:
                table = table.set_column(at, column, pa.array(["\ufffd"] * table.num_rows))
            else:
                table = table.set_column(at, column, pa.array([[{"a": [1]}]] * table.num_rows))
        pq.write_table(table.replace_schema_metadata(label), path)


def strange_episodes(random: Random, place: Path) -> None:
    """The right columns with values that make no sense."""
    for name in EPISODES:
        path = place / "run" / "episodes" / f"{name}.parquet"
        table = pq.read_table(path, partitioning=None)
        for column in random.sample(table.column_names, random.choice((2, 10, 25))):
            at, kind = table.column_names.index(column), table.schema.field(column).type
            table = table.set_column(at, table.schema.field(column), _column(random, kind, table.num_rows))
        pq.write_table(table, path)


def _column(random: Random, kind: Any, rows: int) -> Any:
    whole = (0, -1, 7, 2**31 - 1, -(2**31), None)
    real = (0.0, 1e308, -1e308, 3e38, float("nan"), float("inf"), None)
    words = ("", "ok", "\x1b[2J", "<script>", "x" * 100_000, "\u202e", None)
    if pa.types.is_list(kind):
        inner = kind.value_type
        return pa.array([_column(random, inner, random.choice((0, 1, 2, 50))) for _ in range(rows)], kind)
    if pa.types.is_string(kind):
        return pa.array([random.choice(words) for _ in range(rows)], kind)
    if pa.types.is_boolean(kind):
        return pa.array([random.choice((True, False, None)) for _ in range(rows)], kind)
    some = whole if pa.types.is_integer(kind) else real
    if kind == pa.float32():
        some = (0.0, 3e38, -3e38, float("nan"), float("inf"), None)
    return pa.array([random.choice(some) for _ in range(rows)], kind)


def damaged_episodes(random: Random, place: Path) -> None:
    for path in sorted((place / "run" / "episodes").iterdir()):
        data = bytearray(path.read_bytes())
        for _ in range(random.choice((1, 5, 50))):
            data[random.randrange(4, len(data))] = random.randrange(256)
        replaced(path, bytes(data))


# -- studies and results


def hostile_plan(random: Random, place: Path) -> None:
    path = place / "study" / "study.json"
    plan = json.loads(path.read_text())
    how = random.randrange(6)
    if how == 0:
        plan["cells"] = plan["cells"] * 20_000
    elif how == 1:
        plan["cells"][0]["seeds"] = list(range(200_000))
    elif how == 2:
        plan["cells"][0]["name"] = random.choice(("../../../etc", "a/b", "", "x" * 5000, "/", "\x1b"))
    elif how == 3:
        plan["cells"][0]["seeds"] = [10**400, -1, 0.5, "x"][random.randrange(4) :]
    else:
        plan = _spoilt(random, plan, 0.2)
    replaced(path, json.dumps(plan))


def hostile_compact(random: Random, place: Path) -> None:
    path = place / "compact" / "runs.jsonl.xz"
    lines = lzma.decompress(path.read_bytes()).decode().splitlines()
    how = random.randrange(6)
    if how == 0:  # a bomb: 600 MB
        packer = lzma.LZMACompressor(preset=1)
        data = packer.compress("\n".join(lines).encode() + b"\n" + b'{"cell": "')
        data += b"".join(packer.compress(b"x" * (1 << 20)) for _ in range(600)) + packer.flush()
        replaced(path, data)
    elif how == 1:
        replaced(path, path.read_bytes()[: random.randrange(path.stat().st_size)])
    elif how == 2:  # many small lines
        replaced(path, lzma.compress(("\n".join(lines) + "\n" + "[]\n" * 3_000_000).encode(), preset=0))
    elif how == 3:
        wide = [0.5] * 3_000_000
        run = json.loads(lines[1])
        run["train"] = {"step": list(range(len(wide))), "entropy/token": wide}
        replaced(path, lzma.compress("\n".join([lines[0], json.dumps(run)]).encode(), preset=0))
    else:
        some = [json.dumps(_spoilt(random, json.loads(line), random.choice((0.01, 0.1)))) for line in lines]
        replaced(path, lzma.compress("\n".join(some).encode(), preset=0))


def hostile_result(random: Random, place: Path) -> None:
    path = place / "eval.json"
    told = json.loads(path.read_text())
    how = random.randrange(4)
    if how == 0:
        replaced(path, json.dumps(_spoilt(random, told, random.choice((0.05, 0.2)))))
    elif how == 1:
        split = next(iter(told["evaluations"][0]["splits"].values()))
        split["outcomes"] = [[n, "pick", 1, 1] for n in range(1_000_000)]
        split["games"] = 1_000_000
        replaced(path, json.dumps(told))
    elif how == 2:
        replaced(path, _with_numbers(random, json.dumps(told)))
    else:
        os.truncate(path, 2**36)


FAMILIES: dict[str, Callable[[Random, Path], None]] = {
    **hostile_logs.FAMILIES,
    **{function.__name__: function
    for function in (
        whole, fifo, fifo_of_each, device, link_out, link_in_the_way, loop, folder_for_a_file, file_for_a_folder,
        unreadable, circles, many_files, sparse, long_line, many_lines, many_keys, new_keys_in_every_line,
        long_strings, declared, huge_table, deep, cut, flipped, rubbish, wrong_types, wrong_types_of_the_log, numbers,
        great_numbers, strange_steps, a_long_run, settings, model_elsewhere, hostile_model, checkpoint_state, bomb,
        lying_page, text_bomb, other_columns, strange_episodes, damaged_episodes, hostile_plan, hostile_compact,
        hostile_result, foreign_code,
    )},
}  # fmt: skip
