"""The page about controllers shows the example that is tested."""

from __future__ import annotations

from tests.lint.sources import ROOT


def test_the_page_has_the_example() -> None:
    page = (ROOT / "docs/developers/controllers.md").read_text()
    assert f"```python\n{(ROOT / 'tests/kube/controller/greetings.py').read_text()}```" in page
