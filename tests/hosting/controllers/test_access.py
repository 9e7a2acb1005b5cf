"""RestApis and LoginSets at the API server of the tests."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from redbox_hosting.api import names
from redbox_kube.api import kinds
from tests.hosting.controllers.access_bench import AccessBench, at
from tests.hosting.controllers.access_bench import bench as running_bench


@pytest.fixture
async def bench() -> AsyncIterator[AccessBench]:
    async with running_bench() as made:
        yield made


def put_rest_api(bench: AccessBench, **spec: Any) -> None:
    bench.put(names.REST_APIS, "api", controllerRef={"name": "slurm"}, **spec)


def deployment(bench: AccessBench) -> dict[str, Any]:
    return dict(bench.api.objects[at(kinds.DEPLOYMENT, "api-restapi")]["spec"])


def plugins(bench: AccessBench) -> str:
    return next(
        str(each["args"][3])
        for each in deployment(bench)["template"]["spec"]["containers"]
        if each["name"] == "slurmrestd"
    )


async def is_ready(bench: AccessBench) -> None:
    await bench.has(lambda: bench.condition(names.REST_APIS, "api").get("status") == "True")


async def test_a_rest_api_has_a_service_and_a_certificate_of_the_cluster(bench: AccessBench) -> None:
    put_rest_api(bench)
    await bench.has(lambda: "there is no Controller slurm" in bench.says(names.REST_APIS, "api", "Observed"))
    bench.put(names.CONTROLLERS, "slurm")
    await is_ready(bench)
    found = x509.load_pem_x509_certificate(bench.secret("api-restapi-tls")["tls.crt"].encode())
    hosts = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "api-restapi.hpc.svc" in hosts.get_values_for_type(x509.DNSName)
    service = bench.api.objects[at(kinds.SERVICE, "api-restapi")]["spec"]
    assert service["ports"][0]["port"] == names.PORT_SLURMRESTD
    assert deployment(bench)["template"]["metadata"]["labels"].items() >= service["selector"].items()


async def test_a_certificate_is_renewed_before_it_ends(bench: AccessBench) -> None:
    put_rest_api(bench)
    bench.put(names.CONTROLLERS, "slurm")
    await is_ready(bench)
    first = bench.secret("api-restapi-tls")
    bench.passes(days=30)
    await bench.settled()
    assert bench.secret("api-restapi-tls") == first
    bench.passes(days=30)
    await bench.has(lambda: bench.secret("api-restapi-tls")["tls.crt"] != first["tls.crt"])


async def test_a_certificate_of_the_user_is_taken_and_never_written(bench: AccessBench) -> None:
    bench.put(names.CONTROLLERS, "slurm")
    put_rest_api(bench, redbox={"tlsSecretRef": {"name": "mine"}})
    missing = "Secret mine has no tls.crt and tls.key"
    await bench.has(lambda: missing in bench.says(names.REST_APIS, "api"))
    bench.put_secret("mine", **{"tls.crt": "c", "tls.key": "k"})
    bench.reconcile_all()
    await is_ready(bench)
    assert bench.secret("mine") == {"tls.crt": "c", "tls.key": "k"}
    assert not bench.is_there(kinds.SECRET, "api-restapi-tls")
    assert '"secretName": "mine"' in json.dumps(deployment(bench)["template"]["spec"]["volumes"])


async def test_slurmrestd_serves_accounting_once_slurmctld_has_it(bench: AccessBench) -> None:
    bench.put(names.CONTROLLERS, "slurm")
    put_rest_api(bench)
    await is_ready(bench)
    assert plugins(bench) == "slurmctld"
    bench.put(names.CONTROLLERS, "slurm", accountingRef={"name": "acct"})
    await bench.has(lambda: "there is no Accounting acct" in bench.says(names.CONTROLLERS, "slurm"))
    await bench.settled()
    assert plugins(bench) == "slurmctld"
    bench.put(names.ACCOUNTINGS, "acct", redbox={"database": {"enabled": True}})
    await bench.has(lambda: bench.is_there(kinds.STATEFUL_SET, "acct-accounting"))
    bench.reconcile_all()
    await bench.has(lambda: plugins(bench) == "slurmctld,slurmdbd")


async def test_a_rest_api_waits_for_the_configuration_of_its_cluster(bench: AccessBench) -> None:
    bench.put(names.CONTROLLERS, "slurm", extraConf="JobSubmitPlugins=lua")
    put_rest_api(bench)
    await bench.has(lambda: "the configuration of Controller slurm" in bench.says(names.REST_APIS, "api"))
    assert not bench.is_there(kinds.DEPLOYMENT, "api-restapi")


async def test_a_service_selects_the_pods_of_the_operator_whatever_its_user_writes(
    bench: AccessBench,
) -> None:
    bench.put(names.CONTROLLERS, "slurm")
    put_rest_api(bench, service={"spec": {"type": "NodePort", "selector": {"app": "bank"}}}, replicas=0)
    await bench.has(lambda: bench.is_there(kinds.DEPLOYMENT, "api-restapi"))
    service = bench.api.objects[at(kinds.SERVICE, "api-restapi")]["spec"]
    assert service["type"] == "NodePort"
    assert "app" not in service["selector"]
    assert deployment(bench)["replicas"] == 0


async def test_objects_of_others_are_left_alone(bench: AccessBench) -> None:
    bench.api.put(at(kinds.SERVICE, "api-restapi"), spec={"selector": {"app": "bank"}})
    bench.put(names.CONTROLLERS, "slurm")
    put_rest_api(bench)
    await bench.has(lambda: "does not belong to RestApi api" in bench.says(names.REST_APIS, "api"))
    assert bench.api.objects[at(kinds.SERVICE, "api-restapi")]["spec"] == {"selector": {"app": "bank"}}


def put_login_set(bench: AccessBench, **spec: Any) -> None:
    bench.put(names.LOGIN_SETS, "l", controllerRef={"name": "slurm"}, **spec)


async def test_a_login_set_has_one_host_key_whatever_becomes_of_its_pods(bench: AccessBench) -> None:
    put_login_set(bench)
    await bench.has(lambda: "there is no Controller slurm" in bench.says(names.LOGIN_SETS, "l", "Observed"))
    bench.put(names.CONTROLLERS, "slurm")
    await bench.has(lambda: bench.condition(names.LOGIN_SETS, "l").get("status") == "True")
    first = bench.secret("l-login")
    key = serialization.load_ssh_private_key(first["ssh_host_ed25519_key"].encode(), None)
    assert isinstance(key, Ed25519PrivateKey)
    put_login_set(bench, extraSshdConfig="MaxStartups 100", replicas=2)
    await bench.has(lambda: logins(bench)["replicas"] == 2)
    await bench.settled()
    assert bench.secret("l-login") == first
    hosts = bench.api.objects[at(kinds.CONFIG_MAP, "l-login")]["data"]["known_hosts"]
    assert hosts.startswith("l-login.hpc.svc,")
    assert hosts.split(" ", 1)[1] == first["ssh_host_ed25519_key.pub"]


def logins(bench: AccessBench) -> dict[str, Any]:
    return dict(bench.api.objects[at(kinds.STATEFUL_SET, "l-login")]["spec"])


async def test_sshd_is_started_again_for_its_configuration_alone(bench: AccessBench) -> None:
    bench.put(names.CONTROLLERS, "slurm")
    put_login_set(bench)
    await bench.has(lambda: bench.is_there(kinds.STATEFUL_SET, "l-login"))
    first = logins(bench)["template"]
    put_login_set(bench, replicas=3)
    await bench.has(lambda: logins(bench)["replicas"] == 3)
    assert logins(bench)["template"] == first
    put_login_set(bench, extraSshdConfig="MaxStartups 100")
    await bench.has(lambda: logins(bench)["template"] != first)
    conf = bench.api.objects[at(kinds.CONFIG_MAP, "l-login")]["data"]["sshd_config"]
    assert "MaxStartups 100\n" in conf


async def test_what_is_not_built_of_a_login_set_is_said_and_stops_nothing_else(bench: AccessBench) -> None:
    bench.put(names.CONTROLLERS, "slurm")
    put_login_set(
        bench,
        initconf={"image": "x"},
        strategy={"type": "Recreate"},
        sssdConfRef={"name": "sssd", "key": "sssd.conf"},
    )
    await bench.has(lambda: bench.is_there(kinds.STATEFUL_SET, "l-login"))
    said = bench.says(names.LOGIN_SETS, "l")
    for field in ("spec.initconf", "spec.strategy.type Recreate", "spec.sssdConfRef"):
        assert f"{field} is not built" in said
    assert bench.condition(names.LOGIN_SETS, "l", "Degraded")["status"] == "True"
