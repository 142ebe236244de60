"""How much is read of files that somebody else may have made, and the readers that read no more than that.

A run folder may come from anywhere. What is read of it is a plain file (no pipe, no device), lies in the folder it was
found in (no link that leads out of it), and has a size that a run can have. The limits are far above the largest runs:
100,000 steps, 128 episodes of 50 turns a step, vocabularies of 260,000 tokens. They keep each file's share of the
memory below half a gigabyte, and its reading below some seconds.
"""

from __future__ import annotations

import json
import os
import stat
import tomllib
from pathlib import Path
from typing import Any, BinaryIO, cast

KIB, MIB = 2**10, 2**20

SETTINGS_BYTES = 256 * KIB  # config.toml and recipes: ours have 5 kB; tomllib reads some 1 MB a second
STUDY_BYTES = MIB  # a study file
NOTE_BYTES = MIB  # run.json with what 1,000 metrics mean; best.json, trackers.json, the note of a failed run
TOKENS_BYTES = 16 * MIB  # tokens.json: 260,000 tokens take 9 MB; as Python lists it is twenty times as much
STATE_BYTES = 16 * MIB  # state.json of a checkpoint, without its tensors: some 100 kB
PLAN_BYTES = 8 * MIB  # study.json: a hundred thousand settings
INDEX_BYTES = 64 * MIB  # JSON of a model folder: the index of the weights of a large one has 10 MB
RESULT_BYTES = 64 * MIB  # of isentrope eval: a million games take 30 MB
DEPTH = 64  # of tables and lists within each other; the state of an optimiser has 20

LOG_BYTES = 512 * MIB  # of one log: 100,000 steps with 80 numbers take 250 MB
THIN_BYTES = 64 * MIB  # of a log that is looked at: of a larger one as many records are read as these would have
LINE_BYTES = MIB  # of a log; one with 4,000 numbers has 200 kB
LOG_ROWS = 300_000  # a training record, an evaluation and one of imitation for each of 100,000 steps
LOG_NUMBERS = 8_000_000  # of one log, 80 a step: 80 bytes each, where records are kept
KEYS = 4000  # of one log
KEY_CHARS = 400
TEXT_CHARS = 10_000  # of an entry in a log: events are sentences
LARGEST = 1e100  # a metric; of larger ones sums and squares are no numbers. float32 ends at 3e38

IMPORT_BYTES = 256 * MIB  # of one file of another program: TensorBoard takes 60 bytes a number
IMPORT_FILES = 1000  # event files of one run: each restart begins another
IMPORT_RECORDS = 4_000_000  # of one file, whether or not a number is in them
RECORD_BYTES = MIB  # of one record; larger ones are pictures, tables and models
STATE_TEXT_BYTES = 128 * MIB  # trainer_state.json: 1.3 kB a step

EPISODE_ROWS = 100_000  # turns in a file: 128 episodes of 50 turns are 6,400; about 3 kB each as records
EPISODE_BYTES = 512 * MIB  # of the file itself
DECODED_BYTES = 320 * MIB  # of its columns in memory: 6,400 turns with prompts of 8,000 tokens take 205 MB
EPISODE_TEXTS = 4_000_000  # in lists of text: 6,400 turns with 600 actions
PAGES = 50_000  # of all columns together; a page has a megabyte unless the file is small

DATA_BYTES = 512 * MIB  # of a file of questions, unpacked: GSM8K has 4 MB, a hundred thousand long ones 200
DATA_ROWS = 2_000_000  # of one file
DATA_ROW_BYTES = 4 * MIB  # of one row: a question with its answer, tests and choices
DATA_COLUMNS = 200

STUDY_RUNS = 10_000  # of a study: cells times seeds
COMPACT_BYTES = 512 * MIB  # of a study's compact form, unpacked: the largest of ours has 60 MB
RUN_BYTES = 128 * MIB  # of one run in it, which is a line: 8 million numbers of 16 characters


class Unreadable(OSError):
    """What is not read, and why, in words."""


def real(path: Path) -> Path:
    """Where links lead. Those that lead in a circle stay, and cannot be opened; Path.resolve would raise there."""
    return Path(os.path.realpath(path))


def leads_out(path: Path) -> bool:
    """Whether a file is a link to somewhere outside of the folder that it lies in."""
    if not path.is_symlink():
        return False
    folder = os.path.realpath(path.parent)
    return not os.path.realpath(path).startswith(os.path.join(folder, ""))


def check_is_file(path: Path, found: bool = True) -> os.stat_result:
    """Refuse what would be waited for or read without an end: a pipe, a device; and, where the file was found in a
    folder instead of being named by the user, a link that leads out of that folder."""
    if found and leads_out(path):
        raise Unreadable(f"{path.name} is a link that leads out of its folder; copy the file there if it is yours")
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise Unreadable(f"{path.name} is not a file")
    return status


def open_plain(path: Path, found: bool = True) -> BinaryIO:
    """Open a plain file for reading; see `check_is_file`."""
    check_is_file(path, found)
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    if not stat.S_ISREG(os.fstat(handle).st_mode):  # somebody put a pipe there since
        os.close(handle)
        raise Unreadable(f"{path.name} is not a file")
    return os.fdopen(handle, "rb")


def read_bounded(path: Path, limit: int, found: bool = True) -> bytes:
    """All of a plain file. More than `limit` bytes are refused before they are read."""
    with open_plain(path, found) as file:
        size = os.fstat(file.fileno()).st_size
        data = file.read(min(limit, size + MIB) + 1) if size <= limit else b""  # room for all of it is taken at once
    if max(size, len(data)) > limit:
        raise Unreadable(f"{path.name} has {max(size, len(data)):,} bytes; more than {limit:,} are not read")
    return data


def read_json(path: Path, limit: int, found: bool = True) -> Any:
    """What a file of JSON holds. OSError or ValueError, if it cannot be read."""
    return parse_json(read_bounded(path, limit, found))


def parse_json(data: bytes | str) -> Any:
    """ValueError for what is no JSON or goes too deep; numbers that no 64 bits hold become floats, infinite perhaps."""
    try:
        value: Any = json.loads(data, parse_int=whole_number)
    except RecursionError:
        raise ValueError(f"lists within lists, more than {DEPTH} deep") from None
    check_depth(value)
    return value


def parse_toml(text: str) -> dict[str, Any]:
    """The same for TOML, whose whole numbers must have 64 bits, as TOML itself says."""
    try:
        table = tomllib.loads(text)
    except RecursionError:
        raise ValueError(f"tables within tables, more than {DEPTH} deep") from None
    check_depth(table)
    return table


def whole_number(digits: str) -> int | float:
    return int(digits) if len(digits) <= 18 else float(digits)


def check_depth(value: Any) -> None:
    """Refuse what recursion could not walk, and whole numbers of more than 64 bits."""
    level, depth = [value], 0
    while level:
        if depth > DEPTH:
            raise ValueError(f"tables or lists within each other, more than {DEPTH} deep")
        level, depth = [inner for outer in level for inner in _inside(outer)], depth + 1


def _inside(value: Any) -> list[Any]:
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ValueError("a whole number of more than 64 bits")
    if isinstance(value, dict):
        return list(cast("dict[Any, Any]", value).values())
    return cast("list[Any]", value) if isinstance(value, list) else []
