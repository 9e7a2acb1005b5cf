"""Prints a failure when it happens: workers show dots, and the summary of a whole run comes at its end."""

from __future__ import annotations

import pytest


class FailuresAtOnce:
    """A plugin of pytest; only the process that shows a run has a reporter."""

    def __init__(self, config: pytest.Config) -> None:
        self._plugins = config.pluginmanager

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        reporter: pytest.TerminalReporter | None = self._plugins.get_plugin("terminalreporter")
        if report.failed and reporter is not None:
            where = report.nodeid if report.when == "call" else f"{report.nodeid} ({report.when})"
            reporter.write(f"\nFAILED {where}: {error_of(report)}\n", flush=True, red=True)


def error_of(report: pytest.TestReport) -> str:
    """Its first line: of the exception, or of a text that stands for it."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash is not None else report.longreprtext
    return next((line.strip() for line in text.splitlines() if line.strip()), "no reason")
