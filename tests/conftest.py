"""Which tests run, in which order, and on what: the three suites `lint`, `unit` and `e2e`.

A suite is chosen by `--suite NAME`, or by a path inside it on the command line; without either it is `unit`.
Before the first test of e2e the bed is brought up, unless it is up. Taking it down is left to `tests/run`,
which runs whole suites by several workers (pytest-xdist), each with a bed of its own.
"""

import gc
import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Generator, Iterator
from functools import cache, partial
from pathlib import Path

import hypothesis
import pytest

from redbox_api.requests import sender
from tests.failures import FailuresAtOnce
from tests.nightly import NIGHTLY, is_nightly

ROOT = Path(__file__).parent.parent
BED = ROOT / "deploy/local/bed"
BED_STARTS_WITHIN = 45 * 60
SUITES = ("lint", "unit", "e2e")
E2E_SECONDS = (
    ROOT / "tests/e2e/seconds.json"
)  # of each file in a whole run, which rewrites it with TEST_SECONDS=1
UNMEASURED = 30.0

bed_fault = pytest.StashKey[str]()

# An example may take longer than its deadline on a busy machine: that is no fault.
hypothesis.settings.register_profile("red-box", deadline=None)
hypothesis.settings.load_profile("red-box")


@cache  # asked several times of each of thousands of tests
def suite_of(path: Path) -> str:
    """Tell the suite of a file or folder by its place: all that is neither lint nor e2e is unit."""
    relative = path.relative_to(ROOT / "tests") if path.is_relative_to(ROOT / "tests") else Path()
    return relative.parts[0] if relative.parts and relative.parts[0] in SUITES else "unit"


def pytest_configure(config: pytest.Config) -> None:
    """Show failures at once, and give each worker its bed: of TEST_BEDS in turn, as DIRECTORY:PORT_OFFSET."""
    config.pluginmanager.register(FailuresAtOnce(config))
    beds, worker = os.environ.get("TEST_BEDS", "").split(), getattr(config, "workerinput", None)
    if beds and worker:
        bed = beds[int(worker["workerid"].removeprefix("gw")) % len(beds)]
        os.environ["BED_DIR"], _, os.environ["BED_PORT_OFFSET"] = bed.rpartition(":")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--suite", action="append", default=[], choices=SUITES, help="run these tests (default: unit)"
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    suite = suite_of(collection_path)
    may_hold_others = collection_path.is_dir() and suite == "unit"
    return None if suite in _chosen(config) or may_hold_others else True


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect the tests without collecting garbage: millions of objects that stay, for each worker."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not NIGHTLY and (left_out := {item for item in items if is_nightly(item)}):
        config.hook.pytest_deselected(items=[*left_out])
        items[:] = [item for item in items if item not in left_out]
    items.sort(key=lambda item: SUITES.index(suite_of(item.path)))
    for item in items:
        item.add_marker(suite_of(item.path))
    if hasattr(config, "workerinput"):
        _spread_over_workers(items)


def _spread_over_workers(items: list[pytest.Item]) -> None:
    """Mix tests of e2e, which wait, with the others, which compute; the longest files of e2e come first.

    All workers collect the same order, and each takes the next file when it has ended one.
    """
    seconds: dict[str, float] = json.loads(E2E_SECONDS.read_text())
    weights: dict[Path, float] = defaultdict(float)
    for item in items:
        if suite_of(item.path) != "e2e":
            weights[item.path] += 1
        elif item.path not in weights:
            weights[item.path] = seconds.get(item.path.relative_to(ROOT).as_posix(), UNMEASURED)
    turn: dict[Path, float] = {}
    for waits in (True, False):
        files = [path for path in weights if (suite_of(path) == "e2e") is waits]
        if waits:
            files.sort(key=lambda path: -weights[path])
        total, before = sum(weights[path] for path in files), 0.0
        for path in files:
            turn[path] = before / total
            before += weights[path]
    items.sort(key=lambda item: turn[item.path])


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Bring the bed up here, outside of the test's own deadline, where its progress can be shown."""
    if suite_of(item.path) == "e2e" and bed_fault not in item.config.stash:
        capture = item.config.pluginmanager.getplugin("capturemanager")
        with capture.global_and_fixture_disabled():
            item.config.stash[bed_fault] = _bring_up_bed()
    return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if fault := item.config.stash.get(bed_fault, ""):
        item.session.shouldfail = fault
        pytest.fail(fault, pytrace=False)


@pytest.fixture(scope="session", autouse=True)
def _a_connection_may_take_a_minute() -> Iterator[None]:
    """Red-box's client gives up after five seconds, in which a busy machine may not give it a turn."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sender, "Deadlines", partial(sender.Deadlines, connect=60))
        yield


def _chosen(config: pytest.Config) -> set[str]:
    arguments = config.args if config.args_source == config.ArgsSource.ARGS else []
    named = (config.invocation_params.dir / argument.partition("::")[0] for argument in arguments)
    by_path = {suite_of(path.resolve()) for path in named}
    return set(config.getoption("suite")) or by_path or {"unit"}


def _bring_up_bed() -> str:
    """Return what went wrong, or nothing."""
    sys.stdout.flush()
    try:
        is_up = subprocess.run([BED, "status"], check=False, capture_output=True, timeout=120).returncode == 0
        if is_up and not os.environ.get("BED_RELEASE"):  # else `up` says if it is of another release
            return ""
        print()
        ended = subprocess.run([BED, "up"], check=False, stdin=subprocess.DEVNULL, timeout=BED_STARTS_WITHIN)
    except (OSError, subprocess.TimeoutExpired) as fault:
        return f"the bed did not come up: {fault}"
    return (
        "" if ended.returncode == 0 else "the bed did not come up: see what `deploy/local/bed up` said above"
    )


CPU_SECONDS = "CPU seconds"
file_seconds: dict[str, float] = defaultdict(float)
file_cpu_seconds: dict[str, float] = defaultdict(float)
cpu_before: list[float] = []


def pytest_collection_finish() -> None:
    cpu_before.append(cpu_seconds())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Send along what this process and its children have computed since the last report."""
    report = yield
    before, now = cpu_before.pop(), cpu_seconds()
    cpu_before.append(now)
    report.user_properties.append((CPU_SECONDS, now - before))
    return report


def cpu_seconds() -> float:
    """Of this process, and of the children that have ended."""
    return sum(os.times()[:4])


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    name = report.nodeid.partition("::")[0]
    file_seconds[name] += report.duration
    file_cpu_seconds[name] += sum(
        float(str(seconds)) for what, seconds in report.user_properties if what == CPU_SECONDS
    )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Show the longest files of a whole run, and keep the seconds of all where asked."""
    if hasattr(config, "workerinput") or not config.getoption("durations", None):
        return
    for title, seconds_of in (
        ("slowest files", file_seconds),
        ("files that compute most: CPU of the tests and their children, without the beds'", file_cpu_seconds),
    ):
        terminalreporter.section(title)
        for name, seconds in sorted(seconds_of.items(), key=lambda entry: -entry[1])[:25]:
            terminalreporter.write_line(f"{seconds:7.1f} s  {name}")
    if os.environ.get("TEST_SECONDS"):
        measured = {name: round(seconds) for name, seconds in sorted(file_seconds.items()) if "/e2e/" in name}
        E2E_SECONDS.write_text(json.dumps(measured, indent=1) + "\n")
