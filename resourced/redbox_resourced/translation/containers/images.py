"""Names of images as kubelets complete them, and when they are pulled."""

from __future__ import annotations

from typing import Literal

from redbox_resourced.translation.errors import Unsupported

PullPolicy = Literal["Always", "IfNotPresent", "Never"]
POLICIES: dict[str, PullPolicy] = {"Always": "Always", "IfNotPresent": "IfNotPresent", "Never": "Never"}


def complete_image(image: str, field: str) -> str:
    """docker://HOST/PATH:TAG, docker://HOST/PATH@DIGEST, or the path of a SIF."""
    if image.startswith("/"):
        return image
    if not image:
        raise Unsupported(f"{field}: name an image")
    if "://" in image:
        raise Unsupported(
            f"{field}: {image!r} begins with a scheme: name the image alone, or the path of a SIF"
        )
    name, at, digest = image.partition("@")
    path, tag = _split_tag(name)
    host, slash, rest = path.partition("/")
    if not (slash and ("." in host or ":" in host or host == "localhost")):
        host, rest = "docker.io", path
    if host in {"docker.io", "index.docker.io"}:
        host, rest = "docker.io", rest if "/" in rest else f"library/{rest}"
    # A digest says more than a tag, and Apptainer takes only one of them.
    return f"docker://{host}/{rest}{at}{digest}" if at else f"docker://{host}/{rest}:{tag or 'latest'}"


def pull_policy(image: str, given: str | None, field: str) -> PullPolicy:
    """By default Always for latest and for no tag, as the API server sets it."""
    if given and given not in POLICIES:
        raise Unsupported(f"{field}: {given!r} is not one of {', '.join(POLICIES)}")
    if given:
        return POLICIES[given]
    if image.startswith("/") or "@" in image:
        return "IfNotPresent"
    return "Always" if (_split_tag(image)[1] or "latest") == "latest" else "IfNotPresent"


def _split_tag(name: str) -> tuple[str, str]:
    path, colon, tag = name.rpartition(":")
    return (path, tag) if colon and "/" not in tag else (name, "")
