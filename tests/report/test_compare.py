"""Several runs on one page, and as figures of a paper."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from typer.testing import CliRunner

from isentrope.charts.chart import Series
from isentrope.cli.main import app
from isentrope.core.errors import RunError
from isentrope.report.compare import merged_notes, read_groups, write_comparison
from isentrope.report.groups import differences, grouped
from isentrope.report.overlay import SEEDS_BAND, over_seeds, overlays, write_figures
from isentrope.runs.folder import Run
from tests.builders.run_folders import make_run
from tests.report.test_page import HOSTILE, NAMED, Tags

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three seeds, and a run with another learning rate."""
    folder = tmp_path_factory.mktemp("runs")
    made = [make_run(folder / f"grpo-seed{seed}", 30, seed, warmup=False) for seed in range(3)]
    other = make_run(folder / "fast", 30, 7, warmup=False)
    text = (other / "config.toml").read_text()
    (other / "config.toml").write_text(text.replace("lr = 1e-6", 'lr = 1e-5\nnew = ["<b>"]'))
    return [*made, other]


@pytest.fixture(scope="module")
def page(runs: list[Path], tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_comparison(runs, {}, tmp_path_factory.mktemp("out") / "page.html").read_text()


def test_seeds_are_one_group(runs: list[Path]) -> None:
    groups = grouped([Run.open(run) for run in (runs[0], runs[3], runs[2], runs[1])])
    assert [(group.name, len(group.runs)) for group in groups] == [("grpo", 3), ("fast", 1)]
    assert [group.label for group in groups] == ["grpo (3 seeds)", "fast"]


def test_where_a_run_ran_does_not_part_it_from_its_seeds(runs: list[Path], tmp_path: Path) -> None:
    twin = make_run(tmp_path / "grpo-seed9", 30, 9, warmup=False)
    text = (twin / "config.toml").read_text().replace("[run]", '[run]\ndevice = "cuda"\nthreads = 3\ntrack = "wandb"')
    (twin / "config.toml").write_text(text)
    assert len(grouped([Run.open(runs[0]), Run.open(twin)])) == 1
    (twin / "config.toml").write_text(text.replace("steps = 30", "steps = 31"))
    assert len(grouped([Run.open(runs[0]), Run.open(twin)])) == 2


def test_rows_are_what_they_were_named(runs: list[Path]) -> None:
    groups = read_groups([runs[0]], {"mixed": [runs[1], runs[3]]})
    assert [(group.name, [run.name for run in group.runs]) for group in groups] == [
        ("grpo-seed0", ["grpo-seed0"]), ("mixed", ["grpo-seed1", "fast"])
    ]  # fmt: skip


def test_equal_names_are_told_apart(runs: list[Path], tmp_path: Path) -> None:
    other = make_run(tmp_path / "elsewhere" / "fast", 5, warmup=False)
    assert [group.name for group in read_groups([runs[3], other], {})] == [
        f"{runs[3].parent.name}/fast",
        "elsewhere/fast",
    ]


def test_mean_and_band_by_hand() -> None:
    """At step 2 the seeds have 1 and 3: mean 2, deviation √((1 + 1) / 1) = √2. Step 9 has one seed and is left out."""
    lines = [Series("a", [1, 2, 9], [0.0, 1.0, 5.0]), Series("a", [1, 2], [0.0, 3.0])]
    mean = over_seeds(lines, None)
    assert (mean.x, mean.y) == ([1, 2], [0.0, 2.0])
    assert mean.low == pytest.approx([0.0, 2 - math.sqrt(2)])
    assert mean.high == pytest.approx([0.0, 2 + math.sqrt(2)])
    share = over_seeds([Series("a", [1], [1.0]), Series("a", [1], [0.0])], 1.0)
    assert (share.low, share.y, share.high) == ([0.0], [0.5], [1.0])  # 0.5 ± 0.71 is not a share
    never_negative = over_seeds([Series("a", [1], [0.0]), Series("a", [1], [4.0])], None)
    assert never_negative.low == [0.0]  # 2 - 2.8 is no divergence, no norm and no number of tokens
    below = over_seeds([Series("a", [1, 2], [0.0, -1.0]), Series("a", [1, 2], [4.0, 1.0])], None)
    assert below.low == pytest.approx([2 - math.sqrt(8), -math.sqrt(2)])
    gap = over_seeds([Series("a", [1, 2], [1.0, None]), Series("a", [1, 2], [0.0, 1.0])], None)
    assert gap.x == [1]


def test_every_metric_is_one_chart_with_all_runs(runs: list[Path]) -> None:
    drawn = {one.key: one for some in overlays(read_groups(runs, {})).values() for one in some}
    for key in ("eval/unseen/success", "eval/seen/success", "success/all", "entropy/think", "success/pick", "kl/k3"):
        assert [series.name for series in drawn[key].series] == ["grpo (3 seeds)", "fast"], key
        assert drawn[key].series[0].low is not None
    assert drawn["entropy/token"].series[1].low is None
    assert drawn["entropy/token"].note == SEEDS_BAND
    assert drawn["eval/unseen/success"].series[1].low is not None  # the interval over its games


def test_the_page(page: str) -> None:
    tags = Tags(page)
    for title in ("results", "phases-and-alarms", "success", "entropy", "behaviour", "update", "settings"):
        assert f'<section id="{title}">' in page
    assert "4 runs" in tags.text
    assert SEEDS_BAND in tags.text
    assert "3 seeds (0, 1, 2): their mean" in tags.text
    assert not {"link", "iframe", "img", "object", "embed", "base"} & set(tags.tags)
    assert all(value.startswith("#") for name, value in tags.attributes if name in ("href", "src"))
    assert set(re.findall(r"https?://[^\"' ]+", page)) <= NAMED
    assert "unsafe" not in page


def test_the_table_has_means_and_intervals(page: str) -> None:
    table = page.split('<section id="results">')[1].split("</section>")[0]
    assert re.search(r'<th scope="row">grpo</th><td>3</td><td>128</td><td>[\d.]+ ± [\d.]+</td>', table)
    assert re.search(r'<th scope="row">fast</th><td>1</td><td>128</td><td>[\d.]+ \[[\d.]+, [\d.]+\]</td>', table)
    assert "Succ.* is the best evaluation of a run" in table


def test_settings_that_differ_stand_side_by_side(runs: list[Path], page: str) -> None:
    assert list(differences([Run.open(run) for run in runs])) == ["run.seed", "learn.lr", "learn.new"]
    settings = page.split('<section id="settings">')[1]
    assert re.search(r'<th scope="row">learn.lr</th><td>1e-06</td><td>1e-05</td>', settings)
    assert re.search(r'<th scope="row">run.seed</th><td>0, 1, 2</td><td>7</td>', settings)
    assert "not set" in settings
    assert "&lt;b&gt;" in settings
    assert "household" not in settings


def test_each_run_has_its_strip_and_its_words(page: str) -> None:
    stories = page.split('<section id="phases-and-alarms">')[1].split("</section>")[0]
    assert stories.count("<summary>") == stories.count('<details class="card said" open>') == 4
    strip = ElementTree.fromstring(re.findall(r"<svg class=\"chart.*?</svg>", stories)[0])
    names = [text.text for text in strip.iter(f"{SVG}text") if text.attrib.get("class") == "run"]
    assert names == ["grpo: grpo-seed0", "grpo: grpo-seed1", "grpo: grpo-seed2", "fast"]


def test_notes_that_hold_for_every_row_are_said_once() -> None:
    notes = ["a: late", "a: b: late", "a: short", "note", "c: late"]
    assert merged_notes(notes, ["a", "a: b", "c"]) == ["late", "a: short", "note"]
    assert merged_notes(["a: late"], ["a", "c"]) == ["a: late"]
    assert merged_notes(["a: late", "c: late"], ["a", "c", "d"]) == ["a, c: late"]


def test_many_runs_are_rows_of_the_settings_and_named_once(tmp_path: Path) -> None:
    many = [make_run(tmp_path / f"a-run-with-quite-a-long-name-{n}", steps=3, seed=n, warmup=False) for n in range(9)]
    for number, run in enumerate(many):
        text = (run / "config.toml").read_text()
        (run / "config.toml").write_text(text.replace("lr = 1e-6", f"lr = {number + 1}e-5"))
    page = write_comparison(many, {}, tmp_path / "page.html").read_text()
    table = page.split('<section id="settings">')[1]
    assert "<th>run</th><th>run.seed</th><th>learn.lr</th>" in table
    assert re.search(r'<th scope="row">a-run-with-quite-a-long-name-4</th><td>4</td><td>5e-05</td>', table)
    legends = re.findall(r'<figure class="card half">.*?<ul class="legend">(.*?)</ul>', page)
    assert legends
    assert not any("a-run-with" in legend for legend in legends)
    few = write_comparison(many[:3], {}, tmp_path / "few.html").read_text()
    assert "a-run-with" in re.findall(r'<figure class="card half">.*?<ul class="legend">(.*?)</ul>', few)[0]


def test_the_words_on_many_runs_are_opened_on_demand(runs: list[Path], tmp_path: Path) -> None:
    many = [make_run(tmp_path / f"r{seed}", steps=3, seed=seed, warmup=False) for seed in range(7)]
    page = write_comparison(many, {}, tmp_path / "page.html").read_text()
    assert page.count('<details class="card said">') == 7
    assert '<details class="card said" open>' not in page


def test_hostile_text_stays_text(tmp_path: Path) -> None:
    hostile = make_run(tmp_path / 'a <b>"&lt; run', steps=3, text=HOSTILE, warmup=False)
    plain = make_run(tmp_path / "b", steps=3, warmup=False)
    made = Tags(write_comparison([plain], {HOSTILE[:40]: [hostile]}, tmp_path / "page.html").read_text())
    assert made.tags.count("script") == made.tags.count("style") == 1
    assert not {"img", "b"} & (set(made.tags) - {"b"})
    assert not [name for name, _ in made.attributes if name.startswith("on") or name == "style"]


def test_runs_with_little_in_common(runs: list[Path], tmp_path: Path) -> None:
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "config.toml").write_text("[run]\nseed = 3\n")
    text = Tags(write_comparison([runs[0], tmp_path / "begun"], {}, tmp_path / "page.html").read_text()).text
    assert "begun has no evaluation that can be read." in text
    with pytest.raises(RunError, match="neither"):
        read_groups([tmp_path], {})


def test_figures_as_svg(runs: list[Path], tmp_path: Path) -> None:
    groups = read_groups(runs, {})
    paths = write_figures(groups, ["entropy/token", "eval/unseen/success", "eval/seen/turns"], tmp_path, "svg")
    assert [path.name for path in paths] == ["entropy-token.svg", "eval-unseen-success.svg", "eval-seen-turns.svg"]
    for path in paths:
        drawn = ElementTree.fromstring(path.read_text())
        texts = [text.text for text in drawn.iter(f"{SVG}text")]
        assert {"grpo (3 seeds)", "fast"} <= set(texts)
        assert len([one for one in drawn.iter(f"{SVG}path") if one.attrib["class"].startswith("band")]) >= 1
        assert not {"var(", "script", "data-hover"} & set(re.findall(r"var\(|script|data-hover", path.read_text()))
    assert len(write_figures(groups, [], tmp_path / "all", "svg")) > 20


def test_figures_as_pdf(runs: list[Path], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install -e '.[figures]'")
    groups = read_groups(runs, {})
    (path,) = write_figures(groups, ["entropy/token"], tmp_path / "a", "pdf")
    data = path.read_bytes()
    assert data.startswith(b"%PDF")
    assert b"/Subtype /Image" not in data  # vectors
    assert b"/FontFile2" in data  # TrueType: text that can be searched
    assert b"/CreationDate" not in data
    (again,) = write_figures(groups, ["entropy/token"], tmp_path / "b", "pdf")
    assert again.read_bytes() == data


def test_a_name_with_dollars_is_no_formula(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install -e '.[figures]'")
    run = make_run(tmp_path / r"$\frac{1}$", steps=3, warmup=False)
    groups = read_groups([run, make_run(tmp_path / "_b", steps=3, seed=1, warmup=False)], {"$x_": [run]})
    assert len(write_figures(groups, ["entropy/token"], tmp_path / "out", "pdf")) == 1


def test_a_metric_nobody_measured(runs: list[Path], tmp_path: Path) -> None:
    with pytest.raises(RunError, match="did you mean entropy/token"):
        write_figures(read_groups(runs, {}), ["entropy/tokens"], tmp_path, "svg")


def test_pdf_without_matplotlib(runs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(RunError, match=r"install .*\[figures\]'"):
        write_figures(read_groups(runs, {}), [], tmp_path, "pdf")


def test_the_commands(runs: list[Path], tmp_path: Path) -> None:
    def call(*words: object) -> tuple[int, str]:
        done = CliRunner().invoke(app, [str(word) for word in words])
        return done.exit_code, done.output

    code, said = call("report", *runs, "--out", tmp_path / "page.html")
    assert (code, said.strip()) == (0, str(tmp_path / "page.html"))
    code, said = call("report", *runs)
    assert code == 2
    assert "--out page.html" in " ".join(said.replace("│", " ").split())
    assert call("report")[0] == 2
    code, said = call("report", "--row", f"all={runs[0].parent}/grpo-*", "--out", tmp_path / "rows.html")
    assert "3 seeds" in (tmp_path / "rows.html").read_text()
    assert call("report", "--row", "nothing", "--out", tmp_path / "x.html")[0] == 2
    assert call("report", runs[3], "--out", tmp_path / "one.html")[0] == 0
    assert "What happened" in (tmp_path / "one.html").read_text()
    code, said = call("figures", *runs, "--out", tmp_path / "figures", "-m", "kl/k3")
    assert (code, said.strip()) == (0, str(tmp_path / "figures" / "kl-k3.svg"))
