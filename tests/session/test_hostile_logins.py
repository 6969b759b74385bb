"""Messages of a login that are long or hostile: SASL tokens of every mechanism, ApiVersions, and the broker's answers.

Parsing a token is one call that lets no other connection run, so its length is bounded (`principal.LONGEST_TOKEN`).
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Callable

import pytest

from kproxy.base.errors import LoginFailed
from kproxy.protocol.framing import framed
from kproxy.protocol.primitives import write_uvarint
from kproxy.protocol.table.api_keys import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE
from kproxy.record.exchange import Depth
from kproxy.record.observer.observer import ConnectionObserver
from kproxy.session.commands import BROKER, CLIENT
from kproxy.session.rewrite.versions import MAX_VERSIONS_RESPONSE
from kproxy.session.sasl import principal
from kproxy.session.sasl.identity import Software
from kproxy.session.sasl.login import MAX_RESPONSE, MAX_TOKEN, read_response
from kproxy.session.sasl.principal import LONGEST_TOKEN, MALFORMED, NAMES, NOT_YET, SaslDialogue
from kproxy.tools.rehearse.dialogue import Dialogue, request, response
from tests.record.audit.exchanges import FakeWho
from tests.support.line_count import LineCount

ALICE = "rules: [{name: r, kind: deny, match: {principal: alice, topic: 'secret*'}}]"


def bearer(claims: bytes) -> bytes:
    """Return the first token of OAUTHBEARER with these claims."""
    return b"n,,\x01auth=Bearer h." + urlsafe_b64encode(claims).rstrip(b"=") + b".s\x01\x01"


FIRST: dict[str, Callable[[int], bytes]] = {
    "PLAIN": lambda size: b"\0alice\0" + b"p" * (size - 7),
    "SCRAM-SHA-256": lambda size: b"n,,n=alice,r=" + b"r" * (size - 13),
    "SCRAM-SHA-512": lambda size: b"n,,n=alice,r=x," + b"," * (size - 15),
    "OAUTHBEARER": lambda size: bearer(b'{"sub":"alice","x":"' + b"x" * (size * 3 // 4 - 60) + b'"}'),
}


def logged_in(mechanism: str, token: bytes) -> Dialogue:
    """Return a dialogue after the broker's SaslHandshake response and this token of the client."""
    talk = Dialogue(ALICE).client(request(SASL_HANDSHAKE, 1, 1, mechanism=mechanism))
    talk.broker(response(SASL_HANDSHAKE, 1, 1, mechanisms=[mechanism]))
    return talk.client(request(SASL_AUTHENTICATE, 2, 2, auth_bytes=token))


@pytest.mark.parametrize("mechanism", FIRST)
def test_token_within_the_limit_names_the_client(mechanism: str) -> None:
    dialogue = SaslDialogue(mechanism)
    token = FIRST[mechanism](LONGEST_TOKEN)
    assert LONGEST_TOKEN - 100 <= len(token) <= LONGEST_TOKEN
    dialogue.take_token(token)
    assert dialogue.name == "alice"
    assert dialogue.reason == NOT_YET


@pytest.mark.parametrize("mechanism", FIRST)
def test_token_beyond_the_limit_is_not_parsed(mechanism: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts as malformed: a rule by principal lets nothing pass, and the broker decides about the login."""
    monkeypatch.setattr(principal, "NAMES", dict.fromkeys(NAMES, lambda token: pytest.fail("the token was parsed")))
    dialogue = SaslDialogue(mechanism)
    dialogue.take_token(FIRST[mechanism](LONGEST_TOKEN + 200))
    assert dialogue.name is None
    assert dialogue.reason == MALFORMED


HOSTILE = {
    "PLAIN": [bytes(LONGEST_TOKEN)],
    "SCRAM-SHA-256": [b"n,,n=a,r=" + b"," * (LONGEST_TOKEN - 9), b"n,,n=a,r=b" + b",a=b" * (LONGEST_TOKEN // 4 - 4)],
    "OAUTHBEARER": [
        b"n," + b"\x01" * (LONGEST_TOKEN - 2),
        b"n," + b"\x01auth=bearer a" * (LONGEST_TOKEN // 14 - 1),
        bearer(b"[" * (LONGEST_TOKEN // 2)),
        bearer(b"[" + b"{}," * (LONGEST_TOKEN // 5) + b"1]"),
        bearer(b'{"sub":' + b"9" * (LONGEST_TOKEN // 2) + b"}"),
    ],
}


@pytest.mark.parametrize(("mechanism", "token"), [(name, one) for name, some in HOSTILE.items() for one in some])
def test_hostile_token_takes_linear_work(mechanism: str, token: bytes) -> None:
    assert len(token) <= LONGEST_TOKEN
    with LineCount() as count:
        SaslDialogue(mechanism).take_token(token)
    assert count.total <= 3 * LONGEST_TOKEN


@pytest.mark.parametrize("mechanism", FIRST)
def test_client_with_a_long_token_passes_no_rule_by_principal(mechanism: str) -> None:
    talk = logged_in(mechanism, FIRST[mechanism](LONGEST_TOKEN + 200))
    talk.broker(response(SASL_AUTHENTICATE, 2, 2, auth_bytes=b""))
    if mechanism.startswith("SCRAM-"):
        talk.client(request(SASL_AUTHENTICATE, 2, 3, auth_bytes=b"c=biws,r=x,p=AA=="))
        talk.broker(response(SASL_AUTHENTICATE, 2, 3, auth_bytes=b"v=AA=="))
    assert talk.closed is None
    talk.client(request(3, 9, 4, topics=[{"name": "open"}]))
    assert talk.closed is not None
    assert talk.closed.cause == "authentication"


@pytest.mark.parametrize(("key", "version"), [(SASL_HANDSHAKE, 1), (SASL_AUTHENTICATE, 2), (API_VERSIONS, 4)])
@pytest.mark.parametrize("rules", ["", ALICE])
def test_login_request_beyond_the_limit_of_brokers_closes(key: int, version: int, rules: str) -> None:
    """`sasl.server.max.receive.size` is 524,288 by default. The length is enough: nothing is gathered."""
    begins = request(key, version, 1)
    talk = Dialogue(rules).client((MAX_TOKEN + 1).to_bytes(4, "big") + begins[4:])
    assert talk.closed is not None
    assert talk.closed.cause == "frame_size"
    assert talk.closed.blame == "client"
    assert talk.closed.message.endswith("request of 524289 bytes, expected at most 524288")
    assert not talk.shared.requests.used


@pytest.mark.parametrize(
    ("key", "version", "most"),
    [(SASL_HANDSHAKE, 1, MAX_TOKEN), (SASL_AUTHENTICATE, 2, MAX_TOKEN), (API_VERSIONS, 4, MAX_VERSIONS_RESPONSE)],
)
def test_login_response_beyond_the_limit_closes(key: int, version: int, most: int) -> None:
    talk = Dialogue().client(request(key, version, 1)).broker((most + 1).to_bytes(4, "big") + bytes((0, 0, 0, 1)))
    assert talk.closed is not None
    assert talk.closed.cause == "frame_size"
    assert talk.closed.blame == "broker"
    assert talk.closed.message.endswith(f"response of {most + 1} bytes, expected at most {most}")


def test_api_versions_response_is_cut_in_steps() -> None:
    entry = {"min_version": 0, "max_version": 40}
    listed = [entry | {"api_key": number % 90} for number in range(MAX_VERSIONS_RESPONSE // 6 - 10)]
    frame = response(API_VERSIONS, 2, 1, api_keys=listed)
    assert MAX_VERSIONS_RESPONSE - 100 <= len(frame) <= MAX_VERSIONS_RESPONSE
    talk = Dialogue("rules: [{name: r, kind: limit_versions, kafka: '2.0'}]").client(request(API_VERSIONS, 2, 1))
    with LineCount() as count:
        talk.broker(frame)
    assert talk.closed is None
    assert count.longest <= 60_000
    assert count.total <= 80 * len(listed)


@pytest.mark.parametrize("size", [MAX_RESPONSE + 1, 1 << 24])
def test_own_login_reads_no_long_response(size: int) -> None:
    with pytest.raises(LoginFailed, match=f"the broker answers with {size} bytes, expected at most 65536"):
        read_response(bytes(size), API_VERSIONS, 0)


def test_long_api_versions_is_not_kept_with_its_connection() -> None:
    """Its unknown tags have 100 kB; the library stays known."""
    short = request(API_VERSIONS, 3, 1, client_software_name="client", client_software_version="1.0")
    frame = framed(short[4:-1] + b"\x01\x09" + write_uvarint(100_000) + bytes(100_000))
    talk = Dialogue().client(frame)
    assert talk.closed is None
    assert talk.session.identity.software == "client/1.0"
    assert talk.session.identity._library == Software("client", "1.0")


@pytest.mark.parametrize("side", ["client", "broker"])
@pytest.mark.parametrize("token", [b"", b"\x01"])
def test_many_raw_tokens_in_one_read_are_scanned_in_steps(side: str, token: bytes) -> None:
    """After a SaslHandshake of version 0 nothing limits their number, and a session and its observer scan each."""
    talk, observer = Dialogue(), ConnectionObserver(FakeWho(), lambda key, version: Depth.FULL, lambda seen: None)
    asked, said = request(SASL_HANDSHAKE, 0, 1, mechanism="GSSAPI"), response(SASL_HANDSHAKE, 0, 1)
    talk.client(asked).broker(said)
    observer.from_client(bytearray(asked), len(asked), 0.0)
    observer.to_client(bytearray(said), len(said), 0.0)
    tokens = framed(token) * 5000
    watch = observer.from_client if side == "client" else observer.to_client
    for work in (lambda: talk.feed(CLIENT if side == "client" else BROKER, tokens, len(tokens)),
                 lambda: watch(bytearray(tokens), len(tokens), 1.0)):  # fmt: skip
        with LineCount() as count:
            work()
        assert count.longest <= 100_000 < count.total
    assert talk.closed is None
