"""Modules become one file, whose parts cannot shadow each other."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from redbox.node.joined_program import JoinError, join_modules


def test_modules_that_define_the_same_name_are_not_joined() -> None:
    with pytest.raises(JoinError, match="both define SIZE"):
        join_modules("some.program", {"a": "SIZE = 1\n", "b": "SIZE: int = 2\n"}, "")


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


def test_a_late_module_is_imported_when_it_is_first_used() -> None:
    text = (
        "import colorsys\nfrom typing import Dict, NamedTuple\n\nMap = Dict[str, int]\n\n\n"
        "class Pair(NamedTuple):\n    '''Two.'''\n\n    first: int\n    second: Map\n\n"
        "    def total(self) -> 'colorsys.none':\n        return self.first\n\n\n"
        "def hue() -> Dict[str, float]:\n    return colorsys.rgb_to_hsv(0, 1, 0)[0]\n"
    )
    joined = join_modules("some.program", {"a": text}, "", late=frozenset({"colorsys", "typing"}))
    program = f"import sys\n{joined}\nprint(*('colorsys' in sys.modules, 'typing' in sys.modules))\n"
    program += "print(*Pair(1, {}), Pair(first=2, second={}).total(), hue() * 3, 'colorsys' in sys.modules)\n"
    done = subprocess.run([sys.executable, "-IS", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False False\n1 {} 2 1.0 True\n"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("from json import dumps\n", "from json import dumps: a late import is `import MODULE`"),
        (
            "from typing import NamedTuple\n\n\nclass A(NamedTuple):\n    x: int = 1\n",
            "A: a field of a named tuple has no default here",
        ),
    ],
)
def test_what_has_no_stand_in_is_not_joined(text: str, why: str) -> None:
    with pytest.raises(JoinError, match=re.escape(why)):
        join_modules("some.program", {"a": text}, "", late=frozenset({"json", "typing"}))
