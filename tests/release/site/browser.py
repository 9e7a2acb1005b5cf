"""A real Chromium without a window, driven by Debian's chromedriver (W3C WebDriver)."""

from __future__ import annotations

import base64
import json
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.ports import free_port

STARTS_WITHIN_S = 60
WITHIN_S = 60
# Without these, Chromium looks for updates and hosts of its maker at each start.
OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
    "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update",
    "--disable-sync",
)  # fmt: skip
_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"


@dataclass(frozen=True)
class Browser:
    """One window."""

    session: str
    http: httpx.Client

    def open(self, address: str) -> None:
        self._post("url", url=address)

    def script(self, source: str, *arguments: object) -> Any:
        """What a function body of JavaScript returns."""
        return self._post("execute/sync", script=source, args=list(arguments))

    def before_each_page(self, source: str) -> None:
        """A script that each page runs before its own."""
        self._devtools("Page.addScriptToEvaluateOnNewDocument", source=source)

    def click(self, selector: str) -> None:
        self._post(f"element/{self._find(selector)}/click")

    def type(self, text: str) -> None:
        """Into what has the focus."""
        self._devtools("Input.insertText", text=text)

    def resize(self, width: int, height: int) -> None:
        """The page's size: a window of Chromium has a least width, a telephone's screen is narrower."""
        self._devtools(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )

    def refuse(self, *patterns: str) -> None:
        """Fetch no address of these patterns from now on."""
        self._devtools("Network.enable")
        self._devtools("Network.setBlockedURLs", urls=patterns)

    @property
    def address(self) -> str:
        return str(self.script("return location.href"))

    def eventually(self, source: str, *arguments: object) -> Any:
        """What the script returns, once that is true."""
        deadline = time.monotonic() + WITHIN_S
        while not (value := self.script(source, *arguments)):
            assert time.monotonic() < deadline, f"{source}: never true at {self.address}"
            time.sleep(0.1)
        return value

    def requests(self) -> list[str]:
        """The address of each request since the last time."""
        entries = self._post("se/log", type="performance")
        events = (json.loads(entry["message"])["message"] for entry in entries)
        return [
            event["params"]["request"]["url"]
            for event in events
            if event["method"] == "Network.requestWillBeSent"
        ]

    def errors(self) -> list[str]:
        """What the console has of errors since the last time."""
        return [
            entry["message"] for entry in self._post("se/log", type="browser") if entry["level"] == "SEVERE"
        ]

    def screenshot(self, path: Path) -> None:
        answer = self.http.get(f"{self.session}/screenshot").raise_for_status().json()
        path.write_bytes(base64.b64decode(answer["value"]))

    def _devtools(self, command: str, **parameters: object) -> None:
        self._post("goog/cdp/execute", cmd=command, params=parameters)

    def _find(self, selector: str) -> str:
        found = self._post("element", using="css selector", value=selector)
        return str(found[_ELEMENT])

    def _post(self, command: str, **body: object) -> Any:
        answer = self.http.post(f"{self.session}/{command}", json=body)
        assert answer.status_code == 200, f"{command}: {answer.text[:500]}"
        return answer.json()["value"]


@contextmanager
def started() -> Iterator[Browser]:
    """A browser with an empty profile; its processes end with the driver."""
    port = free_port()
    driver = subprocess.Popen(
        ["chromedriver", f"--port={port}", "--log-level=WARNING"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    try:
        with (
            httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as http,
            tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile,
        ):
            _wait(lambda: http.get("/status").json()["value"]["ready"])
            chrome = {"binary": "/usr/bin/chromium", "args": [*OPTIONS, f"--user-data-dir={profile}"]}
            wanted = {
                "browserName": "chrome",
                "goog:chromeOptions": chrome,
                "goog:loggingPrefs": {"performance": "ALL", "browser": "ALL"},
            }
            answer = http.post("/session", json={"capabilities": {"alwaysMatch": wanted}}).raise_for_status()
            session = f"/session/{answer.json()['value']['sessionId']}"
            try:
                yield Browser(session, http)
            finally:
                http.delete(session)
    finally:
        driver.terminate()
        driver.wait(WITHIN_S)


def _wait(look: Callable[[], bool]) -> None:
    deadline = time.monotonic() + STARTS_WITHIN_S
    while True:
        try:
            if look():
                return
        except httpx.TransportError:
            pass
        assert time.monotonic() < deadline, "chromedriver did not start"
        time.sleep(0.1)
