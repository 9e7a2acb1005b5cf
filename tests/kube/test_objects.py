"""How the API server is reached."""

from __future__ import annotations

import pytest

from redbox_kube.objects import proxy_in_environment

API = "https://10.96.0.1:443"
PROXY = "http://proxy.example:3128"


@pytest.mark.parametrize(
    ("environment", "proxy"),
    [
        ({}, None),
        ({"HTTPS_PROXY": PROXY}, PROXY),
        ({"HTTP_PROXY": PROXY}, None),
        ({"HTTPS_PROXY": PROXY, "NO_PROXY": "10.96.0.1"}, None),
        ({"HTTPS_PROXY": PROXY, "NO_PROXY": ".example"}, PROXY),
        ({"HTTPS_PROXY": PROXY, "NO_PROXY": "*"}, None),
    ],
)
def test_a_proxy_is_used_as_the_environment_has_it(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], proxy: str | None
) -> None:
    for name in ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert proxy_in_environment(API) == proxy
