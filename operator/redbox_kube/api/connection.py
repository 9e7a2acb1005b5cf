"""The connection to the API server: configuration, authentication and proxy."""

from __future__ import annotations

import os
from asyncio.sslproto import SSLProtocol
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from redbox_kube.api.kubernetes_client import client, config

LARGEST_READ = 16 << 10
"""Each TLS connection of asyncio keeps a buffer of this size, by default of 256 KiB; each watch has one.

A record of TLS is no larger."""


async def connected_client() -> client.ApiClient:
    """Use the pod's service account, or the kubeconfig outside of a cluster; raises ConfigException."""
    if "KUBERNETES_SERVICE_HOST" in os.environ and "KUBECONFIG" not in os.environ:
        config.load_incluster_config()  # type: ignore[no-untyped-call]
    else:
        await config.load_kube_config()  # type: ignore[no-untyped-call]
    settings = client.Configuration.get_default_copy()
    SSLProtocol.max_size = LARGEST_READ
    settings.connection_pool_maxsize = 0  # unlimited: each virtual node has a watch, which holds a connection
    # With trust_env, aiohttp reads the environment in two threads for each request: a quarter of its cost.
    settings.client_session_kwargs = {"trust_env": False}
    settings.proxy = settings.proxy or proxy_in_environment(settings.host)
    return client.ApiClient(settings)


def proxy_in_environment(url: str) -> str | None:
    """The proxy for this URL, by HTTPS_PROXY, HTTP_PROXY and NO_PROXY."""
    parts = urlsplit(url)
    return None if proxy_bypass(parts.netloc) else getproxies().get(parts.scheme)
