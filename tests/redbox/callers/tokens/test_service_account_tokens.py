"""Signatures, keys and clusters: which tokens count, and whose they are."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from redbox.callers.errors import ApiServerUnavailable, AuthenticationUnavailable, TokenFault, Unauthenticated
from redbox.callers.tokens.claims import ClaimRequirements
from redbox.callers.tokens.key_sets import KeySet, RefreshPolicy
from redbox.callers.tokens.service_account_tokens import TokenVerifier, TrustedCluster
from tests.redbox.callers.factories import (
    AUDIENCE,
    ISSUER,
    Documents,
    PrivateKey,
    StoppedClock,
    claims,
    ec_key,
    jwks,
    public_jwk,
    rsa_key,
    token,
)

FRESHNESS = RefreshPolicy(refresh_s=300, refetch_interval_s=10, max_stale_s=86_400)


def cluster(name: str, source: Documents, clock: StoppedClock, audience: str = AUDIENCE) -> TrustedCluster:
    return TrustedCluster(ClaimRequirements(name, ISSUER, audience), KeySet(name, source, FRESHNESS, clock))


def verifier(**keys: PrivateKey) -> TokenVerifier:
    clock = StoppedClock()
    return TokenVerifier([cluster("prod", Documents(jwks(**keys)), clock)], clock)


def forged(header: dict[str, Any], payload: dict[str, Any], secret: bytes | None = None) -> str:
    """A token put together by hand: unsigned, or with an HMAC."""
    parts = [
        base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()
        for part in (header, payload)
    ]
    signed = ".".join(parts)
    signature = hmac.new(secret, signed.encode(), hashlib.sha256).digest() if secret is not None else b""
    return f"{signed}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


@pytest.mark.parametrize("key", [rsa_key(), ec_key()], ids=["RS256", "ES256"])
async def test_a_token_signed_by_the_clusters_key_counts(key: PrivateKey) -> None:
    proved = await verifier(a=key).verify(token(key))
    assert str(proved.account) == "system:serviceaccount:physics:default of cluster prod"


async def test_a_token_signed_by_another_key_of_that_name_is_refused() -> None:
    with pytest.raises(Unauthenticated) as refusal:
        await verifier(a=rsa_key()).verify(token(rsa_key(1)))
    assert refusal.value.fault is TokenFault.SIGNATURE


async def test_a_token_whose_claims_were_changed_is_refused() -> None:
    head, _, signature = token().split(".")
    changed = base64.urlsafe_b64encode(json.dumps(claims(namespace="kube-system")).encode())
    with pytest.raises(Unauthenticated) as refusal:
        await verifier(a=rsa_key()).verify(f"{head}.{changed.rstrip(b'=').decode()}.{signature}")
    assert refusal.value.fault is TokenFault.SIGNATURE


def public_pem() -> bytes:
    return rsa_key().public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


REFUSED_HEADERS: dict[str, tuple[str, TokenFault]] = {
    "alg none": (forged({"alg": "none", "kid": "a"}, claims()), TokenFault.ALGORITHM),
    "alg None": (forged({"alg": "None", "kid": "a"}, claims()), TokenFault.ALGORITHM),
    "HS256 with the public key as its secret": (
        forged({"alg": "HS256", "kid": "a"}, claims(), public_pem()),
        TokenFault.ALGORITHM,
    ),
    "no alg": (forged({"kid": "a"}, claims()), TokenFault.ALGORITHM),
    "alg is a list": (forged({"alg": ["RS256"], "kid": "a"}, claims()), TokenFault.ALGORITHM),
    "RS512": (forged({"alg": "RS512", "kid": "a"}, claims()), TokenFault.ALGORITHM),
    "ES256 with an RSA key": (token(ec_key(), "a"), TokenFault.ALGORITHM),
    "no kid": (token(kid=None), TokenFault.MALFORMED),
    "kid is a number": (forged({"alg": "RS256", "kid": 7}, claims()), TokenFault.MALFORMED),
    "unsigned RS256": (forged({"alg": "RS256", "kid": "a"}, claims()), TokenFault.SIGNATURE),
    "a critical extension": (
        forged({"alg": "RS256", "kid": "a", "crit": ["x"], "x": 1}, claims()),
        TokenFault.MALFORMED,
    ),
    "a detached payload": (
        forged({"alg": "RS256", "kid": "a", "b64": False, "crit": ["b64"]}, claims()),
        TokenFault.MALFORMED,
    ),
    "two parts": ("e30.e30", TokenFault.MALFORMED),
    "nothing": ("", TokenFault.MALFORMED),
    "not base64": ("ä.ö.ü", TokenFault.MALFORMED),
    "a header that is a list": ("W10.e30.e30", TokenFault.MALFORMED),
    "endless": ("a" * 20_000, TokenFault.MALFORMED),
}


@pytest.mark.parametrize("case", REFUSED_HEADERS)
async def test_a_token_that_is_made_up_is_refused(case: str) -> None:
    made_up, fault = REFUSED_HEADERS[case]
    with pytest.raises(Unauthenticated) as refusal:
        await verifier(a=rsa_key()).verify(made_up)
    assert refusal.value.fault is fault


@given(
    st.text(max_size=200) | st.from_regex(r"[A-Za-z0-9_-]{0,40}\.[A-Za-z0-9_-]{0,40}\.[A-Za-z0-9_-]{0,40}")
)
async def test_no_text_is_anything_but_refused(text: str) -> None:
    with pytest.raises(Unauthenticated):
        await verifier(a=rsa_key()).verify(text)


async def test_the_cluster_is_the_one_whose_key_signed_although_both_have_the_same_issuer() -> None:
    clock = StoppedClock()
    both = TokenVerifier(
        [
            cluster("east", Documents(jwks(a=rsa_key(1))), clock),
            cluster("west", Documents(jwks(b=rsa_key(2))), clock),
        ],
        clock,
    )
    assert (await both.verify(token(rsa_key(1), "a"))).account.cluster == "east"
    assert (await both.verify(token(rsa_key(2), "b"))).account.cluster == "west"


async def test_key_names_may_be_the_same_in_two_clusters() -> None:
    clock = StoppedClock()
    both = TokenVerifier(
        [
            cluster("east", Documents(jwks(a=rsa_key(1))), clock),
            cluster("west", Documents(jwks(a=rsa_key(2))), clock),
        ],
        clock,
    )
    assert (await both.verify(token(rsa_key(2), "a"))).account.cluster == "west"


async def test_clusters_that_share_a_key_are_told_apart_by_audience_or_not_at_all() -> None:
    clock = StoppedClock()
    east = cluster("east", Documents(jwks(a=rsa_key())), clock)
    west = cluster("west", Documents(jwks(a=rsa_key())), clock, audience="redbox.dev/hpc1/west")
    payload = claims(aud=["redbox.dev/hpc1/west"])
    assert (await TokenVerifier([east, west], clock).verify(token(payload=payload))).account.cluster == "west"

    twin = cluster("twin", Documents(jwks(a=rsa_key())), clock)
    with pytest.raises(
        Unauthenticated, match="clusters east, twin share key, issuer and audience"
    ) as refusal:
        await TokenVerifier([east, twin], clock).verify(token())
    assert refusal.value.fault is TokenFault.AMBIGUOUS


async def test_a_rotated_key_is_found_without_a_restart() -> None:
    clock, source = StoppedClock(), Documents(jwks(a=rsa_key(1)))
    prod = TokenVerifier([cluster("prod", source, clock)], clock)
    await prod.verify(token(rsa_key(1), "a"))
    source.document = jwks(b=rsa_key(2))
    clock.pass_s(11)
    assert (await prod.verify(token(rsa_key(2), "b"))).account.name == "default"
    with pytest.raises(Unauthenticated):  # the old key is not trusted any more
        await prod.verify(token(rsa_key(1), "a"))


async def test_unknown_keys_fetch_the_keys_at_most_once_in_an_interval() -> None:
    clock, source = StoppedClock(), Documents(jwks(a=rsa_key()))
    prod = TokenVerifier([cluster("prod", source, clock)], clock)
    for number in range(20):
        with pytest.raises(Unauthenticated) as refusal:
            await prod.verify(token(rsa_key(1), f"made-up-{number}"))
        assert refusal.value.fault is TokenFault.UNKNOWN_KEY
        assert refusal.value.retry_after_s == 10
    assert source.fetched == 1
    clock.pass_s(10)
    with pytest.raises(Unauthenticated):
        await prod.verify(token(rsa_key(1), "made-up"))
    assert source.fetched == 2


async def test_nobody_is_refused_while_the_keys_are_not_known() -> None:
    clock = StoppedClock()
    source = Documents(b"", problem=ApiServerUnavailable("connection refused"))
    prod = TokenVerifier([cluster("prod", source, clock)], clock)
    with pytest.raises(AuthenticationUnavailable, match="keys of cluster prod are not available") as fault:
        await prod.verify(token())
    assert "connection refused" not in str(fault.value)  # strangers need not know our network
    assert fault.value.retry_after_s == 10


async def test_a_new_key_is_a_503_and_not_a_401_while_the_keys_cannot_be_fetched() -> None:
    clock, source = StoppedClock(), Documents(jwks(a=rsa_key()))
    prod = TokenVerifier([cluster("prod", source, clock)], clock)
    await prod.verify(token())
    source.problem = ApiServerUnavailable("connection refused")
    clock.pass_s(10)
    with pytest.raises(AuthenticationUnavailable):
        await prod.verify(token(ec_key(), "b"))


async def test_a_token_of_another_algorithm_has_no_keys_fetched_for_it() -> None:
    clock, source = StoppedClock(), Documents(jwks(a=rsa_key()))
    prod = TokenVerifier([cluster("prod", source, clock)], clock)
    with pytest.raises(Unauthenticated, match="accepted are RS256 and ES256") as refusal:
        await prod.verify(forged({"alg": "HS256", "kid": "unknown"}, claims(), b"secret"))
    assert refusal.value.fault is TokenFault.ALGORITHM
    assert source.fetched == 0


async def test_a_cluster_out_of_reach_does_not_hold_up_tokens_of_another() -> None:
    clock = StoppedClock()
    away = cluster("away", Documents(b"", problem=ApiServerUnavailable("no route to host")), clock)
    here = cluster("here", Documents(jwks(a=rsa_key())), clock)
    assert (await TokenVerifier([away, here], clock).verify(token())).account.cluster == "here"


async def test_last_keys_count_while_new_ones_cannot_be_fetched_and_that_is_said() -> None:
    clock, source = StoppedClock(), Documents(jwks(a=rsa_key()))
    prod = cluster("prod", source, clock)
    await TokenVerifier([prod], clock).verify(token())
    source.problem = ApiServerUnavailable("connection refused")
    clock.pass_s(3000)
    await TokenVerifier([prod], clock).verify(token())
    assert (prod.keys.age_s(), prod.keys.problem) == (3000, "connection refused")


async def test_keys_that_are_too_stale_count_no_more() -> None:
    clock, source = StoppedClock(), Documents(jwks(a=rsa_key()))
    prod = TokenVerifier([cluster("prod", source, clock)], clock)
    await prod.verify(token())
    source.problem = ApiServerUnavailable("connection refused")
    clock.pass_s(86_401)
    with pytest.raises(AuthenticationUnavailable):
        await prod.verify(token(payload=claims(now=clock.wall)))


async def test_a_broken_document_leaves_the_old_keys() -> None:
    clock, source = StoppedClock(), Documents(jwks(a=rsa_key()))
    prod = cluster("prod", source, clock)
    await TokenVerifier([prod], clock).verify(token())
    source.document = b"<html>Sign in</html>"
    clock.pass_s(301)
    await TokenVerifier([prod], clock).verify(token())
    assert "not a JWKS document" in str(prod.keys.problem)


USELESS_KEYS: dict[str, dict[str, Any]] = {
    "a weak RSA key": public_jwk("a", rsa_key(9, bits=1024)),
    "another curve": public_jwk("a", ec_key(9, ec.SECP384R1)),
    "a key to encrypt with": public_jwk("a", rsa_key()) | {"use": "enc"},
    "a key for another algorithm": public_jwk("a", rsa_key(), alg="PS256"),
    "a secret": {"kty": "oct", "k": "c2VjcmV0", "kid": "a"},
    "a key without a name": public_jwk("a", rsa_key()) | {"kid": None},
    "a private key": public_jwk("a", rsa_key()) | {"d": "AQAB"},
    "nonsense": {"kty": "RSA", "n": "!", "e": "AQAB", "kid": "a"},
}


@pytest.mark.parametrize("case", USELESS_KEYS)
async def test_a_key_of_another_kind_is_left_out(case: str) -> None:
    clock = StoppedClock()
    document = json.dumps({"keys": [USELESS_KEYS[case], public_jwk("good", ec_key())]}).encode()
    prod = cluster("prod", Documents(document), clock)
    await prod.keys.refresh()
    assert len(prod.keys._keys) == 1
    assert prod.keys.may_have("good")
    assert not prod.keys.may_have("a")


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"[]",
        b'{"keys": {}}',
        b'{"keys": 3}',
        b'{"keys": [1, null]}',
        json.dumps({"keys": [public_jwk("a", rsa_key(n)) for n in range(2)]}).encode(),
        json.dumps({"keys": [{}] * 101}).encode(),
    ],
    ids=["empty", "list", "object", "number", "no keys", "one name twice", "too many"],
)
async def test_a_document_without_usable_keys_is_refused(document: bytes) -> None:
    clock = StoppedClock()
    prod = cluster("prod", Documents(document), clock)
    with pytest.raises(AuthenticationUnavailable):
        await TokenVerifier([prod], clock).verify(token())
