"""Clusters that Kubernetes runs: redbox-hosting, and those of its objects that are not well."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from kubectl_slurm.checks.report import CheckLine, failed, passed, unknown
from kubectl_slurm.errors import KindsMissing, NotPermitted, ObjectNotFound
from kubectl_slurm.kubectl.program import Kubectl
from kubectl_slurm.kubectl.refusals import refusal_of

GROUP = "slurm.redbox.dev"
PLURALS = {
    "Controller": "controllers",
    "NodeSet": "nodesets",
    "Accounting": "accountings",
    "LoginSet": "loginsets",
    "RestApi": "restapis",
    "Token": "tokens",
}
OPERATOR = "redbox-hosting"
AWAY_AFTER = timedelta(minutes=5)
"""It renews its Leases every 5 s; the clock of this machine may be late."""
ALARMS = ("Degraded", "ClusterIdMismatch", "Expiring", "PodAltered", "MachinesLost", "NodesMissing")
"""Conditions that are true where something is wrong."""
PROMISES = ("UsersValid", "HomesValid")
"""Conditions that are false where something is wrong, while the rest goes on."""
NOT_SERVED = "the administrator of Kubernetes sets hosting.enabled, and adds {0} to hosting.namespaces"
AWAY = f"the administrator of Kubernetes reads `kubectl logs -n redbox-system deployment/{OPERATOR}`"
DESCRIBED = "kubectl describe {0} --namespace={1} {2}"
Object = Mapping[str, Any]


def hosted(kubectl: Kubectl) -> Iterator[CheckLine]:
    """Nothing where there is none, or none that the user may list."""
    by_namespace: dict[str, list[Object]] = {}
    for item in _objects(kubectl):
        by_namespace.setdefault(str(item["metadata"]["namespace"]), []).append(item)
    for namespace, items in sorted(by_namespace.items()):
        yield from _of_namespace(kubectl, namespace, items)


def _objects(kubectl: Kubectl) -> list[Object]:
    """Of kinds that the user may not list, kubectl prints none, and all others."""
    plurals = ",".join(f"{plural}.v1alpha1.{GROUP}" for plural in PLURALS.values())
    for scope in (["--all-namespaces"], []):
        code, out, errors = kubectl.outcome("get", "--output=json", plurals, *scope)
        items = [item for item in json.loads(out or "{}").get("items", ()) if item.get("kind") in PLURALS]
        if items or not code:
            return items
        refusal = refusal_of(errors, kubectl.namespace_option)
        if isinstance(refusal, KindsMissing):
            return []
        if not isinstance(refusal, NotPermitted):
            raise refusal
    return []


def _of_namespace(kubectl: Kubectl, namespace: str, items: Iterable[Object]) -> Iterator[CheckLine]:
    """What an operator that is away has written may be old."""
    if why := _why_away(kubectl, namespace, items):
        yield why
        return
    bad = [line for item in items if (line := _not_ready(namespace, item))]
    yield from bad
    if not bad:
        names = (f"{item['kind']} {item['metadata']['name']}" for item in items)
        yield passed(f"hosted Slurm in {namespace}", f"ready: {', '.join(names)}")


def _why_away(kubectl: Kubectl, namespace: str, items: Iterable[Object]) -> CheckLine | None:
    """By its Lease, and for those who may not read it by a status that was never written."""
    unwritten = [_title(item) for item in items if not _condition(item, "Ready")]
    try:
        lease = kubectl.json("get", "leases.coordination.k8s.io", f"--namespace={namespace}", "--", OPERATOR)
    except ObjectNotFound:
        found = f"it does not serve the namespace {namespace}"
        return failed(OPERATOR, found, NOT_SERVED.format(namespace))
    except NotPermitted:
        if not unwritten:
            return None
        found = f"it has not written the status of {unwritten[0]} in the namespace {namespace}"
        return failed(OPERATOR, found, f"{NOT_SERVED.format(namespace)}; or {AWAY}")
    spec = lease.get("spec") or {}
    renewed = str(spec.get("renewTime") or "")
    if spec.get("holderIdentity") and not _is_old(renewed):
        return None
    return failed(OPERATOR, f"it has not served the namespace {namespace} since {renewed or 'ever'}", AWAY)


def _is_old(time: str) -> bool:
    try:
        return datetime.now(UTC) - datetime.fromisoformat(time) > AWAY_AFTER
    except (ValueError, TypeError):
        return True


def _not_ready(namespace: str, item: Object) -> CheckLine | None:
    """One line for an object, with the message of the condition that says most."""
    name = str(item["metadata"]["name"])
    where = f"{PLURALS[item['kind']]}.{GROUP}"
    described = DESCRIBED.format(where, namespace, name)
    what, ready = f"{_title(item)} in {namespace}", _condition(item, "Ready")
    wrong = [*((kind, "True") for kind in ALARMS), *((kind, "False") for kind in PROMISES)]
    found = ((_condition(item, kind), status) for kind, status in wrong)
    alarm = next((condition for condition, status in found if condition.get("status") == status), None)
    if alarm:
        cure = f"do what it says; each step has a condition: {described}"
        return failed(what, _words(alarm) or _words(ready), cure)
    if not ready:
        return failed(what, f"{OPERATOR} has not written its status", AWAY)
    if ready.get("status") != "True":
        return unknown(what, _words(ready), f"wait; if it stays so, each step has a condition: {described}")
    return None


def _title(item: Object) -> str:
    return f"{item['kind']} {item['metadata']['name']}"


def _condition(item: Object, kind: str) -> Object:
    conditions = (item.get("status") or {}).get("conditions") or ()
    return next((each for each in conditions if each.get("type") == kind), {})


def _words(condition: Object) -> str:
    return str(condition.get("message") or condition.get("reason") or "")
