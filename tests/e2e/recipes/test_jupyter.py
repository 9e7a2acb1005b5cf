"""JupyterLab in a job, as docs/users/recipes.md has it: its page, its token, and a kernel."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from uuid import uuid4

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection, connect

from redbox_bed.bed import Bed
from redbox_bed.core.plan import Options
from tests.e2e.harness import python_environment
from tests.e2e.harness.browser import browser_page
from tests.e2e.harness.kubectl_slurm import Plugin
from tests.e2e.harness.served_recipe import ServedRecipe, served
from tests.e2e.harness.waiting import eventually

pytestmark = pytest.mark.timeout(600)  # JupyterLab is fetched first, once
LOCK = Path(__file__).with_name("jupyter.lock")
ENVIRONMENT = "/home/alice/jupyter"
ANSWERS_WITHIN_S = 60


@pytest.fixture(scope="module")
def jupyter(bed: Bed, plugin: Plugin) -> Iterator[ServedRecipe]:
    """One for all tests: it takes seconds to start."""
    if bed.plan.options.release != Options().release:
        pytest.skip("the lock is for the Python of the hosts with the usual release of Slurm")
    login = bed.host("login")
    python_environment.install(login, bed.places, LOCK, ENVIRONMENT)
    login.run("chown", "-R", "alice:", ENVIRONMENT)
    with served(plugin, "JupyterLab") as jupyter:
        eventually(lambda: jupyter.status_of("/login") == HTTPStatus.OK, what="the login page")
        yield jupyter
    written = ("jupyter", "Untitled.ipynb", ".jupyter", ".ipython", ".local/share/jupyter")
    login.run("rm", "-rf", *(f"/home/alice/{path}" for path in written))


def ask(jupyter: ServedRecipe, path: str, token: str = "", method: str = "GET") -> Any:
    headers = {"Authorization": f"token {token}"} if token else {}
    request = urllib.request.Request(f"http://{jupyter.address}{path}", headers=headers, method=method)
    with urllib.request.urlopen(request, timeout=ANSWERS_WITHIN_S) as answer:
        return json.loads(answer.read())


def channels(jupyter: ServedRecipe, kernel: str, token: str = "") -> ClientConnection:
    headers = {"Authorization": f"token {token}"} if token else {}
    address = f"ws://{jupyter.address}/api/kernels/{kernel}/channels"
    return connect(address, additional_headers=headers, open_timeout=ANSWERS_WITHIN_S)


def test_only_the_token_of_the_secret_is_let_in(jupyter: ServedRecipe) -> None:
    assert jupyter.status_of("/api/kernels") == HTTPStatus.FORBIDDEN
    with pytest.raises(HTTPError, match="403"):
        ask(jupyter, "/api/kernels", "another")
    assert ask(jupyter, "/api/kernels", jupyter.password) == []


def test_a_kernel_runs_in_the_job_as_its_user(jupyter: ServedRecipe) -> None:
    kernel = ask(jupyter, "/api/kernels", jupyter.password, "POST")["id"]
    with pytest.raises(InvalidStatus, match="403"):
        channels(jupyter, kernel)
    code = "import getpass, os; (1 + 1, getpass.getuser(), os.environ['SLURM_JOB_ID'])"
    with channels(jupyter, kernel, jupyter.password) as connection:
        connection.send(json.dumps(execute_request(code)))
        results = (json.loads(text) for text in connection if isinstance(text, str))
        result = next(each for each in results if each["msg_type"] in {"execute_result", "error"})
    job_id = jupyter.plugin.well("queue", "--noheader", jupyter.name).split()[0]
    assert result["content"]["data"]["text/plain"] == f"(2, 'alice', '{job_id}')"


def execute_request(code: str) -> dict[str, Any]:
    message = {"msg_id": uuid4().hex, "msg_type": "execute_request", "session": uuid4().hex}
    return {
        "header": {**message, "username": "", "version": "5.3"},
        "parent_header": {},
        "metadata": {},
        "content": {"code": code, "silent": False},
        "channel": "shell",
        "buffers": [],
    }


def test_nobody_else_can_read_the_token(jupyter: ServedRecipe) -> None:
    assert "Jupyter Server" in jupyter.log()
    assert jupyter.password not in jupyter.log()
    assert jupyter.readable_copies() == []


@pytest.mark.nightly
def test_a_notebook_in_a_browser(bed: Bed, jupyter: ServedRecipe) -> None:
    with browser_page(bed.places) as page:
        page.goto(f"http://{jupyter.address}/lab")
        page.fill("#password_input", jupyter.password)
        page.click("#login_submit")
        page.locator(".jp-LauncherCard[data-category=Notebook]").first.click()
        page.locator(".jp-Notebook .jp-Cell .cm-content").first.click()
        page.keyboard.type("import getpass; print(6 * 7, getpass.getuser())")
        page.keyboard.press("Shift+Enter")
        assert page.locator(".jp-Notebook .jp-OutputArea-output").first.inner_text().strip() == "42 alice"
        assert jupyter.password not in page.url
