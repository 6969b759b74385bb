"""The names in SASL tokens; examples of the RFCs among them."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy.session.sasl.principal import (
    DELEGATION,
    LONGEST,
    MALFORMED,
    NAMES,
    OPAQUE,
    NoName,
    oauthbearer,
    plain,
    scram,
)


def jwt(claims: object) -> bytes:
    """A token without a signature."""
    parts = [urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in ({"alg": "none"}, claims)]
    return b".".join((*parts, b""))


def bearer(token: bytes, header: bytes = b"n,,", key: bytes = b"auth=Bearer ") -> bytes:
    return header + b"\x01" + key + token + b"\x01\x01"


@pytest.mark.parametrize(
    ("token", "name"),
    [
        (b"\0alice\0secret", "alice"),
        (b"alice\0alice\0secret", "alice"),
        (b"Ursel\0Kurt\0xipj3plmq", "Ursel"),  # RFC 4616 section 4
        ("\0jürgen\0x".encode(), "jürgen"),
        (b"\0a\0", "a"),
    ],
)
def test_plain(token: bytes, name: str) -> None:
    """The authorization id, or the user."""
    assert plain(token) == name


@pytest.mark.parametrize(
    ("token", "name"),
    [
        (b"n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL", "user"),  # RFC 5802 section 5
        (b"y,,n=user,r=x", "user"),
        (b"p=tls-server-end-point,,n=user,r=x", "user"),
        (b"n,a=user,n=user,r=x", "user"),
        (b"n,,m=ext,n=user,r=x", "user"),
        (b"n,,n=a=2Cb=3Dc,r=x", "a,b=c"),
        (b"n,,n=a=3D2C,r=x", "a=2C"),
        (b"n,,n=user,r=x,tokenauth=false", "user"),
        (b"n,,n=user,r=x,TOKENAUTH=true", "user"),
        (b"n,,n=user,r=x,tokenauth=true,tokenauth=false", "user"),
        (b"n,,n=user,r=x,x=y,tokenauthen=true", "user"),
    ],
)
def test_scram(token: bytes, name: str) -> None:
    """The user, with comma and equals sign written back."""
    assert scram(token) == name


@pytest.mark.parametrize(
    ("token", "name"),
    [
        (bearer(jwt({"sub": "alice", "exp": 1})), "alice"),
        (bearer(jwt({"sub": "alice"}), b"n,a=alice,"), "alice"),
        (bearer(jwt({"sub": "ü"}), key=b"auth=bearer  "), "ü"),
        (b"n,,\x01host=h\x01auth=Bearer " + jwt({"sub": "alice"}) + b"\x01ext=1\x01\x01", "alice"),
    ],
)
def test_oauthbearer(token: bytes, name: str) -> None:
    """The claim `sub`, in any of the forms that RFC 7628 allows."""
    assert oauthbearer(token) == name


@pytest.mark.parametrize(
    ("mechanism", "token", "reason"),
    [
        ("PLAIN", b"", MALFORMED),
        ("PLAIN", b"alice", MALFORMED),
        ("PLAIN", b"\0\0secret", MALFORMED),
        ("PLAIN", b"a\0b\0c\0d", MALFORMED),
        ("PLAIN", b"\0\xff\xfe\0secret", MALFORMED),
        ("PLAIN", b"\0" + b"a" * (LONGEST + 1) + b"\0x", MALFORMED),
        ("SCRAM-SHA-256", b"n,,n=,r=x", MALFORMED),
        ("SCRAM-SHA-256", b"n,,n=a=2Xb,r=x", MALFORMED),
        ("SCRAM-SHA-512", b"n=user,r=x", MALFORMED),
        ("SCRAM-SHA-256", b"n,,n=id,r=x,tokenauth=true", DELEGATION),
        ("SCRAM-SHA-256", b"n,,n=id,r=x,tokenauth=false,tokenauth=TRUE", DELEGATION),
        ("SCRAM-SHA-512", b"n,,n=id,r=x,a=1,tokenauth=True", DELEGATION),
        ("OAUTHBEARER", b"", MALFORMED),
        ("OAUTHBEARER", b"\x01", MALFORMED),
        ("OAUTHBEARER", b"n,,\x01auth=Basic x\x01\x01", MALFORMED),
        ("OAUTHBEARER", bearer(jwt({"sub": "a"}) + b"\x01auth=Bearer " + jwt({"sub": "b"})), MALFORMED),
        ("OAUTHBEARER", bearer(b"opaque"), OPAQUE),
        ("OAUTHBEARER", bearer(b"a.!!!.c"), OPAQUE),
        ("OAUTHBEARER", bearer(jwt([1])), OPAQUE),
        ("OAUTHBEARER", bearer(jwt({"scope": "x"})), OPAQUE),
        ("OAUTHBEARER", bearer(jwt({"sub": 5})), OPAQUE),
        ("OAUTHBEARER", bearer(jwt({"sub": ""})), MALFORMED),
        ("OAUTHBEARER", bearer(jwt({"sub": "\ud800"})), MALFORMED),
        ("OAUTHBEARER", bearer(b"a." + urlsafe_b64encode(b"[" * 90000) + b".c"), OPAQUE),
        ("OAUTHBEARER", bearer(b"a." + urlsafe_b64encode(b"9" * 9000) + b".c"), OPAQUE),
    ],
)
def test_tokens_that_name_nobody(mechanism: str, token: bytes, reason: str) -> None:
    with pytest.raises(NoName) as caught:
        NAMES[mechanism](token)

    assert str(caught.value) == reason


@pytest.mark.parametrize("mechanism", NAMES)
@given(data=st.data())
def test_any_bytes_give_a_name_or_none(mechanism: str, data: st.DataObject) -> None:
    """Nothing else is ever raised, also for good tokens with bytes changed."""
    good = {"PLAIN": b"\0a\0b", "OAUTHBEARER": bearer(jwt({"sub": "a"}))}.get(mechanism, b"n,,n=u,r=x")
    token = data.draw(
        st.binary(max_size=50)
        | st.builds(lambda at, one: good[:at] + one + good[at + 1 :], st.integers(0, len(good)), st.binary(max_size=3))
    )
    with suppress(NoName):
        assert NAMES[mechanism](token)
