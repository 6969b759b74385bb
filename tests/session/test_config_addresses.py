"""Configs of brokers tell no client where a broker is (promise 3); those of anything else pass as they are."""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.protocol.table import schema
from kproxy.session.plan import ConnectionSettings
from kproxy.tools.rehearse.dialogue import Dialogue, request, response
from tests.support.line_count import LineCount

DESCRIBE_CONFIGS, METADATA = 32, 3
VERSIONS = list(schema.load(DESCRIBE_CONFIGS).versions)
TOPIC, BROKER, BROKER_LOGGER = 2, 4, 8
HOST = "broker-7.internal"
ADDRESSES = {
    "listeners": f"PLAINTEXT://{HOST}:9092",
    "advertised.listeners": f"PLAINTEXT://{HOST}:9092,SSL://[fd00::7]:9093",
    "controller.quorum.voters": f"7@{HOST}:9094",
    "controller.quorum.bootstrap.servers": f"{HOST}:9094",
    "zookeeper.connect": f"{HOST}:2181",
    "advertised.host.name": HOST, "advertised.port": "9092", "host.name": HOST, "port": "9092",
    "some.plugin.bootstrap.servers": f"{HOST}:9092",
    "metrics.push.url": f"http://{HOST.upper()}:9092/push",
}  # fmt: skip
"""The last one by its value only."""
HARMLESS = {
    "controller.listener.names": "CONTROLLER", "early.start.listeners": "CONTROLLER", "log.dirs": "/var/kafka",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT", "ssl.truststore.location": None, "num.io.threads": "8",
    "sasl.oauthbearer.token.endpoint.url": "https://idp:443/token", "advertised.listeners.of": "", "listeners": "",
}  # fmt: skip


def entry(version: int, name: str, value: str | None, synonyms: dict[str, str | None]) -> dict[str, Any]:
    found: dict[str, Any] = {"name": name, "value": value, "read_only": True, "is_sensitive": False}
    if version == 0:
        return found | {"is_default": False}
    more = [{"name": one, "value": text, "source": 4} for one, text in synonyms.items()]
    found |= {"config_source": 4, "synonyms": more}
    return found if version < 3 else found | {"config_type": 2, "documentation": f"about {name}"}


def described(version: int, kind: int, values: dict[str, str | None], name: str = "7") -> dict[str, Any]:
    configs = [entry(version, one, value, {one: value, "default." + one: value}) for one, value in values.items()]
    return {"error_code": 0, "error_message": None, "resource_type": kind, "resource_name": name, "configs": configs}


def answers(version: int, *results: dict[str, Any], advertise: bool = True, chunk: int = 0) -> Dialogue:
    """What a client is sent that has been told of the broker before."""
    talk = Dialogue(bound=ConnectionSettings(advertise=advertise))
    talk.client(request(METADATA, 9, 1))
    talk.broker(response(METADATA, 9, 1, brokers=[{"node_id": 7, "host": HOST, "port": 9092, "rack": None}]))
    talk.out[0].clear()
    talk.out[1].clear()
    asked = [
        {"resource_type": one["resource_type"], "resource_name": "7", "configuration_keys": None} for one in results
    ]
    talk.client(request(DESCRIBE_CONFIGS, version, 2, resources=asked))
    talk.broker(response(DESCRIBE_CONFIGS, version, 2, results=list(results)), chunk)
    return talk


def decoded(version: int, talk: Dialogue) -> list[dict[str, Any]]:
    (answer,) = talk.responses((DESCRIBE_CONFIGS, version))
    results: list[dict[str, Any]] = answer.body["results"]
    return results


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("chunk", [0, 7])
@pytest.mark.parametrize("name", ["7", ""])
def test_addresses_in_configs_of_brokers_are_hidden(version: int, chunk: int, name: str) -> None:
    """They are null and sensitive, as a broker hides passwords, and so are those of synonyms; all else is as it was."""
    result = described(version, BROKER, ADDRESSES | {"num.io.threads": "8"}, name)
    talk = answers(version, described(version, TOPIC, {"retention.ms": "1"}), result, chunk=chunk)
    first, second = decoded(version, talk)

    assert HOST.encode() not in talk.to_client.lower()
    assert b"9092" not in talk.to_client
    assert first == described(version, TOPIC, {"retention.ms": "1"})
    *hidden, last = second["configs"]
    assert last == entry(version, "num.io.threads", "8", {"num.io.threads": "8", "default.num.io.threads": "8"})
    blank = dict.fromkeys(ADDRESSES)
    assert hidden == [
        entry(version, one, None, {one: None, "default." + one: None}) | {"is_sensitive": True} for one in blank
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_what_tells_no_address_passes_byte_for_byte(version: int) -> None:
    """Names of listeners, paths and addresses of other servers; and whatever a topic or a broker's logger says."""
    results = [described(version, BROKER, HARMLESS)]
    results += [described(version, kind, ADDRESSES) for kind in (TOPIC, BROKER_LOGGER, 16, 32)]

    assert answers(version, *results).to_client == response(DESCRIBE_CONFIGS, version, 2, results=results)


def test_a_synonym_alone_is_hidden() -> None:
    """The value in force tells nothing, the one behind it does."""
    result = described(4, BROKER, {"listeners": ""})
    result["configs"][0]["synonyms"][1] = {"name": "listeners", "value": ADDRESSES["listeners"], "source": 4}
    talk = answers(4, result)

    assert HOST.encode() not in talk.to_client
    assert decoded(4, talk)[0]["configs"][0]["value"] == ""


def test_without_advertising_all_is_shown() -> None:
    """The client knows where brokers are then."""
    result = described(4, BROKER, ADDRESSES)

    assert answers(4, result, advertise=False).to_client == response(DESCRIBE_CONFIGS, 4, 2, results=[result])


def test_configs_of_thousands_of_topics_pass() -> None:
    """Only results about brokers are gone through, so that a long answer about topics does not have too many values."""
    result = described(1, TOPIC, {f"config.{number}": "1" for number in range(40)})
    results = [result] * 2000
    whole = response(DESCRIBE_CONFIGS, 1, 2, results=results)
    talk = Dialogue(bound=ConnectionSettings(advertise=True))
    talk.client(request(DESCRIBE_CONFIGS, 1, 2)).broker(whole)

    assert talk.closed is None
    assert talk.to_client == whole


@pytest.mark.parametrize("nodes", [3, 1000])
def test_many_configs_and_nodes_are_searched_in_steps(nodes: int) -> None:
    """A broker chooses how many nodes and configs it names, and how long their hosts are."""
    hosts = [f"{number}-{'h' * 200}" for number in range(nodes)]
    talk = Dialogue(advertise=True).client(request(3, 9, 1))
    brokers = [{"node_id": number, "host": host, "port": 9092, "rack": None} for number, host in enumerate(hosts)]
    talk.broker(response(3, 9, 1, brokers=brokers)).client(request(DESCRIBE_CONFIGS, 4, 2))
    last = f"PLAINTEXT://{hosts[-1].upper()}:9092"
    config = {"read_only": False, "config_source": 1, "is_sensitive": False, "synonyms": [], "config_type": 0}
    configs = [config | {"name": f"n{number}", "value": "x:y", "documentation": None} for number in range(3000)]
    configs.append(config | {"name": "last", "value": last, "documentation": None})
    result = {"error_code": 0, "error_message": None, "resource_type": 4, "resource_name": "1", "configs": configs}
    frame = response(DESCRIBE_CONFIGS, 4, 2, results=[result])
    with LineCount() as count:
        talk.broker(frame)
    assert count.longest <= 60_000
    assert count.total <= 150 * (len(configs) + nodes)
    told = talk.to_client[-len(frame) :]
    assert last.encode() not in told
    assert told.count(b"x:y") >= 2900
