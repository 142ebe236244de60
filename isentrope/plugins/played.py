"""Episodes and scores of what another trainer sampled.

A row is one completion: prompt, then runs of the model's own tokens (turns) with the environment's words between them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from isentrope.agent.response_format import parse_response
from isentrope.core.token_weights import token_weights
from isentrope.core.types import Episode, Floats, Scores, Turn

_TEXT = 20_000  # characters of one observation
_NO_REWARD = "no reward function gave this completion a finite number"
_NONE = np.zeros(0, dtype=np.float32)


@dataclass(frozen=True)
class Form:
    """How responses are read. Without tags nothing is asked of them: whatever is not cut off is valid."""

    tags: tuple[str, ...] = ()
    order: str = "think_act"


@dataclass
class Row:
    """A completion. `mask` is 1 for the model's own tokens; None: all are. `prompt` is text or messages."""

    prompt_ids: Sequence[int]
    ids: Sequence[int]
    mask: Sequence[int] | None
    prompt: Any = ""
    kind: str = ""
    index: int | None = None  # of the task; None: told by the prompt
    learnt: bool = True  # False: the trainer left it out of the update
    reward: float = float("nan")
    episode: Episode | None = None  # as one of our worlds played it


@dataclass(frozen=True)
class Numbers:
    """Of the tokens of a row, by their places in it; None: not known."""

    logp_T: Floats | None = None
    entropy_T: Floats | None = None
    advantage_T: Floats | None = None
    ratio_T: Floats | None = None


@dataclass(frozen=True)
class Reader:
    """What it takes to make episodes of rows."""

    read_piece: Callable[[int], bytes]
    ends: frozenset[int]  # tokens that end a response
    form: Form
    temperature: float
    solved_at: float
    group_size: int
    world: str
    split: str = "train"

    def episodes(self, rows: Sequence[Row], numbers: Sequence[Numbers]) -> list[Episode]:
        return [self._episode(place, row, told) for place, (row, told) in enumerate(zip(rows, numbers, strict=True))]

    def _episode(self, place: int, row: Row, told: Numbers) -> Episode:
        group, member = divmod(place, self.group_size)
        if row.episode is not None:
            return replace(row.episode, group=group, member=member, turns=self._measured(row, told))
        text = last_message(row.prompt)[:_TEXT]
        known = bool(np.isfinite(row.reward))
        cut = not len(row.ids) or row.ids[-1] not in self.ends
        turns = self._turns(row, told, text, cut, float(row.reward) if known else 0.0)
        success = known and row.reward >= self.solved_at
        stop = "garbage" if not known else "truncated" if cut and not success else "terminated"
        index = crc32(text.encode("utf-8", "replace")) if row.index is None else row.index
        return Episode(
            world=self.world, split=self.split, index=index, kind=row.kind, goal=text[:300], group=group,
            member=member, order=self.form.order if self.form.tags else "act", turns=turns, success=success, stop=stop,
            detail="" if known else _NO_REWARD,
        )  # fmt: skip

    def _measured(self, row: Row, told: Numbers) -> tuple[Turn, ...]:
        """The turns of a game with the trainer's numbers, where the sampler had none."""
        assert row.episode is not None
        turns, spans = row.episode.turns, spans_of(row)
        if len(spans) != len(turns):  # TRL cut it off, or a part of it
            return turns
        measured: list[Turn] = []
        for turn, (start, end) in zip(turns, spans, strict=True):
            logp, entropy = (_part(column, start, end) for column in (told.logp_T, told.entropy_T))
            fits = len(turn.response_ids) == end - start
            changes: dict[str, Any] = {}
            if fits and not np.isfinite(turn.logprobs).all():
                changes["logprobs"] = logp
            if fits and not np.isfinite(turn.entropies).all():
                changes["entropies"] = entropy
            measured.append(replace(turn, **changes) if changes else turn)
        return tuple(measured)

    def _turns(self, row: Row, told: Numbers, prompt: str, cut: bool, reward: float) -> tuple[Turn, ...]:
        turns: list[Turn] = []
        before, spans = 0, spans_of(row)
        for start, end in spans:
            said, last = row.ids[start:end], end == spans[-1][1]
            between = row.ids[before:start]
            context = [*row.prompt_ids, *between] if not turns else between
            stop = "length" if last and cut else "eos"
            pieces = [self.read_piece(number) for number in said]
            parsed = parse_response(pieces, self.form.order, stop, self.form.tags) if self.form.tags else None
            verdict = parsed.verdict if parsed else "too_long" if stop == "length" else "ok"
            turns.append(
                Turn(
                    observation=prompt if not turns else self._text(between),
                    admissible=None, anchor="", context_ids=np.array(context, dtype=np.int32), continues=bool(turns),
                    response_ids=np.array(said, dtype=np.int32), logprobs=_part(told.logp_T, start, end),
                    entropies=_part(told.entropy_T, start, end),
                    temperatures=np.full(end - start, self.temperature, dtype=np.float32),
                    think_span=parsed.think_span if parsed else None,
                    action_span=parsed.action_span if parsed else None, action=parsed.action if parsed else None,
                    verdict=verdict, stop=stop, reward=reward if last else 0.0,
                )
            )  # fmt: skip
            before = end
        return tuple(turns)

    def _text(self, ids: Sequence[int]) -> str:
        return b"".join(map(self.read_piece, ids)).decode("utf-8", "replace")[:_TEXT]


def _part(column: Floats | None, start: int, end: int) -> Floats:
    return np.full(end - start, np.nan, dtype=np.float32) if column is None else column[start:end].astype(np.float32)


def spans_of(row: Row) -> list[tuple[int, int]]:
    """Where the model's own runs of tokens begin and end."""
    if row.mask is None:
        return [(0, len(row.ids))] if len(row.ids) else []
    edges = np.flatnonzero(np.diff(np.array([0, *row.mask, 0], dtype=np.int8)))
    places: list[int] = edges.tolist()
    return list(zip(places[::2], places[1::2], strict=True))


def scores_of(rows: Sequence[Row], numbers: Sequence[Numbers], mode: str) -> Scores | None:
    """What the update made of the rows; None where nothing was learnt from. `mode`: how its loss weighs tokens."""
    episode, turn, length = list[int](), list[int](), list[int]()
    advantage, ratio = [_NONE], [_NONE]
    for place, (row, told) in enumerate(zip(rows, numbers, strict=True)):
        if not row.learnt or told.advantage_T is None:
            continue
        for number, (start, end) in enumerate(spans_of(row)):
            episode.append(place)
            turn.append(number)
            length.append(end - start)
            advantage.append(told.advantage_T[start:end])
            ratio.append(np.ones(end - start, np.float32) if told.ratio_T is None else told.ratio_T[start:end])
    if not episode:
        return None
    episode_U, turn_U, length_U = (np.array(column, dtype=np.int64) for column in (episode, turn, length))
    weight_N = token_weights(mode, np.repeat(episode_U, length_U), np.repeat(np.arange(len(length_U)), length_U))
    advantage_N, ratio_N = np.concatenate(advantage), np.concatenate(ratio)
    return Scores(episode_U, turn_U, length_U, advantage_N, ratio_N, weight_N.astype(np.float32))


def last_message(prompt: object) -> str:
    """What the agent was told last, of a prompt that is text or messages."""
    if isinstance(prompt, str):
        return prompt
    messages = cast("list[Any]", prompt) if isinstance(prompt, list) else []
    last = cast("dict[str, Any]", messages[-1]) if messages and isinstance(messages[-1], dict) else {}
    content = last.get("content", "")
    if isinstance(content, list):
        parts = [cast("dict[str, Any]", part) for part in cast("list[Any]", content) if isinstance(part, dict)]
        return " ".join(str(part.get("text", "")) for part in parts)
    return str(content)


def form_of(rows: Sequence[Row], read_piece: Callable[[int], bytes], tags: tuple[str, ...]) -> Form:
    """Whether these prompts or completions know the tags of an action, and those of a thought."""
    texts = [b"".join(map(read_piece, [*row.prompt_ids, *row.ids])) for row in rows]
    if not any(f"<{tag}>".encode() in text for tag in tags for text in texts):
        return Form()
    return Form(tags, "think_act" if any(b"<think>" in text for text in texts) else "act")


def equal_groups(rewards: NDArray[np.float64], size: int) -> float:
    """The share of groups whose completions were all rewarded the same."""
    grouped = rewards[: len(rewards) // size * size].reshape(-1, size)
    return float((np.ptp(np.nan_to_num(grouped), axis=1) < 1e-8).mean()) if len(grouped) else float("nan")
