"""How many of the positions that ActRe's older rule heated were no choice of a token.

    python bench/branching.py [--model FOLDER] [--games 30] [--turns 12] [--rounds 50]

The older rule heated a position where two or more admissible actions were left; the present one heats it where two or
more different tokens are. Players without a model write their actions token by token, the expert and one who wanders
about; what they write is admissible almost always. `--model` is a folder with a Hugging Face tokenizer; without it
there is the pocket tokenizer alone. Also the time that one question about a position takes, median over rounds, for an
observation with about 30 actions.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

from isentrope.agent.action_trie import ActionTries, TrieWalk
from isentrope.core.tokenizer import ChatTokenizer
from isentrope.models.chat.tokenizer import ChatTokens
from isentrope.models.sources.find import POCKET
from isentrope.models.sources.pocket import PocketTokens
from isentrope.worlds.household.players import RandomPlayer
from isentrope.worlds.household.world import HouseholdOptions, HouseholdWorld

Turn = tuple[tuple[str, ...], str]  # admissible actions, and the one that was taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="folder with a Hugging Face tokenizer and a chat template")
    parser.add_argument("--games", type=int, default=30, help="games of each player in rooms of each size")
    parser.add_argument("--turns", type=int, default=12, help="most turns of a game")
    parser.add_argument("--rounds", type=int, default=50)
    given = parser.parse_args()
    tokenizers: dict[str, ChatTokenizer] = {"pocket": PocketTokens.load(POCKET)}
    if given.model:
        tokenizers[given.model.name] = ChatTokens.load(given.model)
    for name, tokenizer in tokenizers.items():
        print(name)
        turns: list[Turn] = []
        for rooms, player in itertools.product(("small", "full"), ("expert", "wanders")):
            turns = list(play(rooms, player, given.games, given.turns))
            print(f"  {rooms:6} {player:8} {shares(tokenizer, turns)}")
        admissible = min((turn[0] for turn in turns), key=lambda actions: abs(len(actions) - 30))
        print(f"  {len(admissible)} actions: {seconds(tokenizer, admissible, given.rounds) * 1e6:.2f} µs a position")


def play(rooms: str, kind: str, games: int, turns: int) -> Iterator[Turn]:
    world = HouseholdWorld(HouseholdOptions(rooms=rooms))
    for index in range(games):
        player = world.expert(index) if kind == "expert" else RandomPlayer(index)
        instance, task = world.instance("train", index), world.open()
        view = task.start(instance)
        player.start(view, instance)
        for _ in range(turns):
            action = player.act(view).action
            yield view.admissible or (), action
            step = task.step(action)
            view = step.view
            if step.terminated or step.truncated:
                break


def shares(tokenizer: ChatTokenizer, turns: list[Turn]) -> str:
    """Of the positions inside of actions: how many each rule heats."""
    tries = ActionTries(tokenizer)
    inside = older = present = 0
    for admissible, action in turns:
        written = [tokenizer.answer(f"<action>{a}</action>") for a in admissible]
        ids = tokenizer.answer(f"<action>{action}</action>")
        walk = TrieWalk(tries.trie(admissible), tokenizer)
        for j in range(len(ids)):
            text = b"".join(tokenizer.pieces(ids[:j]))
            begun = text.startswith(b"<action>")
            inside += begun and len(text) < len(f"<action>{action}")
            older += begun and sum(path[:j] == ids[:j] for path in written) > 1
            present += walk.branching(ids[:j])
    return (
        f"{len(turns)} turns: {inside} tokens in actions, hot by the older rule {older}, by the present one {present}; "
        f"forced {1 - present / older:.1%} of the older"
    )


def seconds(tokenizer: ChatTokenizer, admissible: tuple[str, ...], rounds: int) -> float:
    root = ActionTries(tokenizer).trie(admissible)
    ids = [tokenizer.answer(f"<action>{action}</action>") for action in admissible]
    times: list[float] = []
    for _ in range(rounds):
        begin = time.perf_counter()
        for path in ids:
            walk, said = TrieWalk(root, tokenizer), list[int]()
            for token in path:
                walk.branching(said)
                said.append(token)
        times.append((time.perf_counter() - begin) / sum(map(len, ids)))
    return statistics.median(times)


if __name__ == "__main__":
    main()
