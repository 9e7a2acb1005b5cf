"""The external metrics API, served by a stand-in for prometheus-adapter on the bed's login host.

prometheus-adapter's Go module cannot be had here. What it would answer by examples/scaling/adapter.yaml is
answered by some lines of Python, from the same numbers of red-box. The API server, the
HorizontalPodAutoscaler and what it scales are real.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import yaml

from redbox.server.certificates import issue_server, make_authority
from redbox_bed.core.plan import SERVICE_PORT
from redbox_bed.hosts.host import Daemon, Host
from tests.e2e.harness.kubernetes import Kubernetes

NAME = "e2e-metrics-adapter"
NAMESPACE = "kube-system"
FOLDER = f"/opt/{NAME}"
PORT = 14444
GROUP, VERSION = "external.metrics.k8s.io", "v1beta1"
PROGRAM = f"""\
import http.server, json, re, ssl, time, urllib.parse, urllib.request

BASE = "/apis/{GROUP}/{VERSION}"
METRIC = "slurm_partition_jobs_pending"
TOKEN = open("{FOLDER}/token").read().strip()


def numbers(name):
    context = ssl.create_default_context(cafile="{FOLDER}/redbox-ca.crt")
    context.check_hostname = False
    url = "https://127.0.0.1:{SERVICE_PORT}/metrics/slurm/partitions"
    request = urllib.request.Request(url, headers={{"authorization": "Bearer " + TOKEN}})
    text = urllib.request.urlopen(request, context=context, timeout=20).read().decode()
    return dict(re.findall(r'^%s\\{{partition="(\\w+)"\\}} (\\S+)$' % name, text, re.MULTILINE))


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        path = urllib.parse.urlsplit(self.path)
        if path.path == BASE:
            resource = {{"name": METRIC, "singularName": "", "namespaced": True, "verbs": ["get"],
                        "kind": "ExternalMetricValueList"}}
            body = {{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "{GROUP}/{VERSION}",
                    "resources": [resource]}}
        elif path.path.endswith("/" + METRIC):
            selector = urllib.parse.parse_qs(path.query).get("labelSelector", [""])[0]
            labels = dict(term.split("=") for term in selector.split(","))
            waits = float(numbers(METRIC)[labels["partition"]])
            held = float(numbers("slurm_partition_jobs_hold")[labels["partition"]])
            item = {{"metricName": METRIC, "metricLabels": labels, "value": str(int(waits - held)),
                    "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}}
            body = {{"kind": "ExternalMetricValueList", "apiVersion": "{GROUP}/{VERSION}", "metadata": {{}},
                    "items": [item]}}
        else:
            self.send_error(404)
            return
        content = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


server = http.server.ThreadingHTTPServer(("0.0.0.0", {PORT}), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("{FOLDER}/server.crt", "{FOLDER}/server.key")
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
"""
DAEMON = Daemon(NAME, ("/usr/bin/python3", f"{FOLDER}/adapter.py"))


@contextmanager
def external_metrics(login: Host, kubernetes: Kubernetes, token: str, authority: bytes) -> Iterator[None]:
    """The API is there. `token` may read red-box's metrics, and `authority` is red-box's CA."""
    own = make_authority(NAME, datetime.now(UTC))
    pair = issue_server(own, [], [login.spec.address], datetime.now(UTC))
    files: dict[str, bytes] = {
        "adapter.py": PROGRAM.encode(),
        "token": token.encode(),
        "redbox-ca.crt": authority,
        "server.crt": pair.certificate,
        "server.key": pair.key,
    }
    login.run("install", "-d", "-m", "700", FOLDER)
    for name, content in files.items():
        login.write(f"{FOLDER}/{name}", content, mode=0o600)
    login.ensure(DAEMON)
    manifests = yaml.safe_dump_all(_objects(login.spec.address))
    try:
        kubernetes.apply(manifests)
        kubernetes("wait", "--for=condition=Available", f"apiservice/{VERSION}.{GROUP}", "--timeout=60s")
        yield
    finally:
        kubernetes("delete", "--ignore-not-found", "--wait=false", "--filename=-", stdin=manifests)
        login.kill(NAME)
        login.run("rm", "-rf", FOLDER)


def number_of(kubernetes: Kubernetes, namespace: str, labels: str) -> int:
    """What the API says, as the HorizontalPodAutoscaler asks it."""
    path = (
        f"/apis/{GROUP}/{VERSION}/namespaces/{namespace}/slurm_partition_jobs_pending?labelSelector={labels}"
    )
    answer = json.loads(kubernetes("get", "--raw", path))
    return int(answer["items"][0]["value"])


def _objects(address: str) -> Iterator[dict[str, Any]]:
    where = {"name": NAME, "namespace": NAMESPACE}
    yield {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": where,
        "spec": {"ports": [{"port": 443, "targetPort": PORT}]},
    }
    yield {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {**where, "labels": {"kubernetes.io/service-name": NAME}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [address], "conditions": {"ready": True}}],
        "ports": [{"port": PORT, "protocol": "TCP"}],
    }
    yield {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": f"{VERSION}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "version": VERSION,
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
            "insecureSkipTLSVerify": True,
            "service": {**where, "port": 443},
        },
    }
