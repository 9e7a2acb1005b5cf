"""Where probes and hooks follow redirects to."""

from __future__ import annotations

import socket
import threading

import pytest

from redbox.runner.program.handlers import HandlerTarget, HttpPlace, follow, run_handler


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ("/b?c=d#e", (False, 8080, "/b?c=d")),
        ("b", (False, 8080, "/healthz/b")),
        ("http://10.0.0.5:8080/healthz/", (False, 8080, "/healthz/")),
        ("https://10.0.0.5", (True, 443, "/")),
        ("//10.0.0.5:8443/b", (False, 8443, "/b")),
        ("http://example.org/b", None),
        ("//10.0.0.50:8080/b", None),
    ],
)
def test_a_redirect_leads_elsewhere_on_the_host_itself(
    location: str, expected: tuple[bool, int, str] | None
) -> None:
    """As kubelets: servers name the host that they were asked by, and another host is not followed."""
    assert follow(HttpPlace(is_tls=False, port=8080, path="/healthz/a"), "10.0.0.5", location) == expected


def test_a_redirect_of_ipv6_and_one_that_is_not_a_url() -> None:
    place = HttpPlace(is_tls=False, port=80, path="/")
    assert follow(place, "fd00::5", "http://[FD00::5]:81/x") == (False, 81, "/x")
    with pytest.raises(OSError, match="not a URL"):
        follow(place, "fd00::5", "http://10.0.0.5:port/")


def test_the_status_behind_an_absolute_redirect_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that redirects to its address may fail there: it is not ready."""
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        redirect = f"HTTP/1.1 301 Moved\r\nLocation: http://127.0.0.1:{port}/x/\r\n\r\n"
        answers = {b"GET /x ": redirect, b"GET /x/ ": "HTTP/1.1 503 No\r\n\r\n"}

        def serve() -> None:
            for _ in answers:
                connection = server.accept()[0]
                with connection:
                    head = connection.recv(4096)
                    connection.sendall(
                        next(a for start, a in answers.items() if head.startswith(start)).encode()
                    )

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        target = HandlerTarget(None, "/", "127.0.0.1", lambda: False)
        found = run_handler({"httpPort": port, "httpPath": "/x"}, target, 60)
        thread.join(60)
    assert found == (False, "HTTP probe failed with statuscode: 503")
