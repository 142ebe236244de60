"""The readers of foreign logs, on real logs and on such as are damaged."""

from __future__ import annotations

import json
import math
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from tensorboard.compat.proto.event_pb2 import Event

from isentrope.core.errors import RunError
from isentrope.imports.series import Series
from isentrope.imports.sources import find, read
from isentrope.imports.tensorboard import masked_crc32c
from isentrope.imports.wire import Malformed, fields
from tests.imports.logs import BEGINNING, DATA, EVENT_FILE, event, framed, part, trl_logs, verl_logs, wandb_log


def values_of(series: Series, key: str) -> dict[int, float]:
    steps, values = series.values(key)
    return dict(zip(steps.tolist(), values.tolist(), strict=True))


def read_of(path: Path, step_key: str = "") -> Series:
    return read(find(path), step_key)


# -- real logs


def test_the_three_logs_of_one_run_of_trl_agree(tmp_path: Path) -> None:
    logs = trl_logs(tmp_path)
    state = read_of(logs["trainer_state"])
    history = json.loads((DATA / "trainer_state.json").read_text())["log_history"]
    assert len(history) == 6
    for kind in ("tensorboard", "wandb"):
        other = read_of(logs[kind])
        assert other.problems == []
        for key in history[0]:
            if key == "step":
                continue
            told = {row["step"]: row[key] for row in history}
            assert values_of(state, key) == told, key
            found = values_of(other, f"train/{key}")
            assert found.keys() == told.keys(), (kind, key)
            for step, value in told.items():  # TensorBoard keeps float32
                assert found[step] == pytest.approx(value, rel=1e-6), (kind, key)


def test_the_four_logs_of_verl_agree(tmp_path: Path) -> None:
    series = {kind: read_of(path) for kind, path in verl_logs(tmp_path).items()}
    whole = series["jsonl"]
    assert values_of(whole, "actor/entropy")[3] == pytest.approx(1.2 * math.exp(-1), rel=1e-12)
    for kind, other in series.items():
        assert other.problems == [], kind
        for key in set(whole.keys) - {"training/global_step"}:  # by which W&B's rows are put in order
            told, found = values_of(whole, key), values_of(other, key)
            assert found.keys() == told.keys(), (kind, key)
            assert all(found[step] == pytest.approx(value, rel=1e-6) for step, value in told.items()), (kind, key)


def test_events_as_tensorboard_parses_them(tmp_path: Path) -> None:
    path = trl_logs(tmp_path)["tensorboard"] / EVENT_FILE
    data, place, told = path.read_bytes(), 0, dict[tuple[str, int], float]()
    while place < len(data):
        (length,) = struct.unpack("<Q", data[place : place + 8])
        message = Event.FromString(data[place + 12 : place + 12 + length])
        told |= {
            (value.tag, message.step): value.simple_value
            for value in message.summary.value
            if value.HasField("simple_value")
        }
        place += length + 16
    series = read_of(path)
    found = {(key, step): value for key in series.keys for step, value in values_of(series, key).items()}
    assert len(told) > 100
    assert found == told


def test_a_scalar_that_tensorflow_wrote_as_a_tensor(tmp_path: Path) -> None:
    packed = part(1, 1) + part(5, struct.pack("<f", 0.5))
    content = part(1, 9) + part(4, struct.pack("<q", 7))
    vector = part(1, 1) + part(5, struct.pack("<2f", 1.0, 2.0))
    values = [
        part(1, part(1, name) + part(8, data)) for name, data in ((b"a", packed), (b"b", content), (b"c", vector))
    ]
    path = tmp_path / EVENT_FILE
    path.write_bytes(framed(part(2, 4) + part(5, b"".join(values))))
    series = read_of(path)
    assert {key: values_of(series, key) for key in series.keys} == {"a": {4: 0.5}, "b": {4: 7.0}}


def test_checksum_of_the_standard() -> None:
    # RFC 3720: 32 bytes of zero have the CRC-32C 8a9136aa
    crc = 0x8A9136AA
    assert masked_crc32c(bytes(32)) == ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


# -- damage


@pytest.mark.parametrize("kind", ["tensorboard", "wandb", "trainer_state", "jsonl"])
def test_a_log_that_is_cut_gives_what_is_whole(kind: str, tmp_path: Path) -> None:
    logs = {**verl_logs(tmp_path), **trl_logs(tmp_path)}
    path = logs[kind] if logs[kind].is_file() else next(logs[kind].iterdir())
    data, whole = path.read_bytes(), read_of(path)
    copy = tmp_path / "cut" / path.name
    copy.parent.mkdir()
    before = 0
    for share in (0.6, 0.7, 0.8, 0.9):
        copy.write_bytes(data[: int(share * len(data))])
        part_of = read_of(copy)
        assert before <= part_of.numbers < whole.numbers
        assert part_of.problems, share
        for key in part_of.keys:
            told = values_of(whole, key)
            wrong = {step for step, value in values_of(part_of, key).items() if told[step] != value}
            # of a step that is logged in several rows the last one counts, which may be what was cut off
            assert wrong <= {max(values_of(part_of, key))}, (share, key)
        before = part_of.numbers
    assert before > 0


def test_a_damaged_event_is_left_out_and_a_damaged_length_ends_it(tmp_path: Path) -> None:
    events = [event(step, {"x": float(step)}) for step in range(4)]
    path = tmp_path / EVENT_FILE
    spoilt = bytearray(b"".join(events))
    spoilt[len(events[0]) + len(events[1]) - 6] ^= 1  # in the value of step 1
    path.write_bytes(bytes(spoilt))
    series = read_of(path)
    assert values_of(series, "x") == {0: 0.0, 2: 2.0, 3: 3.0}
    assert series.problems == ["one event left out: damaged (its checksum is wrong)"]
    spoilt = bytearray(b"".join(events))
    spoilt[len(events[0]) + 1] ^= 1
    path.write_bytes(bytes(spoilt))
    series = read_of(path)
    assert values_of(series, "x") == {0: 0.0}
    assert f"is damaged after {len(events[0])} bytes" in series.problems[0]


def test_a_damaged_block_of_wandb_is_left_out(tmp_path: Path) -> None:
    rows = [(step, {"x": float(step), "text": "y" * 20_000}) for step in range(8)]
    data = bytearray(wandb_log(rows))
    assert len(data) > 4 * 32768
    path = tmp_path / "run-a.wandb"
    path.write_bytes(bytes(data))
    assert values_of(read_of(path), "x") == {step: float(step) for step in range(8)}
    data[32768 + 100] ^= 1
    path.write_bytes(bytes(data))
    series = read_of(path)
    assert values_of(series, "x").items() < {step: float(step) for step in range(8)}.items()
    assert len(values_of(series, "x")) >= 5
    assert series.problems == ["one block left out: damaged"]


def test_a_length_that_asks_for_much_takes_nothing(tmp_path: Path) -> None:
    length = struct.pack("<Q", 2**50)
    path = tmp_path / EVENT_FILE
    path.write_bytes(event(1, {"x": 1.0}) + length + struct.pack("<I", masked_crc32c(length)))
    series = read_of(path)
    assert values_of(series, "x") == {1: 1.0}
    assert "cut off" in series.problems[0]


@pytest.mark.parametrize("data", [b"\x0b", b"\x0a\xff\xff\xff\xff\x7f", b"\x80" * 11, b"\x0d\x00", b"\x07"])
def test_bytes_that_are_no_message(data: bytes) -> None:
    with pytest.raises(Malformed):
        list(fields(data))


# -- strange content


def test_numbers_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text('{"step": 1, "a": NaN, "b": 1e400, "c": ' + "9" * 400 + ', "d": true, "e": "0.5", "f": {"g": 2}}\n')
    series = read_of(path)
    assert np.isnan([values_of(series, key)[1] for key in "abc"]).all()
    assert (values_of(series, "d"), values_of(series, "f/g")) == ({1: 1.0}, {1: 2.0})
    assert "e" not in series.keys


def test_steps_that_are_none_and_lines_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    lines = [
        '{"step": -1, "a": 1}',
        '{"step": 1e300, "a": 1}',
        '{"step": "x", "a": 1}',
        '{"a": 1}',
        "[]",
        "{",
        "[" * 9000,
    ]
    path.write_text("\n".join([*lines, '{"step": 7.0, "a": 3}', '{"step": 9223372036854775807, "a": 1}']) + "\n")
    series = read_of(path)
    assert values_of(series, "a") == {7: 3.0}
    assert len(series.problems) == 4


def test_steps_that_come_twice_and_go_back(tmp_path: Path) -> None:
    """TensorBoard: what was beyond a restart no longer counts. Elsewhere the later number of a step does."""
    steps = [(1, 1.0), (2, 2.0), (3, 3.0), (4, 4.0), (2, 20.0), (3, 30.0)]
    path = tmp_path / EVENT_FILE
    path.write_bytes(b"".join(event(step, {"x": value}) for step, value in steps))
    assert values_of(read_of(path), "x") == {1: 1.0, 2: 20.0, 3: 30.0}
    lines = tmp_path / "log.jsonl"
    lines.write_text("".join(json.dumps({"step": step, "x": value}) + "\n" for step, value in steps))
    assert values_of(read_of(lines), "x") == {1: 1.0, 2: 20.0, 3: 30.0, 4: 4.0}


def test_several_writers_of_one_folder(tmp_path: Path) -> None:
    """In the order in which they were begun; the second is a run that was resumed at step 2."""
    (tmp_path / "events.out.tfevents.1700000100.b.1.0").write_bytes(event(2, {"x": 20.0}) + event(5, {"y": 1.0}))
    (tmp_path / "events.out.tfevents.1700000099.z.1.0").write_bytes(b"".join(event(s, {"x": 1.0}) for s in (1, 2, 3)))
    series = read_of(tmp_path)
    assert values_of(series, "x") == {1: 1.0, 2: 20.0}
    assert values_of(series, "y") == {5: 1.0}
    below = tmp_path / "below"
    below.mkdir()
    (below / EVENT_FILE).write_bytes(event(9, {"x": 9.0}))
    source = find(tmp_path)
    assert len(source.files) == 2
    assert "one folder below with event files not read" in source.notes[0]


def test_names_with_characters_that_act(tmp_path: Path) -> None:
    path = tmp_path / EVENT_FILE
    path.write_bytes(event(1, {"a\x1b[2J\nb\u202e": 1.0, "x" * 5000: 2.0, "\x07": 3.0}))
    series = read_of(path)
    assert series.keys == ["a b", "x" * 400]
    assert "without a name" in series.problems[0]


def test_more_names_than_a_run_may_have() -> None:
    series = Series()
    for number in range(9000):
        series.add(1, f"name-{number}", 1.0)
    assert len(series.keys) == 3900
    assert "5,100 numbers left out" in series.problems[0]


def test_rows_are_by_step_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("isentrope.imports.series.LOG_ROWS", 3)
    series = Series()
    for step in (5, 1, 3, 1, 9):
        series.add(step, "a", float(step))
    series.add(3, "b", 0.5)
    assert list(series.rows({"a": "A", "b": "B"})) == [(1, {"A": 1.0}), (3, {"A": 3.0, "B": 0.5}), (5, {"A": 5.0})]
    assert series.problems == ["one step left out: beyond the 3 that a run may have"]


# -- CSV


def test_csv(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text(
        '\ufeff"Wall time",Step,"loss, all",note\n12.5,1,0.5,fine\n13,2,nan,x\n14,3,,\n15,x,1,\n16,4,1,2,3,4\n'
    )
    series = read_of(path)
    assert series.keys == ["loss, all"]
    assert values_of(series, "loss, all")[1] == 0.5
    assert math.isnan(values_of(series, "loss, all")[2])
    assert len(series.problems) == 2
    path.write_text("round;loss\n1;0,5\n2;0.25\n")
    with pytest.raises(RunError, match="no column of steps: its columns are round, loss; name the one with --step"):
        read_of(path)
    assert values_of(read_of(path, "round"), "loss") == {2: 0.25}


# -- which file


def test_what_cannot_be_imported(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("nothing")
    for path, told in ((tmp_path, "has no log that can be imported"), (tmp_path / "notes.md", "is no log")):
        with pytest.raises(RunError, match=told):
            find(path)
    with pytest.raises(RunError, match=r"could not read .*No such file"):
        find(tmp_path / "nowhere")
    for name in ("a.csv", "b.jsonl"):
        (tmp_path / name).write_text("step\n")
    with pytest.raises(RunError, match=r"has 2 logs; name the one to import: .*a\.csv, .*b\.jsonl"):
        find(tmp_path)
    (tmp_path / "empty.wandb").write_bytes(BEGINNING)
    with pytest.raises(RunError, match="has no numbers that belong to a step; it was read as a W&B offline run"):
        read_of(tmp_path / "empty.wandb")
    (tmp_path / "other.wandb").write_bytes(b"PK\x03\x04 and more")
    with pytest.raises(RunError, match="does not begin as a W&B log"):
        read_of(tmp_path / "other.wandb")
    (tmp_path / "trainer_state.json").write_text("{}")
    with pytest.raises(RunError, match="has no log_history"):
        read_of(tmp_path / "trainer_state.json")


def test_the_newest_checkpoint_of_a_folder_is_read(tmp_path: Path) -> None:
    for step in (9, 10, 100):
        (tmp_path / f"checkpoint-{step}").mkdir()
        (tmp_path / f"checkpoint-{step}" / "trainer_state.json").write_text("{}")
    assert find(tmp_path).files[0].parent.name == "checkpoint-100"
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / EVENT_FILE).write_bytes(event(1, {"x": 1.0}))
    assert "may go further than the last checkpoint" in find(tmp_path).notes[0]
    (tmp_path / "trainer_state.json").write_text("{}")
    assert find(tmp_path).files[0].parent == tmp_path


def test_wandb_rows_without_the_trainers_step_belong_to_the_last_one(tmp_path: Path) -> None:
    rows: list[tuple[int, dict[str, object]]] = [
        (0, {"a": 1}), (1, {"train/global_step": 4, "a": 2}), (2, {"a": 3, "b": "NaN", "c": "text"}),
    ]  # fmt: skip
    path = tmp_path / "run-x.wandb"
    path.write_bytes(wandb_log(rows))
    series = read_of(path)
    assert values_of(series, "a") == {0: 1.0, 4: 3.0}
    assert series.keys == ["a", "b"]
    assert zlib.crc32(b"") == 0
