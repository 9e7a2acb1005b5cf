"""The operator, with SlurmEndpoints on this machine's loopback: an installation refuses such addresses."""

from __future__ import annotations

from redbox_kube.runtime.program import run
from redbox_operator.slurmcluster.endpoint_addresses import EndpointAddresses

if __name__ == "__main__":
    EndpointAddresses.refusal = lambda *_: None  # type: ignore[method-assign]
    run("operator")
