"""Pushes images to a registry, by curl on a host that reaches the registry and trusts its certificate."""

from __future__ import annotations

import re
from dataclasses import dataclass

from redbox_bed.core.errors import BedError
from redbox_bed.hosts.host import Host
from redbox_bed.images.oci import MANIFEST, Image, digest_of, image_config, image_manifest


@dataclass(frozen=True)
class RegistryClient:
    """One who may push to the registry at `address`."""

    host: Host
    address: str
    login: str = ""
    """`user:password`; what is in curl's arguments is seen by nobody outside that host."""

    def push(self, name: str, image: Image) -> str:
        """The image's digest; `name` is as `app:1`."""
        repository, _, tag = name.partition(":")
        for layer in image.layers:
            self._push_blob(repository, layer.digest, layer.file.read_bytes())
        config, manifest = image_config(image), image_manifest(image)
        self._push_blob(repository, digest_of(config), config)
        kind = f"Content-Type: {MANIFEST}"
        self._call("PUT", f"/v2/{repository}/manifests/{tag}", "--header", kind, body=manifest)
        return digest_of(manifest)

    def _push_blob(self, repository: str, digest: str, blob: bytes) -> None:
        headers = self._call("POST", f"/v2/{repository}/blobs/uploads/", "--dump-header", "-")
        place = re.search(r"^location: https://[^/]+(\S+)", headers, re.MULTILINE | re.IGNORECASE)
        if place is None:
            raise BedError(f"{self.address} does not say where a blob goes: {headers}")
        kind = "Content-Type: application/octet-stream"
        self._call("PUT", f"{place[1]}&digest={digest}", "--header", kind, body=blob)

    def _call(self, method: str, path: str, *options: str, body: bytes = b"") -> str:
        limits = ("--silent", "--show-error", "--fail", "--max-time", "30")
        login = ("--user", self.login) if self.login else ()
        sent = ("--request", method, "--data-binary", "@-", *options)
        return self.host.run(
            "curl", *limits, *login, *sent, f"https://{self.address}{path}", stdin=body
        ).stdout
