"""Plays textarena's games: one player alone, or two with an opponent that you choose.

isentrope play textarena --set 'task.options.games=["Mastermind-v0"]'
"""

from __future__ import annotations

import copy
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from isentrope.config.schema import setting
from isentrope.config.suggest import did_you_mean
from isentrope.core.errors import TaskError
from isentrope.core.needs import require
from isentrope.worlds.adapters.seeded import Luck, SeededWorld, play_order, users_function
from isentrope.worlds.contract import Instance, Step, View

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
    """`random`, or a function of the user's own as module:function.

    A game does not list its moves, so `random` knows how the moves of some games are written, tries them in random
    order on a copy of the game and takes the first that the game accepts.
    """
    if name == "random":
        unknown = [game for game in games if _family(game) not in MOVES]
        if unknown:
            raise TaskError(
                f"the random opponent does not know the moves of {', '.join(unknown)}; it plays {', '.join(MOVES)}. "
                "For others set task.options.opponent to a function of your own, module:function"
            )
        return random_move
    return users_function("opponent", name, "random")


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


DEFAULT = ("GuessTheNumber-v0", "Mastermind-v0", "FrozenLake-v0", "LightsOut-v0")
RULES = (
    "You play a game of words, numbers or boards. Its own rules come first. Answer with one move at a time, written "
    "as those rules say; square brackets are put around it if it has none."
)
US = 0


@dataclass(frozen=True)
class TextArenaOptions:
    games: tuple[str, ...] = setting(DEFAULT, "ids of games, played in turn")
    opponent: str = setting("", "for games of two: random (for some games), or a function of your own, module:function")


class TextArenaWorld(SeededWorld):
    name = "textarena"

    def __init__(self, options: TextArenaOptions | None = None) -> None:
        self.options = options or TextArenaOptions()
        self.kinds = self.options.games
        if not self.kinds:
            raise TaskError("task.options.games is empty: name one game at least")
        self._package = require("textarena", "textarena", "the textarena world")
        self._known: Mapping[str, Any] = require(
            "textarena.envs.registration", "textarena", "the textarena world"
        ).ENV_REGISTRY
        for game in self.kinds:
            if game not in self._known:
                raise TaskError(f"textarena has no game {game!r}{did_you_mean(game, self._known)}")
        self.players = 2 if self.options.opponent else 1
        self.opponent = find_opponent(self.options.opponent, self.kinds) if self.options.opponent else None

    def open(self) -> TextArenaTask:
        return TextArenaTask(self)

    def make(self, game: str, seed: int) -> Any:
        """The game as it is, without textarena's wrappers, which repeat the whole history at every turn."""
        raw = game if game.endswith("-raw") else f"{game}-raw"
        try:
            env = self._package.make(raw if raw in self._known else game)
            env.reset(num_players=self.players, seed=seed)
        except LookupError as error:
            words = re.search(r"nltk\.download\('(\w+)'\)", str(error))
            how = f"python -m nltk.downloader {words[1]}" if words else str(error)[:200]
            raise TaskError(f"{game} needs word lists that have to be fetched once: {how}") from error
        except AssertionError as error:
            raise TaskError(
                f"{game} cannot be played by {self.players}: {error!s:.200}. "
                "A game of two needs task.options.opponent; games of more are not supported"
            ) from error
        except Exception as error:  # games are of many hands: keys that are not set, files that are not there
            raise TaskError(f"{game} could not be started: {type(error).__name__}: {error!s:.300}") from error
        return env


class TextArenaTask:
    def __init__(self, world: TextArenaWorld) -> None:
        self._world = world
        self._game: Any = None

    def start(self, instance: Instance) -> View:
        seed = self._world.seed(instance)
        self._luck, self._other = Luck(seed), random.Random(f"opponent {seed}")
        with self._luck.drawn_from():
            game = self._world.make(instance.kind, seed)
            self._game = game
            self._prompt_type = require("textarena.core", "textarena", "the textarena world").ObservationType.PROMPT
            messages = game.state.observations[US]
            self._goal = "\n".join(str(text) for _, text, kind in messages if kind == self._prompt_type)
            self._let_opponent_move()
            return self._view(self._news() or "Your move.")

    def step(self, action: str) -> Step:
        play_order(self._game is not None)
        with self._luck.drawn_from():
            return self._step(action if "[" in action and "]" in action else f"[{action}]")

    def _step(self, action: str) -> Step:
        game, state = self._game, self._game.state
        try:
            done = bool(game.step(action)[0])
            refused = bool(state.game_info[US].get("invalid_move") if done else state.error_count)
            if not done:
                done = self._let_opponent_move()
        except Exception as error:  # nothing is known about the game's state any more
            self._game = None
            view = self._view("The game broke down over that move.")
            return Step(view, terminated=True, valid=False, info={"error": f"{type(error).__name__}: {error!s:.100}"})
        news = self._news() or "Your move."
        if not done:
            return Step(self._view(news), valid=not refused)
        rewards, notes = game.close()
        self._game = None
        given: Any = rewards.get(US) if rewards else None  # some games give no reward, or mix it up with the reason
        score = float(given) if isinstance(given, int | float) else 0.0
        reason = str(notes.get(US, {}).get("reason") or "")
        view = self._view("\n".join(part for part in (news, reason) if part))
        reward = min(1.0, max(0.0, score))
        return Step(view, reward, terminated=True, success=score >= 1.0, valid=not refused, info={"score": score})

    def close(self) -> None:
        self._game = None

    def _let_opponent_move(self) -> bool:
        """Until it is our turn again; True if the game is over."""
        opponent = self._world.opponent
        while opponent is not None and self._game.state.current_player_id != US:
            reads = "\n".join(str(text) for _, text, _ in self._game.get_observation()[1])
            if self._game.step(opponent(self._game, reads, self._other))[0]:
                return True
        return False

    def _news(self) -> str:
        """What the game has told us since we last looked, less its prompt and what we said ourselves."""
        messages, self._game.state.observations[US] = self._game.state.observations[US], []
        kept = [str(text) for sender, text, kind in messages if kind != self._prompt_type and sender != US]
        return "\n".join(kept).strip()

    def _view(self, text: str) -> View:
        return View(text, None, self._goal, RULES)
