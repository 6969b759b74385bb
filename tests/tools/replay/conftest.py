"""What tests of replays share: a tap that records what real clients say to a broker, and players run to their end."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest
import trio

from kproxy.protocol import Message, decode_response
from kproxy.record.captures.policy import Policy
from kproxy.record.captures.writer import CaptureWriter
from kproxy.record.exchange import Depth, Form, Frame, ObservedExchange
from kproxy.record.observer.observer import ConnectionObserver
from kproxy.testing.kafka import Kafka, KafkaListener
from kproxy.testing.process import free_port
from kproxy.tools.replay.compare import IgnoredFields
from kproxy.tools.replay.player import Pace, ReplayPlayer
from kproxy.tools.replay.recording import RecordedExchange, Recording, record
from kproxy.tools.replay.report import ReplayReport
from kproxy.tools.replay.request_fixes import OutgoingRequest
from kproxy.tools.replay.sockets import Authenticate, ReplayClient
from kproxy.tools.replay.target import TargetCluster
from tests.support.exchange_factory import Somebody
from tests.support.frames import message


class Tap:
    """A relay in front of `target` with a watcher on every connection. `seen`: all exchanges that are over."""

    def __init__(self, port: int, target: tuple[str, int]) -> None:
        self.target, self.lock = target, threading.Lock()
        self.seen: list[ObservedExchange] = []
        self.sockets: list[socket.socket] = []
        self.threads: list[threading.Thread] = []
        self.server = socket.create_server(("127.0.0.1", port))
        self.numbers = 0
        self.start(self.accept)

    def start(self, work: Callable[..., None], *arguments: Any) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self.threads.append(thread)
        thread.start()

    def accept(self) -> None:
        with suppress(OSError):
            while True:
                near, address = self.server.accept()
                far = socket.create_connection(self.target)
                self.sockets += [near, far]
                self.numbers += 1
                who = Somebody(self.numbers, None, None, client_port=address[1], node=None, broker=None)
                observer = ConnectionObserver(who, lambda key, version: Depth.FULL, self.seen.append)
                over = threading.Barrier(2, partial(self.end, observer))  # the later of the two pumps ends it
                self.start(self.pump, near, far, observer.from_client, over)
                self.start(self.pump, far, near, observer.to_client, over)

    def pump(
        self, source: socket.socket, sink: socket.socket, told: Callable[[bytes, int, float], None],
        over: threading.Barrier,
    ) -> None:  # fmt: skip
        with suppress(OSError):
            while data := source.recv(1 << 16):
                with self.lock:
                    told(data, len(data), time.time())
                sink.sendall(data)
        for one in (source, sink):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        over.wait(60)

    def end(self, observer: ConnectionObserver) -> None:
        with self.lock:
            observer.end(time.time())

    def close(self) -> list[ObservedExchange]:
        """End all connections; what was seen."""
        with suppress(OSError):
            self.server.shutdown(socket.SHUT_RDWR)
        self.server.close()
        for one in self.sockets:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for thread in self.threads:
            thread.join(60)
        for one in self.sockets:
            one.close()
        return self.seen

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Recorder:
    """A Kafka with a listener that a tap stands in front of, and what passes there as a capture."""

    def __init__(self, kafka: Kafka, port: int) -> None:
        self.kafka, self.port = kafka, port

    @property
    def bootstrap(self) -> str:
        """For clients that are to be recorded."""
        return f"127.0.0.1:{self.port}"

    def tap(self) -> Tap:
        """Recording from now on."""
        return Tap(self.port, ("127.0.0.1", self.kafka.brokers[1].ports["TAPPED"]))


class Tools:
    """What tests do again and again."""

    record = staticmethod(record)

    def __init__(self) -> None:
        self.people: dict[int, Somebody] = {}

    def seen(
        self, key: int, version: int, asked: dict[str, Any], answered: dict[str, Any] | None = None, *,
        at: float = 0.0, seconds: float = 0.001, line: int = 1,
    ) -> ObservedExchange:  # fmt: skip
        """One exchange on connection `line`: fields not given have their defaults, `answered` None: no answer."""
        who = self.people.setdefault(line, Somebody(line, None, None, client_port=0, node=None, broker=None))
        data = message(key, version, "request", asked, int(at * 1000))
        one = ObservedExchange(
            who, 0, key, version, int(at * 1000), "tester", Frame(len(data) + 4, at, at, data, Form.WHOLE)
        )
        one.acks = asked.get("acks") if key == 0 else None
        if answered is not None:
            data = message(key, version, "response", answered, int(at * 1000))
            one.response = Frame(len(data) + 4, at + seconds, at + seconds, data, Form.WHOLE)
            one.outcome = "answered"
        return one

    def exchange(self, *arguments: Any, **more: Any) -> RecordedExchange:
        """The same, as the only exchange of a recording."""
        return record([self.seen(*arguments, **more)]).exchanges[0]

    def asked(self, exchange: RecordedExchange, link: int = 1) -> OutgoingRequest:
        """Its request on the way."""
        message = exchange.decode_request()
        assert message is not None
        return OutgoingRequest(exchange, message, link)

    def answer(self, key: int, version: int, /, **fields: Any) -> Message:
        """A response of the target."""
        return decode_response(message(key, version, "response", fields, 1), key, version)

    def capture(self, seen: list[ObservedExchange], path: Path) -> Path:
        """The exchanges as `kproxy capture` would write them."""
        with path.open("wb") as file:
            writer = CaptureWriter(file, Policy("full"))
            for one in seen:
                writer.write(one, ("127.0.0.1", 9092))
            writer.finish(time.time(), "asked")
        return path

    def play(
        self, recording: Recording, bootstrap: str, pace: Pace | None = None, authenticate: Authenticate | None = None
    ) -> Played:
        """Replay it to this `host:port`, at full speed unless told otherwise."""
        host, _, port = bootstrap.partition(",")[0].rpartition(":")
        target = TargetCluster((host, int(port)))
        report = ReplayReport(IgnoredFields(), recording.names, target.names.get)
        player = ReplayPlayer(recording, target, pace or Pace(None), report.add)
        trio.run(ReplayClient(player, authenticate=authenticate).run)
        return Played(player, report)


@dataclass
class Played:
    """A replay that is over."""

    player: ReplayPlayer
    report: ReplayReport

    def row(self, api: str) -> Any:
        """What the report says of this API."""
        return self.report.rows[api]


@pytest.fixture
def tools() -> Tools:
    """What tests do again and again."""
    return Tools()


@pytest.fixture(scope="session")
def recorder() -> Iterator[Recorder]:
    """The cluster that is recorded."""
    port = free_port()
    with Kafka(1, listeners=[KafkaListener("TAPPED", advertise_port=port)]) as kafka:
        yield Recorder(kafka, port)


@pytest.fixture(scope="session")
def fresh() -> Iterator[Kafka]:
    """The cluster that recordings are played to, where nothing has happened yet."""
    with Kafka(1) as kafka:
        yield kafka
