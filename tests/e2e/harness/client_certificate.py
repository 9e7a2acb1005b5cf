"""Client certificates of the cluster's own CA, as `kubectl certificate approve` gives them."""

from __future__ import annotations

import subprocess
import time
from base64 import b64decode, b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.e2e.harness.kubernetes import Kubernetes
from tests.e2e.harness.waiting import eventually


class ClientCertificate(NamedTuple):
    """Its files, both PEM."""

    file: Path
    key: Path


def signed(kubernetes: Kubernetes, folder: Path, user: str, groups: Sequence[str]) -> ClientCertificate:
    """One for this user of these groups, asked for and approved."""
    key, request, file = folder / "key.pem", folder / "request.pem", folder / "certificate.pem"
    subject = f"/CN={user}" + "".join(f"/O={group}" for group in groups)
    openssl = ("openssl", "req", "-newkey", "rsa:2048", "-nodes", "-keyout", str(key), "-subj", subject)
    subprocess.run([*openssl, "-out", str(request)], check=True, capture_output=True, timeout=30)
    name = f"e2e-{user}-{time.time_ns()}"
    body = {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": name},
        "spec": {
            "signerName": "kubernetes.io/kube-apiserver-client",
            "usages": ["client auth"],
            "request": b64encode(request.read_bytes()).decode(),
        },
    }
    kubernetes.create(body)
    kubernetes("certificate", "approve", name)

    def certificate() -> str:
        return str(kubernetes.get("csr", name)["status"].get("certificate", ""))

    file.write_bytes(b64decode(eventually(certificate)))
    return ClientCertificate(file, key)
