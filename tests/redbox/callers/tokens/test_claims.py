"""Every way in which verified claims may still not count."""

from __future__ import annotations

from typing import Any

import pytest

from redbox.callers.errors import TokenFault, Unauthenticated
from redbox.callers.tokens.claims import ClaimRequirements, read_claims, verify_claims
from tests.redbox.callers.factories import AUDIENCE, ISSUER, NOW, claims

EXPECTED = ClaimRequirements("prod", ISSUER, AUDIENCE)

REFUSED: dict[str, tuple[dict[str, Any], TokenFault, str]] = {
    "another issuer": (claims(iss="https://elsewhere"), TokenFault.ISSUER, "issued by 'https://elsewhere'"),
    "no issuer": (claims(iss=None), TokenFault.ISSUER, "issued by (missing)"),
    "another audience": (claims(aud=["vault"]), TokenFault.AUDIENCE, "is for ['vault']"),
    "another audience as a word": (claims(aud="vault"), TokenFault.AUDIENCE, "is for 'vault'"),
    "no audience": (claims(aud=None), TokenFault.AUDIENCE, "is for (missing)"),
    "an empty list of audiences": (claims(aud=[]), TokenFault.AUDIENCE, "is for []"),
    "ours and another audience": (claims(aud=[AUDIENCE, "vault"]), TokenFault.AUDIENCE, "alone"),
    "a longer audience": (claims(aud=[AUDIENCE + "x"]), TokenFault.AUDIENCE, "this red-box is"),
    "expired": (claims(now=NOW - 3600 - 31), TokenFault.EXPIRED, "expired at 2026-09-21T"),
    "no expiry": (claims(exp=None), TokenFault.CLAIMS, "exp is (missing)"),
    "expiry as text": (claims(exp="4102444800"), TokenFault.CLAIMS, "not a time"),
    "expiry that is true": (claims(exp=True), TokenFault.CLAIMS, "not a time"),
    "an expiry of NaN": (claims(exp=float("nan")), TokenFault.CLAIMS, "not a time"),
    "expiry beyond all calendars": (claims(exp=10**30), TokenFault.CLAIMS, "not a time"),
    "never issued": (claims(iat=None), TokenFault.CLAIMS, "iat is (missing)"),
    "issued in the future": (claims(now=NOW + 31), TokenFault.NOT_YET, "are the clocks apart?"),
    "not valid yet": (claims(nbf=int(NOW) + 31), TokenFault.NOT_YET, "(nbf)"),
    "issued for longer than an hour": (claims(lives_s=3601), TokenFault.LIVES_TOO_LONG, "issued for 3601 s"),
    "no service account": (claims(is_of_an_account=False), TokenFault.CLAIMS, "not a ServiceAccount token"),
    "a service account that is a word": (
        claims(kubernetes={"namespace": "physics", "serviceaccount": "default"}),
        TokenFault.CLAIMS,
        "not a ServiceAccount token",
    ),
    "an invalid namespace": (
        claims(namespace="../root"),
        TokenFault.CLAIMS,
        "not a valid name in Kubernetes",
    ),
    "a namespace with a line end": (
        claims(namespace="physics\n"),
        TokenFault.CLAIMS,
        "not a valid name in Kubernetes",
    ),
    "an account without uid": (claims(uid=""), TokenFault.CLAIMS, "uid is ''"),
    "an account name too long": (
        claims(account="a" * 254),
        TokenFault.CLAIMS,
        "not a valid name in Kubernetes",
    ),
    "an invalid pod": (claims(pod="Run Job"), TokenFault.CLAIMS, "not a valid name in Kubernetes"),
    "a subject that is another account": (
        claims(sub="system:serviceaccount:kube-system:admin"),
        TokenFault.CLAIMS,
        "not the account that it names",
    ),
    "a subject that is a node": (claims(sub="system:node:k1"), TokenFault.CLAIMS, "not the account"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_claims_that_do_not_count_are_refused_with_a_reason(case: str) -> None:
    payload, fault, words = REFUSED[case]
    with pytest.raises(Unauthenticated) as refusal:
        verify_claims(payload, EXPECTED, NOW)
    assert refusal.value.fault is fault
    assert words in str(refusal.value)


def test_good_claims_name_the_account_its_uid_and_its_pod() -> None:
    proved = verify_claims(claims(), EXPECTED, NOW)
    account = proved.account
    assert (account.cluster, account.namespace, account.name) == ("prod", "physics", "default")
    assert account.uid == "0b8f5a1e-1f3d-4f6a-9a53-1f7d0a4f5c11"
    assert (account.pod, account.pod_uid) == ("run-job", "77aa12")
    assert proved.until == NOW + 3600 + EXPECTED.leeway_s


def test_a_token_that_is_bound_to_no_pod_counts_too() -> None:
    assert verify_claims(claims(pod=None), EXPECTED, NOW).account.pod == ""


@pytest.mark.parametrize("apart_s", [-29, 29])
def test_clocks_may_be_half_a_minute_apart(apart_s: int) -> None:
    fresh = claims(now=NOW)
    assert verify_claims(fresh, EXPECTED, NOW + apart_s).account.namespace == "physics"
    assert verify_claims(fresh, EXPECTED, NOW + 3600 + 29).account.namespace == "physics"


def test_an_audience_that_is_a_word_counts_as_a_list_of_one() -> None:
    assert verify_claims(claims(aud=AUDIENCE), EXPECTED, NOW).account.name == "default"


@pytest.mark.parametrize("payload", [b"", b"[]", b"null", b"{", b"\xff", b"[" * 100_000])
def test_a_payload_that_is_no_object_is_refused(payload: bytes) -> None:
    with pytest.raises(Unauthenticated) as refusal:
        read_claims(payload)
    assert refusal.value.fault is TokenFault.MALFORMED
