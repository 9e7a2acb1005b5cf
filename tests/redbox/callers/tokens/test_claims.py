"""Every way in which verified claims may still not count."""

from __future__ import annotations

from typing import Any

import pytest

from redbox.callers.errors import Fault, Unauthenticated
from redbox.callers.tokens.claims import Expectation, judge_claims, read_claims
from tests.redbox.callers.issuing import AUDIENCE, ISSUER, NOW, claims

EXPECTED = Expectation("prod", ISSUER, AUDIENCE)

REFUSED: dict[str, tuple[dict[str, Any], Fault, str]] = {
    "another issuer": (claims(iss="https://elsewhere"), Fault.ISSUER, "issued by 'https://elsewhere'"),
    "no issuer": (claims(iss=None), Fault.ISSUER, "issued by nobody"),
    "another audience": (claims(aud=["vault"]), Fault.AUDIENCE, "is for ['vault']"),
    "another audience as a word": (claims(aud="vault"), Fault.AUDIENCE, "is for 'vault'"),
    "no audience": (claims(aud=None), Fault.AUDIENCE, "is for nobody"),
    "an empty list of audiences": (claims(aud=[]), Fault.AUDIENCE, "is for []"),
    "ours and another audience": (claims(aud=[AUDIENCE, "vault"]), Fault.AUDIENCE, "alone"),
    "a longer audience": (claims(aud=[AUDIENCE + "x"]), Fault.AUDIENCE, "this red-box is"),
    "expired": (claims(now=NOW - 3600 - 31), Fault.EXPIRED, "expired at 2026-09-21T"),
    "no expiry": (claims(exp=None), Fault.CLAIMS, "exp is nobody"),
    "expiry as text": (claims(exp="4102444800"), Fault.CLAIMS, "not a time"),
    "expiry that is true": (claims(exp=True), Fault.CLAIMS, "not a time"),
    "expiry that is no number": (claims(exp=float("nan")), Fault.CLAIMS, "not a time"),
    "expiry beyond all calendars": (claims(exp=10**30), Fault.CLAIMS, "not a time"),
    "never issued": (claims(iat=None), Fault.CLAIMS, "iat is nobody"),
    "issued in the future": (claims(now=NOW + 31), Fault.NOT_YET, "are the clocks apart?"),
    "not valid yet": (claims(nbf=int(NOW) + 31), Fault.NOT_YET, "(nbf)"),
    "issued for longer than an hour": (claims(lives_s=3601), Fault.LIVES_TOO_LONG, "issued for 3601 s"),
    "no service account": (claims(is_of_an_account=False), Fault.CLAIMS, "no ServiceAccount token"),
    "a service account that is a word": (
        claims(kubernetes={"namespace": "physics", "serviceaccount": "default"}),
        Fault.CLAIMS,
        "no ServiceAccount token",
    ),
    "a namespace that is none": (claims(namespace="../root"), Fault.CLAIMS, "no name in Kubernetes"),
    "a namespace with a line end": (claims(namespace="physics\n"), Fault.CLAIMS, "no name in Kubernetes"),
    "an account without uid": (claims(uid=""), Fault.CLAIMS, "uid is ''"),
    "an account name too long": (claims(account="a" * 254), Fault.CLAIMS, "no name in Kubernetes"),
    "a pod that is none": (claims(pod="Run Job"), Fault.CLAIMS, "no name in Kubernetes"),
    "a subject that is another account": (
        claims(sub="system:serviceaccount:kube-system:admin"),
        Fault.CLAIMS,
        "not the account that it names",
    ),
    "a subject that is a node": (claims(sub="system:node:k1"), Fault.CLAIMS, "not the account"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_claims_that_do_not_count_are_refused_with_a_reason(case: str) -> None:
    said, fault, words = REFUSED[case]
    with pytest.raises(Unauthenticated) as refusal:
        judge_claims(said, EXPECTED, NOW)
    assert refusal.value.fault is fault
    assert words in str(refusal.value)
    assert refusal.value.status == 401


def test_good_claims_name_the_account_its_uid_and_its_pod() -> None:
    proved = judge_claims(claims(), EXPECTED, NOW)
    account = proved.account
    assert (account.cluster, account.namespace, account.name) == ("prod", "physics", "default")
    assert account.uid == "0b8f5a1e-1f3d-4f6a-9a53-1f7d0a4f5c11"
    assert (account.pod, account.pod_uid) == ("run-job", "77aa12")
    assert proved.until == NOW + 3600 + EXPECTED.leeway_s


def test_a_token_that_is_bound_to_no_pod_counts_too() -> None:
    assert judge_claims(claims(pod=None), EXPECTED, NOW).account.pod == ""


@pytest.mark.parametrize("apart_s", [-29, 29])
def test_clocks_may_be_half_a_minute_apart(apart_s: int) -> None:
    fresh = claims(now=NOW)
    assert judge_claims(fresh, EXPECTED, NOW + apart_s).account.namespace == "physics"
    assert judge_claims(fresh, EXPECTED, NOW + 3600 + 29).account.namespace == "physics"


def test_an_audience_that_is_a_word_counts_as_a_list_of_one() -> None:
    assert judge_claims(claims(aud=AUDIENCE), EXPECTED, NOW).account.name == "default"


@pytest.mark.parametrize("payload", [b"", b"[]", b"null", b"{", b"\xff", b"[" * 100_000])
def test_a_payload_that_is_no_object_is_refused(payload: bytes) -> None:
    with pytest.raises(Unauthenticated) as refusal:
        read_claims(payload)
    assert refusal.value.fault is Fault.MALFORMED
