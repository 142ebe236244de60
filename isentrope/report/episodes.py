"""Sample episodes for the report: the first, the middle and the last step, a success and a failure of each.

The store keeps only the ids of tokens; the trainer leaves their texts in RUN/tokens.json.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from isentrope.charts.text import clipped, safe, short
from isentrope.core.errors import RunError
from isentrope.core.types import Episode, Turn
from isentrope.runs.episodes import EpisodeFile, read_episodes
from isentrope.runs.folder import Run
from isentrope.runs.token_texts import TokenTexts

LEVELS = 8  # shades of entropy
MOST_NATS = 3.0  # the darkest shade
_MOST_TURNS = 14
_MOST_TOKENS = 1400  # of one episode; each costs some 60 bytes of the page
_MOST_RESPONSE = 500
_MOST_TEXT = 1500


@dataclass(frozen=True)
class Chosen:
    episode: Episode
    file: EpisodeFile


def choose(run: Run) -> tuple[list[Chosen], list[str]]:
    """The episodes to show, in the order of the run, and what could not be read."""
    training = [file for file in run.episode_files if file.split is None]
    evals = [file for file in run.episode_files if file.split is not None]
    unseen = [file for file in evals if file.split == "unseen"] or evals
    files = [*_ends(training, middle=True), *_ends(unseen, middle=False)]
    chosen: list[Chosen] = []
    problems: list[str] = []
    for file in files:
        try:
            episodes = read_episodes(file.path)
        except RunError as error:
            problems.append(str(error))
            continue
        chosen += [Chosen(episode, file) for episode in _pair(episodes)]
    return chosen, problems


def render(chosen: Chosen, tokens: TokenTexts, *, is_open: bool) -> str:
    episode, file = chosen.episode, chosen.file
    where = f"step {file.step}" if file.split is None else f"evaluation at step {file.step}, {file.split} games"
    result = "solved" if episode.success else "not solved"
    turns = f"{len(episode.turns)} turn{'' if len(episode.turns) == 1 else 's'}"
    facts = [turns, f"return {short(episode.ret)}", f"ended: {episode.stop}"]
    shown = list(_shown_turns(episode))
    body = "".join(_turn(number, episode.turns[number], tokens) for number in shown)
    missing = len(episode.turns) - len(shown)
    if missing:
        body += f'<p class="note">{missing} more turns are in episodes/{safe(file.path.name)}.</p>'
    if episode.detail:
        body += f'<p class="note">{safe(clipped(episode.detail, _MOST_TEXT))}</p>'
    return (
        f'<details class="card episode"{" open" if is_open else ""}><summary>'
        f'<span class="badge {"good" if episode.success else "bad"}">{result}</span>'
        f'<span class="goal">{safe(clipped(episode.goal, 200))}</span>'
        f'<span class="facts">{safe(where)} · {safe(episode.kind)} · {safe(" · ".join(facts))}</span>'
        f"</summary><ol>{body}</ol></details>"
    )


def legend() -> str:
    edges = [MOST_NATS * (level / LEVELS) ** 2 for level in range(LEVELS)]
    swatches = "".join(f'<span class="e{level}">{round(edge, 2):g}</span>' for level, edge in enumerate(edges))
    return f'<p class="shades">Entropy of each token, in nats: {swatches} and more</p>'


def level_of(entropy: float) -> int:
    """The shade of an entropy. Shades are finer near zero, where most tokens are."""
    if not math.isfinite(entropy) or entropy <= 0:
        return 0
    return min(LEVELS - 1, int(LEVELS * math.sqrt(entropy / MOST_NATS)))


def _ends(files: Sequence[EpisodeFile], *, middle: bool) -> list[EpisodeFile]:
    if not files:
        return []
    places = [0, len(files) // 2, len(files) - 1] if middle else [0, len(files) - 1]
    return [files[place] for place in sorted(set(places))]


def _pair(episodes: Sequence[Episode]) -> Iterator[Episode]:
    """A success and a failure, each the one of middle length: neither luck nor a bore."""
    for success in (True, False):
        some = [episode for episode in episodes if episode.success == success]
        if some:
            yield sorted(some, key=lambda episode: len(episode.turns))[len(some) // 2]


def _shown_turns(episode: Episode) -> Iterator[int]:
    """The first turns as far as there is room, and always the last one."""
    last = len(episode.turns) - 1
    tokens = 0
    for number, turn in enumerate(episode.turns):
        tokens += min(len(turn.response_ids), _MOST_RESPONSE)
        if number == last or (number < _MOST_TURNS and tokens <= _MOST_TOKENS):
            yield number


def _turn(number: int, turn: Turn, tokens: TokenTexts) -> str:
    action = "no action" if turn.action is None else turn.action
    verdict = "" if turn.valid else f'<span class="badge bad">{safe(turn.verdict)}</span>'
    reward = f'<span class="reward">reward {safe(short(turn.reward))}</span>' if turn.reward else ""
    left_out = f'<p class="note">Earlier turns that the model no longer saw here: {turn.dropped}.</p>'
    return (
        f'<li value="{number + 1}">{left_out if turn.dropped else ""}'
        f'<pre class="observation">{safe(clipped(turn.observation, _MOST_TEXT))}</pre>'
        f'<pre class="response">{_response(turn, tokens)}</pre>'
        f'<p class="action"><span class="arrow">→</span> <code>{safe(clipped(action, 300))}</code>'
        f"{verdict}{reward}</p></li>"
    )


def _response(turn: Turn, tokens: TokenTexts) -> str:
    texts = tokens.texts(turn.response_ids.tolist())[:_MOST_RESPONSE]
    columns = zip(texts, turn.logprobs.tolist(), turn.entropies.tolist(), turn.temperatures.tolist(), strict=False)
    parts = [
        f'<i class="e{level_of(entropy)}" data-v="{_plain(math.exp(min(logp, 0)))} {_plain(entropy)} {_plain(heat)}">'
        f"{safe(text)}</i>"
        for text, logp, entropy, heat in columns
    ]
    missing = len(turn.response_ids) - len(texts)
    return "".join(parts) + (f" … ({missing:,} more tokens)" if missing else "")


def _plain(value: float) -> str:
    return f"{value:.3g}" if math.isfinite(value) else "?"
