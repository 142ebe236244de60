"""Builds the pocket model: `python -m tools.pocket_model --out FOLDER`.

The pocket model is to the demo what a pretrained language model is to a real agent: it has read a lot and was taught no
task. It has read 120,000 games of a wanderer (worlds/household/players.py) who follows random whims in generated rooms
of the train split, and learnt to predict every token of them: how rooms are described, what a command does, what is in
view, how one looks for a thing. The wanderer carries out its task only by accident, in about one game in six; doing so
on purpose is what warm-up and training are for.

The tokenizer that ships is part of the model and is taken as it is; `--only-tokens` counts a new one from the world's
present text.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import re
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from isentrope.agent.prompts import NO_ACTION
from isentrope.config.schema import AgentSettings, PolicySettings, TaskSettings
from isentrope.core.seeding import stream
from isentrope.core.types import TokenBatch
from isentrope.learning.optimiser import Optimiser, learning_rate
from isentrope.models.load import choose_device, new_model
from isentrope.models.policy import Policy
from isentrope.models.sources.find import POCKET
from isentrope.models.sources.pocket import PocketTokens
from isentrope.rollout.demonstrations import demonstrate
from isentrope.worlds.household.players import RandomPlayer, Wanderer
from isentrope.worlds.household.rooms import FURNITURE, OBJECTS
from isentrope.worlds.household.world import HouseholdOptions, HouseholdWorld

# Which words and phrases the pocket tokenizer knows, found by counting in the text of a world.
#
# Every word that is common enough becomes a token. Then neighbouring tokens are joined, the most frequent pair first,
# into set phrases ("You arrive at", ", you see a"). Names of things and numbers are never joined with anything: a thing
# looks the same wherever it is mentioned, which is what a small model has to learn to see.


_CUT = re.compile(r" ?[A-Za-z]+| ?[0-9]+|.", re.DOTALL)
_NUMBER = re.compile(r" ?[0-9]+")


def build_phrases(texts: Iterable[str], least: int = 5, joins: int = 80) -> list[str]:
    """The phrase list, in a fixed order: words by name, then numbers, then joined phrases in the order found."""
    counted = Counter(texts)
    lines = [(list(_CUT.findall(text)), count) for text, count in sorted(counted.items())]
    words: Counter[str] = Counter()
    names: set[str] = set()
    for line, count in lines:
        for word, following in zip(line, [*line[1:], ""], strict=True):
            words[word] += count
            if _NUMBER.fullmatch(following):
                names |= {word, " " + word.strip(), word.strip()}
    known = sorted(word for word, count in words.items() if count >= least and (len(word) > 1 or not word.isascii()))
    numbers = [f" {n}" for n in range(1, 31)]
    loose = {word for word in words if word not in names and not _NUMBER.fullmatch(word)}
    joined = _join(lines, loose, joins)
    singles = [word for word in known if word not in numbers and not _NUMBER.fullmatch(word)]
    ordered = [*singles, *numbers, *joined]
    return list(dict.fromkeys(ordered))


def _join(lines: list[tuple[list[str], int]], loose: set[str], joins: int) -> list[str]:
    found: list[str] = []
    loose = set(loose)
    for _ in range(joins):
        pairs: Counter[tuple[str, str]] = Counter()
        for line, count in lines:
            for pair in itertools.pairwise(line):
                if pair[0] in loose and pair[1] in loose:
                    pairs[pair] += count
        if not pairs:
            break
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        phrase = best[0] + best[1]
        found.append(phrase)
        loose.add(phrase)
        lines = [(_merge(line, best, phrase), count) for line, count in lines]
    return found


def _merge(line: list[str], pair: tuple[str, str], phrase: str) -> list[str]:
    merged: list[str] = []
    i = 0
    while i < len(line):
        if i + 1 < len(line) and (line[i], line[i + 1]) == pair:
            merged.append(phrase)
            i += 2
        else:
            merged.append(line[i])
            i += 1
    return merged


SEED = 20_000_003  # first of the train split's games that are read here
ORDERS = ("think_act", "act_think", "act")
ROOMS = ("small", "small", "medium")  # two of three games in small rooms


def vocabulary(games: int = 600) -> list[str]:
    """The tokenizer's phrases, from games of the expert and of an aimless player."""
    names = sorted({name for table in (*OBJECTS.values(), *FURNITURE.values()) for name in table})
    texts = [f"take {name} 1" for name in names for _ in range(5)]  # rare things too
    texts += [NO_ACTION, NO_ACTION, NO_ACTION, NO_ACTION, NO_ACTION]
    for rooms in ("small", "full"):
        world = HouseholdWorld(HouseholdOptions(rooms=rooms))
        for i in range(games):
            instance = world.instance("train", SEED + i)
            for player in (world.expert(i), RandomPlayer(i)):
                assert player is not None
                task = world.open()
                view = task.start(instance)
                player.start(view, instance)
                texts.append(f"{view.text} {view.goal}")
                for _ in range(12):
                    move = player.act(view)
                    view = task.step(move.action).view
                    texts += [move.thought, move.action, view.text]
    return build_phrases(texts)


def wanderings(job: tuple[int, int, int, list[str]]) -> list[NDArray[np.uint16]]:
    """Token streams of games `first` … `first + count - 1`, for a worker process."""
    first, count, turns, phrases = job
    tokens = PocketTokens(phrases)
    worlds = [HouseholdWorld(HouseholdOptions(rooms=rooms)) for rooms in ROOMS]
    streams: list[NDArray[np.uint16]] = []
    for i in range(first, first + count):
        order = ORDERS[0] if i % 4 else ORDERS[(i // 4) % 3]
        agent = AgentSettings(order=order, prompt="brief", overflow="end")
        world = worlds[i % len(worlds)]
        task = TaskSettings(max_turns=turns)
        episode = demonstrate(world, Wanderer(i), tokens, agent, task, world.instance("train", SEED + i))
        parts = [part for turn in episode.turns for part in (turn.context_ids, turn.response_ids)]
        streams.append(np.concatenate(parts).astype(np.uint16))
    return streams


def read_games(games: int, turns: int, phrases: list[str], workers: int) -> list[NDArray[np.uint16]]:
    per_job = 50
    jobs = [(first, min(per_job, games - first), turns, phrases) for first in range(0, games, per_job)]
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        return [part for batch in pool.imap(wanderings, jobs) for part in batch]


def batches(
    streams: list[NDArray[np.uint16]], rows: int, width: int, steps: int, device: torch.device
) -> Iterable[TokenBatch]:
    """Rows of whole games one after the other, cut at `width`; the last game of a row may be cut short."""
    order, at, turn_of_pass = np.zeros(0, dtype=np.int64), 0, 0
    for _ in range(steps):
        ids = np.zeros((rows, width), dtype=np.int64)
        segments, positions = np.full_like(ids, -1), np.zeros_like(ids)
        for row in range(rows):
            filled = segment = 0
            while filled < width:
                if at == len(order):
                    order, at = stream(SEED, "pass", turn_of_pass).permutation(len(streams)), 0
                    turn_of_pass += 1
                game = streams[int(order[at])][: width - filled]
                at += 1
                place = slice(filled, filled + len(game))
                ids[row, place], segments[row, place], positions[row, place] = game, segment, np.arange(len(game))
                filled, segment = filled + len(game), segment + 1
        row_N, col_N = np.nonzero(positions > 0)
        yield _language_batch(ids, segments, positions, row_N, col_N, device)


def _language_batch(
    ids: NDArray[np.int64],
    segments: NDArray[np.int64],
    positions: NDArray[np.int64],
    row_N: NDArray[np.int64],
    col_N: NDArray[np.int64],
    device: torch.device,
) -> TokenBatch:
    def tensor(values: NDArray[np.int64]) -> torch.Tensor:
        return torch.from_numpy(values).to(device, non_blocking=True)

    zeros = torch.zeros(len(row_N), device=device)
    return TokenBatch(
        ids_BT=tensor(ids),
        segments_BT=tensor(segments),
        positions_BT=tensor(positions),
        row_N=tensor(row_N),
        col_N=tensor(col_N),
        target_N=tensor(ids[row_N, col_N]),
        temperature_N=zeros + 1,
        old_logp_N=zeros,
        advantage_N=zeros,
        ref_logp_N=None,
        success_N=zeros,
        part_N=zeros,
        turn_N=zeros,
        number_N=np.arange(len(row_N)),
        mini_batch=np.arange(len(row_N)),
        weights={"token": zeros + 1 / len(row_N)},
    )


def pretrain(
    policy: Policy, streams: list[NDArray[np.uint16]], steps: int, rows: int, width: int, rate: float
) -> float:
    """Plain language modelling. Gives the mean loss of the last steps, in nats per token."""
    optimiser = Optimiser(policy.module.parameters(), betas=(0.9, 0.98), weight_decay=0.1)
    held: list[float] = []
    began = time.monotonic()
    for step, batch in enumerate(batches(streams, rows, width, steps, policy.device)):
        loss = -(batch.weights["token"] * policy.stats(batch).logp_N).sum()
        loss.backward()
        value = float(loss.detach())
        optimiser.step(value, learning_rate(step, steps, rate, 0.02, 0.02))
        held = [*held[-199:], value]
        if step % 500 == 0 or step == steps - 1:
            print(f"step {step}: loss {np.mean(held[-50:]):.4f}, {time.monotonic() - began:.0f} s", flush=True)
    return float(np.mean(held))


def main() -> None:
    parser = argparse.ArgumentParser(description="Build the pocket model.")
    parser.add_argument("--out", type=Path, required=True, help="folder for the model")
    parser.add_argument("--games", type=int, default=120_000, help="games of the wanderer to read")
    parser.add_argument("--turns", type=int, default=20, help="turns of each")
    parser.add_argument("--steps", type=int, default=2_905, help="updates")
    parser.add_argument("--rows", type=int, default=150, help="rows per update")
    parser.add_argument("--width", type=int, default=640, help="tokens per row")
    parser.add_argument("--rate", type=float, default=3e-3, help="peak learning rate")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--workers", type=int, default=multiprocessing.cpu_count(), help="processes that play games")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--only-tokens", action="store_true", help="make a new tokenizer and stop")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    phrases = vocabulary() if options.only_tokens else list(PocketTokens.load(POCKET).phrases)
    tokens = PocketTokens(phrases)
    tokens.save(options.out)
    print(f"{tokens.size} tokens", flush=True)
    if options.only_tokens:
        return
    device = choose_device(options.device)
    torch.set_float32_matmul_precision("high")  # tf32 is precise enough to read with
    settings = PolicySettings(model="new", layers=options.layers, width=options.hidden, heads=options.heads)
    policy = Policy(new_model(settings, tokens.size, options.seed).to(device), tokens, device, torch.float32)
    began = time.monotonic()
    streams = read_games(options.games, options.turns, phrases, options.workers)
    count = sum(len(s) for s in streams)
    print(f"{len(streams)} games, {count / 1e6:.1f} M tokens, {time.monotonic() - began:.0f} s", flush=True)
    loss = pretrain(policy, streams, options.steps, options.rows, options.width, options.rate)
    policy.save(options.out)
    record = {name: value for name, value in vars(options).items() if name not in ("out", "device", "workers")}
    (options.out / "built.json").write_text(json.dumps(record | {"tokens_read": count, "loss": loss}, indent=1) + "\n")


if __name__ == "__main__":
    main()
