"""The page in a real browser: curves, episodes, live numbers, and hostile text that stays text."""

from __future__ import annotations

import csv
import json
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from isentrope.runs.episodes import write_episodes
from isentrope.runs.layout import train_path
from tests.report.test_page import HOSTILE
from tests.watch.make_runs import grouped, make_watched
from tests.watch.serving import serving

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is missing: pip install playwright")
READBACK = "willReadFrequently"  # advice on how the tests themselves read pixels
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is missing: apt-get install chromium")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    for seed in range(3):
        make_watched(root / f"grpo-seed{seed}", steps=100, seed=seed, events=seed == 0)
    other = make_watched(root / "other", steps=40, seed=9, events=False)
    config = other / "config.toml"
    config.write_text(config.read_text().replace("lr = 1e-6", "lr = 3e-5"))
    (root / "begun").mkdir()
    (root / "begun" / "run.json").write_text('{"kind": "train"}')
    return root


@pytest.fixture(scope="module")
def address(root: Path) -> Iterator[str]:
    with serving(root) as found:
        yield found


@pytest.fixture
def opened(browser: Any, address: str) -> Iterator[Callable[..., Any]]:
    """Opens the page; at the end, whatever the browser complained about fails the test."""
    complaints: list[str] = []
    pages: list[Any] = []

    def go(where: str = address, width: int = 1280, scheme: str = "light") -> Any:
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        page.set_default_timeout(20_000)
        page.on("dialog", lambda dialog: (complaints.append(f"dialog {dialog.message}"), dialog.dismiss()))
        page.on("console", lambda message: None if READBACK in message.text else complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        ours = where.split("#")[0]
        page.on("request", lambda request: None if request.url.startswith(ours) else complaints.append(request.url))
        page.goto(where)
        pages.append(page)
        return page

    yield go
    for page in pages:
        page.close()
    assert complaints == []


def until(page: Any, condition: str, what: str = "") -> Any:
    """Wait for a condition; the page's own policy forbids playwright's way, which evaluates text in the page."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        found = page.evaluate(condition)
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"never came true: {what or condition}")


def lines_of(page: Any, key: str, count: int) -> None:
    """Wait for so many lines in a plot. Plots are drawn when they come near the screen."""
    page.locator(f'figure[data-key="{key}"]').scroll_into_view_if_needed()
    until(
        page, f"document.querySelector('figure[data-key=\"{key}\"] .plot')?.dataset.lines == {count}", f"{count} lines"
    )


def choose(page: Any, *names: str) -> None:
    page.get_by_role("button", name="None", exact=True).click()
    for name in names:
        page.locator("#run-list label", has_text=name).locator("input").check()


def test_two_runs_overlaid_with_phases_and_alarms(opened: Callable[..., Any]) -> None:
    page = opened()
    lines_of(page, "success/all", 4)  # the run without numbers is listed, not drawn
    assert "There is no metrics.jsonl yet." in page.locator("#run-list").inner_text()
    choose(page, "grpo-seed0", "other")
    lines_of(page, "entropy/token", 2)
    figure = page.locator('figure[data-key="entropy/token"]')
    box = figure.locator(".u-over").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + 60)
    tip = page.locator("#tip")
    assert tip.inner_text().startswith("step ")
    assert "grpo-seed0" in tip.inner_text()
    assert "other" in tip.inner_text()
    page.mouse.move(box["x"] + box["width"] * 44 / 101, box["y"] + 60)
    assert "Entropy rose from 0.34" in tip.inner_text()
    assert "Entropy rose from 0.34" in page.locator("#alarms").inner_text()
    assert "Phases of grpo-seed0" in page.locator("#alarms").inner_text()
    marks = page.evaluate("[...document.querySelectorAll('#run-list canvas.mark')].map((mark) => mark.toDataURL())")
    assert len(set(marks)) == 2  # each run has a line of its own


def test_phases_are_shaded_in_the_plot(opened: Callable[..., Any]) -> None:
    """The pixels between the curves: the eruption's ground is not the descent's, and without phases they agree."""
    page = opened()
    choose(page, "grpo-seed0")
    lines_of(page, "entropy/token", 1)
    canvas = "document.querySelector('figure[data-key=\"entropy/token\"] canvas')"
    pixel = f"""(share) => {{
        const c = {canvas}, whole = c.getBoundingClientRect(), scale = c.width / whole.width;
        const box = c.parentElement.querySelector('.u-over').getBoundingClientRect();
        const x = (box.left - whole.left + share * box.width) * scale;
        return [...c.getContext('2d').getImageData(x, 34 * scale, 1, 1).data].join(); }}"""
    until(page, f"({pixel})(0.3) != ({pixel})(0.47)", "two phases, two colours")
    page.select_option("#phases", "none")
    until(page, f"({pixel})(0.3) == ({pixel})(0.47)", "no phases, one colour")


def test_seeds_as_mean_and_band(opened: Callable[..., Any]) -> None:
    page = opened()
    lines_of(page, "success/all", 4)
    page.select_option("#seeds", "range")
    lines_of(page, "success/all", 2)
    box = page.locator('figure[data-key="success/all"] .u-over').bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.2, box["y"] + 50)
    assert "grpo-seed0 and 2 more seeds" in page.locator("#tip").inner_text()
    assert "[" in page.locator("#tip").inner_text()


def test_the_axis_has_room_for_the_intervals_of_evaluations(opened: Callable[..., Any], root: Path) -> None:
    page = opened()
    choose(page, "other")
    lines_of(page, "eval/unseen/success", 1)
    records = [json.loads(line) for line in (root / "other" / "metrics.jsonl").read_text().splitlines()]
    lows, highs = (
        [one[f"eval/unseen/{end}"] for one in records if f"eval/unseen/{end}" in one] for end in ("low", "high")
    )
    height = "document.querySelector('figure[data-key=\"eval/unseen/success\"] .plot').dataset.height"
    low, high = (float(part) for part in until(page, height).split(","))
    assert low <= min(lows) < max(highs) <= high


def test_a_share_that_stays_at_zero_has_no_axis_below_it(opened: Callable[..., Any], tmp_path: Path) -> None:
    run = tmp_path / "flat"
    run.mkdir()
    lines = [json.dumps({"step": step, "kind": "train", "success/all": 0.0, "valid_ratio": 1.0}) for step in (1, 2, 3)]
    (run / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    with serving(tmp_path) as where:
        page = opened(where)
        heights: list[list[float]] = []
        for key in ("success/all", "valid_ratio"):
            lines_of(page, key, 1)
            found = until(page, f"document.querySelector('figure[data-key=\"{key}\"] .plot').dataset.height")
            heights.append([float(part) for part in found.split(",")])
    assert heights[0] == [0, pytest.approx(0.1)]
    assert heights[1] == [pytest.approx(0.9), pytest.approx(1.02)]


def test_alarms_have_the_colour_of_the_line_that_is_drawn(opened: Callable[..., Any]) -> None:
    """With a mean over seeds, a run's alarm is that of its group's line."""
    page = opened()
    choose(page, "grpo-seed1", "grpo-seed0")  # the alarm is of the second
    marks = """[...document.querySelectorAll('{} canvas.mark')].map((mark) => mark.toDataURL())"""
    page.locator("#alarms canvas.mark").wait_for()
    alarm = page.evaluate(marks.format("#alarms"))
    assert alarm == [page.evaluate(marks.format("#run-list"))[0]]
    page.select_option("#seeds", "range")
    shared = until(page, f"new Set({marks.format('#run-list')}).size == 1 && {marks.format('#run-list')}")
    assert page.evaluate(marks.format("#alarms")) == [shared[0]] != alarm


def test_sums_over_curves_against_hand_computed_cases(opened: Callable[..., Any]) -> None:
    page = opened()
    result = page.evaluate("""async () => {
      const { aligned, band, smoothed } = await import('./stats.js');
      return { smooth: smoothed([1, null, 3, 3], 0.5), none: smoothed([1, 2], 0),
        aligned: aligned([{ x: [0, 2], y: [1, 3] }, { x: [1, 2], y: [5, 6] }]),
        range: band([[1, 2, null], [3, 6, 4]], 'range'), t: band([[1], [2], [3]], 't'),
        below: band([[-1], [2], [3]], 't'), shares: band([[0.1, 0.9], [0.5, 1]], 't', true) };
    }""")
    # weights 1/2: 1; (1/4 + 3/2) / (3/4) = 7/3; (1/8 + 3/4 + 3/2) / (7/8) = 19/7
    assert result["smooth"] == pytest.approx([1, None, 7 / 3, 19 / 7])
    assert result["none"] == [1, 2]
    assert result["aligned"] == [[0, 1, 2], [1, None, 3], [None, 5, 6]]
    assert result["range"] == {"mean": [2, 4, 4], "low": [1, 2, None], "high": [3, 6, None]}
    reach = 4.303 / 3**0.5  # three values with deviation 1
    assert result["t"] == {"mean": [2], "low": [0], "high": [pytest.approx(2 + reach)]}  # none is negative
    assert result["below"]["low"][0] == pytest.approx(4 / 3 - 4.303 * (13 / 3) ** 0.5 / 3**0.5)
    assert result["shares"]["low"] == [0, pytest.approx(0.95 - 12.706 * 0.05)]  # deviations 0.2 √2 and 0.05 √2
    assert result["shares"]["high"] == [1, 1]


def test_zoom_is_shared_and_undone(opened: Callable[..., Any]) -> None:
    page = opened()
    lines_of(page, "success/all", 4)
    box = page.locator('figure[data-key="success/all"] .u-over').bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.25, box["y"] + 80)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 80, steps=4)
    page.mouse.up()
    ranges = "[...document.querySelectorAll('.plot[data-range]')].map((plot) => plot.dataset.range)"
    until(page, f"new Set({ranges}).size == 1 && !{ranges}[0].startsWith('0,')")
    low, high = (float(part) for part in page.evaluate(ranges)[0].split(","))
    assert low == pytest.approx(25, abs=2)
    assert high == pytest.approx(50, abs=2)
    assert page.evaluate(f"{ranges}.length") >= 4
    page.mouse.wheel(0, 2500)  # plots that are drawn only now begin with the same steps
    until(page, f"{ranges}.length >= 8 && new Set({ranges}).size == 1")
    page.keyboard.press("0")
    until(page, f"{ranges}.every((range) => range.startsWith('0,'))")


def test_any_metric_smoothing_and_log_scale(opened: Callable[..., Any]) -> None:
    page = opened()
    lines_of(page, "success/all", 4)
    page.keyboard.press("p")
    page.keyboard.type("verdict inadm")
    page.keyboard.press("Enter")
    lines_of(page, "verdict/inadmissible", 4)
    for key in "]]l":
        page.keyboard.press(key) if page.evaluate("document.activeElement.blur()") is None else None
    assert page.locator("#smooth-value").inner_text() == "0.20"
    assert page.locator("#log").is_checked()
    assert "pin=verdict%2Finadmissible" in page.url
    page.reload()  # the address holds the view
    lines_of(page, "verdict/inadmissible", 4)
    assert page.locator("#log").is_checked()


def test_a_line_appended_appears_and_a_resumed_run_begins_anew(
    browser: Any, opened: Callable[..., Any], tmp_path: Path
) -> None:
    run = make_watched(tmp_path / "live", steps=10)
    with serving(tmp_path) as where:
        page = opened(where)
        lines_of(page, "lr", 1)
        last = "import('./data.js').then(({ data, seriesOf }) => (seriesOf(data.runs[0].id, 'lr')?.x || []).join())"
        assert page.evaluate(last) == ",".join(map(str, range(10)))
        before = (run / "metrics.jsonl").read_text()
        with (run / "metrics.jsonl").open("a") as file:
            file.write(json.dumps({"step": 57, "kind": "train", "lr": 0.5, "success/all": 1.0}) + "\n")
        until(page, f"{last}.then((steps) => steps.endsWith('9,57'))", "the new line")
        until(page, "document.querySelector('#run-list .facts').textContent.includes('57/10')")
        (run / "new").write_text("".join(before.splitlines(keepends=True)[:5]))
        (run / "new").replace(run / "metrics.jsonl")
        until(page, f"{last}.then((steps) => steps == '0,1,2,3')", "the resumed run")


def test_settings_that_differ(opened: Callable[..., Any]) -> None:
    page = opened()
    lines_of(page, "success/all", 4)
    page.keyboard.press("2")
    page.locator("#settings table").wait_for()
    names = [text.split("\t")[0] for text in page.locator("#settings tbody tr").all_inner_texts()]
    assert names == ["learn.lr", "run.seed", "run.steps"]
    page.locator("#differing").uncheck()
    assert "task.world" in page.locator("#settings").inner_text()


def cells(page: Any, name: str) -> list[str]:
    return page.locator("#table tr[data-run]", has_text=name).locator("td, th").all_inner_texts()


def names(page: Any) -> list[str]:
    return [text.split("\n")[-1] for text in page.locator("#table tbody th[scope=row]").all_inner_texts()]


def test_the_table_is_sorted_grouped_filtered_and_compared(opened: Callable[..., Any]) -> None:
    page = opened()
    lines_of(page, "success/all", 4)
    page.keyboard.press("4")
    until(page, "document.querySelectorAll('#table tr[data-run]').length == 5")
    until(page, "document.querySelector('#table').textContent.includes('learn.lr')", "the settings")
    page.get_by_role("button", name="learn.lr", exact=True).click()
    assert names(page)[-2:] == ["other", "begun"]  # the largest rate, and the run without settings after all
    page.fill("#table-where", "learn.lr>1e-5")
    until(page, "document.querySelectorAll('#table tr[data-run]').length == 1")
    page.fill("#table-where", "grpo-seed run.seed!=2")
    until(page, "document.querySelectorAll('#table tr[data-run]').length == 2")
    page.fill("#table-where", "")
    page.select_option("#table-group", "learn.lr")
    until(page, "document.querySelectorAll('#table tr.group').length == 3")
    assert "learn.lr = 1e-06 · 3 runs · mean success" in page.locator("#table tr.group").first.inner_text()
    page.get_by_label("Baseline: grpo-seed0").click()
    until(page, "document.querySelectorAll('#table td.odd').length > 0")
    assert any(text.startswith("≠") and "3e-05" in text for text in cells(page, "other"))
    success = next(text for text in cells(page, "grpo-seed1") if "%" in text)
    assert success.split("\n")[1][0] in "+−±"
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280


def open_table(page: Any, count: int) -> None:
    until(page, "document.querySelectorAll('#run-list li').length > 0")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("4")
    until(page, f"document.querySelectorAll('#table tr[data-run]').length == {count}")


def test_notes_stay_in_the_browser_and_are_text(opened: Callable[..., Any]) -> None:
    page = opened()
    open_table(page, 5)
    note = page.get_by_label("Note on other")
    note.fill("<img src=x onerror=alert(1)> look again")
    until(page, "localStorage.length == 1", "kept while it is written")
    page.reload()
    until(page, "document.querySelectorAll('#table tr[data-run]').length == 5")
    assert note.input_value() == "<img src=x onerror=alert(1)> look again"
    page.fill("#table-where", "look again")
    until(page, "document.querySelectorAll('#table tr[data-run]').length == 1")
    assert page.locator("#table img").count() == 0
    note.fill(" ")
    page.keyboard.press("Escape")
    until(page, "localStorage.getItem('isentrope.notes') == '{}'", "an empty note is none")


def test_notes_of_a_file_are_taken_as_far_as_they_are_notes(opened: Callable[..., Any], tmp_path: Path) -> None:
    page = opened()
    open_table(page, 5)
    ids = dict(page.evaluate("import('./data.js').then(({ data }) => data.runs.map((run) => [run.name, run.id]))"))
    page.get_by_label("Note on begun").fill("mine")
    page.keyboard.press("Escape")
    some = {ids["other"]: {"run": 3, "text": "<script>alert(1)</script>" + "W" * 5000}, "__proto__": {"text": "x"}}
    some |= {"../../x": {"text": "x"}, ids["grpo-seed0"]: {"text": ["x"]}, ids["grpo-seed1"]: None}
    told = page.locator("#notes-told")
    for content, expected in ((json.dumps(some), "1 read."), ("[1", "holds no notes"), ('"x"', "0 read.")):
        (tmp_path / "notes.json").write_text(content)
        with page.expect_file_chooser() as chooser:
            page.get_by_role("button", name="load").click()
        chooser.value.set_files(tmp_path / "notes.json")
        until(page, f"document.querySelector('#notes-told').textContent.includes({json.dumps(expected)})")
    assert told.inner_text() == "0 read."
    kept = json.loads(page.evaluate("localStorage.getItem('isentrope.notes')"))
    assert set(kept) == {ids["begun"], ids["other"]}
    assert len(kept[ids["other"]]["text"]) == 2000  # letters
    assert page.get_by_label("Note on begun").input_value() == "mine"
    with page.expect_download() as download:
        page.get_by_role("button", name="save").click()
    assert json.loads(Path(download.value.path()).read_text()) == kept


def test_the_server_keeps_no_note(opened: Callable[..., Any], root: Path) -> None:
    """What is typed goes into no request, and the run folders stay as they are."""
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    page = opened()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(f"{request.method} {request.url} {request.post_data}"))
    open_table(page, 5)
    page.get_by_label("Note on other").fill("quite private")
    page.keyboard.press("Tab")
    until(page, "import('./data.js').then(({ refresh }) => refresh()).then(() => true)")
    assert asked
    assert all(one.startswith("GET ") and "private" not in one for one in asked)
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == before


def plot_of(page: Any, key: str) -> Any:
    return page.locator(f'figure[data-key="{key}"]')


def saved(figure: Any, form: str) -> tuple[str, str]:
    """A plot as a file, by the keyboard: its name and its bytes."""
    page, menu = figure.page, figure.locator("details.download")
    menu.locator("summary").press("Enter")
    with page.expect_download() as download:
        menu.get_by_role("button", name=form, exact=True).press("Enter")
    until(page, "!document.querySelector('.download[open]')", "the menu closed")
    return download.value.suggested_filename, Path(download.value.path()).read_bytes().decode("latin-1")


def test_axes_differences_and_downloads(opened: Callable[..., Any], root: Path) -> None:
    page = opened()
    choose(page, "grpo-seed0", "other")
    lines_of(page, "success/all", 2)
    page.select_option("#axis", "time")
    seconds = "document.querySelector('figure[data-key=\"success/all\"] .plot').dataset.range?.split(',')[1] > 1000"
    until(page, seconds, "an axis of seconds")
    page.select_option("#axis", "tokens")  # of which the runs tell nothing
    until(page, "document.querySelector('#axis-told').textContent.startsWith('2 runs not drawn')")
    page.select_option("#axis", "step")
    ids = page.evaluate("import('./data.js').then(({ data }) => data.runs.map((run) => [run.name, run.id]))")
    page.evaluate(f"import('./table.js').then(({{ setBase }}) => setBase('{dict(ids)['other']}'))")
    page.get_by_label("less other").check()
    lines_of(page, "success/all", 1)
    found: dict[str, str] = {}
    for form in ("SVG", "PNG", "CSV"):
        name, found[form] = saved(plot_of(page, "success/all"), form)
        assert name == f"success-all.{form.lower()}"
    assert ElementTree.fromstring(found["SVG"]).tag == "{http://www.w3.org/2000/svg}svg"
    assert "success/all, less other" in found["SVG"]
    assert found["PNG"].startswith("\x89PNG")
    rows = list(csv.DictReader(found["CSV"].splitlines()))
    logs = [map(json.loads, (root / name / "metrics.jsonl").open()) for name in ("grpo-seed0", "other")]
    values = [{row["step"]: row["success/all"] for row in log if "success/all" in row} for log in logs]
    assert [int(row["step"]) for row in rows] == list(range(40))  # where both have a value
    assert [float(row["value"]) for row in rows] == pytest.approx(
        [values[0][n] - values[1][n] for n in range(40)], abs=1e-5
    )


def test_a_file_of_a_plot_is_for_paper_and_its_numbers_are_as_measured(opened: Callable[..., Any], root: Path) -> None:
    """The same file from a dark screen; means over seeds are those of the logs, though the curves are smoothed."""
    files: list[tuple[str, str]] = []
    for scheme in ("light", "dark"):
        page = opened(scheme=scheme)
        choose(page, "grpo-seed0", "grpo-seed1", "grpo-seed2")
        page.select_option("#seeds", "range")
        page.keyboard.press("]")
        lines_of(page, "entropy/token", 1)
        files.append((saved(plot_of(page, "entropy/token"), "SVG")[1], saved(plot_of(page, "entropy/token"), "CSV")[1]))
    assert files[0] == files[1]
    rows = list(csv.DictReader(files[0][1].splitlines()))
    logs = [map(json.loads, (root / f"grpo-seed{seed}" / "metrics.jsonl").open()) for seed in range(3)]
    curves = [{row["step"]: row["entropy/token"] for row in log if "entropy/token" in row} for log in logs]
    for name, of in (("value", lambda values: sum(values) / 3), ("low", min), ("high", max)):
        expected = [of([curve[step] for curve in curves]) for step in range(100)]
        assert [float(row[name]) for row in rows] == pytest.approx(expected, abs=1e-5)


def test_every_line_has_a_dash_of_its_own_beside_its_colour(opened: Callable[..., Any]) -> None:
    page = opened()
    styles = page.evaluate("""async () => {
      const { colourOf, dashOf } = await import('./colours.js');
      return [...Array(64).keys()].map((slot) => [colourOf(slot), dashOf(slot).join(' ')]); }""")
    assert len({dash for _, dash in styles[:8]}) == 8
    assert len({tuple(style) for style in styles}) == 64


def open_list(page: Any, count: int) -> None:
    until(page, "document.querySelectorAll('#run-list li').length > 0")
    page.keyboard.press("3")
    rows = "document.querySelectorAll('.episode-table tbody tr').length"
    until(page, f"{rows} == {count}", f"{count} episodes")


def test_episodes_are_listed_filtered_and_paged(opened: Callable[..., Any]) -> None:
    page = opened()
    choose(page, "grpo-seed0", "other")
    open_list(page, 50)
    assert page.locator("#more").is_visible()
    until(page, "document.querySelector('#episode-count').textContent == '72 of 72 episodes'")
    page.locator("#more").click()
    until(page, "document.querySelectorAll('.episode-table tbody tr').length == 72")
    page.select_option("select[data-filter=source]", "train")
    page.select_option("select[data-filter=outcome]", "failed")
    page.select_option("select[data-filter=kind]", "look")
    until(page, "document.querySelector('#episode-count').textContent == '12 of 48 episodes'")
    assert page.locator(".episode-table .badge.good").count() == 0
    page.fill("#episode-search", "no such thing anywhere")
    until(page, "document.querySelector('#episode-count').textContent.startsWith('No episode fits')")
    page.get_by_role("button", name="No filters").click()
    until(page, "document.querySelectorAll('.episode-table tbody tr').length == 50")


def test_the_list_of_a_run_that_goes_on_can_be_asked_for_anew(opened: Callable[..., Any], tmp_path: Path) -> None:
    run = make_watched(tmp_path / "live", steps=12)
    with serving(tmp_path) as where:
        page = opened(where)
        open_list(page, 36)
        assert page.locator("#look-again").count() == 0
        assert page.locator("#no-filters").is_disabled()
        write_episodes(train_path(run, 57), [grouped(number, 57) for number in range(8)])
        with (run / "metrics.jsonl").open("a") as file:
            file.write(json.dumps({"step": 57, "kind": "train", "lr": 0.5}) + "\n")
        page.locator("#look-again").click()
        until(page, "document.querySelectorAll('.episode-table tbody tr').length == 44", "the new episodes")
        assert page.locator(".episode-table tbody tr").first.inner_text().startswith("57")
        until(page, "!document.querySelector('#look-again')")


def test_tokens_are_coloured_and_episodes_compared(opened: Callable[..., Any]) -> None:
    page = opened()
    choose(page, "grpo-seed1")
    open_list(page, 36)
    page.locator(".episode-table tbody tr", has_text="train").filter(has_text="0 · 0").first.locator("button").click()
    page.locator(".turn").first.wait_for()
    assert page.locator(".turn").count() == 4
    styles = "[...document.querySelectorAll('.response i')].map((token) => token.className)"
    entropy = page.evaluate(styles)
    assert any(style in ("e5", "e6", "e7") for style in entropy)
    faint = "[...document.querySelectorAll('.response i')].filter((token) => getComputedStyle(token).opacity != 1)"
    assert page.evaluate(f"{faint}.length") == 0  # a colour means the same on tags and on words
    page.get_by_label("advantage").check()
    assert set(page.evaluate(styles)) == {"n4"}  # a failed episode: all its tokens have the same bad advantage
    page.get_by_label("ratio").check()
    assert {style[:1] for style in page.evaluate(styles)} >= {"p", "n"}
    page.locator(".response .act i").first.hover()
    assert all(
        word in page.locator("#tip").inner_text() for word in ("probability", "entropy", "advantage -0.8", "ratio")
    )
    assert page.locator(".turn").first.locator(".act").inner_text().strip() == "go to desk 1"
    page.get_by_label("member 3 side by side").click()
    page.locator(".apart").wait_for()
    assert page.locator(".parting").inner_text().startswith("They part ways at turn 3.")
    assert page.locator(".turn.differs").count() == 2
    page.keyboard.press("Escape")
    page.locator(".episode-table").wait_for()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_hostile_text_stays_text(opened: Callable[..., Any], tmp_path: Path, width: int, scheme: str) -> None:
    make_watched(tmp_path / 'a <b>&lt; run"><img src=x onerror=alert(9)>', steps=12, text=HOSTILE)
    with serving(tmp_path) as where:
        page = opened(where, width, scheme)
        lines_of(page, "success/all", 1)
        page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        assert "onerror=alert(9)" in page.locator("#run-list").inner_text()
        assert "<script>alert(1)</script>" in page.locator("#alarms").inner_text()
        fits = "document.documentElement.scrollWidth"
        assert page.evaluate(fits) <= width
        page.locator("#pick").fill("success script")
        assert "<script>" in page.locator(".found").inner_text()
        page.keyboard.press("Enter")
        page.locator("figure").first.wait_for()
        page.evaluate("document.activeElement.blur()")
        page.keyboard.press("2")
        page.locator("#differing").uncheck()
        page.locator("#settings table").wait_for()
        assert "<script>" in page.locator("#settings").inner_text()
        page.evaluate("document.activeElement.blur()")
        open_list(page, 36)
        assert page.evaluate(fits) <= width
        page.locator(".episode-table tbody tr").first.locator("button").click()
        page.locator(".turn").first.wait_for()
        shown = page.locator(".turn").first.inner_text()
        assert "<img src=x onerror=alert(2)>" in shown
        assert "⟨U+202E⟩" in shown
        assert "⟨U+001B⟩[31m" in shown
        assert page.evaluate(fits) <= width
        assert page.locator("main img, main script, main svg, main style").count() == 0


@pytest.mark.parametrize("width", [1280, 390])
def test_hostile_names_and_settings_in_the_table_and_in_files(
    opened: Callable[..., Any], tmp_path: Path, width: int
) -> None:
    """In the table, and in what is downloaded: names of files, cells of spreadsheets, XML."""
    evil = '=HYPERLINK("x") <img src=x onerror=alert(9)>'
    make_watched(tmp_path / evil, steps=12, text=HOSTILE)
    make_watched(tmp_path / "plain", steps=12, seed=1)
    with serving(tmp_path) as where:
        page = opened(where, width)
        lines_of(page, "success/all", 2)
        key = next(
            one for one in page.evaluate("import('./data.js').then(({ data }) => data.keys.map((meta) => meta.key))")
            if "<script>" in one
        )  # fmt: skip
        page.evaluate("(key) => import('./state.js').then(({ go }) => go({ pins: [key] }))", key)
        until(page, "document.querySelector('figure .plot[data-lines=\"1\"] canvas')", "the hostile metric's plot")
        for form in ("SVG", "CSV", "PNG"):
            name, content = saved(page.locator("figure").first, form)
            assert re.fullmatch(rf"success-[A-Za-z0-9._-]{{1,100}}\.{form.lower()}", name)
            if form == "SVG":
                tags = {element.tag.rpartition("}")[2] for element in ElementTree.fromstring(content).iter()}
                assert tags <= {"svg", "title", "rect", "text", "path", "g", "circle", "clipPath"}
                assert "=HYPERLINK" in content
            if form == "CSV":
                rows = list(csv.reader(content.splitlines()))
                assert {row[0] for row in rows[1:]} == {f"'{evil}"}  # text, no formula
                assert len({len(row) for row in rows}) == 1
        open_table(page, 2)
        page.select_option("#table-group", "policy.model")
        page.fill("#table-column", "policy.model")
        page.locator("#table-column").blur()
        page.get_by_label(f"Baseline: {evil}").click()
        until(page, "document.querySelectorAll('#table td.odd').length > 0")
        shown = page.locator("#table").inner_text()
        assert evil in shown
        assert "<script>alert(1)</script>" in shown
        assert "⟨U+202E⟩" in shown
        with page.expect_download() as download:
            page.get_by_role("button", name="Table as CSV").click()
        rows = list(csv.reader(Path(download.value.path()).read_text().splitlines()))
        assert [row[0] for row in rows] == ["run", f"'{evil}", "plain"]
        assert page.locator("main img, main script, main svg, main style").count() == 0
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_dark_and_light(opened: Callable[..., Any]) -> None:
    ground = "getComputedStyle(document.{}).backgroundColor"
    colours = f"[{ground.format('documentElement')}, {ground.format('querySelector(`.card`)')}]"
    seen: list[Any] = []
    for scheme in ("light", "dark"):
        page = opened(scheme=scheme)
        lines_of(page, "success/all", 4)
        seen.append(page.evaluate(colours))
    assert seen[0][0] != seen[1][0]
    assert seen[0][1] != seen[1][1]


def test_an_empty_folder_and_a_dead_server_are_explained(browser: Any, tmp_path: Path) -> None:
    with serving(tmp_path) as where:
        page = browser.new_page()
        page.goto(where)
        until(page, "document.querySelector('#plots')?.textContent.startsWith('No runs yet in')")
    until(page, "document.querySelector('#live').textContent.startsWith('The server does not answer')")
    page.close()
