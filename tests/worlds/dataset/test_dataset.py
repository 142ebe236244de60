"""Files of questions as a world: splits, columns, prompts, tries; and what is refused, in words."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isentrope.core.errors import ConfigError, TaskError
from isentrope.worlds.conformance.suite import assert_conforms
from isentrope.worlds.contract import View, rewards_of
from isentrope.worlds.dataset.world import DatasetWorld
from isentrope.worlds.pool.guarded import Failure
from isentrope.worlds.pool.open import open_tasks
from isentrope.worlds.registry import make_world

HERE = "tests.worlds.dataset.rewards"
ROWS = [
    {"question": f"What is {a} plus 2?", "answer": str(a + 2), "level": "easy" if a < 5 else "hard"} for a in range(20)
]


def write(path: Path, rows: Any = ROWS) -> str:
    kind = path.suffixes[0]
    if kind == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif kind in (".csv", ".tsv"):
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]), delimiter="," if kind == ".csv" else "\t")
            writer.writeheader()
            writer.writerows(rows)
    else:
        text = json.dumps(rows) if kind == ".json" else "".join(json.dumps(row) + "\n" for row in rows)
        path.write_text(text)
    return str(path)


def made(options: dict[str, Any]) -> DatasetWorld:
    world = make_world("dataset", options)
    assert isinstance(world, DatasetWorld)
    return world


def played(world: DatasetWorld, *answers: str, split: str = "train", index: int = 0) -> list[Any]:
    task = world.open()
    task.start(world.instance(split, index))
    return [task.step(answer) for answer in answers]


@pytest.mark.parametrize("name", ["a.jsonl", "a.ndjson", "a.json", "a.csv", "a.tsv", "a.parquet"])
def test_every_format_gives_the_same_questions(name: str, tmp_path: Path) -> None:
    world = made({"file": write(tmp_path / name), "kind": "level"})
    assert {split: world.size(split) for split in world.splits()} == {"train": 18, "test": 2}
    assert world.kinds == ("easy", "hard")
    assert_conforms(world, games=3, remake=("dataset", {"file": str(tmp_path / name), "kind": "level"}))
    plain = made({"file": write(tmp_path / "b.jsonl"), "kind": "level"})
    asked = [[one.question(one.instance("train", i)).prompt for i in range(18)] for one in (world, plain)]
    assert asked[0] == asked[1]
    assert plain.rewards.names == ("numeric",)


def test_packed_files(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    with gzip.open(path, "wt") as file:
        file.writelines(json.dumps(row) + "\n" for row in ROWS)
    assert made({"file": str(path)}).size("train") == 18


def test_splits(tmp_path: Path) -> None:
    one, other = write(tmp_path / "a.jsonl", ROWS[:12]), write(tmp_path / "b.csv", ROWS[12:])
    files = made({"files": {"test": other, "train": one}, "limit": 10})
    assert [(split, files.size(split)) for split in files.splits()] == [("train", 10), ("test", 8)]
    by_column = made({"file": write(tmp_path / "c.jsonl"), "split_column": "level"})
    assert [(split, by_column.size(split)) for split in by_column.splits()] == [("easy", 5), ("hard", 15)]
    halves = [made({"file": one, "test_share": 0.5, "split_seed": seed}) for seed in (0, 0, 1)]
    asked = [{half.question(half.instance("test", i)).id for i in range(6)} for half in halves]
    assert asked[0] == asked[1] != asked[2]
    assert made({"file": one, "test_share": 0.0}).splits() == ("train",)


def test_prompts_and_systems(tmp_path: Path) -> None:
    rows = [{"q": "Is {it} so?", "a": "yes", "who": "a {judge}", "options": ["no", "yes"]}] * 4
    named = {"question": "q", "answer": "a", "file": write(tmp_path / "a.jsonl", rows), "test_share": 0.0}
    world = made({**named, "prompt": "{q} {{x}}", "system": "You are {who}."})
    view = world.open().start(world.instance("train", 0))
    assert (view.goal, view.rules, view.text) == ("Is {it} so? {x}", "You are a {judge}.", "")
    choice = made({**named, "choices": "options", "system": ""})
    view = choice.open().start(choice.instance("train", 0))
    assert (view.goal, view.rules) == ("Is {it} so?\n\nA. no\nB. yes", "")
    assert choice.rewards.names == ("choice",)


def test_messages_as_trl_has_them(tmp_path: Path) -> None:
    said = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2 plus 2?"}]
    options = {
        "file": write(tmp_path / "a.jsonl", [{"prompt": said, "answer": "4"}] * 3), "question": "prompt",
        "test_share": 0.0, "rewards": [f"{HERE}:of_messages"],
    }  # fmt: skip
    world = made(options)
    view = world.open().start(world.instance("train", 0))
    assert (view.goal, view.rules) == ("2 plus 2?", "Be brief.")
    assert played(world, "4")[0].success
    for bad in ([*said, {"role": "assistant", "content": "4"}], [], [{"role": "user"}], ["hi"]):
        options["file"] = write(tmp_path / "b.jsonl", [{"prompt": bad, "answer": "4"}] * (2 + len(bad)))
        with pytest.raises(TaskError, match="message"):
            made(options)


def test_rewards_are_weighed_and_told_apart(tmp_path: Path) -> None:
    options = {"file": write(tmp_path / "a.jsonl", ROWS[:4]), "test_share": 0.0}
    world = made({**options, "rewards": ["exact", f"{HERE}:short"], "weights": [1.0, 0.5]})
    right, long, wrong = (played(world, said)[0] for said in ("2", "The answer is 2", "7"))
    assert (right.reward, right.success, rewards_of(right)) == (1.0, True, {"exact": 1.0, "short": 1.0})
    assert (long.reward, long.success, rewards_of(long)) == (1 / 1.5, True, {"exact": 1.0, "short": 0.0})
    assert (wrong.reward, wrong.success, rewards_of(wrong)) == (0.5 / 1.5, False, {"exact": 0.0, "short": 1.0})
    for name in ("as_trl", "by_row"):
        assert played(made({**options, "rewards": [f"{HERE}:{name}"]}), "2")[0].success
    nothing = made({**options, "rewards": ["exact", f"{HERE}:says_nothing"]})
    assert (played(nothing, "2")[0].reward, rewards_of(played(nothing, "2")[0])) == (1.0, {"exact": 1.0})


def test_lists_between_commas_as_a_command_line_has_them(tmp_path: Path) -> None:
    options = {"file": write(tmp_path / "a.jsonl"), "rewards": f"exact, {HERE}:short", "weights": "1, 0.5"}
    assert made(options).rewards.names == ("exact", f"{HERE}:short")
    with pytest.raises(ConfigError, match=r"task\.options\.weights\[1\] = \"x\": expected a number"):
        made({**options, "weights": "1,x"})


def test_an_answer_in_a_tag_of_that_name(tmp_path: Path) -> None:
    world = made({"file": write(tmp_path / "a.jsonl", ROWS), "rewards": ["exact"], "test_share": 0.0})
    assert played(world, "answer[2]")[0].success


def test_tries(tmp_path: Path) -> None:
    options = {"file": write(tmp_path / "a.jsonl", ROWS), "test_share": 0.0, "tries": 3, "feedback": "No."}
    world = made({**options, "rewards": ["exact", f"{HERE}:short"]})
    first, second, third = played(world, "a", "ab", "2")
    assert (first.view.text, first.terminated, first.success) == ("No.", False, False)
    assert [first.reward, second.reward, third.reward] == [0.5, -0.5, 1.0]  # in all: what the last answer is worth
    assert third.terminated
    assert third.success
    assert_conforms(world, games=3)
    task = world.open()
    with pytest.raises(TaskError, match="before start"):
        task.step("2")


def test_faults_of_functions_are_failures_of_their_episodes(tmp_path: Path) -> None:
    options = {"file": write(tmp_path / "a.jsonl", ROWS), "test_share": 0.0}
    for name, words in (
        ("raises", "raised RuntimeError: no idea"),
        ("nan", "gave nan; expected a number"),
        ("text", "gave '1.0'; expected a number"),
        ("nothing", "a return is missing"),
        ("huge", "at most 1,000,000 in size"),
        ("two", r"gave \[1.0, 2.0\] for one response"),
    ):
        with pytest.raises(TaskError, match=f"the reward function {HERE}:{name} .*{words}"):
            played(made({**options, "rewards": [f"{HERE}:{name}"]}), "2")


@pytest.mark.slow(6)
def test_a_function_that_hangs_costs_its_episode_alone(tmp_path: Path) -> None:
    rows = [{"question": "2 plus 2?", "answer": "4"}] * 4
    options = {"file": write(tmp_path / "a.jsonl", rows), "test_share": 0.0, "rewards": [f"{HERE}:hangs_on_bad"]}
    world = made(options)
    assert world.prefers == "processes"
    with open_tasks("dataset", options, count=3, workers=1, step_seconds=1.5) as tasks:
        views = tasks.start({slot: world.instance("train", slot) for slot in range(3)})
        assert all(isinstance(view, View) for view in views.values())
        steps = tasks.step({0: "4", 1: "bad", 2: "5"})
    failed = steps[1]
    assert isinstance(failed, Failure)
    assert failed.kind == "time_limit"
    assert [steps[slot].success for slot in (0, 2)] == [True, False]  # type: ignore[union-attr]


BAD_FILES = {
    "cut.jsonl": ('{"question": "a", "answer": "b"}\n{"question": "a", "ans', "cut.jsonl, line 2: no JSON"),
    "list.jsonl": ("[1, 2]\n", "line 1: a list, expected an object"),
    "empty.jsonl": ("\n\n", "empty.jsonl has no rows"),
    "none.csv": ("", "no rows"),
    "twice.csv": ("a,a\n1,2\n", "name every column once"),
    "short.csv": ("question,answer\n1,2\n3\n", "line 3: 1 values for the 2 columns"),
    "quotes.csv": ('question,answer\n"a"b,2\n', "no CSV"),
    "bytes.jsonl": (b'{"question": "\xff", "answer": "b"}\n', "not UTF-8"),
    "deep.jsonl": ("[" * 5000 + "\n", "no JSON"),
    "long.jsonl": ('{"question": "' + "a" * (5 * 2**20) + '"}\n', "more than 4,194,304 bytes"),
    "inf.jsonl": ('{"question": "a", "answer": 1e999}\n', "expected a finite number"),
    "nan.jsonl": ('{"question": "a", "answer": NaN}\n', "expected a finite number"),
    "table.jsonl": ('{"question": {"a": 1}, "answer": "x"}\n', "its question is {'a': 1}; expected text"),
    "blank.jsonl": ('{"question": " ", "answer": "x"}\n', "its question is empty"),
    "lacks.jsonl": ('{"question": "a", "answer": "x"}\n{"question": "a"}\n', "row 2: it has no 'answer'"),
    "null.jsonl": ('{"question": "a", "answer": null}\n', "it has no 'answer'"),
    "bad.parquet": (b"PAR1" + b"\0" * 100 + b"PAR1", "cannot be read as Parquet"),
    "text.txt": ("a", "expected a file of questions"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_files_are_refused_in_words(name: str, tmp_path: Path) -> None:
    content, words = BAD_FILES[name]
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(TaskError) as refused:
        made({"file": str(tmp_path / name), "test_share": 0.0})
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "the world dataset needs a file of questions: set task.options.file"),
        ({"file": "FILE", "files": {"train": "FILE"}}, "both are set"),
        ({"file": "no.jsonl"}, "no such file"),
        ({"file": "FOLDER"}, "is a folder, expected a file of questions.*it holds a.jsonl"),
        ({"files": {"train": 3}}, "expected the name of a file"),
        ({"files": {"../x": "FILE"}}, "expected a name of 1 to 64"),
        ({"files": {"train": "FILE"}, "split_column": "level"}, "leave it out"),
        ({"file": "FILE", "question": "questio"}, "no column 'questio'; did you mean question.*there is: answer"),
        ({"file": "FILE", "answer": "nope"}, "task.options.answer: the data have no column 'nope'"),
        ({"file": "FILE", "prompt": "{what}"}, "task.options.prompt, {what}: the data have no column"),
        ({"file": "FILE", "prompt": "{question"}, "a brace itself is written twice"),
        ({"file": "FILE", "prompt": "{question!r:>9}"}, "the names of columns alone"),
        ({"file": "FILE", "id": "level"}, "2 names stand in more than one row, the first is 'easy'"),
        ({"file": "FILE", "split_column": "what"}, "it has no 'what'"),
        ({"file": "FILE", "test_share": 0.01}, "leaves a split empty"),
        ({"file": "FILE", "rewards": ["choice"]}, "cannot be scored.*name their column"),
        ({"file": "FILE", "rewards": ["numeric"], "answer": "level"}, "20 of|18 of 18.*is not a number"),
        ({"file": "FILE", "rewards": ["exakt"]}, "no reward function named 'exakt'.*did you mean exact"),
        ({"file": "FILE", "rewards": ["exact", "exact"]}, "two functions are called exact"),
        ({"file": "FILE", "rewards": ["exact"], "weights": [1.0, 2.0]}, "2 numbers for 1 reward functions"),
        ({"file": "FILE", "weights": [0.0]}, "are all 0"),
        ({"file": "FILE", "extract_pattern": "("}, "extract_pattern = '\\(' is no regular expression"),
        ({"file": "FILE", "rewards": [f"{HERE}:missing"]}, "could not load the reward function"),
        ({"file": "FILE", "rewards": ["no_such_module:f"]}, "could not load the reward function"),
        ({"file": "FILE", "rewards": [f"{HERE}:not_a_function"]}, "is 3, expected a function"),
        ({"file": "FILE", "rewards": [f"{HERE}:later"]}, "is asynchronous"),
        ({"file": "FILE", "rewards": [f"{HERE}:asks_too_much"]}, "the argument 'colour', which is none of"),
        ({"file": "FILE", "rewards": [f"{HERE}:by_place"]}, "given by name"),
    ],
)
def test_bad_settings_are_refused_in_words(changes: dict[str, Any], words: str, tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl")
    names = {"FILE": file, "FOLDER": str(tmp_path)}
    options = {key: names.get(value, value) if isinstance(value, str) else value for key, value in changes.items()}
    if "files" in options:
        options["files"] = {key: names.get(value, value) for key, value in options["files"].items()}
    with pytest.raises(TaskError, match=words):
        made(options)


def test_kinds_are_bounded_and_become_names(tmp_path: Path) -> None:
    rows = [{**row, "topic": f"Topic {i}/{'a' * 80}"} for i, row in enumerate(ROWS)]
    assert all(
        len(kind) <= 64 and " " not in kind
        for kind in made({"file": write(tmp_path / "a.jsonl", rows), "kind": "topic"}).kinds
    )
    many = [{"question": str(i), "answer": "1", "topic": str(i)} for i in range(300)]
    with pytest.raises(TaskError, match="300 different values; at most 200"):
        made({"file": write(tmp_path / "b.jsonl", many), "kind": "topic"})


def test_unknown_options_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"did you mean task\.options\.file"):
        make_world("dataset", {"fiel": "x"})


def test_parquet_with_structs_and_bombs(tmp_path: Path) -> None:
    rows = [{"question": "q", "answer": "B", "options": {"text": ["x", "y"], "label": ["A", "B"]}}] * 3
    world = made({"file": write(tmp_path / "a.parquet", rows), "choices": "options", "test_share": 0.0})
    assert played(world, "y")[0].success
    numbers = pa.array([0] * 20_000, pa.int32())
    texts = {"question": "a" * 500_000, "answer": "1"}
    bomb = pa.table({name: pa.DictionaryArray.from_arrays(numbers, pa.array([text])) for name, text in texts.items()})
    pq.write_table(bomb, tmp_path / "bomb.parquet", store_schema=False)
    assert (tmp_path / "bomb.parquet").stat().st_size < 2_000_000
    with pytest.raises(TaskError, match=r"cannot be read as Parquet.*take more than"):
        made({"file": str(tmp_path / "bomb.parquet")})


def test_texts_in_lists_of_a_parquet_file_are_bounded_too(tmp_path: Path) -> None:
    texts = pa.DictionaryArray.from_arrays(pa.array([0, 1] * 10_000, pa.int32()), pa.array(["a" * 500_000, "b"]))
    choices = pa.ListArray.from_arrays(pa.array(range(0, 20_001, 2), pa.int32()), texts)
    bomb = pa.table({"question": ["q"] * 10_000, "answer": ["B"] * 10_000, "options": choices})
    pq.write_table(bomb, tmp_path / "bomb.parquet", store_schema=False)
    with pytest.raises(TaskError, match=r"cannot be read as Parquet.*options, take more than"):
        made({"file": str(tmp_path / "bomb.parquet"), "choices": "options"})


@settings(max_examples=40, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_are_questions_or_an_error_in_words(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    folder = tmp_path_factory.mktemp("any")
    for name in ("a.jsonl", "a.json", "a.csv", "a.parquet", "a.jsonl.gz"):
        (folder / name).write_bytes(data)
        with pytest.raises(TaskError):
            made({"file": str(folder / name)})
