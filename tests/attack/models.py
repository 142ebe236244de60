"""Hostile model folders and GGUF files against the door that every command takes: they load, or are refused with a
sentence; no traceback, no hang, no gigabytes, no code of the folder run, nothing fetched.

    python -m tests.attack.models                        # 22 families with 4 seeds each, every list, 500 GGUF files
    python -m tests.attack.models --seeds 1 --only template,adapter --verbose

Each folder is opened in a process forked from one that has imported what is needed. What fails is printed with the
family and its seed, which make it again.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

from tests.attack.children import waited
from tests.builders import hostile_gguf, hostile_models
from tests.builders.hostile_models import ADAPTERS, CODE_KEYS, FAMILIES, MARK, SMALL, TEMPLATES, TOKENIZERS

SEEDS, GGUF_FILES = 4, 500
WALL_SECONDS, MEGABYTES, LONGEST_ERROR = 240, 1700, 1500
ADDRESSES = 6 << 30  # that a child may map beyond its parent: a bomb must not take the machine along
SAID = ("Put a mug on the shelf. <think> \u00e9\u4f60\U0001f600 1234 " + "a" * 300 + " " * 300 + "e" * 300) * 3
Spoil = Callable[[Random, Path], None]


@dataclass(frozen=True)
class Outcome:
    name: str
    seed: int
    result: str  # loads, refused, or what is wrong
    problems: tuple[str, ...]
    seconds: float
    megabytes: float
    told: str


def open_and_use(model: Path) -> None:
    """What a run does with a model: load it, write a conversation in tokens, read it back, sample a state."""
    import torch

    from isentrope.config.schema import PolicySettings, RunSettings
    from isentrope.models.load import load_policy

    policy = load_policy(PolicySettings(model=str(model)), RunSettings(device="cpu"))
    ids = [*policy.tokenizer.opening("Be good. " + SAID, SAID), *policy.tokenizer.answer("<think>x</think>")]
    policy.tokenizer.pieces(ids)
    short = torch.tensor([ids[:64]])
    with torch.no_grad():
        policy.model.hidden(short, torch.arange(short.shape[1])[None], torch.zeros_like(short))
    with tempfile.TemporaryDirectory() as folder:
        policy.save(Path(folder))


def in_child(model: Path, log: Path) -> None:
    """The rest of this process opens the model."""
    from isentrope.core.errors import IsentropeError

    code = 1
    try:
        os.setsid()
        os.chdir(model.parent)
        streams = (os.open(os.devnull, os.O_RDONLY), os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC))
        for stream, number in ((streams[0], 0), (streams[1], 1), (streams[1], 2)):
            os.dup2(stream, number)
        mapped = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (mapped + ADDRESSES, mapped + ADDRESSES))
        sys.path[:0] = [str(model), str(model.parent)]  # as for somebody who works in there
        open_and_use(model)
        print("LOADS")
        code = 0
    except IsentropeError as error:
        print("REFUSED " + str(error))
        code = 2
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def attack(name: str, seed: int, spoil: Spoil, base: Path, work: Path, hub: socket.socket) -> Outcome:
    place, log = work / "place", work / "said"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    model = place / "model"
    if base.is_dir():
        shutil.copytree(base, model)
    else:
        model = place / "model.gguf"
        shutil.copyfile(base, model)
    spoil(Random(f"{name}/{seed}"), model)
    before = time.monotonic()
    child = os.fork()
    if child == 0:
        in_child(model, log)
    status, usage = waited(child, before + WALL_SECONDS)
    seconds, megabytes = time.monotonic() - before, usage.ru_maxrss / 1024
    said = log.read_bytes().decode("utf-8", "replace") if log.exists() else ""
    problems = tuple(problems_of(status, megabytes, said, place, _asked(hub)))
    result = {0: "loads", 2: "refused"}.get(-1 if status is None else status, "fails")
    return Outcome(name, seed, result, problems, seconds, megabytes, said[-2500:])


def _asked(hub: socket.socket) -> int:
    """How often something called the hub since the last time."""
    count = 0
    with suppress(BlockingIOError):
        while True:
            hub.accept()[0].close()
            count += 1
    return count


def problems_of(status: int | None, megabytes: float, said: str, place: Path, asked: int) -> Iterator[str]:
    if status is None:
        yield "hangs"
    elif status < 0:
        yield f"killed by {signal.Signals(-status).name}"
    elif status not in (0, 2) or "Traceback (most recent call last)" in said:
        yield f"traceback: {(said.strip().splitlines() or [''])[-1][:100]}"
    if megabytes > MEGABYTES:
        yield f"{megabytes:.0f} MB"
    if (place / MARK).exists():
        yield "ran code of the folder"
    if asked:
        yield "asked the hub"
    if status == 2 and len(said) > LONGEST_ERROR:
        yield f"an error of {len(said)} characters"


def lists() -> list[tuple[str, int, Spoil]]:
    """Every entry of the lists that families draw from."""
    cases: list[tuple[str, int, Spoil]] = []
    numbered = (
        ("template", len(TEMPLATES), hostile_models.nth_template),
        ("config_code", len(CODE_KEYS), hostile_models.nth_config),
        ("adapter", len(ADAPTERS), hostile_models.nth_adapter),
    )
    for name, count, spoil in numbered:
        cases += [(f"{name}[{n}]", 0, partial(_numbered, spoil, n)) for n in range(count)]
    cases += [(f"tokenizer[{name}]", 0, partial(_named, name)) for name in TOKENIZERS]
    cases += [(f"file[{name}:{how}]", 0, partial(_file, name, how)) for name in SMALL for how in range(6)]
    return cases


def _numbered(spoil: Callable[[Path, int], None], number: int, random: Random, folder: Path) -> None:
    spoil(folder, number)


def _named(name: str, random: Random, folder: Path) -> None:
    hostile_models.named_tokenizer(folder, name)


def _file(name: str, how: int, random: Random, folder: Path) -> None:
    hostile_models.nth_file(folder, name, how)


def attacks(
    cases: Sequence[tuple[str, int, Spoil]], base: Path, work: Path, hub: socket.socket, say: Callable[[Outcome], None]
) -> list[Outcome]:
    found: list[Outcome] = []
    for name, seed, spoil in cases:
        found.append(attack(name, seed, spoil, base, work, hub))
        say(found[-1])
    return found


def open_hub() -> socket.socket:
    """A hub on this machine that answers nobody; said to huggingface_hub before it is imported."""
    assert "huggingface_hub" not in sys.modules, "too late: huggingface_hub has read its settings"
    hub = socket.create_server(("127.0.0.1", 0), backlog=64)
    hub.setblocking(False)
    os.environ["HF_ENDPOINT"] = f"http://127.0.0.1:{hub.getsockname()[1]}"
    os.environ["HF_HUB_DOWNLOAD_TIMEOUT"] = os.environ["HF_HUB_ETAG_TIMEOUT"] = "2"
    os.environ.pop("HF_HUB_OFFLINE", None)
    return hub


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n\n")[0])
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--only", default="", help="families, with commas between; lists and gguf too")
    parser.add_argument("--gguf", type=int, default=GGUF_FILES, help="how many GGUF files")
    parser.add_argument("--every", type=int, default=1, help="one of so many entries of the lists")
    parser.add_argument("--verbose", action="store_true")
    return parser.parse_args(arguments)


def main() -> None:
    options = parsed()
    hub, began = open_hub(), time.monotonic()
    only = [name for name in str(options.only).split(",") if name]
    with tempfile.TemporaryDirectory() as place:
        work = Path(place)
        os.environ |= {"ISENTROPE_CACHE": str(work / "cache"), "HF_HOME": str(work / "hf")}
        base = hostile_models.make_model(work / "base")
        packed = hostile_gguf.make_gguf(work / "base.gguf")
        _prepare(base)
        cases = lists()[:: int(options.every)] if not only or "lists" in only else []
        cases += [c for c in lists() if c[0] in only]
        names = [name for name in FAMILIES if not only or name in only]
        cases += [(name, seed, FAMILIES[name]) for seed in range(int(options.seeds)) for name in names]
        say = partial(show, verbose=bool(options.verbose))
        found = attacks([("whole", 0, lambda random, folder: None), *cases], base, work, hub, say)
        files = int(options.gguf) if not only or "gguf" in only else 0
        spoilt: list[tuple[str, int, Spoil]] = [("gguf", seed, hostile_gguf.spoil) for seed in range(files)]
        found += attacks([("whole gguf", 0, lambda random, path: None), *spoilt], packed, work, hub, say)
    summary(found, time.monotonic() - began)


def _prepare(base: Path) -> None:
    """Everything that the children would import, once."""
    import torch

    torch.set_num_threads(1)
    open_and_use(base)


def summary(found: Sequence[Outcome], seconds: float) -> None:
    bad = [one for one in found if one.problems]
    kinds = Counter(one.result for one in found)
    print(f"{len(found)} models: {dict(kinds)}, {len(bad)} with problems, {seconds:.0f} s")
    most, longest = max(found, key=lambda one: one.megabytes), max(found, key=lambda one: one.seconds)
    print(f"  at most {most.megabytes:.0f} MB ({most.name}/{most.seed}), {longest.seconds:.0f} s ({longest.name})")
    for kind, count in Counter(problem.split(":")[0] for one in bad for problem in one.problems).most_common():
        print(f"  {kind}: {count}")
    if not {"whole", "whole gguf"} <= {one.name for one in found if one.result == "loads"}:
        sys.exit("a whole model was refused: the attack proves nothing")
    sys.exit(1 if bad else 0)


def show(one: Outcome, verbose: bool) -> None:
    if one.problems or verbose:
        told = "; ".join(one.problems) or f"{one.result}: {one.told[:600].strip()}"
        print(f"{one.name}/{one.seed}: {told} ({one.seconds:.1f} s, {one.megabytes:.0f} MB)", flush=True)
        if one.problems and verbose:
            print(one.told, flush=True)


if __name__ == "__main__":
    main()
