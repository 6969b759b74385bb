"""Rules and versions that the protocol table lacks: what is newer than kproxy passes, or is answered, as without rules.

What a rule may forbid does not: nobody can tell what it asks.
"""

from __future__ import annotations

from json import dumps
from random import Random

import pytest

from kproxy.protocol import decode_response
from kproxy.protocol.framing import framed
from kproxy.protocol.table import schema
from kproxy.rules.document.read import parse_rules
from kproxy.rules.exchange import FrameDepth
from kproxy.session.plan import ConnectionSettings
from kproxy.session.rewrite.versions import unsupported
from kproxy.session.rule_program import compile_rules
from kproxy.tools.rehearse.dialogue import Dialogue, request, response
from tests.support.random_rules import live_kinds, random_rule

APIS = ["Produce", "Fetch", "Metadata", "ApiVersions", "FindCoordinator"]
RULES = """
rules:
  - {name: error, kind: error, error: 3, at: request}
  - {name: error later, kind: error, error: 3, at: response}
  - {name: deny, kind: deny, match: {topic: secret}, mode: dry_run}
  - {name: read only, kind: read_only, mode: dry_run}
"""


def newer(key: int, correlation: int) -> bytes:
    """A request of version 99 with a null client id."""
    return framed(key.to_bytes(2, "big") + b"\0\x63" + correlation.to_bytes(4, "big") + b"\xff\xff" + b"new fields")


@pytest.mark.parametrize("kind", live_kinds())
def test_no_rule_reads_the_body_of_a_version_that_is_not_known(kind: str) -> None:
    """It is asked about any version that a client may send."""
    for seed in range(20):
        rules = parse_rules(dumps({"rules": [random_rule(kind, Random(seed), APIS)]}))
        for key in schema.paths():
            for version in (schema.load(key).versions.last + 1, 0xFFFF):
                found = compile_rules(key, version, rules.live)
                assert found is None or FrameDepth.BODY not in (found.request, found.response)


@pytest.mark.parametrize("api", ["Metadata", "DescribeGroups", "CreateTopics"])
def test_newer_versions_pass_rules_that_read_bodies(api: str) -> None:
    """Both ways as they came."""
    asked, said = newer(schema.names()[api], 1), framed(b"\0\0\0\1anything")
    talk = Dialogue(RULES, bound=ConnectionSettings(advertise=False)).client(asked).broker(said)

    assert (talk.to_broker, talk.to_client) == (asked, said)


def test_newer_api_versions_are_answered_beside_rules() -> None:
    """With the error that has the client ask again in an older version."""
    assert Dialogue(RULES).client(newer(18, 1)).to_client == unsupported(1)


DENY = "rules: [{name: deny, kind: deny, match: {topic: secret}}]"
READ_ONLY = "rules: [{name: read only, kind: read_only}]"


@pytest.mark.parametrize(("rules", "api"), [(DENY, "Fetch"), (DENY, "DeleteTopics"), (READ_ONLY, "DeleteTopics")])
def test_what_may_be_forbidden_does_not_pass_unread(rules: str, api: str) -> None:
    """The connection is closed, with the rule's name."""
    talk = Dialogue(rules, bound=ConnectionSettings(advertise=False)).client(newer(schema.names()[api], 1))

    assert talk.to_broker == b""
    assert talk.closed is not None
    assert (talk.closed.cause, talk.closed.blame) == ("api_blocked", "client")
    assert f"{api} 99 is not known, and the rule" in talk.closed.message


@pytest.mark.parametrize(("rules", "api"), [(DENY, "Heartbeat"), (DENY, "ApiVersions"), (READ_ONLY, "DescribeGroups")])
def test_what_no_rule_may_forbid_goes_on(rules: str, api: str) -> None:
    """To the broker, or to kproxy's own answer."""
    talk = Dialogue(rules, bound=ConnectionSettings(advertise=False)).client(newer(schema.names()[api], 1))

    assert talk.closed is None
    assert talk.to_broker or talk.to_client == unsupported(1)


@pytest.mark.parametrize(("rules", "cut"), [(DENY, True), (READ_ONLY, False), ("rules: []", False)])
def test_clients_do_not_hear_of_versions_that_would_be_refused(rules: str, cut: bool) -> None:
    """Of Fetch, which reads only: a rule that may forbid some of it leaves the versions that can be read."""
    talk = Dialogue(rules, bound=ConnectionSettings(advertise=False)).client(request(18, 3, 1))
    talk.broker(response(18, 3, 1, api_keys=[{"api_key": 1, "min_version": 4, "max_version": 99}]))

    (entry,) = decode_response(talk.to_client[4:], 18, 3).body["api_keys"]
    assert entry["max_version"] == (schema.load(1).versions.last if cut else 99)
