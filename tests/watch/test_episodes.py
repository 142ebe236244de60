"""The index, the search and the view against the episodes themselves, read whole."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np
import pytest

from isentrope.core.errors import RunError
from isentrope.core.types import Episode
from isentrope.runs.episodes import read_episodes, write_episodes
from isentrope.runs.layout import eval_path, train_path
from isentrope.runs.token_texts import TokenTexts, shown_token_texts
from isentrope.watch.episodes import Found, Tokens, Wanted, first_difference, repeats_itself, search, view
from isentrope.watch.runs import EpisodeFile, Indexes, Run, file_of, files_of
from tests.builders.episodes import TOKENS, household_episode
from tests.watch.make_runs import make_watched


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    path = make_watched(tmp_path_factory.mktemp("runs") / "grpo", steps=20)
    odd = replace(household_episode(np.random.default_rng(5), 1, False), turns=(), stop="task_error", detail="it broke")
    good = read_episodes(train_path(path, 19))
    twice = _ids("look for the mug . look for the mug . ")
    again = [replace(turn, response_ids=twice, action_span=None) for turn in good[0].turns]
    sent = [replace(turn, response_ids=twice, action_span=(5, 10)) for turn in good[0].turns]  # said, then done
    hopeful = [replace(turn, reward=0.5) for turn in good[1].turns]
    write_episodes(
        train_path(path, 15), [odd, replace(good[0], turns=tuple(again)), replace(good[1], turns=tuple(hopeful))]
    )
    write_episodes(
        train_path(path, 16),
        [good[2], good[3], replace(good[1], turns=tuple(hopeful)), replace(good[0], turns=tuple(sent))],
    )
    return Run(path, "grpo")


def _ids(text: str) -> np.ndarray:
    number = {token.strip(): place for place, token in enumerate(TOKENS)}
    return np.array([number[word] for word in text.split()], dtype=np.int32)


def look(run: Run, place: str = "", limit: int = 1000, seconds: float = 60.0, **wanted: object) -> Found:
    def table(file: EpisodeFile) -> TokenTexts:
        return shown_token_texts(file.run.path)

    return search(files_of([run]), Wanted(**wanted), Indexes(), table, place, limit, seconds)  # type: ignore[arg-type]


def everything(run: Run) -> dict[tuple[str, int], Episode]:
    return {
        (file.name, number): made for file in files_of([run]) for number, made in enumerate(read_episodes(file.path))
    }


def names(found: Found) -> set[tuple[str, int]]:
    return {(file.name, number) for file, _, number in found.hits}


def test_the_index_says_what_the_episodes_say(run: Run) -> None:
    found = look(run)
    every = everything(run)
    assert names(found) == every.keys()
    for file, index, number in found.hits:
        made = every[file.name, number]
        assert index.turns[number] == len(made.turns)
        assert index.ret[number] == pytest.approx(made.ret)
        assert index.success[number] == made.success
        assert index.invalid[number] == sum(not turn.valid for turn in made.turns)
        assert sum(index.verdicts[number].values()) == index.invalid[number]
        assert (index.kind[number], index.stop[number], index.goal[number]) == (made.kind, made.stop, made.goal)
        assert (index.group[number], index.member[number], index.game[number]) == (made.group, made.member, made.index)


FILTERS = {
    "kind": ({"kind": "heat"}, lambda made, _: made.kind == "heat"),
    "solved": ({"outcome": "solved"}, lambda made, _: made.success),
    "failed": ({"outcome": "failed"}, lambda made, _: not made.success),
    "invalid": ({"invalid": True}, lambda made, _: any(not turn.valid for turn in made.turns)),
    "stop": ({"stop": "task_error"}, lambda made, _: made.stop == "task_error"),
    "high": ({"high": True}, lambda made, middle: not made.success and (made.ret > 0 or made.ret > middle)),
    "text": (
        {"text": "MICROWAVE 1. it"},
        lambda made, _: any("microwave 1. it" in f"{turn.observation} {turn.action}".lower() for turn in made.turns),
    ),
    "action": ({"text": "take mug"}, lambda made, _: any("take mug" in (turn.action or "") for turn in made.turns)),
    "goal": ({"text": "some mug and"}, lambda made, _: True),
    "several": ({"outcome": "failed", "kind": "look"}, lambda made, _: not made.success and made.kind == "look"),
}


@pytest.mark.parametrize("name", FILTERS)
def test_filters_choose_what_a_look_at_each_episode_chooses(run: Run, name: str) -> None:
    wanted, fits = FILTERS[name]
    middle = {file.name: median(made.ret for made in read_episodes(file.path)) for file in files_of([run])}
    expected = {where for where, made in everything(run).items() if fits(made, middle[where[0]])}
    assert expected
    assert names(look(run, **wanted)) == expected


def test_duplicated_responses_are_found(run: Run) -> None:
    assert names(look(run, duplicated=True)) == {("step-000015", 1)}


def test_sources_and_steps(run: Run) -> None:
    assert {file.source for file, *_ in look(run).hits} == {"train", "eval unseen"}
    assert {file.source for file, *_ in look(run, source="eval").hits} == {"eval unseen"}
    assert {file.step for file, *_ in look(run, source="train").hits} == {0, 10, 15, 16, 19}
    assert {file.step for file, *_ in look(run, first_step=5, last_step=15).hits} == {10, 15}


@pytest.mark.parametrize("oldest", [False, True])
@pytest.mark.parametrize("limit", [1, 3, 50])
def test_pages_hold_each_episode_once_in_order(run: Run, limit: int, oldest: bool) -> None:
    seen: list[tuple[int, str, int]] = []
    place = ""
    while True:
        found = look(run, place, limit, oldest_first=oldest)
        seen += [(file.step, file.name, number) for file, _, number in found.hits]
        place = found.next
        if not place or len(seen) > 500:
            break
    assert len(seen) == len(set(seen)) == len(everything(run))
    steps = [step for step, *_ in seen]
    assert steps == sorted(steps, reverse=not oldest)


def test_new_episodes_do_not_shift_the_pages(run: Run, tmp_path: Path) -> None:
    own = Run(make_watched(tmp_path / "own", steps=20), "own")
    first = look(own, limit=5)
    write_episodes(train_path(own.path, 99), read_episodes(train_path(own.path, 19)))
    rest = look(own, first.next)
    assert not names(first) & names(rest)
    assert len(names(first) | names(rest)) == len(everything(own)) - 8


def test_a_search_stops_when_its_time_is_over_and_can_go_on(run: Run) -> None:
    found = look(run, text="no such text", seconds=-1)
    assert (found.looked, found.hits) == (1, [])
    looks, place = 1, found.next
    while place:
        found = look(run, place, text="no such text", seconds=-1)
        looks, place = looks + 1, found.next
    assert looks == found.files == 7


def test_damaged_files_are_named_and_the_others_shown(tmp_path: Path) -> None:
    own = Run(make_watched(tmp_path / "own", steps=20), "own")
    whole = len(everything(own))
    train_path(own.path, 10).write_bytes(b"PAR1 but not really")
    eval_path(own.path, 7, "unseen").write_bytes(b"")
    (own.path / "episodes" / "notes.parquet").write_bytes(b"not ours")
    found = look(own)
    assert len(found.hits) == whole - 8
    assert len(found.broken) == 2
    assert all("could not be read" in text for text in found.broken)


def test_repetition() -> None:
    assert repeats_itself("Look for the mug. It is hot. look for  the mug.")
    assert repeats_itself("<think>Look again</think> look again\n")
    assert not repeats_itself("Look for the mug. Look for the cup.")
    assert not repeats_itself("... ... !")
    assert not repeats_itself("")


def test_a_view_has_the_turns_with_their_numbers(run: Run) -> None:
    file = file_of(run, "step-000019")
    assert file is not None
    shown = view(file, 2, Indexes(), Tokens())
    made = read_episodes(file.path)[2]
    texts = shown_token_texts(run.path)
    assert (shown["success"], shown["return"], shown["turns"]) == (True, 10.0, 4)
    assert [member["number"] for member in shown["members"]] == [0, 1, 2, 3]
    for turn, part in zip(made.turns, shown["turn_list"], strict=True):
        assert part["tokens"] == texts.texts(turn.response_ids.tolist())
        assert part["entropy"] == pytest.approx(turn.entropies.tolist(), rel=1e-3)
        assert part["surprisal"] == pytest.approx((-turn.logprobs).tolist(), rel=1e-3)
        assert part["advantage"] == [0.8] * len(turn.response_ids)
        assert len(part["ratio"]) == len(turn.response_ids)
        assert (tuple(part["think"]), tuple(part["act"])) == (turn.think_span, turn.action_span)
        assert (part["observation"], part["action"], part["verdict"]) == (turn.observation, turn.action, turn.verdict)


def test_an_episode_without_turns_and_one_without_scores(run: Run) -> None:
    file = file_of(run, "step-000015")
    assert file is not None
    empty = view(file, 0, Indexes(), Tokens())
    assert (empty["turn_list"], empty["detail"], empty["stop"]) == ([], "it broke", "task_error")
    assert view(file, 1, Indexes(), Tokens())["turn_list"][0]["advantage"] is None
    with pytest.raises(RunError, match="there is no number 3"):
        view(file, 3, Indexes(), Tokens())


def test_long_episodes_come_in_parts(tmp_path: Path) -> None:
    own = Run(tmp_path / "own", "own")
    one = household_episode(np.random.default_rng(0), 0, True)
    write_episodes(train_path(own.path, 1), [replace(one, turns=one.turns * 20), one])
    file = file_of(own, "step-000001")
    assert file is not None
    first, rest = (view(file, 0, Indexes(), Tokens(), start) for start in (0, 60))
    assert (len(first["turn_list"]), first["more"]) == (60, 20)
    assert [turn["turn"] for turn in rest["turn_list"]] == list(range(60, 80))
    assert rest["more"] == 0


def test_where_two_episodes_part() -> None:
    assert first_difference(["a", "b"], ["a", "c"]) == 1
    assert first_difference(["a", None], ["a", None]) is None
    assert first_difference(["a"], ["a", "b"]) == 1
    assert first_difference(["a", "b"], ["a", None]) == 1
    assert first_difference([], []) is None


def test_only_files_of_the_run_can_be_named(run: Run) -> None:
    for name in ("../../etc/passwd", "step-000019.parquet", "/etc/passwd", "", "scores-000019", "eval-1-../../../x"):
        assert file_of(run, name) is None
