"""A connection serves one request after another; one that was closed meanwhile costs nothing but another."""

from __future__ import annotations

import json
import threading

import pytest

from redbox_companion import redbox_client
from redbox_companion.redbox_client import BlockingClient, RedboxUnreachable
from redbox_companion.settings import CompanionSettings
from tests.companion.fakes import ScriptedServer
from tests.companion.harness import Pod

JOB = {"phase": "Running", "jobID": "7", "state": "RUNNING"}
PATH, QUERY = "/v1/jobs/key", {"attempt": 1}


@pytest.fixture
def client(redbox: ScriptedServer, pod: Pod) -> BlockingClient:
    redbox.job = JOB
    return BlockingClient(CompanionSettings(pod.environ))


def test_a_jobs_life_takes_few_connections(redbox: ScriptedServer, pod: Pod) -> None:
    redbox.logs = {"stdout": b"the job's\n", "stderr": b"and more\n"}
    assert pod.run().stdout == b"the job's\n"
    assert len(redbox.asked) >= 7
    assert redbox.connections in {2, 3}  # the two logs are read at once, and beside them perhaps the job


def test_a_connection_that_is_closed_after_its_response_is_replaced_unnoticed(
    redbox: ScriptedServer, client: BlockingClient
) -> None:
    redbox.drop_after = 1
    answers = [client.request("GET", PATH, QUERY) for _ in range(3)]
    assert [answer.body["jobID"] for answer in answers] == ["7"] * 3
    assert redbox.connections == len(redbox.asked) == 3


def test_a_response_that_nobody_asked_for_is_none_of_the_next_request(
    redbox: ScriptedServer, client: BlockingClient
) -> None:
    """As of a proxy that gives up an idle connection with a status 408, or of a broken one."""
    foreign = json.dumps({**JOB, "jobID": "8"}).encode()
    redbox.unasked = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(foreign), foreign)
    assert client.request("GET", PATH, QUERY).body["jobID"] == "7"
    assert redbox.sent_unasked.wait(60)
    assert client.request("GET", PATH, QUERY).body["jobID"] == "7"
    assert redbox.connections == 2


def test_a_connection_that_is_closed_during_a_request_is_replaced_once(
    redbox: ScriptedServer, client: BlockingClient
) -> None:
    client.request("GET", PATH, QUERY)
    redbox.strange = [b"", b""]
    with pytest.raises(RedboxUnreachable):
        client.request("GET", PATH, QUERY)
    assert redbox.connections == 2
    assert client.request("GET", PATH, QUERY).body["jobID"] == "7"


def test_a_silent_server_is_not_waited_for_twice(redbox: ScriptedServer, client: BlockingClient) -> None:
    client.request("GET", PATH, QUERY)
    released = threading.Event()
    redbox.hold = released
    try:
        with pytest.raises(RedboxUnreachable, match="timed out"), client.stream(PATH, QUERY, silent_s=0.2):
            pass
    finally:
        released.set()
    assert redbox.connections == 1


def test_two_requests_at_once_have_a_connection_each(redbox: ScriptedServer, client: BlockingClient) -> None:
    with client.stream(PATH, QUERY) as first, client.stream(PATH, QUERY) as second:
        assert (second.whole().body["jobID"], first.whole().body["jobID"]) == ("7", "7")
    assert redbox.connections == 2
    for _ in range(3):
        client.request("GET", PATH, QUERY)
    assert redbox.connections == 2


def test_a_response_that_was_not_read_to_its_end_leaves_no_connection(
    redbox: ScriptedServer, client: BlockingClient
) -> None:
    redbox.logs["stdout"] = b"x" * 100
    with client.stream(f"{PATH}/logs/stdout", {**QUERY, "offset": 0}) as stream:
        assert stream.read(10) == b"x" * 10
    assert client.request("GET", PATH, QUERY).body["jobID"] == "7"
    assert redbox.connections == 2


def test_a_connection_that_was_idle_for_long_is_not_used(
    redbox: ScriptedServer, client: BlockingClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.request("GET", PATH, QUERY)
    monkeypatch.setattr(redbox_client, "REUSED_S", 0.0)
    client.request("GET", PATH, QUERY)
    assert redbox.connections == 2
