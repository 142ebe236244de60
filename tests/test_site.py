"""The documentation as a site (`make site`): built without a warning, it asks nobody but its own server, and links out
of docs/ lead to files that the repository has."""

from __future__ import annotations

import functools
import http.server
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import isentrope
from isentrope.cli.pages import REPOSITORY

ROOT = Path(__file__).parents[1]
CHROMIUM = Path("/usr/bin/chromium")
pytest.importorskip("material", reason="needs mkdocs-material: pip install -e '.[site]'")
pytest.importorskip("mkdocstrings", reason="needs mkdocstrings-python: pip install -e '.[site]'")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built with --strict: mkdocs itself refuses links and anchors that lead nowhere, and pages without a place. With
    --quiet it would not count its warnings."""
    place = tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(place)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(build, capture_output=True, text=True, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return place


def pages_of(site: Path) -> dict[str, str]:
    return {path.relative_to(site).as_posix(): path.read_text(encoding="utf-8") for path in site.rglob("index.html")}


@pytest.mark.slow(6)
def test_every_page_is_there_and_those_of_public_names(site: Path) -> None:
    pages = pages_of(site)
    for path in (ROOT / "docs").rglob("*.md"):
        below = path.relative_to(ROOT / "docs")
        place = below.parent if path.name == "README.md" else below.with_suffix("")
        assert (place / "index.html").as_posix() in pages, below
    names = {name for page in pages.values() for name in re.findall(r'<h2 id="isentrope\.(?:api\.)?(\w+)"', page)}
    assert names == set(isentrope.__all__)
    assert "All runs in a folder and below it" in pages["api/running/index.html"]  # the function, not the package
    assert "0: take the likeliest token" in pages["api/engines/index.html"]  # the comment behind a field
    assert not list(site.rglob("*.xz"))


@pytest.mark.slow(1)
def test_links_out_of_the_docs_lead_to_files_of_the_repository(site: Path) -> None:
    links = {link for page in pages_of(site).values() for link in re.findall(rf'href="{REPOSITORY}/([^"#]+)', page)}
    kinds = {link.partition("/")[0] for link in links}
    assert kinds == {"blob", "edit", "tree"}
    inside = {link.split("/", 2)[2] for link in links if "/main/" in link}
    assert {"CONTRIBUTING.md", "docs/engines.md", "recipes/search_qa.toml", "tests/theory/test_epo.py"} <= inside
    assert [path for path in inside if not (ROOT / path).exists()] == []


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def address(site: Path) -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.slow(5)
@pytest.mark.skipif(not CHROMIUM.exists(), reason="needs chromium: apt-get install chromium")
def test_it_asks_its_own_server_alone_and_can_be_searched(address: str) -> None:
    sync_api = pytest.importorskip("playwright.sync_api")
    outside: list[str] = []
    complaints: list[str] = []
    with sync_api.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 390, "height": 844})
        page.on("request", lambda asked: outside.append(asked.url) if not asked.url.startswith(address) else None)
        page.on("console", lambda said: complaints.append(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        for path in ("/", "/methods/epo/", "/configuration/", "/api/methods/"):
            page.goto(address + path)
            wider = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert wider == 0, f"{path} is wider than a phone"
        page.set_viewport_size({"width": 1280, "height": 900})
        page.locator("[data-md-component=search-query]").click()
        page.keyboard.type("learning rate")
        page.wait_for_selector(".md-search-result__item a[href*='training-models/']")
        browser.close()
    assert outside == []
    assert complaints == []
