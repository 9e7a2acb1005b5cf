"""What holds for every test: those on the bed are collected only when they were chosen.

Chosen means `--e2e`, or a path inside tests/e2e on the command line. Whether the bed is up is for `tests/run`.
"""

from pathlib import Path

import pytest

E2E = Path(__file__).parent / "e2e"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--e2e", action="store_true", help="collect tests/e2e too, which needs the bed to be up")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    inside = collection_path == E2E
    return True if inside and not _is_chosen(config) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(E2E):
            item.add_marker(pytest.mark.e2e)


def _is_chosen(config: pytest.Config) -> bool:
    named = (config.invocation_params.dir / argument.partition("::")[0] for argument in config.args)
    return bool(config.getoption("e2e")) or any(path.resolve().is_relative_to(E2E) for path in named)
