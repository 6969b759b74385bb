"""The client's end of each mechanism."""

from __future__ import annotations

import pytest

from kproxy.base.errors import LoginFailed
from kproxy.protocol.sasl import scram
from kproxy.protocol.sasl.mechanisms import ScramClient, Tokens, is_extension, oauthbearer, plain

NONCE, SERVERS = "rOprNGfwEbeRWgbNEkqO", "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
CHALLENGE = f"r={SERVERS},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()


def ends(tokens: Tokens, answer: bytes) -> bool:
    """Whether it is content with this last answer."""
    with pytest.raises(StopIteration):
        tokens.send(answer)
    return True


def client(password: str = "pencil") -> ScramClient:
    return ScramClient("SCRAM-SHA-256", "user", password, lambda: NONCE)


def test_plain_is_one_token() -> None:
    """RFC 4616, without an authorization id; the answer is empty."""
    tokens = plain("user", "pen\u00e7il")
    assert next(tokens) == b"\0user\0pen\xc3\xa7il"
    assert ends(tokens, b"")


def test_scram_is_the_dialogue_of_the_rfc() -> None:
    """RFC 7677 section 3, the server's signature included; a second login hashes nothing."""
    one = client()
    for _ in range(2):
        tokens = one.tokens()
        assert next(tokens) == f"n,,n=user,r={NONCE}".encode()
        final = f"c=biws,r={SERVERS},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
        assert tokens.send(CHALLENGE) == final.encode()
        assert ends(tokens, b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")
    (made,) = one.known.values()
    assert one.keys(*next(iter(one.known))) is made


@pytest.mark.parametrize("last", [b"v=AAAA", b"v=", b"", b"e=invalid-proof", b"\xff", b"v=*"])
def test_a_server_that_does_not_know_the_password(last: bytes) -> None:
    """Its signature is wrong: the client does not take it for the broker."""
    tokens = client().tokens()
    next(tokens)
    tokens.send(CHALLENGE)
    with pytest.raises(LoginFailed) as failed:
        tokens.send(last)
    assert "pencil" not in str(failed.value)


def test_few_keys_are_kept() -> None:
    """A broker with a new salt each time does not fill memory."""
    one = client()
    for number in range(20):
        one.keys(bytes([number]), scram.LEAST_ITERATIONS)
    assert len(one.known) <= 8


def test_oauthbearer_has_the_token_and_its_extensions() -> None:
    """RFC 7628 and KIP-342; when the broker says what is wrong, it is let say its refusal."""
    tokens = oauthbearer("abc.def.ghi", {"logicalCluster": "lkc-1"})
    assert next(tokens) == b"n,,\x01auth=Bearer abc.def.ghi\x01logicalCluster=lkc-1\x01\x01"
    assert ends(tokens, b"")
    tokens = oauthbearer("abc", {})
    assert next(tokens) == b"n,,\x01auth=Bearer abc\x01\x01"
    assert tokens.send(b'{"status":"invalid_token"}') == b"\x01"
    with pytest.raises(LoginFailed, match="the broker finds the token for OAUTHBEARER invalid"):
        tokens.send(b"")
    for bad in ("", "a b", "a\x01auth=Bearer x", "a\n"):
        with pytest.raises(LoginFailed, match="characters that no token has"):
            next(oauthbearer(bad, {}))


def test_what_can_be_an_extension() -> None:
    """Letters; not `auth`, which is the token's; and nothing that could end a value."""
    assert is_extension("logicalCluster", "lkc-1")
    assert not any(is_extension(*one) for one in (("auth", "x"), ("a1", "x"), ("", "x"), ("a", "x\x01y"), ("a", "\n")))
