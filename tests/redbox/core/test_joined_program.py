"""Modules become one file, whose parts cannot shadow each other."""

from __future__ import annotations

import pytest

from redbox.core.joined_program import JoinError, join_modules


def test_modules_that_define_the_same_name_are_not_joined() -> None:
    with pytest.raises(JoinError, match="both define SIZE"):
        join_modules("some.program", {"a": "SIZE = 1\n", "b": "SIZE: int = 2\n"}, "")


def test_an_import_of_a_module_that_is_not_joined_is_refused() -> None:
    with pytest.raises(JoinError, match="a imports pipes"):
        join_modules("some.program", {"a": "from redbox.node.program.pipes import SIZE\n"}, "")


def test_imports_of_each_other_are_left_out_and_all_else_is_kept() -> None:
    joined = join_modules(
        "some.program",
        {
            "a": '"""A."""\nimport os\n\nX = os.sep\n',
            "b": "from some.program.a import (\n    X,\n)\n\nY = X\n",
        },
        "# head",
    )
    namespace: dict[str, object] = {}
    exec(compile(joined, "joined", "exec"), namespace)
    assert namespace["Y"] == "/"
    assert joined.startswith("# head\n")
