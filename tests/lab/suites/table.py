"""The suites: other projects' own tests, how each is built and run, and how its results are read.

Strategy: a suite is built in a copy of its folder in the cache, by its language's own tools, so that nothing is written
into the folder that was named. Tools that are missing are told with the Debian package that brings them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from kproxy.testing.kafka import KAFKA_VERSION
from tests.lab.matrix.in_front_of import Brokers
from tests.lab.matrix.matrix import build
from tests.lab.suites import results
from tests.lab.suites.toxiproxy import toxiproxy

PLUGINS = Path(__file__).parent / "plugins"


@contextmanager
def nobody() -> Iterator[dict[str, str]]:
    """Start nothing beside the brokers."""
    yield {}


@dataclass(frozen=True)
class Suite:
    """Tests of one project.

    `mark` is a file by which its folder is known, `tools` are programs with the Debian packages that bring them. In
    `command`, `env` and `files` (written into the copy) `{bootstrap}` stands for where clients connect, `{copy}` for
    the built copy. `quick` are settings of its own for less work. `left_out` describes limits of its coverage.
    `meant` has the reasons for tests that cannot pass through kproxy, by the ends of their names.
    """

    name: str
    repository: str
    mark: str
    tools: tuple[tuple[str, str], ...]
    prepare: Callable[[Path], None]
    command: tuple[str, ...]
    read: results.Reader
    brokers: Brokers = field(default_factory=Brokers)
    env: Mapping[str, str] = field(default_factory=dict)
    quick: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    beside: Callable[[], AbstractContextManager[dict[str, str]]] = nobody
    left_out: str = ""
    meant: Mapping[str, str] = field(default_factory=dict)

    @property
    def variable(self) -> str:
        """Return the name by which `make suites` is told its folder."""
        return self.name.upper().replace("-", "_")

    def why(self, test: str) -> str:
        """Return why it is meant that a test does not pass through kproxy; an empty text if it is not."""
        return next((why for end, why in self.meant.items() if test.endswith(end)), "")


def modules(copy: Path) -> None:
    """Fetch the modules of a Go project."""
    build("go", "golang-go", copy, "mod", "download")


def compiled(copy: Path) -> None:
    """Build librdkafka and its test runner."""
    if not (copy / "Makefile.config").exists():
        build("bash", "bash", copy, "./configure")
    build("make", "build-essential", copy, "-j2", "libs")
    build("make", "build-essential", copy / "tests", "-j2", "build")


def environment(*more: str) -> Callable[[Path], None]:
    """Return a function that installs a Python project, with more packages, into an environment of its own."""

    def prepare(copy: Path) -> None:
        python = copy / ".v" / "bin" / "python"
        if not python.exists():
            build(sys.executable, "python3-venv", copy, "-m", "venv", ".v")
        build(
            str(python), "python3", copy, "-m", "pip", "install", "-q", "--disable-pip-version-check", "-e", ".", *more
        )
        (copy / "servers" / KAFKA_VERSION / "kafka-bin").mkdir(parents=True, exist_ok=True)  # kafka-python looks for it

    return prepare


GO = (("go", "golang-go"),)
C = (("bash", "bash"), ("make", "build-essential"), ("g++", "build-essential"))
PYTHON = (("gcc", "build-essential"),)
GO_TEST = ("go", "test", "-json", "-count=1", "-vet=off", "-timeout=60m")
PYTEST = ("{copy}/.v/bin/python", "-m", "pytest", "-v", "-p", "no:cacheprovider", "--color=no")
AIOKAFKA_FILES = (
    "admin", "client", "consumer", "coordinator", "fetcher", "pep492", "producer", "sender", "transactional_consumer",
    "transactional_producer",
)  # fmt: skip
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
"""Settings of brokers for tests of ACLs, which take them from anybody."""
LIBRDKAFKA_CONF = "metadata.broker.list={bootstrap}\ntest.timeout.multiplier=3\nbroker.address.family=v4\n"
LIBRDKAFKA_QUICK = "0001,0005,0008,0011,0012,0013,0015,0017,0019,0022,0026,0029,0030,0031,0039,0070,0073,0103"
SARAMA_TESTS = "^(TestFunc|TestInterceptors|TestVersionMatrix|TestReadOnly|TestConsumerHigh)"

SUITES = {
    suite.name: suite
    for suite in (
        Suite(
            "franz-go", "twmb/franz-go", "pkg/kgo/client.go", GO, modules,
            (*GO_TEST, "./pkg/kgo"), results.go,
            env={"KGO_SEEDS": "{bootstrap}", "KGO_TEST_RF": "1", "KGO_TEST_STABLE_FETCH": "true",
                 "KGO_LOG_LEVEL": "none"},
            quick={"KGO_TEST_RECORDS": "20000", "KGO_TEST_MAX_TOPIC_PARTS": "5"},
            left_out="SCRAM tests skip themselves, because the listener has no users",
        ),
        Suite(
            "librdkafka", "confluentinc/librdkafka", "src/rdkafka.h", C, compiled,
            ("{copy}/tests/test-runner", "-Q", "-E", "-L", "-p2"), results.librdkafka,
            brokers=Brokers(3, settings={**AUTHORIZER, "num.partitions": "4"}),
            env={
                "RDKAFKA_TEST_CONF": "{copy}/tests/kproxy-test.conf", "TEST_KAFKA_VERSION": KAFKA_VERSION, "CI": "y",
                "LD_LIBRARY_PATH": "{copy}/src:{copy}/src-cpp",
            },
            files={"tests/kproxy-test.conf": LIBRDKAFKA_CONF},
            quick={"TESTS": LIBRDKAFKA_QUICK},
            left_out="`-Q` (quick mode), `-E` (no faulty sockets) and `-L` (no tests without a broker); "
                     "`quick` selects 18 of its files",
        ),
        Suite(
            "sarama", "IBM/sarama", "async_producer.go", GO, modules,
            (*GO_TEST, "-tags=functional", f"-run={SARAMA_TESTS}", "."),
            results.go,
            brokers=Brokers(5, settings={"auto.create.topics.enable": "false", "default.replication.factor": "2"},
                            ports={node: 29090 + node for node in range(1, 6)}),
            env={"KAFKA_VERSION": KAFKA_VERSION}, beside=toxiproxy,
            left_out="a replacement for toxiproxy has no effect, so tests that break connections or stop "
                     "containers also fail directly",
            meant={"TestFuncAdminUpdateFeatures": "a tenant may not change features of the whole cluster"},
        ),
        Suite(
            "kafka-go", "segmentio/kafka-go", "writer.go", GO, modules,
            (*GO_TEST, ".", "./compress"), results.go,
            brokers=Brokers(settings={**AUTHORIZER, "message.max.bytes": "200000000"}, host="localhost",
                            ports={1: 9092}),
            env={"KAFKA_SKIP_NETTEST": "1", "KAFKA_VERSION": KAFKA_VERSION},
            left_out="its tests expect a broker at `localhost:9092`; SASL tests expect another one and fail",
            meant={
                "test_join_group_with_an_invalid_groupID": "for the broker, a tenant's empty group "
                "name is the prefix",
            },
        ),
        Suite(
            "aiokafka", "aio-libs/aiokafka", "aiokafka/client.py", PYTHON,
            environment("pytest", "pytest-asyncio", "pytest-mock", "pytest-timeout", "docker", "cramjam",
                        "async-timeout"),
            (*PYTEST, "--timeout=300", "-o", "asyncio_default_fixture_loop_scope=function",
             "-p", "aiokafka_brokers", "--docker-image", f"kproxy/kafka:2.13_{KAFKA_VERSION}",
             "--no-pull", *(f"tests/test_{name}.py" for name in AIOKAFKA_FILES)),
            results.pytest,
            brokers=Brokers(settings={"num.partitions": "2"}),
            env={"KPROXY_BOOTSTRAP": "{bootstrap}", "PYTHONPATH": str(PLUGINS)},
            left_out="TLS and SASL tests need its own Docker image; those in files that are run also fail directly",
            meant={"test_exclude_internal_topics": "a tenant cannot see Kafka's internal topics"},
        ),
        Suite(
            "kafka-python", "dpkp/kafka-python", "kafka/consumer/group.py", (),
            environment("pytest", "pytest-mock", "pytest-timeout", "py", "lz4", "zstandard", "python-snappy", "crc32c"),
            (*PYTEST, *(f"test/integration/test_{name}_integration.py" for name in ("admin", "consumer", "producer"))),
            results.pytest,
            brokers=Brokers(first_node=0, settings={
                "num.partitions": "4", "group.min.session.timeout.ms": "1000", **AUTHORIZER,
            }),
            env={"KAFKA_VERSION": KAFKA_VERSION, "KAFKA_URI": "kafka://{bootstrap}"},
            left_out="TLS and SASL tests start brokers of their own and are not run",
            meant={
                "test_describe_configs_broker_resource_returns_configs": "addresses in a broker's configs are "
                "redacted, as brokers redact passwords",
                "test_describe_metadata_quorum": "a tenant cannot see Kafka's internal topics",
            },
        ),
    )
}  # fmt: skip
