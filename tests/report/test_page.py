"""The page as text: what it shows, and that nothing untrusted gets out of its place."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from isentrope.charts.svg import picture
from isentrope.metrics.log import record_of
from isentrope.report import diagnosis
from isentrope.report.figures import success_chart
from isentrope.report.page import write_report
from isentrope.report.story import Story
from isentrope.runs.episodes import read_episodes, write_episodes
from isentrope.runs.folder import Run
from isentrope.runs.layout import METRICS, TIMINGS, train_path
from isentrope.runs.log import Record
from tests.builders.episodes import household_episode
from tests.builders.run_folders import make_run, make_warmup

HOSTILE = (
    '</script><script>alert(1)</script><img src=x onerror=alert(2)>" onmouseover="alert(3)\' \u202e\u2028&#60;b&#62;'
    "--><style>*{display:none}</style></title></pre></details><svg/onload=alert(4)>\x00\x1b[31m" + "W" * 120
)
SVG = "{http://www.w3.org/2000/svg}"
NAMED = {"http://www.w3.org/2000/svg", "https://github.com/leeoniya/uPlot"}  # a name space, and whose uPlot is


class Tags(HTMLParser):
    """Every tag with its attributes, and the text; the data of charts counts as a tag `data`."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append("data" if ("type", "application/json") in attrs else tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.text += data


def report(run: Path) -> str:
    return write_report(run).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> str:
    return report(make_run(tmp_path_factory.mktemp("runs") / "grpo-seed0"))


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> str:
    return report(make_run(tmp_path_factory.mktemp("runs") / "x", steps=3, text=HOSTILE))


def test_the_first_look(plain: str) -> None:
    text = Tags(plain).text
    for part in ("grpo-seed0", "household", "pocket", "epo, aem", "Success on unseen games", "95% interval", "of 100"):
        assert part in text
    for title in ("Learning", "Entropy", "Behaviour", "Update", "Time", "Episodes", "Settings"):
        assert f'<section id="{title.lower()}">' in plain
    assert "warm-up (imitation) steps" in text
    assert "Mean over episodes of the sum of their rewards." in text


def test_before_and_after_are_the_first_and_last_evaluation(tmp_path: Path) -> None:
    lines = [
        {"step": step, "kind": "eval", "eval/unseen/success": share, "eval/unseen/low": share - 0.1,
         "eval/unseen/high": share + 0.1, "eval/unseen/games": 64.0}
        for step, share in ((0, 0.2), (5, 0.9), (10, 0.6))
    ]  # fmt: skip
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    text = Tags(report(tmp_path)).text
    assert "20.0% → 60.0%" in text
    assert "95% interval 10–30% → 50–70%, 64 games" in text


def test_success_before_comes_from_the_warmup_if_the_run_has_none(tmp_path: Path) -> None:
    (tmp_path / "warmup").mkdir()
    for path, step, share in ((tmp_path / "warmup", 250, 0.4), (tmp_path, 10, 0.8)):
        (path / "metrics.jsonl").write_text(f'{{"step": {step}, "kind": "eval", "eval/unseen/success": {share}}}\n')
    assert "40.0% → 80.0%" in Tags(report(tmp_path)).text


def test_tokens_carry_their_numbers(plain: str) -> None:
    found = re.findall(r'<i class="e[0-7]" data-v="(\S+) (\S+) (\S+)">([^<]*)</i>', plain)
    assert len(found) > 100
    assert all(0 <= float(chance) <= 1 and float(heat) == 1 for chance, _, heat, _ in found)
    assert {"mug ", "&lt;action&gt;"} <= {text for *_, text in found}


def test_success_and_failure_of_first_middle_last_and_evals(plain: str) -> None:
    facts = re.findall(r'<span class="facts">(.*?) · ', plain)
    unseen = "evaluation at step {}, unseen games"
    expected = ["step 0", "step 50", "step 99", unseen.format(0), unseen.format(100)]
    assert facts == [where for where in expected for _ in range(2)]
    assert plain.count(">solved<") == plain.count(">not solved<") == 5


def test_the_policy_names_what_is_there_by_hash(plain: str) -> None:
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', plain)
    assert policy is not None
    assert "unsafe" not in policy[1]
    assert policy[1].startswith("default-src 'none';")
    for tag in ("script", "style"):
        blocks = re.findall(rf"<{tag}>(.*?)</{tag}>", plain, re.DOTALL)
        assert len(blocks) == 1  # charts are data, in script elements of another type
        digest = base64.b64encode(hashlib.sha256(blocks[0].encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy[1]


def test_the_page_needs_nothing_else(plain: str) -> None:
    tags = Tags(plain)
    assert not {"link", "iframe", "img", "object", "embed", "base"} & set(tags.tags)
    links = [value for name, value in tags.attributes if name in ("href", "src")]
    assert all(link.startswith("#") for link in links)
    assert set(re.findall(r"https?://[^\"' ]+", plain)) <= NAMED


def test_hostile_text_stays_text(plain: str, hostile: str) -> None:
    ours, theirs = Tags(plain), Tags(hostile)
    assert set(theirs.tags) <= set(ours.tags)
    assert theirs.tags.count("script") == theirs.tags.count("style") == theirs.tags.count("title") == 1
    assert {name for name, _ in theirs.attributes} <= {name for name, _ in ours.attributes}
    assert not [name for name, _ in theirs.attributes if name.startswith("on") or name == "style"]
    assert "</script><script>alert(1)</script>" in theirs.text
    assert "⟨U+202E⟩" in theirs.text
    assert not set(hostile) & set("\u202e\u2028\x00\x1b")


def test_a_number_of_steps_that_is_text_stays_text(tmp_path: Path) -> None:
    run = make_run(tmp_path / "x", steps=3)
    config = (run / "config.toml").read_text()
    (run / "config.toml").write_text(re.sub(r"steps = \d+", "steps = '<img src=x onerror=alert(1)>'", config))
    assert "img" not in Tags(report(run)).tags


def test_a_long_run_with_long_episodes_stays_small(tmp_path: Path) -> None:
    run = make_run(tmp_path / "big", steps=100)
    rng = np.random.default_rng(0)
    turn = household_episode(rng, 0, True).turns[0]
    long = np.tile(turn.entropies, 80)[:512]
    wide = replace(
        turn, observation="x" * 9000, response_ids=np.tile(turn.response_ids, 80)[:512], entropies=long,
        logprobs=-long, temperatures=np.ones(512, dtype=np.float32),
    )  # fmt: skip
    for step in (0, 50, 99):
        games = [replace(household_episode(rng, i, i % 2 == 0), turns=(wide,) * 50) for i in range(2)]
        write_episodes(train_path(run, step), games)
    page = report(run)
    assert len(page.encode()) < 3_000_000
    assert page.count('<i class="e') < 20_000
    assert "more turns are in episodes/step-000099.parquet" in page
    assert page.count('<li value="50">') == 6  # the last turn is always shown
    assert "more characters)" in page
    assert "more tokens)" in page


def test_a_damaged_episode_file_is_a_note_on_the_page(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a", steps=3)
    train_path(run, 2).write_bytes(b"PAR1 nonsense")
    text = Tags(report(run)).text
    assert "could not read" in text
    assert "step-000002.parquet" in text


def test_episodes_without_turns_or_responses_can_be_shown(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a", steps=1)
    (one, *_) = read_episodes(train_path(run, 0))
    empty = np.empty(0, dtype=np.float32)
    silent = replace(one.turns[0], response_ids=empty.astype(np.int32), logprobs=empty, entropies=empty, action=None)
    games = [replace(one, turns=(), success=False, detail="worker died"), replace(one, turns=(silent,), success=True)]
    write_episodes(train_path(run, 0), games)
    assert "worker died" in Tags(report(run)).text


def test_a_warmup_has_a_page_too(tmp_path: Path) -> None:
    text = Tags(report(make_warmup(tmp_path / "warm"))).text
    assert "Imitation loss" in text
    assert "Success on unseen games" in text


def test_a_run_that_has_not_begun(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("[run]\nseed = 1\n")
    assert "Nothing has been measured yet" in report(tmp_path)


def test_keys_of_another_version_do_not_matter(tmp_path: Path) -> None:
    lines = ['{"step": 0, "success/a b": 1.0, "x": "y", "lr": "high", "grad_norm": 1e308}', '{"step": 1, "lr": null}']
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    page = report(tmp_path)
    assert "Success by task type" in page
    assert "Gradient norm" not in page


def test_equal_runs_give_equal_pages(tmp_path: Path) -> None:
    first, second = (report(make_run(tmp_path / where / "same", steps=4)) for where in ("a", "b"))
    assert first == second


def test_a_picture_of_success_beside_the_warmup(tmp_path: Path) -> None:
    make_warmup(tmp_path / "warm")
    run = Run.open(make_run(tmp_path / "run", 30, model="warm", warmup=False))
    chart = success_chart(run, run.warmup(), Story())
    assert chart is not None
    assert [panel.x_name for panel in chart.panels] == ["warm-up step", "step"]
    text = picture(chart)
    drawn = ElementTree.fromstring(text)
    labels = [label.text for label in drawn.iter(f"{SVG}text") if label.attrib["class"] == "l"]
    assert labels == [line.name for line in chart.series]
    bands = [path for path in drawn.iter(f"{SVG}path") if path.attrib["class"].startswith("band")]
    assert len(bands) == sum(line.low is not None for panel in chart.panels for line in panel.series)
    assert bands
    assert "var(" not in text
    assert "script" not in text


def write_run(path: Path, kind: str, records: list[Record], timings: list[Record] | None = None) -> str:
    path.mkdir(parents=True)
    (path / "run.json").write_text(json.dumps({"kind": kind}))
    (path / "config.toml").write_text(
        'methods = ["epo"]\n[learn]\nalgorithm = "grpo"\n[agent]\norder = "think_act"\n[sft]\norders = []\n'
    )
    for name, lines in ((METRICS, records), (TIMINGS, timings or [])):
        (path / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return report(path)


def test_an_rft_page_says_what_it_is(tmp_path: Path) -> None:
    records = [
        record_of(1, {"sft/loss": 0.5, "rft/solved": 0.25}, "sft"),
        record_of(2, {"sft/loss": 0.4}, "sft"),
        record_of(2, {"eval/unseen/success": 0.5}, "eval"),
        record_of(4, {"eval/unseen/success": 0.75}, "eval"),
    ]
    text = Tags(write_run(tmp_path / "rft", "rft", records)).text.split("config.toml")[0]
    for part in ("its own successes (rft)", "Own games solved", "25.0%", "Imitation", "imitation steps", "at steps 2"):
        assert part in text
    for part in ("algorithm", "grpo", "epo", "expert's tokens", "arm-up", "before and after"):
        assert part not in text
    assert "an expert's games (sft)" in Tags(write_run(tmp_path / "sft", "sft", records[1:])).text


def test_a_fall_is_not_shown_as_a_gain(tmp_path: Path) -> None:
    for name, after, style in (("rise", 0.7, "to"), ("fall", 0.3, "to down")):
        records = [record_of(step, {"eval/unseen/success": share}, "eval") for step, share in ((0, 0.5), (9, after))]
        page = write_run(tmp_path / name, "train", records)
        assert f'<span class="{style}">{after:.1%}</span>' in page
        assert "before and after" in page


def test_a_stage_has_one_colour_whichever_takes_longer(tmp_path: Path) -> None:
    colours: list[list[str]] = []
    for name, seconds in (("a", {"rollout": 9.0, "update": 1.0}), ("b", {"rollout": 1.0, "update": 9.0, "score": 2.0})):
        timings = [record_of(1, {f"seconds/{stage}": value for stage, value in seconds.items()}, "train")]
        page = write_run(tmp_path / name, "train", [record_of(1, {"lr": 1.0}, "train")], timings)
        time = page.split("<h3>Time by stage")[1]
        legend = dict(re.findall(r'<i class="layer (c\d)"></i>(\w+)</button>', time))
        colours.append(sorted(colour for colour, stage in legend.items() if stage in ("rollout", "update")))
        assert legend["c0"] == "rollout"
        assert len(legend) == len(seconds)
    assert colours[0] == colours[1]


def test_the_critic_has_a_heading_of_its_own(tmp_path: Path) -> None:
    record = record_of(1, {"critic/loss": 1.0, "critic/explained": 0.5, "gigpo/shared": 0.5}, "train")
    page = write_run(tmp_path / "a", "train", [record])
    assert re.findall(r'<section id="(\w+)">', page)[:2] == ["algorithm", "critic"]


def test_a_page_says_how_the_run_was_started_and_older_folders_have_no_such_part(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", steps=12, warmup=False)
    assert "How it was run" not in write_report(run).read_text()
    first = {"at": "2026-01-02T03:04:05Z", "command": f"isentrope train {HOSTILE}", "machine": {"processor": "Z80"}}
    later = {
        "at": "2026-01-03",
        "command": "isentrope train --resume",
        "machine": {"cores": "2"},
        "versions": {"x": "1"},
    }
    (run / "run.json").write_text(json.dumps({"kind": "train", "starts": [first, later]}))
    for text in (write_report(run).read_text(), diagnosis.page(Run.open(run))):
        page = Tags(text)
        assert "isentrope train" in page.text
        assert "<script>alert(1)</script>" in page.text  # as text
        assert "Z80" in page.text
        assert "2026-01-02 03:04 UTC" in page.text
        assert "Resumed 2026-01-03" in page.text
        assert "2 cores" in page.text


def test_the_most_memory_is_told_of_the_gpu_where_one_was_used(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", steps=3, warmup=False)
    log = run / "timings.jsonl"
    records = [json.loads(line) for line in log.read_text().splitlines()]
    assert "GiB" not in write_report(run).read_text()
    for key, told in (("memory/peak", "main memory, at most"), ("memory/gpu", "of the GPU, at most")):
        for number, record in enumerate(records):
            record[key] = 3.04 - number  # the first is the largest
        log.write_text("".join(json.dumps(record) + "\n" for record in records))
        page = Tags(write_report(run).read_text())
        assert "3.0 GiB" in page.text
        assert told in page.text
