"""Official games, from folders and from one file."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pytest

from isentrope.core.errors import TaskError
from isentrope.worlds.contract import Instance
from isentrope.worlds.household.engine import Engine
from isentrope.worlds.household.export import Language, write_game_file, write_problem
from isentrope.worlds.household.game import KINDS
from isentrope.worlds.household.generate import generate
from isentrope.worlds.household.official import read_file, read_line, read_lines
from isentrope.worlds.household.world import HouseholdOptions, HouseholdWorld
from tests.builders.sizes import EXPLORE

GAMES = Path(__file__).parents[4] / "shared" / "data" / "alfworld" / "games.jsonl.zst"
LANGUAGE = Language("domain", '"rhs": "Your task is to: UNKNOWN GOAL."')


def write_folder(root: Path) -> None:
    for split in ("train", "valid_seen", "valid_unseen"):
        for index, kind in enumerate(KINDS):
            game = generate(kind, "train", index, "small")
            write_game_file(game, root / split / f"{kind}-X-None-Y-1" / f"trial_{index}" / "game.tw-pddl", LANGUAGE)


def official(path: Path, kinds: tuple[str, ...] = KINDS) -> HouseholdWorld:
    return HouseholdWorld(HouseholdOptions(games=str(path), kinds=kinds))


def test_folders_are_found_by_split_and_kind(tmp_path: Path) -> None:
    write_folder(tmp_path)
    games = official(tmp_path, ("pick", "two"))
    assert games.splits() == ("train", "seen", "unseen")
    assert [games.size(split) for split in games.splits()] == [2, 2, 2]
    game = games.game(games.instance("seen", 1))
    assert game.kind == games.instance("seen", 1).kind == "two"
    assert game.task == generate("two", "train", 5, "small").task
    assert game.walkthrough == generate("two", "train", 5, "small").walkthrough


def test_one_split_folder_is_enough(tmp_path: Path) -> None:
    write_folder(tmp_path)
    assert official(tmp_path / "valid_seen").splits() == ("seen",)


def test_unsolvable_and_movable_games_are_left_out(tmp_path: Path) -> None:
    write_folder(tmp_path)
    path = tmp_path / "train" / "pick-X-None-Y-1" / "trial_0" / "game.tw-pddl"
    data = json.loads(path.read_text())
    path.write_text(json.dumps(data | {"solvable": False}))
    other = tmp_path / "train" / "pick_and_place_with_movable_recep-A-B-C-1" / "trial_1" / "game.tw-pddl"
    other.parent.mkdir(parents=True)
    other.write_text(json.dumps(data))
    assert official(tmp_path).size("train") == 5


def test_a_file_of_games(tmp_path: Path) -> None:
    game = generate("heat", "train", 3, "small")
    row = {"split": "valid_unseen", "game": "g", "task": game.task, "pddl_problem": write_problem(game)}
    file = tmp_path / "games.jsonl"
    file.write_text(json.dumps(row) + "\n\n")
    world = official(file)
    assert world.splits() == ("unseen",)
    assert world.size("unseen") == 1
    assert world.instance("unseen", 0).kind == "heat"
    assert world.open().start(world.instance("unseen", 0)).goal == game.task


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "line 1: not valid JSON"),
        ("[]", "a JSON object is expected"),
        ('{"task": "t"}', "'pddl_problem' should be text, found NoneType"),
        ('{"task": "t", "pddl_problem": "(:init )"}', "no \\(:goal"),
        ("", "no game of the kinds"),
    ],
)
def test_broken_files_are_refused(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "games.jsonl"
    file.write_text(content)
    with pytest.raises(TaskError, match=message):
        official(file).splits()


def test_missing_things_are_named(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="alfworld-download"):
        official(tmp_path / "nowhere").splits()
    file = tmp_path / "broken.tw-pddl"
    file.write_text('{"grammar": "", "pddl_problem": ""}')
    with pytest.raises(TaskError, match="names no task"):
        read_file(file)
    write_folder(tmp_path)
    with pytest.raises(TaskError, match="number 6 in 'train': it has 6 games"):
        official(tmp_path).instance("train", 6)
    with pytest.raises(TaskError, match="number 6 in 'train': it has 6 games"):
        official(tmp_path).open().start(Instance("household", "train", 6, "pick"))


@pytest.mark.parametrize("damage", [lambda whole: b"not compressed", lambda whole: whole[: len(whole) // 2]])
def test_a_damaged_zst_file_is_refused(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    file = tmp_path / "games.jsonl.zst"
    text = "".join(f"line {i}\n" for i in range(1000))
    with pa.output_stream(str(file), compression="zstd") as stream:
        stream.write(text.encode())
    assert "".join(read_lines(file)) == text
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(TaskError, match="could not read"):
        list(read_lines(file))


@pytest.mark.slow
@pytest.mark.skipif(
    not GAMES.exists(),
    reason=f"needs ALFWorld's official games as one file, {GAMES}: docs/tasks/household.md says which form",
)
def test_official_walkthroughs_win() -> None:
    """All of them in `make explore`, every tenth in `make test`: some four hundred, of every kind."""
    every = 1 if EXPLORE else 10
    count = 0
    for line in islice(read_lines(GAMES), 0, None, every):
        record = read_line(line, "line")[1]
        engine = Engine(record.game())
        assert not engine.won, record.name
        for command in record.walkthrough:
            assert engine.attempt(command) is not None, (record.name, command)
        assert engine.won, record.name
        count += 1
    assert count == -(-4027 // every)


def test_kinds_are_spread_over_a_split(tmp_path: Path) -> None:
    file = tmp_path / "games.jsonl"
    counts = {"pick": 60, "heat": 20, "two": 10}
    game = {kind: generate(kind, "train", 0, "small") for kind in counts}
    lines = [
        {"split": "train", "game": f"{kind}-{i}", "task": "t", "pddl_problem": write_problem(game[kind])}
        for kind, count in counts.items()
        for i in range(count)
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    games = official(file)
    found = [games.instance("train", i).kind for i in range(90)]
    assert {kind: found.count(kind) for kind in counts} == counts
    for start in range(0, 90, 9):
        part = found[start : start + 9]
        assert part.count("pick") in (5, 6, 7)
        assert part.count("heat") in (1, 2, 3)
        assert part.count("two") == 1
