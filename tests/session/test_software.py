"""The client's library, as it says."""

from __future__ import annotations

import pytest

from kproxy.protocol import Message, encode
from kproxy.protocol.table.api_keys import API_VERSIONS
from kproxy.protocol.table.schema import load
from kproxy.rules.select.match import text_test
from kproxy.session.counters import Counters
from kproxy.session.plan import Step
from kproxy.session.sasl.identity import Identity, Software, software


@pytest.mark.parametrize(
    ("name", "version", "pattern"),
    [
        ("apache-kafka-java", "3.9.1", "apache-kafka-java/3.9.1"),
        ("librdkafka", "2.16.0", "librdkafka/*"),
        ("confluent-kafka-python", "2.16.1-rdkafka-2.16.0", "*-rdkafka-2.16.0"),
        ("kafka-python", "3.0.12", "/kafka-python/3\\..*/"),
    ],
)
def test_names_of_real_clients(name: str, version: str, pattern: str) -> None:
    found = software({"client_software_name": name, "client_software_version": version})

    assert found == Software(name, version)
    assert text_test(pattern)(str(found))


@pytest.mark.parametrize(
    ("name", "version"),
    [("", ""), ("a", ""), ("-a", "1"), ("a b", "1"), ("a/b", "1"), ("a", "1\n"), ("a", "ü"), ("a" * 251, "1")],
)
def test_what_no_broker_accepts_is_no_name(name: str, version: str) -> None:
    """Brokers answer INVALID_REQUEST to it (KIP-511); and it would be odd in logs."""
    assert software({"client_software_name": name, "client_software_version": version}) is None


def test_old_versions_say_nothing() -> None:
    """Before version 3 of ApiVersions there are no such fields."""
    assert software({}) is None


def test_a_client_that_is_sent_back_to_version_0_has_said_who_it_is() -> None:
    """What an older broker asks for after its error does not unsay it."""
    identity = Identity(None, Counters())
    for version, body in ((3, {"client_software_name": "librdkafka", "client_software_version": "2.16.0"}), (0, {})):
        header = {
            "request_api_key": API_VERSIONS,
            "request_api_version": version,
            "correlation_id": 1,
            "client_id": "a",
        }
        frame = encode(Message(load(API_VERSIONS), version, header, body))
        identity.request(Step(API_VERSIONS, version, "ApiVersions"), frame)

    assert identity.software == "librdkafka/2.16.0"


@pytest.mark.parametrize(("sent", "kept"), [("etl-3", "etl-3"), (None, None), ("", ""), ("x" * 30_000, "x" * 250)])
@pytest.mark.parametrize("version", [0, 3])
def test_client_id_is_that_of_the_last_api_versions(sent: str | None, kept: str | None, version: int) -> None:
    """Of any version; a long one is cut, since connections are many."""
    identity = Identity(None, Counters())
    assert identity.client_id is None
    header = {"request_api_key": API_VERSIONS, "request_api_version": version, "correlation_id": 1, "client_id": sent}
    body = {"client_software_name": "a", "client_software_version": "1"} if version else {}
    frame = encode(Message(load(API_VERSIONS), version, header, body))
    identity.request(Step(API_VERSIONS, version, "ApiVersions"), frame)
    assert identity.client_id == kept
