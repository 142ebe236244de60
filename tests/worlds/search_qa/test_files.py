"""Corpora and questions from files, in every form in which they come."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isentrope.core.errors import TaskError
from isentrope.worlds.files import mixed
from isentrope.worlds.search_qa.passages import Passage, clean, read_corpus, read_records, shortened
from isentrope.worlds.search_qa.questions import Question, find_corpus, read_question, read_sets, set_and_split

ROWS = [{"id": "1", "title": "Ann", "text": "Ann is here."}, {"id": "2", "title": "Bob", "text": "Bob is there."}]


def lines(rows: list[Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def zstd(path: Path, text: str) -> None:
    import pyarrow as pa

    with pa.output_stream(str(path), compression="zstd") as stream:
        stream.write(text.encode())


def parquet(path: Path, rows: list[Any]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.Table.from_pylist(rows), path)


@pytest.mark.parametrize(
    "form", ["c.jsonl", "c.json", "c.jsonl.zst", "c.json.zst", "c.jsonl.gz", "c.parquet", "pretty.json"]
)
def test_every_form_gives_the_same_records(form: str, tmp_path: Path) -> None:
    path = tmp_path / form
    text = (
        json.dumps(ROWS, indent=2 if form == "pretty.json" else None)
        if "json" in form and "jsonl" not in form
        else lines(ROWS)
    )
    if form.endswith(".zst"):
        zstd(path, text)
    elif form.endswith(".gz"):
        path.write_bytes(gzip.compress(text.encode()))
    elif form.endswith(".parquet"):
        parquet(path, ROWS)
    else:
        path.write_text(text, encoding="utf-8")
    assert [record for _, record in read_records(path)] == ROWS
    assert list(read_corpus(path)) == [Passage("1", "Ann", "Ann is here."), Passage("2", "Bob", "Bob is there.")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("\n \n", "is empty"),
        ("{not json\n", "neither JSON lines nor"),
        ('{"id": 1, "text": "x"}\n{oops\n', "line 2"),
        ('{"id": 1, "text": "x"}\n[1]\n', "line 2: expected a JSON object"),
        ("[1, 2]", "number 1: expected a JSON object"),
        ('"text"', "expected a JSON array"),
        ('{"id": 1}', "contents, or title and text"),
        ("[" * 100_000, "neither JSON lines nor"),
        ("\ufeff\ud800", None),
    ],
)
def test_broken_files_are_named(text: str, message: str | None, tmp_path: Path) -> None:
    path = tmp_path / "broken.jsonl"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(TaskError, match=message or "could not read"):
        list(read_corpus(path))


def test_search_r1_contents() -> None:
    from isentrope.worlds.search_qa.passages import read_passage

    found = read_passage({"id": 7, "contents": '"Neil Peart"\nNeil was\na drummer.'}, 0, "here")
    assert found == Passage("7", "Neil Peart", "Neil was a drummer.")
    assert found.contents == '"Neil Peart"\nNeil was a drummer.'
    assert read_passage({"contents": "No quotes\ntext"}, 3, "here") == Passage("3", "No quotes", "text")


@pytest.mark.parametrize(
    ("record", "answers", "titles"),
    [
        ({"id": "t1", "question": "Q?", "golden_answers": ["x", "y", "x"]}, ("x", "y"), ()),
        ({"question": "Q?", "answer": "x"}, ("x",), ()),
        ({"question": "Q?", "answer": ["x", "y"]}, ("x", "y"), ()),
        ({"Question": "Q?", "Answer": {"Value": "x", "Aliases": ["y"], "NormalizedAliases": ["z"]}}, ("x", "y"), ()),
        ({"question": "Q?", "answer": {"value": "x", "aliases": []}}, ("x",), ()),
        ({"question": "Q?", "possible_answers": '["x", "y"]'}, ("x", "y"), ()),
        ({"question": "Q?", "answer": "[sic"}, ("[sic",), ()),
        ({"question": "Q?", "answer": 1999}, ("1999",), ()),
        ({"question": "Q?", "answer": True}, ("yes",), ()),
        ({"question": "Q?", "answer": "x", "supporting_facts": [["A", 0], ["B", 1], ["A", 2]]}, ("x",), ("A", "B")),
        (
            {"question": "Q?", "answer": "x", "supporting_facts": {"title": ["A", "A"], "sent_id": [0, 1]}},
            ("x",),
            ("A",),
        ),
        (
            {"question": "Q?", "golden_answers": ["x"], "metadata": {"supporting_facts": {"title": ["A"]}}},
            ("x",),
            ("A",),
        ),
        (
            {
                "question": "Q?",
                "answer": "x",
                "answer_aliases": ["y"],
                "paragraphs": [{"title": "A", "is_supporting": True}, {"title": "B", "is_supporting": False}],
            },
            ("x", "y"),
            ("A",),
        ),
        ({"question": "Q?", "answers": ["x"], "supporting_titles": ["A", "B"]}, ("x",), ("A", "B")),
        ({"question": "Q?", "reward_model": {"ground_truth": {"target": ["x"]}}}, ("x",), ()),
        ({"question": "Q?", "golden_answers": None, "answer": "x", "metadata": None}, ("x",), ()),
    ],
)
def test_questions_of_every_layout(record: dict[str, Any], answers: tuple[str, ...], titles: tuple[str, ...]) -> None:
    found = read_question(record, 5, "here")
    assert (found.text, found.answers, found.titles) == ("Q?", answers, titles)
    assert found.id == ("t1" if "id" in record else "5")


@pytest.mark.parametrize("record", [{}, {"question": " "}, {"question": 3, "answer": "x"}, {"question": "x" * 5000}])
def test_no_question(record: dict[str, Any]) -> None:
    with pytest.raises(TaskError, match="expected a question"):
        read_question(record, 0, "here")


@pytest.mark.parametrize("answer", [None, [], "", " ", [None], {"value": {"value": "x"}}, {"other": "x"}])
def test_no_answer(answer: Any) -> None:
    with pytest.raises(TaskError, match="has no answer"):
        read_question({"question": "Q?", "answer": answer}, 0, "here")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("hotpotqa-train", ("hotpotqa", "train")),
        ("hotpot_dev_fullwiki_v1.json", ("hotpotqa", "dev")),
        ("musique_ans_v1.0_train.jsonl", ("musique", "train")),
        ("2WikiMultihopQA", ("2wiki", None)),
        ("natural_questions", ("nq", None)),
        ("NQ-open.validation.jsonl", ("nq", "dev")),
        ("bamboogle_test_questions_and_answers.json", ("bamboogle", "test")),
        ("triviaqa-unfiltered", ("triviaqa", None)),
        ("popqa.tsv", ("popqa", None)),
        ("greatest_hits", (None, None)),  # no word of it is test
    ],
)
def test_what_a_name_says(name: str, expected: tuple[str | None, str | None]) -> None:
    assert set_and_split(name) == expected


def write(folder: Path, name: str, *questions: str, **fields: str) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(lines([{"question": text, "answer": "x", **fields} for text in questions]), encoding="utf-8")


def texts(found: dict[str, list[Question]]) -> dict[str, list[str]]:
    return {name: [question.text for question in questions] for name, questions in found.items()}


def test_sets_and_splits_from_names(tmp_path: Path) -> None:
    data = tmp_path / "data"
    write(data, "nq/train.jsonl", "n1")
    write(data, "nq/dev.jsonl", "n2")
    write(data, "nq/test.jsonl", "n3")
    write(data, "hotpotqa/train.jsonl", "h1")
    write(data, "hotpotqa/dev.jsonl", "h2")  # without a test file: for testing
    write(data, "bamboogle.jsonl", "b1")  # no split named: for testing
    write(data, "mine.jsonl", "m1", dataset="mine", split="train")
    write(data, "wiki_corpus.jsonl", "not read as questions")
    sets = read_sets(data, ())
    assert list(sets) == ["train", "dev", "test"]
    assert texts(sets["train"]) == {"nq": ["n1"], "hotpotqa": ["h1"], "mine": ["m1"]}
    assert texts(sets["dev"]) == {"nq": ["n2"]}
    assert texts(sets["test"]) == {"nq": ["n3"], "hotpotqa": ["h2"], "bamboogle": ["b1"]}
    assert texts(read_sets(data, ["2WIKI", "mine"][1:])["train"]) == {"mine": ["m1"]}
    assert list(read_sets(data, ["natural_questions"])) == ["train", "dev", "test"]


def test_a_record_knows_its_set_best(tmp_path: Path) -> None:
    write(tmp_path, "bamboogle.jsonl", "q", data_source="myset")
    write(tmp_path, "nq_train.jsonl", "r", data_source="searchR1_hotpotqa", split="test")
    assert {split: texts(found) for split, found in read_sets(tmp_path, ()).items()} == {
        "test": {"myset": ["q"], "hotpotqa": ["r"]}
    }
    assert texts(read_sets(tmp_path, ["myset"])["test"]) == {"myset": ["q"]}


@pytest.mark.parametrize(
    ("folder", "split"),
    [("train-runs", "test"), ("my train", "test"), ("bamboogle runs", "test"), ("train test", "test"),
     ("train", "train"), ("Training", "train"), ("bamboogle_train", "train"), ("NQ-open.validation", "test"),
     ("dev", "test")],
)  # fmt: skip
def test_a_folder_names_a_split_only_by_being_called_so(tmp_path: Path, folder: str, split: str) -> None:
    write(tmp_path / folder, "bamboogle.jsonl", "q")
    assert texts(read_sets(tmp_path, ())[split]) == {"bamboogle": ["q"]}  # dev stands in for test
    assert list(read_sets(tmp_path / folder / "bamboogle.jsonl", ())) == ["test"]  # a file by itself


def test_a_folder_names_a_set(tmp_path: Path) -> None:
    write(tmp_path, "nq/train.jsonl", "q")
    assert texts(read_sets(tmp_path / "nq" / "train.jsonl", ())["train"]) == {"nq": ["q"]}
    write(tmp_path, "nq things/train.jsonl", "r")
    assert texts(read_sets(tmp_path / "nq things", ())["train"]) == {"train": ["r"]}


def test_missing_sets_are_named(tmp_path: Path) -> None:
    write(tmp_path, "nq_test.jsonl", "n")
    with pytest.raises(TaskError, match=r"no questions of hotpotqa; there is nq"):
        read_sets(tmp_path, ["hotpotqa"])
    with pytest.raises(TaskError, match="no such file or folder"):
        read_sets(tmp_path / "none", ())
    (tmp_path / "empty").mkdir()
    with pytest.raises(TaskError, match="no question file there"):
        read_sets(tmp_path / "empty", ())


def test_one_parquet_file_with_all_sets(tmp_path: Path) -> None:
    rows = [{"question": name, "golden_answers": ["x"], "data_source": name} for name in ("nq", "2wikimultihopqa")]
    parquet(tmp_path / "test.parquet", rows)
    assert texts(read_sets(tmp_path / "test.parquet", ())["test"]) == {"nq": ["nq"], "2wiki": ["2wikimultihopqa"]}


def test_sets_are_spread_evenly() -> None:
    many = [Question(str(i), f"m{i}", ("x",)) for i in range(90)]
    few = [Question(str(i), f"f{i}", ("x",)) for i in range(10)]
    names = [name for name, _ in mixed({"many": many, "few": few})]
    assert [names[i : i + 10].count("few") for i in range(0, 100, 10)] == [1] * 10
    assert [q.text for name, q in mixed({"many": many, "few": few}) if name == "many"] == [q.text for q in many]


def test_the_corpus_of_a_folder(tmp_path: Path) -> None:
    assert find_corpus(tmp_path) is None
    write(tmp_path, "corpus.jsonl", "x")
    assert find_corpus(tmp_path) == tmp_path / "corpus.jsonl"
    write(tmp_path, "other-corpus.jsonl", "x")
    assert find_corpus(tmp_path) is None  # which of the two?


@given(st.text(), st.integers(20, 200))
def test_shown_text_is_one_line_of_bounded_length(text: str, limit: int) -> None:
    short = shortened(clean(text), limit)
    assert len(short) <= limit
    assert "\n" not in short
    assert len(short.splitlines()) <= 1
    short.encode("utf-8")
    if len(clean(text)) <= limit:
        assert short == clean(text)
    else:
        assert short.endswith("…")
        assert clean(text).startswith(short[:-1])


def test_half_surrogates_can_be_encoded() -> None:
    assert clean(json.loads('"a\\ud800b"')) == "a?b"


def test_an_index_beside_the_data_is_not_read_as_questions(tmp_path: Path) -> None:
    write(tmp_path, "nq_test.jsonl", "n")
    for name in (
        "corpus-12ab/params.index.json",
        "corpus-12ab/vocab.index.json",
        "corpus-12ab/passages.jsonl",
        "a/b/c.json",
    ):
        write(tmp_path, name, "no")
    assert texts(read_sets(tmp_path, ())["test"]) == {"nq": ["n"]}
