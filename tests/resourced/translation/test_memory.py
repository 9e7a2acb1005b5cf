"""How much memory the job requests, of what its containers name."""

from __future__ import annotations

from typing import Any

import pytest

from tests.resourced.translation.factories import limited, pod, requested

GIVEN, NONE = {"memory": "64Mi"}, {"cpu": "1"}


@pytest.mark.parametrize(
    ("main", "sidecar", "early", "pods_own", "memory"),
    [
        (NONE, GIVEN, GIVEN, {}, None),
        (GIVEN, NONE, GIVEN, {}, None),
        (GIVEN, GIVEN, NONE, {}, f"{2 * 64 + 2 * 30}M"),
        (NONE, GIVEN, GIVEN, {"limits": {"memory": "1Gi"}}, f"{1024 + 2 * 30}M"),
    ],
)
def test_a_container_that_names_no_memory_is_not_held_to_that_of_the_others(
    main: dict[str, str],
    sidecar: dict[str, str],
    early: dict[str, str],
    pods_own: dict[str, Any],
    memory: str | None,
) -> None:
    """An injected sidecar has a limit; the program beside it is unlimited in Kubernetes."""
    given = pod(
        limited("main", main),
        initContainers=[limited("early", early), limited("proxy", sidecar, restartPolicy="Always")],
        resources=pods_own,
    )
    assert requested(given).resources.mem_per_node == memory
