"""The settings of the world `dataset`: [task.options]."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from isentrope.config.schema import setting
from isentrope.worlds.dataset.checkers import EXTRACTORS

AUTO = "auto"


@dataclass(frozen=True)
class JudgeOptions:
    url: str = setting("", "address of an OpenAI-compatible server, up to and with its /v1")
    model: str = setting("", "the model's name there; empty: the first that the server lists")
    key_env: str = setting(
        "auto",
        "environment variable that holds the key; auto: OPENAI_API_KEY, for api.openai.com and this machine alone; "
        "empty: no key",
    )
    prompt: str = setting("", "what the judge is asked to look at, in words; empty: whether the answer is right")
    seconds: float = setting(20.0, "time for one mark, all attempts included; below task.step_seconds", above=0)
    retries: int = setting(2, "times a failed request is made again, time permitting", low=0, high=20)
    requests: int = setting(100_000, "requests that one process makes at most; then episodes fail", low=1)
    cache: str = setting("", "folder for marks that were given; empty: $ISENTROPE_CACHE or ~/.cache/isentrope")


@dataclass(frozen=True)
class CodeOptions:
    tests: str = setting("tests", "column of the tests: assert statements, or inputs and outputs of a program")
    entry: str = setting("", "column of the function's name that tests call candidate (HumanEval); empty: none")
    seconds: float = setting(10.0, "time for all tests of one answer; below task.step_seconds", above=0)
    memory: int = setting(512, "MiB that one answer's program may take", low=64)
    partial: bool = setting(False, "the share of the tests that pass, instead of 1 for all of them")


@dataclass(frozen=True)
class DatasetOptions:
    file: str = setting("", "file of questions: .jsonl, .json, .csv, .tsv or .parquet (.gz and .zst too)")
    files: dict[str, Any] = setting({}, "instead, a file for each split: {train = 'a.jsonl', test = 'b.jsonl'}")
    split_column: str = setting("", "column that says which split a row of `file` belongs to")
    test_share: float = setting(0.1, "share of `file` that is kept as the split test; 0: none", low=0, high=0.9)
    split_seed: int = setting(0, "seed by which the rows of `test` are drawn", low=0)
    limit: int = setting(0, "rows of each split that are used, from its beginning; 0: all", low=0)
    question: str = setting("question", "column of the question: text, or messages of a system and a user")
    answer: str = setting("answer", "column of the right answer: text, a number or a list of them; empty: none")
    id: str = setting("", "column of the rows' names, each once; empty: their places in the file")
    kind: str = setting("", "column of the kinds of question, for success by kind; empty: one kind")
    choices: str = setting("", "column of the choices: a list, or a table by label; empty: none")
    prompt: str = setting(AUTO, "what the agent is asked, columns in braces; auto: {question}, and {choices} below")
    system: str = setting(AUTO, "what the agent is told before; columns in braces; auto: by the first reward function")
    rewards: tuple[str, ...] = setting(
        (),
        "reward functions: exact, numeric, choice, regex, math, code, judge, or your own module:function; the first "
        "says what is solved; empty: choice, numeric or exact, by the answers",
    )
    weights: tuple[float, ...] = setting((), "their weights in the reward; empty: all the same")
    solved: float = setting(1.0, "what the first reward function has to give for a question to be solved")
    extract: str = setting(
        "auto", "which part of a response is compared with the right answer", choices=tuple(EXTRACTORS)
    )
    extract_pattern: str = setting("", "instead, a regular expression; its first group is compared, of its last match")
    pattern: str = setting("", "regex: the pattern of all right answers; empty: each row's answer is one")
    tolerance: float = setting(1e-6, "numeric: how far off a number may be, as a share of the right one", low=0, high=1)
    tries: int = setting(1, "answers that may be given to a question; needs as many task.max_turns", low=1, high=100)
    feedback: str = setting("That is not right. Try again.", "what is told after a wrong answer but the last one")
    judge: JudgeOptions = field(default_factory=JudgeOptions, metadata={"doc": "the reward function judge"})
    code: CodeOptions = field(default_factory=CodeOptions, metadata={"doc": "the reward function code"})
