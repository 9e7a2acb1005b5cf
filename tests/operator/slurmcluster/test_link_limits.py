"""What the operator holds of an answer, by who vouches for the red-box that sends it."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import UTC, datetime

import pytest

from redbox.server.certificates import make_authority
from redbox_api.limits.answer_limits import OutOfBounds
from redbox_clusters.redbox_token import ServiceAccountName
from redbox_operator.slurmcluster.endpoint_addresses import EndpointAddresses
from redbox_operator.slurmcluster.job_feed import link_to
from redbox_operator.slurmcluster.status_lag import StatusLag
from tests.kube.fakes import FakeApiServer
from tests.operator.factories import slurm_cluster, slurm_endpoint

MORE_THAN_ALL = 512 << 20
"""Bytes: the operator's limit in the chart."""


def test_a_link_to_a_slurmendpoint_holds_less_of_an_answer() -> None:
    """64 MiB of rows are a gigabyte as objects: more than the operator may have."""
    authority = make_authority("farm", datetime.now(UTC)).certificate
    for cluster, longest in ((slurm_cluster(), 64 << 20), (slurm_endpoint(), 2 << 20)):
        spec = cluster.spec.model_copy(update={"ca_bundle": authority})
        link = link_to(
            cluster.model_copy(update={"spec": spec}),
            FakeApiServer().client,
            ServiceAccountName("redbox-system", "redbox-operator"),
            changed=print,
            turned=print,
            namespace_of=lambda _: None,
            partitions_changed=print,
            addresses=EndpointAddresses(),
            lag=StatusLag(),
        )
        assert link.client.limits.longest == longest
        refused = pytest.raises(OutOfBounds, match="SlurmEndpoints") if cluster.namespace else nullcontext()
        with refused, link.client._memory.answer() as held:
            held.resize(MORE_THAN_ALL)
