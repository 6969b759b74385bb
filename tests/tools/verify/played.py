"""Player of histories: raw clients and a scripted broker exchange the frames of a `History` through `kproxy run`.

with Player() as player:                     one kproxy process for many histories
    verdict = player.verdict(history)        the verdict of `kproxy verify` on the capture of this history

A history is a script of requests and responses, in the order of their times. The next step starts
after kproxy has passed the frame on, so that the order of the steps does not depend on the clock. The times of a
capture must have that order. They are then replaced with those of the script, which decide about durations.
"""

from __future__ import annotations

import json
import queue
import socket
import urllib.request
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Self

from kproxy.cli.verify_input import JudgedCapture, told
from kproxy.protocol import Message, apis
from kproxy.protocol.table.api_keys import API_VERSIONS, METADATA
from kproxy.record.captures.pairs import BothSides
from kproxy.record.captures.policy import Payload
from kproxy.record.exchange import ObservedExchange
from kproxy.testing.process import Proxy, free_port_with_room
from kproxy.tools.verify import Verdict, Verifier, VerifyTerms
from tests.support.fake_broker import Answer, FakeBroker
from tests.support.frames import message
from tests.support.raw_client import RawClient
from tests.support.wait import until
from tests.tools.verify.history import History

NODES = (1, 2, 3)
SCRIPTED = 0x5C000000
"""First correlation id of the requests of a script: kproxy's own requests have smaller ones."""
PATIENCE = 60.0
"""Seconds for one step."""


class Unplayable(ValueError):
    """History that real connections cannot have."""


@dataclass(order=True)
class Step:
    """Step of a script. Requests come before responses of the same time, so that these exchanges overlap."""

    time: float
    ends: bool
    number: int
    seen: ObservedExchange = field(compare=False)


def script(history: History) -> list[Step]:
    """Return the steps of a history in order. Raises Unplayable."""
    steps = []
    for number, (front, behind) in enumerate(history.pairs):
        if front is None or front.request is None or front.answered_by_rule or behind is not None:
            raise Unplayable(f"expected one exchange at both sides, got two (at exchange {number + 1})")
        steps.append(Step(front.request.first, False, number, front))
        if front.response is not None:
            steps.append(Step(front.response.last, True, number, front))
    steps.sort()
    open_requests: dict[int, list[int]] = {}
    for step in steps:
        waiting = open_requests.setdefault(step.seen.who.number, [])
        if not step.ends and step.seen.acks != 0:
            waiting.append(step.number)
        elif step.ends and waiting.pop(0) != step.number:
            raise Unplayable(
                f"expected responses in the order of requests, got another (at exchange {step.number + 1})"
            )
    return steps


class AllAnswers(dict[int, Answer]):
    """Functions of a fake broker. One function gets all requests of scripts; others without a function get defaults."""

    def __init__(self, scripted: Answer) -> None:
        super().__init__()
        self.scripted = scripted

    def __getitem__(self, key: int) -> Answer:
        own = self.get(key)

        def answer(broker: FakeBroker, stream: socket.socket, request: Message) -> None:
            if request.header["correlation_id"] >= SCRIPTED:
                self.scripted(broker, stream, request)
            elif own is not None:
                own(broker, stream, request)
            else:
                respond(stream, request, {})

        return answer


def offer_all(broker: FakeBroker, stream: socket.socket, request: Message) -> None:
    """Answer ApiVersions with all versions of all APIs."""
    keys = [{"api_key": api.key, "min_version": 0, "max_version": api.versions[-1]} for api in apis()]
    respond(stream, request, {"api_keys": keys})


def list_nodes(broker: FakeBroker, stream: socket.socket, request: Message) -> None:
    """Answer Metadata with the nodes of the broker's cluster, and no topics."""
    brokers = [{"node_id": node, "host": host, "port": port} for node, (host, port) in broker.nodes.items()]
    respond(stream, request, {"brokers": brokers, "cluster_id": "played", "controller_id": 1, "topics": []})


def respond(stream: socket.socket, request: Message, body: dict[str, Any]) -> None:
    """Send a response with this body; fields that it lacks have their defaults."""
    frame = message(request.api.key, request.version, "response", body, request.header["correlation_id"])
    stream.sendall(len(frame).to_bytes(4, "big") + frame)


class Player:
    """Player of histories through one process of `kproxy run`; a context manager."""

    def __init__(self) -> None:
        self.folder = TemporaryDirectory(prefix="played-")
        self.received: queue.Queue[tuple[int, socket.socket]] = queue.Queue()
        self.brokers = [FakeBroker(nodes={}) for _ in NODES]
        nodes = {node: (broker.host, broker.port) for node, broker in zip(NODES, self.brokers, strict=True)}
        for broker in self.brokers:
            broker.nodes = nodes
            broker.answers = AllAnswers(self._take)
            broker.answers |= {API_VERSIONS: offer_all, METADATA: list_nodes}
        self.proxy = Proxy(
            config={
                "clusters": {"main": {"bootstrap": [broker.address for broker in self.brokers]}},
                "listeners": [{"name": "main", "bind": f"127.0.0.1:{free_port_with_room(16)}", "cluster": "main"}],
                "captures": self.folder.name,
            }
        )
        self.addresses: dict[int | None, str] = {}
        self.played = 0

    def __enter__(self) -> Self:
        try:
            self.proxy.start()
            with RawClient(self.proxy.bootstrap) as client:
                self.addresses = {None: self.proxy.bootstrap, **client.brokers()}
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End kproxy and the brokers, and remove the captures."""
        self.proxy.stop()
        for broker in self.brokers:
            broker.close()
        self.folder.cleanup()

    def verdict(self, history: History, payload: Payload = "full", **terms: Any) -> Verdict:
        """Return the verdict of the capture of a history, notes included. Raises Unplayable."""
        history.close()
        return judged(self.play(history, payload), script(history), VerifyTerms(**({"level": "note"} | terms)))

    def play(self, history: History, payload: Payload = "full") -> Path:
        """Play a history. Return its capture. Raises Unplayable."""
        steps = script(history)
        self.played += 1
        name = f"{self.played}.pcapng"
        self.proxy.post(f"/api/captures?file={name}&payload={payload}", {})
        clients: dict[int, RawClient] = {}
        waiting: dict[int, socket.socket] = {}
        try:
            for step in steps:
                self._step(step, clients, waiting)
        finally:
            for client in clients.values():
                client.close()
        # requests without a response are captured when kproxy has closed the connection
        until(lambda: not any(broker.connections & set(waiting.values()) for broker in self.brokers), PATIENCE)
        self._stop(name)
        return Path(self.folder.name, name)

    def _step(self, step: Step, clients: dict[int, RawClient], waiting: dict[int, socket.socket]) -> None:
        seen, ident = step.seen, SCRIPTED + step.number
        client = clients.get(seen.who.number)
        if client is None:
            client = clients[seen.who.number] = RawClient(self.addresses[seen.who.node], timeout=PATIENCE)
        if step.ends:
            assert seen.response is not None
            frame = ident.to_bytes(4, "big") + seen.response.data[4:]
            waiting[step.number].sendall(len(frame).to_bytes(4, "big") + frame)
            assert client.frame()[:4] == frame[:4]
        else:
            assert seen.request is not None
            frame = seen.request.data[:4] + ident.to_bytes(4, "big") + seen.request.data[8:]
            client.send(len(frame).to_bytes(4, "big") + frame)
            got, stream = self.received.get(timeout=PATIENCE)
            assert got == ident, f"expected request {step.number + 1}, got {got - SCRIPTED + 1}"
            waiting[step.number] = stream

    def _take(self, broker: FakeBroker, stream: socket.socket, request: Message) -> None:
        """Note that a request of the script has come."""
        self.received.put((request.header["correlation_id"], stream))

    def _stop(self, name: str) -> None:
        """End a capture; its file is whole then."""
        request = urllib.request.Request(f"http://{self.proxy.admin}/api/captures/{name}", method="DELETE")
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            shown = json.load(answer)
        assert shown["dropped"] == 0, shown


def judged(path: Path, steps: list[Step], terms: VerifyTerms) -> Verdict:
    """Return the verdict of `kproxy verify` on the capture of these steps, by their times."""
    with_times = list(JudgedCapture(str(path)).pairs)
    clock = ScriptClock(steps, with_times)
    capture = JudgedCapture(str(path))
    verifier = Verifier(terms)
    for pair in capture.pairs:
        for seen in pair:
            clock.set(seen)
        verifier.add(pair)
    terms.incomplete.extend(told([capture]))
    verifier.strangers = capture.strangers
    return verifier.verdict()


def frames_of(pairs: list[BothSides]) -> Iterator[tuple[tuple[int, bool], float]]:
    """Yield for each frame of a script in a capture, at the clients' side, its step and its time."""
    for front, _ in pairs:
        if front is None or front.correlation_id < SCRIPTED:
            continue
        number = front.correlation_id - SCRIPTED
        if front.request is not None:
            yield (number, False), front.request.last
        if front.response is not None:
            yield (number, True), front.response.last


class ScriptClock:
    """Clock that replaces the times of a capture with those of its script. Raises AssertionError if frames are missing
    in the capture, or if its times have another order than the script."""

    def __init__(self, steps: list[Step], pairs: list[BothSides]) -> None:
        found = dict(frames_of(pairs))
        names = [(step.number, step.ends) for step in steps]
        assert set(found) == set(names), f"expected the frames {sorted(names)}, got {sorted(found)}"
        self.real = [found[name] for name in names]
        for (first, earlier), (second, later) in pairwise(zip(names, self.real, strict=True)):
            assert earlier <= later, f"expected the frame {first} before {second}, got {earlier - later:.6f} s later"
        self.scripted = [step.time for step in steps]
        self.by_step = {name: step.time for name, step in zip(names, steps, strict=True)}

    def set(self, seen: ObservedExchange | None) -> None:
        """Replace the times of an exchange; those of kproxy's own requests with the last step's before them."""
        if seen is None:
            return
        number = seen.correlation_id - SCRIPTED
        for frame, ends in ((seen.request, False), (seen.response, True)):
            if frame is not None:
                time = self.by_step.get((number, ends))
                frame.first = frame.last = self.at(frame.last) if time is None else time

    def at(self, real: float) -> float:
        """Return the script's time at a time of the capture."""
        return self.scripted[max(bisect_right(self.real, real) - 1, 0)]
