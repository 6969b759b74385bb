"""What `kproxy explain` says of a frame is what the engine does with it."""

from __future__ import annotations

from random import Random

import pytest

from kproxy.protocol import apis, decode_request, encode
from kproxy.protocol.framing import framed
from kproxy.protocol.table.schema import Api
from kproxy.rules.document.read import parse_rules
from kproxy.rules.entity import entities
from kproxy.session.shared import ClusterState
from kproxy.tools.rehearse.cases.connection import CaseConnection
from kproxy.tools.rehearse.cases.model import ClientConnection
from kproxy.tools.rehearse.explain.target import explain_selectors, of_frame
from tests.support.random_requests import random_request

WITH_SESSIONS = ("Fetch", "ShareFetch", "ShareAcknowledge")  # about more than their frames say
OWN_WAYS = ("SaslHandshake", "SaslAuthenticate", "ApiVersions")  # raw tokens may follow, versions may be unknown
PLAIN = [api for api in apis() if api.name not in (*WITH_SESSIONS, *OWN_WAYS) and api.versions]


def selectors(random: Random, frame: bytes) -> str:
    """Some that may hold: what the request is about, and what it is not."""
    message = decode_request(frame)
    one = random.choice(entities(message))
    lines = [f"client_id: {random.choice(['app', 'other'])}"] if random.random() < 0.5 else []
    for name in ("topic", "partition", "group", "transactional_id", "member"):
        value = getattr(one, name)
        if value not in (None, "") and str(value).isprintable() and random.random() < 0.6:
            lines.append(
                f"{name}: {value!r}" if random.random() < 0.8 else f"{name}: {'7' if name == 'partition' else 'x'}"
            )
    return "{" + ", ".join(lines) + "}" if lines else "{client_id: app}"


@pytest.mark.parametrize("api", PLAIN, ids=str)
def test_the_word_of_selectors_is_the_engines(api: Api) -> None:
    """For each API, random requests and random selectors, of `match` and of `not`."""
    random = Random(api.key)
    for _ in range(8):
        version = random.choice(list(api.versions))
        message = random_request(api, version, random, full=True)
        if api.header_version("request", version):  # ControlledShutdown 0 has none
            message.header["client_id"] = "app"
        frame = encode(message)
        written = f"match: {selectors(random, frame)}"
        if random.random() < 0.5:
            written += f", not: {selectors(random, frame)}"
        rules = parse_rules(f"rules: [{{name: r, kind: delay, delay: 1ms, {written}}}]")
        said = explain_selectors(rules.rules[0], of_frame(decode_request(frame), frame, {}).subject)
        line = CaseConnection(ClientConnection(advertise=False), rules, ClusterState(), 1, {}, 0.0)
        line.send(framed(frame))

        assert (said.word == "holds") == (rules.live[0].matched == 1), (written, said, entities(message))
