"""Whom to play against in textarena's games for two.

A game does not list its moves, so `random` knows how the moves of some games are written, tries them in random order
on a copy of the game and takes the first that the game accepts.
"""

from __future__ import annotations

import copy
import importlib
import random
from collections.abc import Callable, Sequence
from typing import Any, cast

from isentrope.errors import TaskError

Opponent = Callable[[Any, str, random.Random], str]
"""(the game, what the opponent reads, its random numbers) -> its move."""

MOVES: dict[str, Sequence[str]] = {
    "TicTacToe": [f"[{cell}]" for cell in range(9)],
    "ConnectFour": [f"[col {column}]" for column in range(7)],
    "Nim": [f"[{pile} {count}]" for pile in range(8) for count in range(1, 10)],
    "Othello": [f"[{row}, {column}]" for row in range(8) for column in range(8)],
    "KuhnPoker": ["[check]", "[bet]", "[call]", "[fold]"],
    "PigDice": ["[roll]", "[hold]"],
    "IteratedRockPaperScissors": ["[rock]", "[paper]", "[scissors]"],
    "IteratedMatchingPennies": ["[heads]", "[tails]"],
}


def find_opponent(name: str, games: Sequence[str]) -> Opponent:
    """`random`, or a function of the user's own as module:function."""
    if name == "random":
        unknown = [game for game in games if _family(game) not in MOVES]
        if unknown:
            raise TaskError(
                f"the random opponent does not know the moves of {', '.join(unknown)}; it plays {', '.join(MOVES)}. "
                "For others set task.options.opponent to a function of your own, module:function"
            )
        return random_move
    module, colon, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute) if colon else None
    except (ImportError, AttributeError) as error:
        raise TaskError(f"task.options.opponent = {name!r} could not be loaded: {error}") from error
    if not callable(found):
        raise TaskError(f"task.options.opponent = {name!r}: expected random, or a function as module:function")
    return cast(Opponent, found)


def random_move(game: Any, reads: str, luck: random.Random) -> str:
    moves = list(MOVES[_family(game.env_id)])
    luck.shuffle(moves)
    player = game.state.current_player_id
    for move in moves:
        trial = copy.deepcopy(game)
        trial.step(move)
        refused = bool(trial.state.game_info[player].get("invalid_move"))
        if not refused and not (trial.state.error_count and trial.state.current_player_id == player):
            return move
    return moves[0]


def _family(game: str) -> str:
    return game.partition("-")[0]
