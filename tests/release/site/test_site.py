"""The built site, as a reader sees it in Chromium: local, searchable, linked, and readable on a telephone."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from redbox_bed.core.places import CHECKOUT
from redbox_release.site.build import build_site
from tests.release.site.browser import Browser, started

pytestmark = pytest.mark.timeout(900)  # Chromium and Mermaid are fetched first, once
INSTALLS_WITHIN_S = 600
WIDE, NARROW = (1400, 900), (360, 740)
RESULTS = """
const hosts = [...document.querySelectorAll("*")].filter(element => element.shadowRoot);
const links = hosts.flatMap(host => [...host.shadowRoot.querySelectorAll("a[href]")].map(link => link.href));
return links.length ? links : null;
"""
LINKS = "return [...document.querySelectorAll('article a[href]')].map(link => link.href)"
PICTURES = (
    "return [...document.querySelectorAll('.mermaid')].map(drawn => [drawn.innerText, drawn.offsetHeight])"
)


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """No line for each request."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_site(tmp_path_factory.mktemp("site") / "build")


@pytest.fixture(scope="module")
def site(built: Path) -> Iterator[str]:
    """Its address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(built))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    packages = ("chromium", "chromium-driver")
    if "ID=debian" not in Path("/etc/os-release").read_text().splitlines():
        pytest.skip("Chromium is a package of Debian; here it is none")
    subprocess.run([CHECKOUT / "deploy/bootstrap", *packages], check=True, timeout=INSTALLS_WITHIN_S)
    with started() as browser:
        browser.resize(*WIDE)
        yield browser


def test_all_that_a_page_needs_is_its_own(site: str, browser: Browser) -> None:
    browser.requests(), browser.errors()
    for page in (
        "",
        "developers/architecture/",
        "http-api/",
        "reference/kinds/",
        "reference/figures/",
        "files/redbox/redbox.example.yaml/",
    ):
        browser.open(site + page)
        browser.eventually("return document.readyState == 'complete'")
    fetched = browser.requests()
    assert [
        address for address in fetched if not address.startswith((site, "chrome:", "data:", "blob:"))
    ] == []
    assert site + "developers/architecture/" in fetched
    assert browser.errors() == []


def test_pictures_are_drawn(site: str, browser: Browser) -> None:
    browser.open(site + "developers/architecture/")
    browser.eventually(PICTURES + ".every(([text, height]) => !text.includes('-->') && height > 100)")
    assert len(browser.script(PICTURES)) == 2
    browser.open(site + "reference/figures/")
    assert browser.eventually("return document.querySelector('article img').naturalWidth") > 100


@pytest.mark.parametrize(
    ("words", "page"),
    [
        ("cancelRequested", "http-api/"),
        ("orphanPolicy", "reference/kinds/"),
        ("sudoers", "administrators/login-node/"),
    ],
)
def test_a_search_leads_to_the_page(site: str, browser: Browser, words: str, page: str) -> None:
    browser.open(site)
    browser.click(".md-search__button")
    browser.type(words)
    found = browser.eventually(RESULTS)
    assert any(address.startswith(site + page) for address in found), found


def test_the_tutorials_links_lead_on(site: str, browser: Browser) -> None:
    browser.open(site + "users/tutorial/")
    links = [link for link in browser.script(LINKS) if not link.startswith(site + "users/tutorial/")]
    assert len(links) >= 3
    for link in links:
        browser.open(site + "users/tutorial/")
        path = link.removeprefix(site)
        browser.script(
            "[...document.querySelectorAll('article a')].find(link => link.href == arguments[0]).click()",
            link,
        )
        browser.eventually("return location.href == arguments[0] && document.readyState == 'complete'", link)
        assert browser.script("return document.querySelector('h1').innerText"), path
        _, _, anchor = link.partition("#")
        assert not anchor or browser.script("return document.getElementById(arguments[0]) != null", anchor), (
            link
        )


def test_no_page_scrolls_sideways_on_a_narrow_screen(site: str, browser: Browser, built: Path) -> None:
    browser.resize(*NARROW)
    browser.refuse("*/search.json")  # each page has the whole site indexed for its search, which has no width
    try:
        pages = [str(page.parent.relative_to(built)) for page in sorted(built.rglob("index.html"))]
        assert len(pages) > 40
        wide = {}
        for page in pages:
            browser.open(f"{site}{page}/".replace("/./", "/"))
            width = browser.script("return document.documentElement.scrollWidth")
            if width > NARROW[0]:
                wide[page] = width
        assert wide == {}
    finally:
        browser.refuse()
        browser.resize(*WIDE)


def test_a_reader_of_a_telephone_reaches_the_tutorial_by_the_menu(site: str, browser: Browser) -> None:
    browser.resize(*NARROW)
    try:
        browser.open(site)
        browser.click("label.md-header__button[for=__drawer]")
        entries = "[...document.querySelectorAll('.md-nav--primary a')]"
        entry = f"{entries}.find(link => link.innerText.trim() == 'Tutorial')"
        browser.eventually(
            f"const box = {entry}.getBoundingClientRect(); return box.width > 0 && box.left >= 0"
        )
        browser.script(f"{entry}.click()")
        browser.eventually("return location.pathname == '/users/tutorial/'")
    finally:
        browser.resize(*WIDE)
