"""The user and the group that a container asks to see itself as."""

from __future__ import annotations

from typing import Any

import pytest

from redbox_clusters.slurm_cluster import PodsSpec, PodUsers
from redbox_resourced.translation.errors import Unsupported
from redbox_resourced.translation.pod import TargetPartition, translate
from redbox_resourced.translation.references import PodReferences
from tests.resourced.translation.factories import container, pod

Asked = dict[str, Any]


def shown(pods: Asked, own: Asked, users: PodUsers = PodUsers.MAP) -> tuple[int | None, int | None]:
    given = pod(container(securityContext=own), securityContext=pods)
    request = translate(given, PodReferences(), PodsSpec(users=users), TargetPartition("debug"))
    assert request.pod is not None
    (main,) = request.pod.containers
    return main.run_as_user, main.run_as_group


@pytest.mark.parametrize(
    ("pods", "own", "expected"),
    [
        ({}, {}, (None, None)),
        ({"runAsUser": 1000}, {}, (1000, 0)),
        ({"runAsUser": 1000}, {"runAsUser": 1001, "runAsGroup": 5}, (1001, 5)),
        ({"runAsUser": 1000, "fsGroup": 7}, {}, (1000, 7)),
        ({"runAsUser": 1000, "runAsGroup": 5, "fsGroup": 7}, {}, (1000, 5)),
        ({"fsGroup": 7}, {}, (None, 7)),
        ({}, {"runAsUser": 0}, (0, 0)),
        ({"runAsUser": 0, "runAsNonRoot": True}, {"runAsUser": 9}, (9, 0)),
    ],
)
def test_the_containers_own_wish_comes_first(
    pods: Asked, own: Asked, expected: tuple[int | None, int | None]
) -> None:
    assert shown(pods, own) == expected


def test_root_that_is_not_root_is_refused() -> None:
    with pytest.raises(Unsupported, match="runAsNonRoot is true and runAsUser is 0: keep one"):
        shown({"runAsNonRoot": True}, {"runAsUser": 0})


def test_nobody_is_mapped_where_the_cluster_does_not_say_so() -> None:
    with pytest.raises(Unsupported, match=r"pods\.users: map"):
        shown({"runAsUser": 1000}, {}, PodUsers.REFUSE)


@pytest.mark.parametrize(
    ("pods", "own", "expected"),
    [
        (None, None, False),
        ("RuntimeDefault", None, True),
        (None, "RuntimeDefault", True),
        ("RuntimeDefault", "Unconfined", False),
        ("Unconfined", "RuntimeDefault", True),
    ],
)
def test_the_default_filter_of_system_calls_is_for_those_that_ask(
    pods: str | None, own: str | None, *, expected: bool
) -> None:
    contexts = [{"seccompProfile": {"type": kind}} if kind else {} for kind in (pods, own)]
    given = pod(container(securityContext=contexts[1]), securityContext=contexts[0])
    request = translate(given, PodReferences(), PodsSpec(), TargetPartition("debug"))
    assert request.pod is not None
    assert request.pod.containers[0].default_seccomp is expected
