"""librdkafka's mock cluster: brokers inside this process, up in milliseconds, without Java.

Strategy: the mock is part of the librdkafka in the confluent-kafka package. Its functions are called through ctypes,
since the Python package itself offers only the number of brokers. Every client on this machine can connect to it. It
supports the data path, groups and transactions, but no admin API except Metadata, and it differs from a broker in
places: it answers acks=0, its Metadata v13 has an extra byte, its answer to ApiVersions 3 and up is an error that only
librdkafka understands.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib.util
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Self

from kproxy.base.distribution import how_to_install
from kproxy.base.errors import InternalError
from kproxy.protocol.table.api_keys import HEARTBEAT, JOIN_GROUP, LEAVE_GROUP, METADATA, SYNC_GROUP

_PRODUCER = 0  # RD_KAFKA_PRODUCER
_REBALANCE_DELAY_MS = 100  # instead of three seconds, which each group test would wait
NEWEST = {METADATA: 8, JOIN_GROUP: 5, HEARTBEAT: 3, LEAVE_GROUP: 2, SYNC_GROUP: 3}
"""Newest versions in which the mock behaves like a broker: its later Metadata responses have an extra byte, and it
cannot read or answer later versions of the group APIs as Java's client sends them."""


class MissingMock(InternalError):
    """Error for a missing confluent-kafka, which carries librdkafka."""


class MockCluster:
    """`brokers` mock brokers with ids 1 … n, on free ports of the loopback address; a context manager."""

    def __init__(self, brokers: int = 3) -> None:
        self._library = _library()
        error = ctypes.create_string_buffer(512)
        settings = self._library.rd_kafka_conf_new()
        self._library.rd_kafka_conf_set(settings, b"log_level", b"0", None, 0)  # it would warn that it has no servers
        self._client = self._library.rd_kafka_new(_PRODUCER, settings, error, len(error))
        if not self._client:
            raise InternalError(f"librdkafka gave no client: {error.value.decode()}")
        self._mock = self._library.rd_kafka_mock_cluster_new(self._client, brokers)
        if not self._mock:
            raise InternalError("librdkafka gave no mock cluster")
        self._library.rd_kafka_mock_group_initial_rebalance_delay_ms(self._mock, _REBALANCE_DELAY_MS)

    @property
    def bootstrap(self) -> str:
        """Return `host:port,…` with the addresses of all brokers."""
        text: bytes = self._library.rd_kafka_mock_cluster_bootstraps(self._mock)
        return text.decode()

    def create_topic(self, name: str, partitions: int = 3, replicas: int = 1) -> None:
        """Make a topic, which must not exist yet."""
        self._check(self._library.rd_kafka_mock_topic_create(self._mock, name.encode(), partitions, replicas))

    def set_leader(self, topic: str, partition: int, node: int) -> None:
        """Make that broker the partition's leader; -1: the partition has no leader."""
        self._check(self._library.rd_kafka_mock_partition_set_leader(self._mock, topic.encode(), partition, node))

    def limit_api(self, key: int, first: int, last: int) -> None:
        """Offer these versions of an API only; -1, -1: do not offer it."""
        self._check(self._library.rd_kafka_mock_set_apiversion(self._mock, key, first, last))

    def set_down(self, node: int) -> None:
        """Cut that broker's connections and refuse new ones."""
        self._check(self._library.rd_kafka_mock_broker_set_down(self._mock, node))

    def set_up(self, node: int) -> None:
        """Let a broker that was set down accept connections again."""
        self._check(self._library.rd_kafka_mock_broker_set_up(self._mock, node))

    def close(self) -> None:
        """End the brokers and the client that holds them."""
        if self._mock:
            self._library.rd_kafka_mock_cluster_destroy(self._mock)
            self._library.rd_kafka_destroy(self._client)
            self._mock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _check(self, code: int) -> None:
        if code:
            name: bytes = self._library.rd_kafka_err2str(code)
            raise InternalError(f"the mock cluster refused: {name.decode()}")


def readable_mock(brokers: int = 3) -> MockCluster:
    """Start mock brokers that offer only API versions in which they behave like brokers."""
    cluster = MockCluster(brokers)
    for key, newest in NEWEST.items():
        cluster.limit_api(key, 0, newest)
    return cluster


@cache
def _library() -> ctypes.CDLL:
    spec = importlib.util.find_spec("confluent_kafka")
    if spec is None or spec.origin is None:
        raise MissingMock(f"confluent-kafka is not installed: {how_to_install('demo')}")
    package = Path(spec.origin).parent
    beside = (package.parent / "confluent_kafka.libs", package / ".dylibs")  # where the published wheels carry it
    carried = sorted(file for folder in beside for file in folder.glob("librdkafka*"))
    path = str(carried[0]) if carried else ctypes.util.find_library("rdkafka")
    if path is None:
        raise MissingMock(f"no librdkafka found: {how_to_install('demo')}")
    importlib.import_module("confluent_kafka")  # loads librdkafka's dependencies
    library = ctypes.CDLL(path)
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


_P, _I, _S = ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p

_FUNCTIONS = {
    "rd_kafka_conf_new": (_P, []),
    "rd_kafka_conf_set": (_I, [_P, _S, _S, _P, ctypes.c_size_t]),
    "rd_kafka_new": (_P, [_I, _P, _P, ctypes.c_size_t]),
    "rd_kafka_destroy": (None, [_P]),
    "rd_kafka_err2str": (_S, [_I]),
    "rd_kafka_mock_cluster_new": (_P, [_P, _I]),
    "rd_kafka_mock_cluster_destroy": (None, [_P]),
    "rd_kafka_mock_cluster_bootstraps": (_S, [_P]),
    "rd_kafka_mock_group_initial_rebalance_delay_ms": (None, [_P, ctypes.c_int32]),
    "rd_kafka_mock_topic_create": (_I, [_P, _S, _I, _I]),
    "rd_kafka_mock_partition_set_leader": (_I, [_P, _S, ctypes.c_int32, ctypes.c_int32]),
    "rd_kafka_mock_set_apiversion": (_I, [_P, ctypes.c_int16, ctypes.c_int16, ctypes.c_int16]),
    "rd_kafka_mock_broker_set_down": (_I, [_P, ctypes.c_int32]),
    "rd_kafka_mock_broker_set_up": (_I, [_P, ctypes.c_int32]),
}
