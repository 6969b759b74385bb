"""SCRAM's arithmetic and notation, by the examples of the RFCs and by what must not pass."""

from __future__ import annotations

import re
from base64 import b64decode

import pytest

from kproxy.base.errors import LoginFailed
from kproxy.protocol.sasl import scram

SHA1 = (
    "sha1",
    "QSXCR+Q6sek8bf92",
    (
        "n=user,r=fyko+d2lbbFgONRv9qkxdawL,"
        "r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096,"
        "c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j"
    ),
    "v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
    "rmF9pqV8S7suAoZWja4dJRkFsKQ=",
)
"""RFC 5802 section 5."""
SHA256 = (
    "sha256",
    "W22ZaJ0SNY7soEsUEjb6gQ==",
    (
        "n=user,r=rOprNGfwEbeRWgbNEkqO,"
        "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,"
        "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    ),
    "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
    "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
)
"""RFC 7677 section 3."""


@pytest.mark.parametrize(("algorithm", "salt", "message", "proof", "signature"), [SHA1, SHA256])
def test_the_examples_of_the_rfcs(algorithm: str, salt: str, message: str, proof: str, signature: str) -> None:
    """Proof and signature for user `user` with password `pencil`; the proof proves, and no other does."""
    made = scram.keys(algorithm, "pencil", b64decode(salt), 4096)

    assert scram.encoded(scram.proof(algorithm, made, message)) == proof
    assert scram.encoded(scram.mac(algorithm, made.server, message.encode())) == signature
    shown = b64decode(proof)
    assert scram.proves(algorithm, made.stored, message, shown)
    for wrong in (shown[:-1], shown + b"\0", b"", bytes([shown[0] ^ 1]) + shown[1:]):
        assert not scram.proves(algorithm, made.stored, message, wrong)
    assert not scram.proves(algorithm, made.stored, message + " ", shown)


@pytest.mark.parametrize("name", ["user", "a,b=c", "=2C", "ü", ","])
def test_names_are_escaped(name: str) -> None:
    """Commas and equals signs come back; an equals sign that stands for nothing is refused."""
    assert "," not in scram.escaped(name)
    assert scram.unescaped(scram.escaped(name)) == name
    assert scram.unescaped("a=b") is None


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        (b"r=mine,s=QUJD,i=4096", "the broker's nonce does not continue ours"),
        (b"r=other,s=QUJD,i=4096", "the broker's nonce does not continue ours"),
        (b"r=mine2,s=QUJD,i=4095", "the broker requires 4095 iterations, expected 4096 to 32768"),
        (b"r=mine2,s=QUJD,i=999999999", "the broker requires 999999999 iterations, expected 4096 to 32768"),
        (b"r=mine2,s=QUJD,i=99999999999", "expected a SCRAM challenge in the first token of the broker"),
        (b"r=mine2,s=,i=4096", "expected a SCRAM challenge in the first token of the broker"),
        (b"r=mine2,s=A,i=4096", "expected a SCRAM challenge in the first token of the broker"),
        (b"e=other-error", "expected a SCRAM challenge in the first token of the broker"),
        (b"m=x,r=mine2,s=QUJD,i=4096", "expected a SCRAM challenge in the first token of the broker"),
        (b"", "expected a SCRAM challenge in the first token of the broker"),
        (b"\xff", "a token of SCRAM is not UTF-8"),
        (b"r=mine" + b"2" * 16379, "a token of SCRAM of 16385 bytes, expected at most 16384"),
    ],
)
def test_challenges_that_a_client_does_not_take(token: bytes, reason: str) -> None:
    """A broker that would have us hash for hours, that repeats itself, or that speaks something else."""
    with pytest.raises(LoginFailed, match=re.escape(reason)):
        scram.read_challenge(token, "mine")
    assert scram.read_challenge(b"r=mine2,s=QUJD,i=4096,x=y", "mine") == scram.Challenge("mine2", b"ABC", 4096)


def test_what_a_server_reads() -> None:
    """Both of a client's tokens, with and without what may be left out."""
    first = scram.read_client_first(b"n,a=ali=2Cce,n=ali=2Cce,r=abc,tokenauth=true")
    assert first == scram.ClientFirst(
        "n,a=ali=2Cce,", "ali,ce", "n=ali=2Cce,r=abc,tokenauth=true", "ali,ce", "abc", "tokenauth=true"
    )
    assert scram.read_client_first(b"y,,n=u,r=x").binding == "y,,"
    assert scram.read_client_final(b"c=biws,r=ab,p=QUJD") == scram.ClientFinal("c=biws,r=ab", b"n,,", "ab", b"ABC")
    for token in (b"p=tls-unique,,n=u,r=x", b"n,,n=,r=x", b"n,,n=a=b,r=x", b"n,,n=u", b"", b"n,,n=u,r=" + b"x" * 1025):
        with pytest.raises(LoginFailed):
            scram.read_client_first(token)
    for token in (b"c=biws,r=ab", b"c=*,r=ab,p=QUJD", b"c=biws,r=ab,p=Q", b"r=ab,p=QUJD", b""):
        with pytest.raises(LoginFailed):
            scram.read_client_final(token)
