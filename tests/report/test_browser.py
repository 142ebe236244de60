"""The page in a real browser, with hostile text in every place that a model, a task or a file can write to."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from isentrope.report.compare import write_comparison
from isentrope.report.page import write_report
from tests.builders.run_folders import make_run
from tests.report.test_page import HOSTILE

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is missing: pip install playwright")
READBACK = "willReadFrequently"  # advice on how the tests themselves read pixels
NAME = "a <b>&lt; run"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is missing: apt-get install chromium")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    run: Path = make_run(tmp_path_factory.mktemp("runs") / NAME, steps=30, text=HOSTILE)
    return write_report(run).as_uri()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_nothing_runs_and_nothing_complains(browser: Any, address: str, scheme: str, width: int) -> None:
    complaints: list[str] = []
    page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page.on("dialog", lambda dialog: (complaints.append(f"dialog {dialog.message}"), dialog.dismiss()))
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: None if request.url == address else complaints.append(request.url))
    page.goto(address)
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert page.locator("figure").count() >= 15
    assert page.locator("section#episodes details").count() == 10
    assert page.locator("img, svg[onload], body > style, body script:not([type])").count() == 1  # the page's own script
    assert page.title() == f"{NAME} · Isentrope"
    assert page.locator("h1").inner_text() == NAME
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    tip = page.locator("#tip")
    page.locator("#entropy .u-over").first.hover()
    assert "all tokens" in tip.inner_text()
    assert tip.inner_text().startswith("step ")
    page.locator("#behaviour .u-over").nth(1).hover()
    assert "<script>alert(1)" in tip.inner_text()
    page.locator("section#episodes i[data-v]").first.hover(position={"x": 3, "y": 5})
    assert "temperature 1" in tip.inner_text()
    assert "<script>alert(1)" in tip.inner_text()
    assert complaints == []
    page.close()


def pixels(page: Any, section: str, colour: str) -> int:
    """How many pixels of a section's first chart have a colour of the palette, as far as drawing keeps it."""
    return page.evaluate(
        """([section, name]) => {
            const canvas = document.querySelector(`#${section} canvas`);
            const wanted = getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
            const [r, g, b] = [1, 3, 5].map((at) => parseInt(wanted.slice(at, at + 2), 16));
            const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
            let count = 0;
            for (let at = 0; at < data.length; at += 4) {
                const apart = Math.abs(data[at] - r) + Math.abs(data[at + 1] - g) + Math.abs(data[at + 2] - b);
                if (data[at + 3] > 200 && apart < 12) count++;
            }
            return count; }""",
        [section, colour],
    )


def test_charts_are_drawn_zoomed_and_their_curves_hidden(browser: Any, address: str) -> None:
    complaints: list[str] = []
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.on(
        "console", lambda message: None if "willReadFrequently" in message.text else complaints.append(message.text)
    )
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(address)
    assert page.locator(".plots").count() == page.locator(".plots:has(.uplot)").count() >= 15
    first, second = (pixels(page, "entropy", name) for name in ("s0", "s1"))
    assert min(first, second) > 100
    button = page.locator("#entropy .legend button", has_text="thought")
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    assert pixels(page, "entropy", "s1") == 0
    assert pixels(page, "entropy", "s0") > 100
    over = page.locator("#entropy .u-over").first
    page.mouse.move(0, 0)
    assert "thought" not in hovered(page, over, 0.5)
    button.click()
    assert "thought" in hovered(page, over, 0.5)
    whole = hovered(page, over, 0.02)
    box = over.bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.9, box["y"] + 40, steps=4)
    page.mouse.up()
    assert int(hovered(page, over, 0.02).split()[1]) > 10 > int(whole.split()[1])
    other = page.locator("#behaviour .u-over").first  # all charts show the same steps
    assert int(hovered(page, other, 0.02).split()[1]) > 10
    over.dblclick()
    assert hovered(page, over, 0.02) == whole
    assert complaints == []
    page.close()


def hovered(page: Any, over: Any, share: float) -> str:
    """What the tip says at a share of a chart's width."""
    over.scroll_into_view_if_needed()
    box = over.bounding_box()
    page.mouse.move(box["x"] + box["width"] * share, box["y"] + box["height"] / 2)
    page.mouse.move(box["x"] + box["width"] * share + 1, box["y"] + box["height"] / 2)
    return page.locator("#tip").inner_text()


def test_dark_and_light_differ(browser: Any, address: str) -> None:
    colours: set[str] = set()
    for scheme in ("light", "dark"):
        page = browser.new_page(color_scheme=scheme)
        page.goto(address)
        colours.add(page.evaluate("getComputedStyle(document.documentElement).backgroundColor"))
        page.close()
    assert len(colours) == 2


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two seeds and a run whose name and numbers' names are hostile."""
    folder = tmp_path_factory.mktemp("runs")
    seeds = [make_run(folder / f"seed{seed}", 30, seed, warmup=False) for seed in (0, 1)]
    hostile = make_run(folder / NAME, 30, 3, text=HOSTILE, warmup=False)
    return write_comparison([*seeds, hostile], {}, folder / "page.html").as_uri()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1200, 420])
def test_a_comparison_fits_and_shows_its_runs(browser: Any, compared: str, scheme: str, width: int) -> None:
    complaints: list[str] = []
    page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page.on("dialog", lambda dialog: (complaints.append(f"dialog {dialog.message}"), dialog.dismiss()))
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: None if request.url == compared else complaints.append(request.url))
    page.goto(compared)
    assert page.locator("figure").count() >= 25
    assert page.locator("img, svg[onload], body > style, body script:not([type])").count() == 1
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.locator("#entropy .u-over").first.hover()
    tip = page.locator("#tip").inner_text()
    assert "seed (2 seeds)" in tip or "seed0 and others (2 seeds)" in tip
    assert NAME in tip
    marks = page.locator("#entropy figure").first.locator(".legend path.line")
    assert len(set(marks.evaluate_all("all => all.map((one) => getComputedStyle(one).strokeDasharray)"))) == 2
    assert complaints == []
    page.close()


def test_paper_is_white_even_for_a_dark_screen(browser: Any, address: str, compared: str) -> None:
    for place in (address, compared):
        page = browser.new_page(viewport={"width": 794, "height": 1123}, color_scheme="dark")
        page.goto(place)
        page.emulate_media(media="print", color_scheme="dark")
        white, ink = "rgb(255, 255, 255)", "rgb(29, 33, 38)"
        assert page.evaluate("getComputedStyle(document.documentElement).backgroundColor") == white
        assert page.evaluate("getComputedStyle(document.documentElement).color") == ink
        assert page.evaluate("getComputedStyle(document.querySelector('.card')).backgroundColor") == white
        kept = "[...document.querySelectorAll('figure')].map((one) => getComputedStyle(one).breakInside)"
        assert set(page.evaluate(kept)) == {"avoid"}
        assert page.pdf(format="A4").startswith(b"%PDF")
        page.close()
