"""kproxy's own login in frames, against brokers that are old, strange or say no."""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.base.errors import LoginFailed, LoginRefused
from kproxy.protocol import decode_request
from kproxy.protocol.sasl.mechanisms import Tokens, plain
from kproxy.session.sasl.login import CORRELATION, LoggedIn, Steps, log_in
from kproxy.tools.rehearse.dialogue import response

VERSIONS, HANDSHAKE, AUTHENTICATE = 18, 17, 36


class Plain:
    """Credentials of a test."""

    mechanism = "PLAIN"

    def tokens(self) -> Tokens:
        return plain("me", "secret")

    def clean(self, text: str) -> str:
        return text.replace("secret", "…")


def versions(**newest: int) -> bytes:
    keys = {"handshake": HANDSHAKE, "authenticate": AUTHENTICATE}
    entries = [{"api_key": keys[name], "min_version": 0, "max_version": one} for name, one in newest.items()]
    return bytes(response(VERSIONS, 0, CORRELATION, api_keys=entries)[4:])


def shaken(**values: Any) -> bytes:
    return bytes(response(HANDSHAKE, 1, CORRELATION, **values)[4:])


def begin(newest: int = 2) -> Steps:
    """A login that has sent its token."""
    steps = log_in(Plain())
    next(steps)
    steps.send(versions(handshake=1, authenticate=newest))
    asked = decode_request(steps.send(shaken(mechanisms=["PLAIN"]))[4:])
    assert (asked.api.key, asked.version, asked.body["auth_bytes"]) == (AUTHENTICATE, newest, b"\0me\0secret")
    return steps


@pytest.mark.parametrize(("newest", "said", "lifetime"), [(0, {}, 0.0), (1, {"session_lifetime_ms": 1500}, 1.5),
                                                          (2, {"session_lifetime_ms": -1}, 0.0)])  # fmt: skip
def test_a_login(newest: int, said: dict[str, int], lifetime: float) -> None:
    """In the newest version of SaslAuthenticate that the broker has; from 1 on it says how long it holds."""
    steps = begin(newest)
    with pytest.raises(StopIteration) as end:
        steps.send(response(AUTHENTICATE, newest, CORRELATION, auth_bytes=b"", **said)[4:])
    assert end.value.value == LoggedIn(newest, lifetime)


def test_a_renewal_does_not_ask_for_versions() -> None:
    """They are known from the login."""
    asked = decode_request(next(log_in(Plain(), 2))[4:])
    assert (asked.api.key, asked.version, asked.body) == (HANDSHAKE, 1, {"mechanism": "PLAIN"})
    assert asked.header["correlation_id"] == CORRELATION


@pytest.mark.parametrize("newest", [{"handshake": 0}, {"handshake": 1}, {"authenticate": 2}, {}])
def test_brokers_that_are_too_old(newest: dict[str, int]) -> None:
    """Without SaslAuthenticate there is no way; the message says since when Kafka has it."""
    steps = log_in(Plain())
    next(steps)
    with pytest.raises(LoginFailed, match=r"Kafka has it since 1\.0"):
        steps.send(versions(**newest))


def test_refusals() -> None:
    """Of the mechanism, with those that there are; of the credentials, with the broker's words, without our secret."""
    steps = log_in(Plain(), 2)
    next(steps)
    with pytest.raises(LoginRefused, match="error 33 to SaslHandshake for PLAIN; the broker offers GSSAPI"):
        steps.send(shaken(error_code=33, mechanisms=["GSSAPI"]))
    for words, expected in (("your secret is wrong", "error 58: your … is wrong"), (None, "error 58")):
        steps = begin()
        said = {"error_code": 58, "error_message": words}
        with pytest.raises(LoginRefused) as refused:
            steps.send(response(AUTHENTICATE, 2, CORRELATION, **said)[4:])
        assert str(refused.value) == expected


def test_answers_that_are_none() -> None:
    """To another request, or not readable."""
    for answer in (b"", b"\0\0\0\1", response(VERSIONS, 0, 7)[4:], shaken()[:-1]):
        steps = log_in(Plain())
        next(steps)
        with pytest.raises(LoginFailed):
            steps.send(answer)
