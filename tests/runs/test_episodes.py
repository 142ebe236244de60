"""What goes into an episode file comes out of it."""

from __future__ import annotations

import errno
import os
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from isentrope.core.errors import RunError
from isentrope.core.types import Episode, Turn
from isentrope.runs.episodes import read_episodes, write_episodes
from isentrope.runs.layout import eval_path, train_path

HOSTILE = ("", "\x00", "</script><script>alert(1)", "\u202eevil", "a\r\nb", "\ufeff", "🦆", "'; DROP TABLE", "\u2028")
texts = st.one_of(st.sampled_from(HOSTILE), st.text(max_size=12))
broken_texts = st.text(st.characters(categories=["Cs", "Ll"]), max_size=6)


def spans(count: int) -> st.SearchStrategy[tuple[int, ...] | None]:
    """Parts of a response of so many tokens."""
    ends = st.integers(0, count)
    return st.one_of(st.none(), st.tuples(ends, ends).map(sorted).map(tuple))


numbers = st.floats(width=32)


@st.composite
def some_turns(draw: st.DrawFn, text: st.SearchStrategy[str] = texts) -> Turn:
    count = draw(st.integers(0, 5))
    ids = st.lists(st.integers(-(2**31), 2**31 - 1), min_size=count, max_size=count)
    measured = st.lists(numbers, min_size=count, max_size=count)
    return Turn(
        observation=draw(text),
        admissible=draw(st.one_of(st.none(), st.lists(text, max_size=3).map(tuple))),
        anchor=draw(text),
        context_ids=np.array(draw(st.lists(st.integers(0, 99), max_size=4)), dtype=np.int32),
        continues=draw(st.booleans()),
        response_ids=np.array(draw(ids), dtype=np.int32),
        logprobs=np.array(draw(measured), dtype=np.float32),
        entropies=np.array(draw(measured), dtype=np.float32),
        temperatures=np.array(draw(measured), dtype=np.float32),
        think_span=draw(spans(count)),
        action_span=draw(spans(count)),
        action=draw(st.one_of(st.none(), text)),
        verdict=draw(text),
        stop=draw(text),
        reward=draw(st.floats(-1e100, 1e100)),
    )


def some_episodes(text: st.SearchStrategy[str] = texts) -> st.SearchStrategy[Episode]:
    whole = st.integers(-(2**63), 2**63 - 1)
    return st.builds(
        Episode,
        world=text, split=text, index=whole, kind=text, goal=text, group=whole, member=whole, order=text,
        turns=st.lists(some_turns(text), max_size=3).map(tuple), success=st.booleans(), stop=text, detail=text,
    )  # fmt: skip


def contents(value: Any) -> Any:
    """A record as plain values that can be compared: arrays by type and bytes, floats by their bits."""
    if isinstance(value, np.ndarray):
        return (str(value.dtype), value.shape, value.tobytes())
    if isinstance(value, float):
        return np.float64(value).tobytes()
    if isinstance(value, tuple):
        return tuple(contents(part) for part in value)
    if isinstance(value, Turn | Episode):
        return {field.name: contents(getattr(value, field.name)) for field in fields(value)}
    return (type(value), value)


def plain_turn(**changes: Any) -> Turn:
    turn = Turn(
        observation="you see a desk 1", admissible=("look",), anchor="ab12", continues=False,
        context_ids=np.array([1, 2], dtype=np.int32), response_ids=np.array([5, 6], dtype=np.int32),
        logprobs=np.array([-0.5, -1.5], dtype=np.float32), entropies=np.array([0.1, 0.2], dtype=np.float32),
        temperatures=np.array([1, 1.2], dtype=np.float32), think_span=(0, 1), action_span=None, action="look",
        verdict="ok", stop="tag", reward=1.0,
    )  # fmt: skip
    return replace(turn, **changes)


def plain_episode(**changes: Any) -> Episode:
    episode = Episode("household", "train", 3, "heat", "heat an egg", 0, 1, "think_act", (plain_turn(),), True, "x")
    return replace(episode, **changes)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(some_episodes(), max_size=4))
def test_round_trip_is_exact(tmp_path_factory: pytest.TempPathFactory, episodes: list[Episode]) -> None:
    path = tmp_path_factory.getbasetemp() / "round.parquet"
    write_episodes(path, episodes)
    assert [contents(episode) for episode in read_episodes(path)] == [contents(episode) for episode in episodes]


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(some_episodes(broken_texts))
def test_half_a_surrogate_pair_is_replaced(tmp_path_factory: pytest.TempPathFactory, episode: Episode) -> None:
    path = tmp_path_factory.getbasetemp() / "surrogates.parquet"
    write_episodes(path, [episode])
    expected = "".join("\ufffd" if "\ud800" <= char <= "\udfff" else char for char in episode.goal)
    assert read_episodes(path)[0].goal == expected


def test_episodes_without_turns_survive_between_others(tmp_path: Path) -> None:
    empty = plain_episode(turns=(), stop="task_error", detail="worker died", success=False)
    episodes = [empty, plain_episode(), empty, empty, plain_episode(turns=(plain_turn(), plain_turn(action=None)))]
    write_episodes(tmp_path / "e.parquet", episodes)
    back = read_episodes(tmp_path / "e.parquet")
    assert [len(episode.turns) for episode in back] == [0, 1, 0, 0, 2]
    assert [contents(episode) for episode in back] == [contents(episode) for episode in episodes]


def test_arrays_that_come_back_can_be_changed(tmp_path: Path) -> None:
    write_episodes(tmp_path / "e.parquet", [plain_episode()])
    turn = read_episodes(tmp_path / "e.parquet")[0].turns[0]
    turn.logprobs[0] = -9.0
    assert turn.entropies.flags.owndata


def test_equal_episodes_give_equal_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_episodes(tmp_path / name, [plain_episode(), plain_episode(turns=())])
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_names_of_the_files() -> None:
    run = Path("runs/x")
    assert train_path(run, 12) == run / "episodes" / "step-000012.parquet"
    assert eval_path(run, 12, "unseen") == run / "episodes" / "eval-000012-unseen.parquet"


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "step-000001.parquet"
    write_episodes(path, [plain_episode() for _ in range(20)])
    whole = path.read_bytes()
    middle = len(whole) // 8
    for damaged in (b"", whole[: len(whole) // 2], whole[:middle] + bytes(16) + whole[middle + 16 :], b"not parquet"):
        path.write_bytes(damaged)
        with pytest.raises(RunError, match=r"step-000001\.parquet"):
            read_episodes(path)


def test_a_changed_byte_is_never_taken_for_an_episode(tmp_path: Path) -> None:
    path = tmp_path / "e.parquet"
    noise = np.random.default_rng(0).random(40, dtype=np.float32)
    tokens = {"response_ids": np.arange(40, dtype=np.int32), "temperatures": np.ones(40, dtype=np.float32)}
    write_episodes(path, [plain_episode(turns=(plain_turn(entropies=noise, logprobs=-noise, **tokens),))])
    whole, expected = path.read_bytes(), contents(read_episodes(path)[0])
    refused = 0
    for place in range(0, len(whole), len(whole) // 200):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x10]) + whole[place + 1 :])
        try:
            assert contents(read_episodes(path)[0]) == expected
        except RunError:
            refused += 1
    assert refused > 100


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"gone\.parquet"):
        read_episodes(tmp_path / "gone.parquet")


def test_another_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "e.parquet"
    write_episodes(path, [plain_episode()])
    table = pq.read_table(path)
    pq.write_table(table.replace_schema_metadata({"isentrope.episodes": "99"}), path)
    with pytest.raises(RunError, match="format is '99'"):
        read_episodes(path)
    pq.write_table(pa.table({"a": [1]}), path)
    with pytest.raises(RunError, match=r"e\.parquet"):
        read_episodes(path)
    pq.write_table(table.drop_columns(["reward"]), path)
    with pytest.raises(RunError, match="columns"):
        read_episodes(path)


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "e.parquet"
    write_episodes(path, [plain_episode()])
    before = path.read_bytes()

    def full_disk(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(RunError, match="free some space"):
        write_episodes(path, [])
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["e.parquet"]
