"""Callers with the real thing: tokens that the bed's API server made, its keys, its TokenReview."""

from __future__ import annotations

import json
import subprocess
import time
from base64 import b64decode
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml

from redbox.callers.authenticator import Authenticator
from redbox.callers.errors import (
    AuthenticationUnavailable,
    NotMapped,
    TokenFault,
    Unauthenticated,
)
from redbox.callers.unix_accounts import AccountLookup, AccountResolver, NssPolicy, UnixAccount
from redbox.core.clock import SystemClock
from redbox.core.domain import Caller, UnixUser
from redbox.settings import load_settings, rules_in_force
from redbox_bed.bed import Bed
from redbox_bed.images.node_images import BUSYBOX

AUDIENCE = "redbox.dev/hpc1/4f0c5dd1e2"
WITHIN_S = 110


@dataclass(frozen=True)
class Cluster:
    """The bed's Kubernetes, as its administrator sees it, and a namespace of this test's own."""

    kubectl_path: Path
    kubeconfig: Path
    namespace: str
    folder: Path

    def kubectl(self, *arguments: str, stdin: str = "") -> str:
        command = [
            str(self.kubectl_path),
            f"--kubeconfig={self.kubeconfig}",
            f"--namespace={self.namespace}",
            *arguments,
        ]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, timeout=90)
        assert done.returncode == 0, done.stderr
        return done.stdout

    @property
    def server(self) -> str:
        return str(self._cluster["server"])

    def ca_file(self) -> Path:
        path = self.folder / "kube-ca.crt"
        path.write_bytes(b64decode(self._cluster["certificate-authority-data"]))
        return path

    @property
    def _cluster(self) -> dict[str, str]:
        found: dict[str, str] = yaml.safe_load(self.kubeconfig.read_text())["clusters"][0]["cluster"]
        return found

    def issuer(self) -> str:
        return str(json.loads(self.kubectl("get", "--raw", "/.well-known/openid-configuration"))["issuer"])

    def make_namespace(self) -> None:
        self.kubectl("create", "namespace", self.namespace)
        self.kubectl("wait", "serviceaccount/default", "--for=create", f"--timeout={WITHIN_S}s")

    def token(self, *options: str, account: str = "default", audience: str = AUDIENCE) -> str:
        return self.kubectl("create", "token", account, f"--audience={audience}", *options).strip()

    def start_pod(self, name: str = "run-job") -> str:
        """Start a pod as the operator makes companions, and return the token that it finds in its volume."""
        projected = {
            "serviceAccountToken": {"audience": AUDIENCE, "expirationSeconds": 3600, "path": "token"}
        }
        mount = {"name": "redbox", "mountPath": "/var/run/secrets/redbox", "readOnly": True}
        container = {
            "name": "companion",
            "image": BUSYBOX,
            "imagePullPolicy": "Never",
            "command": ["sleep", "3600"],
            "volumeMounts": [mount],
        }
        spec = {
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
            "volumes": [{"name": "redbox", "projected": {"sources": [projected]}}],
        }
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        self.kubectl("apply", "--filename=-", stdin=json.dumps(pod))
        self.kubectl("wait", f"pod/{name}", "--for=condition=Ready", f"--timeout={WITHIN_S}s")
        return self.kubectl("exec", name, "--", "cat", "/var/run/secrets/redbox/token").strip()

    def uid_of(self, thing: str) -> str:
        return self.kubectl("get", thing, "--output=jsonpath={.metadata.uid}")


@pytest.fixture
def cluster(bed: Bed, tmp_path: Path) -> Iterator[Cluster]:
    name = f"callers-{uuid4().hex[:8]}"
    cluster = Cluster(bed.places.state / "bin" / "kubectl", bed.places.kubeconfig, name, tmp_path)
    cluster.make_namespace()
    yield cluster
    cluster.kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture
def reviewer(cluster: Cluster) -> Iterator[Path]:
    """A file with a token that may create TokenReviews."""
    binding = f"{cluster.namespace}-reviewer"
    cluster.kubectl("create", "serviceaccount", "reviewer")
    cluster.kubectl(
        "create",
        "clusterrolebinding",
        binding,
        "--clusterrole=system:auth-delegator",
        f"--serviceaccount={cluster.namespace}:reviewer",
    )
    path = cluster.folder / "reviewer.token"
    path.write_text(cluster.kubectl("create", "token", "reviewer"))
    yield path
    cluster.kubectl("delete", "clusterrolebinding", binding)


class Alice:
    """The one account of these tests' login node."""

    def account(self, name: str) -> UnixAccount | None:
        return UnixAccount("alice", 2001, frozenset({2001})) if name == "alice" else None

    def account_of(self, uid: int) -> UnixAccount | None:
        return self.account("alice") if uid == 2001 else None

    def group(self, name: str) -> int | None:
        return None if name else 0


@asynccontextmanager
async def red_box(cluster: Cluster, **trusted: Any) -> AsyncIterator[Authenticator]:
    """Red-box's door, with this namespace mapped to alice."""
    entry = {
        "name": "bed",
        "issuer": cluster.issuer(),
        "audience": AUDIENCE,
        "jwks_url": f"{cluster.server}/openid/v1/jwks",
        "jwks_ca_file": str(cluster.ca_file()),
        **trusted,
    }
    written = {
        "name": "hpc1",
        "callers": {"clusters": [{key: value for key, value in entry.items() if value is not None}]},
        "mapping": {"rules": [{"cluster": "bed", "namespaces": [cluster.namespace], "user": "alice"}]},
    }
    path = cluster.folder / "redbox.yaml"
    path.write_text(json.dumps(written))
    settings, clock = load_settings(path), SystemClock()
    host: AccountLookup = Alice()
    accounts = AccountResolver(host, NssPolicy(), clock)
    rules = rules_in_force(settings, path)
    async with Authenticator.from_settings(settings.callers, rules, clock, accounts) as authenticator:
        yield authenticator


async def knock(door: Authenticator, token: str) -> Caller:
    return await door.authenticate_headers([(b"authorization", b"Bearer " + token.encode())], None)


async def test_the_token_of_a_pod_is_its_namespaces_user(cluster: Cluster) -> None:
    async with red_box(cluster) as door:
        caller = await knock(door, cluster.start_pod())
    assert caller.user == UnixUser("alice", 2001)
    assert caller.identity == f"system:serviceaccount:{cluster.namespace}:default"
    assert caller.owner.account_uid == cluster.uid_of("serviceaccount/default")


async def test_keys_from_a_file_do_as_well_as_from_the_url(cluster: Cluster) -> None:
    keys = cluster.folder / "jwks.json"
    keys.write_text(cluster.kubectl("get", "--raw", "/openid/v1/jwks"))
    async with red_box(cluster, jwks_url=None, jwks_ca_file=None, jwks_file=str(keys)) as door:
        assert (await knock(door, cluster.token())).user == UnixUser("alice", 2001)


async def test_tokens_for_others_are_refused(cluster: Cluster) -> None:
    server = cluster.issuer()
    async with red_box(cluster) as door:
        for audience, fault in (
            (server, TokenFault.AUDIENCE),
            ("vault", TokenFault.AUDIENCE),
            (AUDIENCE + "x", TokenFault.AUDIENCE),
        ):
            with pytest.raises(Unauthenticated) as refusal:
                await knock(door, cluster.token(audience=audience))
            assert refusal.value.fault is fault
        with pytest.raises(Unauthenticated, match="the token is for 2 audiences"):
            await knock(door, cluster.token("--audience=vault"))


async def test_a_token_that_lives_for_longer_than_an_hour_is_refused(cluster: Cluster) -> None:
    async with red_box(cluster) as door:
        with pytest.raises(Unauthenticated, match="issued for 7200 s; at most 3600 s") as refusal:
            await knock(door, cluster.token("--duration=2h"))
    assert refusal.value.fault is TokenFault.LIVES_TOO_LONG


async def test_a_namespace_without_a_rule_is_refused_with_the_identity_seen(cluster: Cluster) -> None:
    token = cluster.kubectl(
        "create", "token", "default", f"--audience={AUDIENCE}", "--namespace=kube-public"
    ).strip()
    async with red_box(cluster) as door:
        with pytest.raises(NotMapped, match="system:serviceaccount:kube-public:default of cluster bed"):
            await knock(door, token)


async def test_an_account_made_anew_under_an_old_name_owns_nothing_of_the_old_one(cluster: Cluster) -> None:
    cluster.kubectl("create", "serviceaccount", "runner")
    async with red_box(cluster) as door:
        before = await knock(door, cluster.token(account="runner"))
        cluster.kubectl("delete", "serviceaccount", "runner")
        cluster.kubectl("create", "serviceaccount", "runner")
        after = await knock(door, cluster.token(account="runner"))
    assert before.user == after.user
    assert before.owner != after.owner


async def test_offline_a_token_outlives_its_pod_and_with_a_review_it_does_not(
    cluster: Cluster, reviewer: Path
) -> None:
    review = {
        "server": cluster.server,
        "ca_file": str(cluster.ca_file()),
        "token_file": str(reviewer),
        "cache": 0,
    }
    async with red_box(cluster) as offline, red_box(cluster, token_review=review) as asking:
        token = cluster.start_pod()
        assert (await knock(asking, token)).user == UnixUser("alice", 2001)
        cluster.kubectl("delete", "pod", "run-job")
        refusal = await refusal_of(asking, token)
        assert refusal.fault is TokenFault.REVOKED
        assert (await knock(offline, token)).user == UnixUser("alice", 2001)


async def refusal_of(door: Authenticator, token: str) -> Unauthenticated:
    """The API server believes its own answer for up to ten seconds."""
    deadline = time.monotonic() + WITHIN_S
    while time.monotonic() < deadline:
        try:
            await knock(door, token)
        except Unauthenticated as refusal:
            return refusal
    pytest.fail(f"the token was not refused within {WITHIN_S} s")


async def test_a_reviewer_without_the_right_is_a_503_and_not_a_401(cluster: Cluster) -> None:
    powerless = cluster.folder / "powerless.token"
    powerless.write_text(cluster.kubectl("create", "token", "default"))
    review = {"server": cluster.server, "ca_file": str(cluster.ca_file()), "token_file": str(powerless)}
    async with red_box(cluster, token_review=review) as door:
        with pytest.raises(AuthenticationUnavailable, match="TokenReview of cluster bed failed"):
            await knock(door, cluster.token())


async def test_an_api_server_out_of_reach_is_a_503_and_not_a_401(cluster: Cluster) -> None:
    async with red_box(cluster, jwks_url="https://127.0.0.1:1/openid/v1/jwks") as door:
        with pytest.raises(AuthenticationUnavailable, match="keys of cluster bed are not available"):
            await knock(door, cluster.token())


async def test_a_token_that_was_tampered_with_is_refused(cluster: Cluster) -> None:
    head, payload, signature = cluster.token().split(".")
    async with red_box(cluster) as door:
        for changed in (
            f"{head}.{payload}.{signature[:-8]}AAAAAAAA",
            f"{head}.{payload[:-4]}AAAA.{signature}",
            f"{head}.{payload}.",
        ):
            with pytest.raises(Unauthenticated):
                await knock(door, changed)
