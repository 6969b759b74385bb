"""The sockets of a replay, to brokers that do as a test says."""

from __future__ import annotations

import socket
from functools import partial
from typing import Any

import pytest
import trio

from kproxy.protocol import Message, encode
from kproxy.protocol.framing import framed
from kproxy.testing.process import free_port
from kproxy.tools.replay.discovery import plain
from kproxy.tools.replay.player import Pace, ReplayPlayer
from kproxy.tools.replay.recording import ReplayOutcome
from kproxy.tools.replay.sockets import NoTarget, ReplayClient
from kproxy.tools.replay.target import TargetCluster
from tests.support.fake_broker import FakeBroker, reset, silence


def play(recording: Any, port: int, *, patience: float = 5, **more: Any) -> list[ReplayOutcome]:
    """What came of it."""
    outcomes: list[ReplayOutcome] = []
    player = ReplayPlayer(recording, TargetCluster(("127.0.0.1", port)), Pace(None, patience=patience), outcomes.append)
    trio.run(ReplayClient(player, **more).run)
    return outcomes


def heartbeats(tools: Any, count: int = 2) -> Any:
    """Requests that go to the bootstrap server, since they have no group."""
    return tools.record([tools.seen(16, 0, {}, {}, at=at) for at in range(count)])


def no_groups(broker: FakeBroker, stream: socket.socket, request: Message) -> None:
    """ListGroups: there are none."""
    broker.respond(stream, request, {"error_code": 0, "groups": []})


def test_requests_go_out_and_answers_come_back(tools: Any) -> None:
    """With the time that they took."""
    with FakeBroker(answers={16: no_groups}) as broker:
        outcomes = play(heartbeats(tools), int(broker.address.rpartition(":")[2]))

    assert [one.how for one in outcomes] == ["answered"] * 2
    assert all(one.seconds is not None and 0 < one.seconds < 60 for one in outcomes)
    assert [one.api.name for one in broker.requests] == ["ApiVersions", "ListGroups", "ListGroups"]


def test_a_broker_that_resets_costs_its_requests_only(tools: Any) -> None:
    """Each has a connection of its own then."""
    with FakeBroker(answers={16: reset}) as broker:
        outcomes = play(heartbeats(tools), int(broker.address.rpartition(":")[2]))

    assert [(one.how, one.reason) for one in outcomes] == [("unanswered", "the target closed the connection")] * 2


def test_a_broker_that_is_silent_is_waited_for_so_long(tools: Any) -> None:
    """Then the replay ends."""
    with FakeBroker(answers={16: silence}) as broker:
        outcomes = play(heartbeats(tools, 1), int(broker.address.rpartition(":")[2]), patience=0.2)

    assert [one.reason for one in outcomes] == ["no answer in 0.2 s"]


def test_nobody_there_is_said_in_a_line(tools: Any) -> None:
    """Without a traceback, and without trio's words."""
    port = free_port()
    with pytest.raises(NoTarget, match=f"^the target 127.0.0.1:{port} does not answer: connection refused$"):
        play(heartbeats(tools), port)


def test_a_frame_length_that_cannot_be_ends_the_connection(tools: Any) -> None:
    """Nothing behind it can be read."""

    def nonsense(broker: FakeBroker, stream: socket.socket, request: Message) -> None:
        stream.sendall(b"\xff\xff\xff\xff")

    with FakeBroker(answers={16: nonsense}) as broker:
        outcomes = play(heartbeats(tools, 1), int(broker.address.rpartition(":")[2]))

    assert [one.how for one in outcomes] == ["unanswered"]


def test_every_connection_authenticates_first(tools: Any) -> None:
    """Before anything else is sent on it."""

    def shake(broker: FakeBroker, stream: socket.socket, request: Message) -> None:
        broker.respond(stream, request, {"error_code": 0, "mechanisms": ["PLAIN"]})

    def prove(broker: FakeBroker, stream: socket.socket, request: Message) -> None:
        body = {"error_code": 0, "error_message": None, "auth_bytes": b"", "session_lifetime_ms": 0}
        broker.respond(stream, request, body)

    with FakeBroker(answers={16: no_groups, 17: shake, 36: prove}) as broker:
        port = int(broker.address.rpartition(":")[2])
        play(heartbeats(tools, 1), port, authenticate=partial(plain, "me", "secret"))

    assert [one.api.name for one in broker.requests] == [
        "SaslHandshake", "SaslAuthenticate", "ApiVersions", "SaslHandshake", "SaslAuthenticate", "ListGroups",
    ]  # fmt: skip


def test_a_broker_that_leaves_during_authentication_is_no_target(tools: Any) -> None:
    """Said so."""
    with FakeBroker(answers={17: lambda broker, stream, request: stream.close()}) as broker:
        port = int(broker.address.rpartition(":")[2])
        with pytest.raises(NoTarget, match="closed during authentication"):
            play(heartbeats(tools), port, authenticate=partial(plain, "me", "secret"))


def test_client_bytes_after_authentication_raises_no_target(tools: Any) -> None:
    """A broker sends one response to each request, and no other bytes."""

    def shake(broker: FakeBroker, stream: socket.socket, request: Message) -> None:
        header = {"correlation_id": request.header["correlation_id"]}
        response = encode(Message(request.api, request.version, header, {"error_code": 0, "mechanisms": ["PLAIN"]}))
        stream.sendall(framed(response) + b"\0")  # in one write, so that the client reads it at once

    with FakeBroker(answers={17: shake}) as broker:
        port = int(broker.address.rpartition(":")[2])
        with pytest.raises(NoTarget, match="expected 1 response to an authentication request, got bytes after it"):
            play(heartbeats(tools), port, authenticate=partial(plain, "me", "secret"))
