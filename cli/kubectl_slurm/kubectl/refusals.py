"""From kubectl's words to one sentence with the cure. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from kubectl_slurm.errors import KindsMissing, NotAnswered, NotPermitted, ObjectNotFound, Refusal
from kubectl_slurm.kubectl.roles import role_for

REQUEST = r'(?:Get|Post|Put|Patch|Delete) "https?://[^"]*": '
OWN_LINE = re.compile(
    rf"^({REQUEST}"
    r"|[EWIF][0-9]{4} |error:|Error from server|Error in configuration|Unable to connect|Warning:"
    r"|The connection to the server|The \S+ \"|Unauthorized|invalid configuration|error upgrading)"
)
LOG_LINE = re.compile(r"^[EWIF][0-9]{4} .*\] ")
FROM_SERVER = re.compile(r"Error from server(?: \((\w+)\))?: (?:error when \w+ \S+: )?(.*)", re.DOTALL)
NOT_FOUND = re.compile(r'(\S+) "([^"]*)" not found')
INVALID = re.compile(r'^The (\S+) "([^"]*)" is invalid: (.*)', re.DOTALL)
NO_CONFIG = re.compile(
    r"localhost:8080|no configuration has been provided|Missing or incomplete configuration"
)
NO_CONTEXT = re.compile(
    r'context was not found for specified context: (\S+)|context "([^"]+)" does not exist'
)
NO_KINDS = re.compile(
    r"the server doesn't have a resource type|no matches for kind|could not find the requested resource"
)
LOGIN = re.compile(
    r"must be logged in to the server|Unauthorized|asked for the client to provide credentials"
    r"|getting credentials|token has expired"
)
POLICY = re.compile(r"ValidatingAdmissionPolicy '[^']*' with binding '[^']*' denied request: (.*)", re.DOTALL)
NO_RIGHT = re.compile(r'User "([^"]*)" cannot (\S+) resource "([^"]+)" in API group "[^"]*"(.*)', re.DOTALL)
IN_NAMESPACE = re.compile(r'in the namespace "([^"]*)"')
IS_FORBIDDEN = re.compile(r'^\S+(?: "[^"]*")? is forbidden: ')
TOKEN = re.compile(r"^error: failed to create token: (.*)", re.DOTALL)
"""The server's words, without their reason."""
ANOTHER_NAMESPACE = "--namespace names another namespace"
LISTED = f"`kubectl slurm queue --states all` lists those that there are, and {ANOTHER_NAMESPACE}"
FOR_NOW = frozenset({"InternalError", "ServerTimeout", "ServiceUnavailable", "Timeout", "TooManyRequests"})
NO_ANSWER = re.compile(
    r"Unable to connect to the server|The connection to the server|Client\.Timeout|i/o timeout"
    rf"|^(?:error: )?{REQUEST}"
)
BROKEN_REQUEST = re.compile(
    rf"^(?:error: )?{REQUEST}(.*?)(?: - error from a previous attempt: .*)?$", re.DOTALL
)
"""A connection that broke, as behind a load balancer while the API server starts: the reason comes last."""


def is_own_line(line: str) -> bool:
    """Whether kubectl itself says this, and no login program that it runs."""
    return OWN_LINE.match(line) is not None


def refusal_of(stderr: str, namespace: str | None = None) -> Refusal:
    """Why kubectl failed, and what to do about it."""
    words = _words(stderr)
    for pattern, build in KINDS:
        if found := pattern.search(words):
            return build(found, words)
    if found := TOKEN.match(words):
        return _refused("Forbidden" if " is forbidden: " in found[1] else "NotFound", found[1], namespace)
    if found := FROM_SERVER.match(words):
        return _refused(found[1] or "", found[2].strip(), namespace)
    return Refusal(words.removeprefix("error: ") or "kubectl failed and printed no reason")


def _no_config(_: re.Match[str], __: str) -> Refusal:
    return Refusal(
        "there is no kubeconfig: set KUBECONFIG, or put the file that your cluster's administrator gives you "
        "at ~/.kube/config"
    )


def _no_context(found: re.Match[str], _: str) -> Refusal:
    name = found[1] or found[2]
    return Refusal(f"the kubeconfig has no context {name}: `kubectl config get-contexts` lists them")


def _no_kinds(_: re.Match[str], __: str) -> Refusal:
    return KindsMissing(
        "this Kubernetes cluster has no SlurmJobs: ask its administrator to install Red Box's chart, or "
        "choose another cluster with --context"
    )


def _login(_: re.Match[str], words: str) -> Refusal:
    return Refusal(f"the cluster does not accept your login, which may have expired: log in again ({words})")


def _invalid(found: re.Match[str], _: str) -> Refusal:
    return Refusal(f"{found[1]} {found[2]} is not valid: {' '.join(found[3].split())}")


def _denied(found: re.Match[str], _: str) -> Refusal:
    return NotPermitted(f"Kubernetes does not allow this: {found[1].strip()}")


def _no_answer(_: re.Match[str], words: str) -> Refusal:
    reason = BROKEN_REQUEST.sub(r"\1", words).removeprefix("error: ")
    return NotAnswered(f"the cluster does not answer: {reason}")


KINDS: Sequence[tuple[re.Pattern[str], Callable[[re.Match[str], str], Refusal]]] = (
    (NO_CONFIG, _no_config),
    (NO_CONTEXT, _no_context),
    (NO_KINDS, _no_kinds),
    (LOGIN, _login),
    (POLICY, _denied),
    (INVALID, _invalid),
    (NO_ANSWER, _no_answer),
)
"""In this order: the first that matches decides."""


def _refused(reason: str, message: str, namespace: str | None) -> Refusal:
    if reason == "NotFound" and (found := NOT_FOUND.search(message)):
        kind, name = found[1].partition(".")[0].removesuffix("s"), found[2]
        if kind == "namespace":
            return ObjectNotFound(f"there is no namespace {name}: name another one with --namespace")
        where = f" in namespace {namespace}" if namespace else " in this namespace"
        cure = f": {LISTED}" if kind == "slurmjob" else ""
        return ObjectNotFound(f"there is no {kind} {name}{where}{cure}")
    if reason == "Forbidden":
        return NotPermitted(_forbidden(message, namespace))
    if reason in FOR_NOW:
        return NotAnswered(f"the API server cannot answer now: {message}")
    return Refusal(message or "the API server refused this, and gave no reason")


def _forbidden(message: str, namespace: str | None) -> str:
    """With the role that gives the right that is missing."""
    if found := NO_RIGHT.search(message):
        cure = role_for(found[2], found[3], everywhere=" at the cluster scope" in message)
        cure += "" if namespace else f", or {ANOTHER_NAMESPACE}"
        return f"user {found[1]} may not {found[2]} {found[3]}{_where(found[4])}: {cure}"
    return f"Kubernetes does not allow this: {IS_FORBIDDEN.sub('', message)}"


def _where(rest: str) -> str:
    namespace = IN_NAMESPACE.search(rest)
    return f" in namespace {namespace[1]}" if namespace else ""


def _words(stderr: str) -> str:
    """Its message, without lines of its log where there are others."""
    lines = [line.strip() for line in stderr.strip().splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith("Warning:")] or lines
    plain = [line for line in lines if not LOG_LINE.match(line)]
    return "\n".join(plain) if plain else LOG_LINE.sub("", lines[-1] if lines else "")
