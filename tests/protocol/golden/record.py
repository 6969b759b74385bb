"""Records the golden frames beside it: `python -m tests.protocol.golden.record`, with Java and Maven, takes minutes.

Real clients talk to real brokers through a relay at 127.0.0.2, which the brokers advertise. From what passes, the
shortest frame, one of middle length and the longest are kept for each (API, version, direction, codecs), of at most
three clients, unless they are long or tell about the machine.
"""

from __future__ import annotations

import socket
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
import kafka

from kproxy.protocol.records import Cut, entries
from kproxy.protocol.table import schema
from kproxy.testing.kafka import KAFKA_VERSION, Kafka, KafkaListener
from tests.protocol.golden.frames import Frame, record_fields
from tests.protocol.golden.relay import Relay
from tests.protocol.golden.sessions import aiokafka_client, attempt, java, kafka_python, kafka_python_old, librdkafka

HERE = Path(__file__).parent

OLD_KAFKA_VERSION = "3.9.1"
RELAY_HOST = "127.0.0.2"
LONGEST = 4500
LOGIN = {
    "sasl.enabled.mechanisms": "PLAIN",
    "plain.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'user_alice="wonderland";',
}
OF_THE_MACHINE = [
    str(word).encode()
    for word in (tempfile.gettempdir(), Path.home(), HERE.parents[2], sys.base_prefix, socket.gethostname())
]


@contextmanager
def relayed(version: str) -> Iterator[tuple[list[Relay], list[str]]]:
    """A broker of that release behind two relays, the second asking for a password, and their addresses."""
    login = KafkaListener("LOGIN", "SASL_PLAINTEXT", LOGIN, advertise=RELAY_HOST)
    with Kafka(listeners=[KafkaListener("RELAY", advertise=RELAY_HOST), login], version=version) as broker:
        ports = [*broker.ports("RELAY"), *broker.ports("LOGIN")]
        relays = [Relay((RELAY_HOST, port), ("127.0.0.1", port)) for port in ports]
        yield relays, [f"{RELAY_HOST}:{port}" for port in ports]


def flavour(one: Frame) -> frozenset[tuple[int, int]]:
    """Which (magic, codec) its records have."""
    if one.key > 1:
        return frozenset()
    found = [entry for data in record_fields(one.decode()) for entry in entries(data)]
    return frozenset((entry.magic, entry.codec) for entry in found if not isinstance(entry, Cut))


def chosen(recorded: list[Frame]) -> list[Frame]:
    """A small part of it that has every shape."""
    groups: dict[Any, dict[str, list[Frame]]] = defaultdict(lambda: defaultdict(list))
    for one in recorded:
        if len(one.frame) <= LONGEST and not any(word in one.frame for word in OF_THE_MACHINE):
            groups[one.direction, one.key, one.version, flavour(one)][one.client].append(one)
    kept = []
    for by_client in groups.values():
        for frames in list(by_client.values())[:3]:
            frames.sort(key=lambda one: len(one.frame))
            kept += [frames[0], frames[len(frames) * 2 // 3], frames[-1]]
    return list(dict.fromkeys(kept))


def save(recorded: list[Frame]) -> None:
    by_client = defaultdict(list)
    for one in chosen(recorded):
        name = schema.load(one.key).name
        by_client[one.client].append(
            (one.key, one.version, one.direction, f"{one.direction} {name} {one.version} {one.frame.hex()}")
        )
    for client, lines in by_client.items():
        text = "".join(line[-1] + "\n" for line in sorted(lines))
        (HERE / f"{client}.hex").write_text(text)
        print(f"{client}: {len(lines)} frames, {len(text)} bytes")


SESSIONS: dict[str, list[tuple[str, Callable[[str, str], None]]]] = {
    KAFKA_VERSION: [
        (f"librdkafka-{confluent_kafka.libversion()[0]}", librdkafka),
        (f"kafka-python-{kafka.__version__}", kafka_python),
        (f"aiokafka-{aiokafka.__version__}", aiokafka_client),
        (f"java-{KAFKA_VERSION}", lambda address, login: java(address, login, KAFKA_VERSION)),
    ],
    OLD_KAFKA_VERSION: [(f"kafka-python-{kafka.__version__}-old", kafka_python_old)],
}


def main() -> None:
    recorded = []
    for version, sessions in SESSIONS.items():
        with relayed(version) as (relays, addresses):
            for client, session in sessions:
                for relay in relays:
                    relay.client = client
                attempt(client, lambda session=session, addresses=addresses: session(*addresses))
            recorded += [one for relay in relays for one in relay.recorded]
    save(recorded)


if __name__ == "__main__":
    main()
