"""The built site, as a reader sees it in Chromium: local, searchable, linked, and readable on a telephone."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from redbox_bed.core.places import CHECKOUT
from redbox_release.site.build import build_site
from tests.release.site.browser import Browser, started
from tests.release.site.search import found

pytestmark = pytest.mark.timeout(900)  # Chromium and Mermaid are fetched first, once
INSTALLS_WITHIN_S = 600
WIDE, NARROW = (1400, 900), (360, 740)
RESULTS = """
const hosts = [...document.querySelectorAll("*")].filter(element => element.shadowRoot);
const links = hosts.flatMap(host => [...host.shadowRoot.querySelectorAll("a[href]")].map(link => link.href));
return links.length ? links : null;
"""
LINKS = "return [...document.querySelectorAll('article a[href]')].map(link => link.href)"
OPEN_SHADOWS = """
const attach = Element.prototype.attachShadow;
Element.prototype.attachShadow = function () { return attach.call(this, {mode: "open"}) };
"""
PICTURES = """
const drawn = [...document.querySelectorAll(".mermaid")].map(host => host.shadowRoot?.querySelector("svg"));
if (!drawn.length || !drawn.every(svg => svg)) return null;
return drawn.map(svg => {
    const box = svg.getBoundingClientRect(), scale = box.width / svg.viewBox.baseVal.width;
    const labels = [...svg.querySelectorAll("foreignObject, text")].filter(label => label.textContent.trim());
    const cut = label => label.firstElementChild
        && label.firstElementChild.getBoundingClientRect().width > label.getBoundingClientRect().width + 1;
    return {
        left: box.left, right: box.right, labels: labels.length,
        smallest: Math.min(...labels.map(label => scale * parseFloat(getComputedStyle(label).fontSize))),
        cut: labels.filter(label => label.tagName != "text" && cut(label)).map(label => label.textContent),
    };
});
"""
FIGURES = """
const picture = document.querySelector("article img");
if (!picture.complete || !picture.naturalWidth) return null;
const box = picture.getBoundingClientRect();
return {left: box.left, right: box.right, smallest: 12 * box.width / picture.naturalWidth};
"""
OUTSIDE = """
const svg = document.documentElement, width = svg.viewBox.baseVal.width;
const boxes = [...svg.querySelectorAll("text")].map(text => [text.textContent, text.getBBox()]);
const outside = boxes.filter(([, box]) => box.x < 0 || box.x + box.width > width);
return [boxes.length, outside.map(([text]) => text)];
"""
READABLE_PX = 9


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
        browser.before_each_page(OPEN_SHADOWS)
        browser.resize(*WIDE)
        yield browser


@contextmanager
def screen(browser: Browser, width: int, height: int) -> Iterator[None]:
    browser.resize(width, height)
    try:
        yield
    finally:
        browser.resize(*WIDE)


@pytest.mark.nightly
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


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize(("page", "count"), [("developers/architecture/", 2), ("administrators/ssh/", 1)])
def test_a_diagram_fits_and_its_labels_are_whole_and_readable(
    site: str, browser: Browser, page: str, count: int, width: int
) -> None:
    with screen(browser, width, 900):
        browser.open(site + page)
        drawn = browser.eventually(PICTURES)
        assert len(drawn) == count
        for picture in drawn:
            assert picture["labels"] > 3
            assert 0 <= picture["left"] < picture["right"] <= width, picture
            assert picture["smallest"] >= READABLE_PX, picture
            assert picture["cut"] == []


@pytest.mark.parametrize("width", [1280, 390])
def test_the_figures_fit_and_are_readable(site: str, browser: Browser, width: int) -> None:
    with screen(browser, width, 900):
        browser.open(site + "reference/figures/")
        picture = browser.eventually(FIGURES)
        assert 0 <= picture["left"] < picture["right"] <= width
        assert picture["smallest"] >= READABLE_PX


def test_a_label_of_the_figures_is_whole(site: str, browser: Browser) -> None:
    browser.open(site + "reference/figures.svg")
    count, outside = browser.script(OUTSIDE)
    assert count > 20
    assert outside == []


@pytest.mark.parametrize(
    ("words", "pages"),
    [
        ("jupyter", ("users/services/", "users/recipes/")),
        ("gpu", ("users/guide/#gpus",)),
        ("rotate", ("administrators/operations/#rotate",)),
        ("uninstall", ("administrators/operations/#uninstall",)),
        ("cancel", ("users/",)),
        ("log", ("users/",)),
        ("exit code", ("users/", "reference/companion/#exit-codes")),
        ("requeue", ("users/", "administrators/")),
    ],
)
def test_the_first_hit_is_the_page_that_answers(built: Path, words: str, pages: tuple[str, ...]) -> None:
    assert found(built, words)[words][0].startswith(pages)


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


@pytest.mark.nightly
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


@pytest.mark.nightly
def test_no_page_scrolls_sideways_on_a_narrow_screen(site: str, browser: Browser, built: Path) -> None:
    browser.refuse("*/search.json")  # each page has the whole site indexed for its search, which has no width
    with screen(browser, *NARROW):
        pages = [str(page.parent.relative_to(built)) for page in sorted(built.rglob("index.html"))]
        assert len(pages) > 40
        wide = {}
        for page in pages:
            browser.open(f"{site}{page}/".replace("/./", "/"))
            width = browser.script("return document.documentElement.scrollWidth")
            if width > NARROW[0]:
                wide[page] = width
        browser.refuse()
        assert wide == {}


def test_a_reader_of_a_telephone_reaches_the_tutorial_by_the_menu(site: str, browser: Browser) -> None:
    with screen(browser, *NARROW):
        browser.open(site)
        browser.click("label.md-header__button[for=__drawer]")
        entries = "[...document.querySelectorAll('.md-nav--primary a')]"
        entry = f"{entries}.find(link => link.innerText.trim() == 'Tutorial')"
        browser.eventually(
            f"const box = {entry}.getBoundingClientRect(); return box.width > 0 && box.left >= 0"
        )
        browser.script(f"{entry}.click()")
        browser.eventually("return location.pathname == '/users/tutorial/'")
