"""Authentication of the replay's own."""

from __future__ import annotations

import pytest

from kproxy.base.errors import DecodeError
from kproxy.protocol import decode_request
from kproxy.tools.rehearse.dialogue import response
from kproxy.tools.replay.discovery import CredentialsRefused, plain


def test_the_password_is_sent_after_the_handshake() -> None:
    """In SaslAuthenticate, as PLAIN has it."""
    steps = plain("me", "secret")
    shake = decode_request(next(steps))
    token = decode_request(steps.send(response(17, 1, 0, mechanisms=["PLAIN"])[4:]))
    with pytest.raises(StopIteration):
        steps.send(response(36, 1, 0)[4:])

    assert shake.body["mechanism"] == "PLAIN"
    assert bytes(token.body["auth_bytes"]) == b"\0me\0secret"


def test_a_target_without_plain_says_what_it_has() -> None:
    """No password is sent to it."""
    steps = plain("me", "secret")
    next(steps)
    with pytest.raises(CredentialsRefused, match="the target offers SCRAM-SHA-256, not PLAIN"):
        steps.send(response(17, 1, 0, error_code=33, mechanisms=["SCRAM-SHA-256"])[4:])


@pytest.mark.parametrize("mechanisms", [[], [None]])
def test_a_target_that_offers_nothing(mechanisms: list[str | None]) -> None:
    """No names, or nulls for names: what it does not say is not shown."""
    steps = plain("me", "secret")
    next(steps)
    names = b"".join(b"\xff\xff" for _ in mechanisms)  # which cannot be encoded, since they are illegal
    with pytest.raises(CredentialsRefused, match="the target offers no mechanism, not PLAIN"):
        steps.send(b"\0\0\0\0" + b"\0\x21" + len(mechanisms).to_bytes(4, "big") + names)


def test_a_refusal_has_the_target_s_words() -> None:
    """And never the password."""
    steps = plain("me", "secret")
    next(steps)
    steps.send(response(17, 1, 0, mechanisms=["PLAIN"])[4:])
    with pytest.raises(CredentialsRefused, match="the target refuses user me: no such user"):
        steps.send(response(36, 1, 0, error_code=58, error_message="no such user")[4:])


def test_an_answer_that_is_none_is_an_error() -> None:
    """Of the target's."""
    steps = plain("me", "secret")
    next(steps)
    with pytest.raises(DecodeError):
        steps.send(b"\0\0")
