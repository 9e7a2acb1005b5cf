"""What is made of a profiler's samples."""

from __future__ import annotations

from tests.bench.profiles import summary

SAMPLES = """\
main (serve.py:3);poll (poller.py:10);match (queue.py:7) 6
main (serve.py:3);poll (poller.py:12);poll (poller.py:10) 3
main (serve.py:3) 1
"""


def test_a_function_has_its_own_share_and_that_with_what_it_calls() -> None:
    text = summary(SAMPLES)
    own, whole = text.split("with what they call")
    assert "10 samples" in own
    assert "60.0%  match (queue.py" in own
    assert "30.0%  poll (poller.py" in own
    assert "100.0%  main (serve.py" in whole
    assert "90.0%  poll (poller.py" in whole
