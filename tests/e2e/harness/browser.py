"""A real browser: the distribution's Chromium, driven by Playwright, which is fetched by its own lock."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from redbox_bed.core.places import Places
from tests.e2e.harness import python_environment

LOCK = Path(__file__).parents[1] / "recipes/browser.lock"
STEP_MS = 90_000


@contextmanager
def browser_page(places: Places) -> Iterator[Any]:
    """An empty page of a new browser: Playwright's own Page."""
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("this machine has no chromium: apt-get install chromium")
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    folder = str(python_environment.fetched(places, LOCK, python))
    if folder not in sys.path:
        sys.path.append(folder)
    playwright = import_module("playwright.sync_api")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium)
        page = browser.new_page()
        page.set_default_timeout(STEP_MS)
        yield page
        browser.close()
