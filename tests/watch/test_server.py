"""The server: what it answers, to whom, and that it does nothing else."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isentrope.core.errors import ConfigError
from isentrope.sandbox.base import Limits
from isentrope.watch import pages
from isentrope.watch.answers import Answers, wanted_from
from isentrope.watch.pages import Pages
from isentrope.watch.runs import Runs
from isentrope.watch.server import STATIC, open_server
from tests.builders.run_folders import make_run, make_warmup
from tests.report.test_page import HOSTILE
from tests.watch.make_runs import make_watched
from tests.watch.serving import ask, serving


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    root = tmp_path_factory.mktemp("runs")
    make_watched(root / "plain", steps=20)
    make_watched(root / "hostile", steps=20, text=HOSTILE)
    (root / "secret.txt").write_text("secret")
    with serving(root) as found:
        yield found


@pytest.fixture(scope="module")
def ids(address: str) -> dict[str, str]:
    return {run["name"]: run["id"] for run in ask(address, "runs")["runs"]}


def send(address: str, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection(address.split("/")[2])
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()


def test_runs_keys_and_series(address: str, ids: dict[str, str]) -> None:
    runs = {run["name"]: run for run in ask(address, "runs")["runs"]}
    run = runs["plain"]
    assert (run["step"], run["steps"], run["status"], run["problems"]) == (20, 20, "finished", [])
    keys = {entry["key"]: entry for entry in ask(address, "keys")["keys"]}
    assert keys["entropy/token"]["unit"] == "nats"
    assert "seconds/rollout" in keys
    window = f"{run['begun']}:0:{run['rows']}:0:{run['clock_rows']}"
    found = ask(address, "series", runs=f"{run['id']}:{window}", key=["success/all", "lr", "seconds/rollout", "none"])
    series = found["series"][run["id"]]
    assert set(series["y"]) == {"success/all", "lr", "seconds/rollout"}
    assert series["x"] == [list(range(20))]
    rows = run["rows"]
    later = ask(address, "series", runs=f"{run['id']}:{run['begun']}:{rows - 3}:{rows}:0:0", key=["lr"])
    assert later["series"][run["id"]]["x"] == [[18, 19]]  # the last record is an evaluation
    stale = ask(address, "series", runs=f"{run['id']}:{run['begun'] + 1}:0:{rows}:0:0", key=["lr"])
    assert stale["series"] == {run["id"]: None}


def test_settings_and_events(address: str, ids: dict[str, str]) -> None:
    found = ask(address, "configs", runs=ids["plain"])
    assert found[ids["plain"]]["learn.lr"] == "1e-06"
    assert found[ids["plain"]]["task.world"] == '"household"'
    events = ask(address, "events", runs=ids["plain"])[ids["plain"]]
    assert [phase[2] for phase in events["phases"]] == ["descent", "eruption", "subsidence"]
    assert events["alarms"][0]["step"] == 44


def test_episodes_and_where_they_part(address: str, ids: dict[str, str]) -> None:
    found = ask(address, "episodes", runs=",".join(ids.values()), source="train")
    assert len(found["rows"]) == 48
    assert ask(address, "count", runs=ids["plain"], outcome="failed")["matched"] == 12 + 4
    asked = {"run": ids["plain"], "file": "step-000019"}
    assert ask(address, "difference", **asked, a=0, b=3) == {"turn": 2}
    assert ask(address, "difference", **asked, a=2, b=3) == {"turn": None}
    assert ask(address, "difference", **asked, a=2, b=8)["status"] == 404
    assert ask(address, "episode", **asked, number=3)["member"] == 3


def test_text_that_hides_or_turns_is_written_out(address: str, ids: dict[str, str]) -> None:
    asked = {"run": ids["hostile"], "file": "step-000019", "number": 0}
    answers: list[Any] = [ask(address, "episode", **asked)]
    answers += [ask(address, question, runs=ids["hostile"]) for question in ("episodes", "events", "configs")]
    for answer in answers:
        text = json.dumps(answer, ensure_ascii=False)
        assert "<script>alert(1)</script>" in text
        assert "⟨U+202E⟩" in text
        assert not re.search("[\u202e\u2028\x00\x1b]", text)


def test_the_table_of_runs(address: str, ids: dict[str, str]) -> None:
    table = ask(address, "table")
    assert table["alike"]["learn.algorithm"] == "grpo"
    assert "policy.model" in table["differing"]  # the hostile one's has markup in it
    place = table["differing"].index("policy.model")
    assert table["runs"][ids["plain"]][place] == "pocket"
    assert "⟨U+202E⟩" in table["runs"][ids["hostile"]][place]
    assert table["left_out"] == 0
    last = ask(address, "last", key=["success/all", "none", "rate/steps_per_hour"])["last"][ids["plain"]]
    assert 0 <= last[0] <= 1
    assert last[1] is None
    assert last[2] > 0
    keys = {entry["key"]: entry for entry in ask(address, "keys")["keys"]}
    assert keys["rate/steps_per_hour"]["unit"] == "steps/h"
    assert not any(key.startswith("axis/") for key in keys)
    row = next(run for run in ask(address, "runs")["runs"] if run["name"] == "plain")
    assert row["seconds"] > 20 * 30
    assert 50 < row["per_hour"] < 120


@pytest.mark.parametrize("kind", ["report", "doctor"])
def test_pages_are_made_on_demand_in_an_origin_without_rights(address: str, ids: dict[str, str], kind: str) -> None:
    status, headers, body = send(address, f"/{kind}/{ids['hostile']}")
    assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert policy.endswith("frame-ancestors 'none'; sandbox allow-scripts")
    assert "self" not in policy  # one header, and not the live page's
    assert b"hostile" in body
    assert b"<script>alert(1)" not in body
    assert (headers["x-content-type-options"], headers["cache-control"]) == ("nosniff", "no-store")
    assert send(address, f"/{kind}/..%2Fsecret.txt")[0] == 404
    status, headers, body = send(address, f"/{kind}/0123456789ab")
    assert (status, headers["content-type"]) == (404, "text/plain; charset=utf-8")
    assert body.startswith(b"there is no such run")
    assert send(address, f"/{kind}/{ids['plain']}", "POST")[0] == 405
    assert send(address, f"/{kind}/{ids['plain']}", Host="evil.example")[0] == 421


def test_one_page_of_a_run_is_kept_however_often_it_came_further(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", 12, warmup=False)
    runs = Runs([tmp_path])
    made = Pages(runs)
    (name,) = [one.id for one in runs.refresh()]
    lengths: list[int] = []
    for step in range(13, 17):
        with (run / "metrics.jsonl").open("a") as file:
            file.write(json.dumps({"step": step, "kind": "train", "entropy/token": 0.4}) + "\n")
        runs.refresh()
        assert made.report(name) is made.report(name)
        assert made.doctor(name) is made.doctor(name)
        lengths.append(len(vars(made)["_kept"]))
    assert lengths == [2, 2, 2, 2]


def test_a_page_that_takes_too_much_is_refused_and_the_server_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_run(tmp_path / "run", 12, warmup=False)
    with serving(tmp_path) as where:
        (name,) = [run["id"] for run in ask(where, "runs")["runs"]]
        for limits, why in (
            (Limits(memory=20 << 20), "memory"),
            (Limits(seconds=0.01), "time"),
            (Limits(output=9), "output"),
        ):
            monkeypatch.setattr(pages, "LIMITS", limits)
            status, _, told = send(where, f"/report/{name}")
            assert status == 404
            assert f"its limit of {why.replace('seconds', 'time')}; type isentrope report".encode() in told
        monkeypatch.setattr(pages, "LIMITS", Limits(output=64 << 20))
        assert send(where, f"/report/{name}")[0] == 200


def test_a_report_shows_a_warmup_only_from_the_watched_folders(tmp_path: Path) -> None:
    """A run's settings may name any folder of this machine."""
    make_warmup(tmp_path / "private")
    for name, model in (("inside", "warm"), ("outside", str(tmp_path / "private"))):
        make_run(tmp_path / "runs" / name, 12, model=model, warmup=False)
    make_warmup(tmp_path / "runs" / "warm")
    with serving(tmp_path / "runs") as where:
        ids = {run["name"]: run["id"] for run in ask(where, "runs")["runs"]}
        told = {name: send(where, f"/report/{ids[name]}")[2] for name in ("inside", "outside")}
    assert b"warm-up (imitation) steps" in told["inside"]
    assert b"warm-up (imitation) steps" not in told["outside"]


def test_every_answer_has_the_headers(address: str) -> None:
    for path in ("/", "/app.js", "/api/runs", "/nowhere", "/vendor/uPlot.min.css", "/api/episode?run=x"):
        _, headers, _ = send(address, path)
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; ")
        assert "unsafe" not in policy
        assert "http" not in policy
        assert (headers["x-content-type-options"], headers["cache-control"]) == ("nosniff", "no-store")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_but_reading(address: str, method: str) -> None:
    assert send(address, "/api/runs", method)[0] == 405


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost.evil", "",
             "localhost:1@evil.example", "[::1]evil.example", "[127.0.0.1]evil:80", "127.0.0.1:80:evil"]
)  # fmt: skip
def test_a_name_that_is_not_ours_is_turned_away(address: str, host: str) -> None:
    status, _, body = send(address, "/api/runs", Host=host)
    assert status in (400, 421)
    assert b"plain" not in body


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:1", "[::1]:8400", socket.gethostname()])
def test_our_own_names_are_welcome(address: str, host: str) -> None:
    assert send(address, "/api/runs", Host=host)[0] == 200


@pytest.mark.parametrize(
    "path", ["/../secret.txt", "/%2e%2e/secret.txt", "/..%2f..%2fserver.py", "//etc/passwd", "/static/../../server.py",
             "/api/episode?run=..%2F&file=..%2Fsecret&number=0"]
)  # fmt: skip
def test_no_path_leads_out(address: str, path: str) -> None:
    status, _, body = send(address, path)
    assert status == 404
    assert b"secret" not in body.replace(b"no such episode", b"")


QUESTIONS = ("series", "events", "table", "last", "configs", "episodes", "count", "episode", "difference")
PARAMETERS = (
    "runs",
    "run",
    "file",
    "number",
    "first",
    "a",
    "b",
    "key",
    "place",
    "from",
    "to",
    "kind",
    "text",
    "source",
)


@given(st.sampled_from(QUESTIONS), st.dictionaries(st.sampled_from(PARAMETERS), st.text(max_size=20)))
@settings(max_examples=60)
def test_senseless_questions_get_answers(
    address: str, ids: dict[str, str], question: str, values: dict[str, str]
) -> None:
    if "runs" in values and len(values["runs"]) % 2:
        values["runs"] = f"{ids['plain']}:0:0:5:0:5" if question == "series" else ids["plain"]
    values = {name: value.encode("utf-8", "replace").decode() for name, value in values.items()}
    assert ask(address, question, **values).get("status", 200) in (200, 404)


def test_the_page_refers_to_nothing_elsewhere() -> None:
    for path in STATIC.rglob("*"):
        if path.suffix not in (".js", ".css", ".html") or path.parent.name == "vendor":
            continue
        text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert not re.search(
            r"https?://|//cdn|@import|innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", text
        ), path
        assert len(text.splitlines()) < 400, path


def test_the_vendored_files_are_those_that_were_taken() -> None:
    said = (STATIC / "vendor" / "README.md").read_text()
    for path in (STATIC / "vendor").glob("uPlot*"):
        assert f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}" in said
    assert "MIT License" in (STATIC / "vendor" / "LICENSE.uPlot").read_text()


def test_pipes_and_devices_among_the_files_are_not_waited_for(tmp_path: Path) -> None:
    for number, name in enumerate(("metrics.jsonl", "config.toml", "run.json", "tokens.json")):
        run = make_watched(tmp_path / f"r{number}", steps=3)
        (run / name).unlink(missing_ok=True)
        os.mkfifo(run / name)
    (tmp_path / "endless").mkdir()
    (tmp_path / "endless" / "metrics.jsonl").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "r0" / "episodes" / "step-000099.parquet")
    rows: dict[str, int] = {}
    turns: list[int] = []

    def look() -> None:
        answers = Answers(Runs([tmp_path]))
        runs = {run["name"]: run for run in answers.runs()["runs"]}
        rows.update({name: run["rows"] for name, run in runs.items()})
        for name in ("r0", "r3"):
            row = answers.episodes([runs[name]["id"]], wanted_from({}), "")["rows"][0]
            turns.append(len(answers.episode(row["run"], row["file"], row["number"], 0)["turn_list"]))

    looking = threading.Thread(target=look, daemon=True)  # one that waits for ever does not hold the tests up
    looking.start()
    looking.join(30)
    assert not looking.is_alive()
    assert [rows[f"r{number}"] > 0 for number in range(4)] == [False, True, True, True]
    assert rows["endless"] == 0
    assert turns == [4, 4]


def test_a_taken_port_is_an_error_if_asked_for(tmp_path: Path) -> None:
    with open_server([tmp_path], port=0) as taken, pytest.raises(ConfigError, match="choose another --port"):
        open_server([tmp_path], port=taken.port)
