"""Connections begin in few places, none of which goes where a tenant's image, registry or URL leads.

What a job names is fetched by the job itself, on its node and as its user. A new place belongs into one of
these modules, or is added here with who chooses its address.
"""

from __future__ import annotations

from pathlib import Path

from tests.lint.names import all_names, names_in

CONNECTS = {
    "ClientSession",
    "HTTPSConnection",
    "TCPConnector",
    "UnixConnector",
    "asyncio.open_connection",
    "asyncssh.connect",
    "create_connection",
    "http.client.HTTPSConnection",
    "loop.create_connection",
    "loop.getaddrinfo",
    "socket.create_connection",
    "socket.getaddrinfo",
    "urlopen",
}
PLACES = {
    "redbox/redbox_api/connections.py",  # a red-box: of administrators, or by EndpointAddresses
    "redbox/redbox/agents/transports/ssh_login.py",  # the login node of the settings
    "redbox/redbox/callers/tokens/kubernetes_api.py",  # keys and reviews of tokens: the settings name them
    "redbox/redbox/jobs/poll/node_addresses.py",  # names of Slurm's nodes, resolved
    "companion/redbox_companion/connection/http_connection.py",  # the red-box that the operator names
    "operator/redbox_hosting/slurm/http_exchange.py",  # a cluster's own slurmrestd, by its certificate
    "operator/redbox_operator/slurmjob/kopf_session.py",  # the API server
    "cli/kubectl_slurm/slurmjobs/redbox/requests.py",  # the red-box of a SlurmCluster, on a user's machine
}


def test_no_program_of_ours_connects_to_what_a_tenant_names() -> None:
    assert {file for file, _, name in all_names() if name in CONNECTS} == PLACES


def test_another_place_is_found(tmp_path: Path) -> None:
    (tmp_path / "pull.py").write_text("from urllib.request import urlopen\n\n\ndef f(i): return urlopen(i)\n")
    assert {name for _, name in names_in(tmp_path / "pull.py")} & CONNECTS == {"urlopen"}
