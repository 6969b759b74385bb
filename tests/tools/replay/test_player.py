"""A player, driven by hand: what it sends, in which order, and what becomes of it. No socket, no clock."""

from __future__ import annotations

from typing import Any, Self
from uuid import UUID

import pytest

from kproxy.protocol import Message, decode_request, encode
from kproxy.protocol.table import layout, schema
from kproxy.tools.replay.player import Pace, ReplayPlayer
from kproxy.tools.replay.recording import ReplayOutcome
from kproxy.tools.replay.target import CloseLink, FinishReplay, OpenLink, SendRequest, TargetCluster, TickAt

BOOT = ("boot", 9092)


class Talk:
    """Obeys a player: opens what it wants opened, and shows what it sends as (link, request)."""

    def __init__(
        self, recording: Any, pace: Pace | None = None, versions: dict[int, tuple[int, int]] | None = None
    ) -> None:
        self.outcomes: list[ReplayOutcome] = []
        self.player = ReplayPlayer(recording, TargetCluster(BOOT), pace or Pace(None), self.outcomes.append)
        self.now, self.wake = 100.0, 0.0
        self.opened: list[tuple[str, int]] = []
        self.closed: list[int] = []
        self.sent: list[tuple[int, Message]] = []
        self.finished: FinishReplay | None = None
        self.refused: set[tuple[str, int]] = set()
        self.player.begin(self.now)
        self.player.advance(self.now)
        self.obey()
        link, _ = self.sent.pop(0)
        keys = dict.fromkeys(range(90), (0, 20)) if versions is None else versions
        listed = [{"api_key": key, "min_version": low, "max_version": high} for key, (low, high) in keys.items()]
        self.answer(link, 18, 0, api_keys=listed)

    def obey(self) -> None:
        while self.player.commands:
            match self.player.commands.pop(0):
                case OpenLink(link, address):
                    self.opened.append(address)
                    if address in self.refused:
                        self.player.failed(link, "connection refused", self.now)
                    else:
                        self.player.opened(link, self.now)
                case SendRequest(link, data):
                    self.sent.append((link, decode_request(data[4:])))
                case CloseLink(link):
                    self.closed.append(link)
                case TickAt(when):
                    self.wake = when
                case FinishReplay() as finish:
                    self.finished = finish

    def answer(self, link: int, key: int, version: int, /, number: int | None = None, **fields: Any) -> Self:
        """The target's answer to the oldest request of this link that it has not had an answer to."""
        pending = self.player.links.by_number[link].pending
        struct = layout.body(key, version, "response")
        body = struct.defaults() | fields
        header = {"correlation_id": next(iter(pending)) if number is None else number}
        self.player.received(link, encode(Message(schema.load(key), version, header, body)), self.now)
        self.obey()
        return self

    def later(self, seconds: float) -> Self:
        """So much time passes; it is woken when it wants."""
        end = self.now + seconds
        while self.wake <= end and not self.player.over:
            self.now = max(self.wake, self.now)
            self.wake = end + 1
            self.player.tick(self.now)
            self.obey()
        self.now = end
        return self

    def take(self) -> list[tuple[int, str]]:
        """Link and API of what was sent since the last time."""
        found = [(link, message.api.name) for link, message in self.sent]
        self.sent.clear()
        return found


def beats(tools: Any, *times: tuple[float, float, int]) -> Any:
    """Metadata requests: when, for how long, on which connection."""
    return tools.record([tools.seen(3, 9, {}, {}, at=at, seconds=took, line=line) for at, took, line in times])


def test_a_request_follows_the_answers_before_it(tools: Any) -> None:
    """The first two went out together, the third after the answers to both, on another connection."""
    talk = Talk(beats(tools, (0, 2, 1), (1, 2, 1), (5, 1, 2)))

    assert talk.take() == [(2, "Metadata"), (2, "Metadata")]
    assert talk.answer(2, 3, 9).take() == []
    assert talk.answer(2, 3, 9).take() == [(3, "Metadata")]
    assert talk.answer(3, 3, 9).finished == FinishReplay()
    assert [one.how for one in talk.outcomes] == ["answered"] * 3


def test_correlation_ids_are_each_connection_s_own(tools: Any) -> None:
    """From 1 on; the recorded ones are not used."""
    talk = Talk(beats(tools, (7, 2, 1), (8, 2, 1), (8.5, 1, 2)))

    assert [(link, one.header["correlation_id"]) for link, one in talk.sent] == [(2, 1), (2, 2), (3, 1)]


def test_recorded_time_is_kept_or_scaled(tools: Any) -> None:
    """A request is never sent before its time, and never before its answers."""
    talk = Talk(beats(tools, (0, 1, 1), (10, 1, 1)), Pace(2))
    talk.take()
    talk.answer(2, 3, 9)

    assert talk.later(4.9).take() == []
    assert talk.later(0.2).take() == [(2, "Metadata")]


def test_an_answer_that_does_not_come_is_not_waited_for_forever(tools: Any) -> None:
    """After the patience the next request goes out; at the end the first has no answer."""
    talk = Talk(beats(tools, (0, 1, 1), (5, 1, 1)), Pace(None, patience=10))
    first = talk.take()
    second = talk.later(11).take()
    talk.later(11)

    assert (first, second) == ([(2, "Metadata")], [(2, "Metadata")])
    assert talk.player.forced == 1
    assert talk.finished == FinishReplay()
    assert [(one.how, one.reason) for one in talk.outcomes] == [("unanswered", "no answer in 10 s")] * 2


def test_connections_may_run_apart(tools: Any) -> None:
    """Heartbeats wait for nobody else's; what makes others wait is what gives something."""
    seen = [tools.seen(12, 3, {"group_id": "g"}, {}, at=at, line=line) for at, line in ((0, 1), (5, 2))]
    talks = [Talk(tools.record(seen), Pace(None, order)) for order in ("all", "connection")]
    for talk in talks:
        talk.take()
        talk.answer(1, 10, 3, node_id=1, host="b1", port=9092)

    assert [talk.take() for talk in talks] == [[(2, "Heartbeat")], [(2, "Heartbeat"), (3, "Heartbeat")]]


def test_the_target_is_asked_where_things_are(tools: Any) -> None:
    """Once for each topic; the request then goes to the leader."""
    parts = [{"index": 0, "records": None}]
    asked = {"acks": 1, "topic_data": [{"name": "t", "partition_data": parts}]}
    talk = Talk(tools.record([tools.seen(0, 9, asked, {}, at=at) for at in (0, 1)]))
    ((scout, question),) = talk.sent
    talk.sent.clear()
    leader = {"error_code": 0, "partition_index": 0, "leader_id": 7, "replica_nodes": [], "isr_nodes": []}
    topic = {"error_code": 0, "name": "t", "topic_id": UUID(int=1), "is_internal": False, "partitions": [leader]}
    broker = {"node_id": 7, "host": "b7", "port": 9093, "rack": None}
    talk.answer(scout, 3, question.version, brokers=[broker], topics=[topic])
    talk.answer(2, 0, 9)

    assert question.body["topics"][0]["name"] == "t" and not question.body["allow_auto_topic_creation"]
    assert talk.take() == [(2, "Produce"), (2, "Produce")]
    assert talk.opened == [BOOT, ("b7", 9093)]


def test_a_coordinator_that_is_not_there_yet_is_asked_for_again(tools: Any) -> None:
    """Until the patience ends; then the request goes to the bootstrap server."""
    talk = Talk(tools.record([tools.seen(12, 3, {"group_id": "g"}, {})]), Pace(None, patience=1))
    for _ in range(15):
        if talk.take() == [(1, "FindCoordinator")]:
            talk.answer(1, 10, 3, error_code=15, node_id=-1)
        talk.later(0.1)

    assert [message for _, message in talk.player.links.by_number[2].pending.items()]
    assert talk.opened == [BOOT, BOOT]


def test_a_request_that_the_target_is_not_ready_for_is_sent_again(tools: Any) -> None:
    """The same bytes but for the correlation id; the report has one exchange."""
    talk = Talk(tools.record([tools.seen(22, 4, {"transactional_id": None}, {"producer_id": 7})]))
    first = talk.take()
    talk.answer(2, 22, 4, error_code=14, producer_id=-1)
    again = talk.later(0.2).take()
    talk.answer(2, 22, 4, producer_id=1000)

    assert (first, again) == ([(2, "InitProducerId")], [(2, "InitProducerId")])
    assert [(one.how, one.tries) for one in talk.outcomes] == [("answered", 2)]
    assert talk.player.fixes.producers.of(7, 0) == (1000, 0)


def test_what_the_target_does_not_have_is_not_sent(tools: Any) -> None:
    """Said with both versions; what comes after it is sent."""
    talk = Talk(beats(tools, (0, 1, 1)), versions={3: (10, 12)})

    assert [(one.how, one.reason) for one in talk.outcomes] == [
        ("not sent", "the target has versions 10 to 12 of it, not 9")
    ]
    assert talk.finished == FinishReplay()


def test_what_cannot_be_sent_again_is_passed_over(tools: Any) -> None:
    """And nobody waits for its answer."""
    seen = [tools.seen(17, 1, {"mechanism": "PLAIN"}, {}, at=0), tools.seen(3, 9, {}, {}, at=1)]
    talk = Talk(tools.record(seen))

    assert talk.take() == [(2, "Metadata")]
    assert talk.outcomes[0].reason == "it is authentication, whose secrets are withheld"


def test_a_connection_that_breaks_is_opened_again(tools: Any) -> None:
    """What was in flight has no answer; the next request gets a new connection."""
    talk = Talk(beats(tools, (0, 1, 1), (5, 1, 1)))
    talk.take()
    talk.player.closed(2, talk.now)
    talk.obey()

    assert talk.outcomes[0].reason == "the target closed the connection"
    assert talk.take() == [(3, "Metadata")]


def test_a_produce_without_acks_waits_for_nothing(tools: Any) -> None:
    """It is done when it is sent, and its connection is closed with its last request."""
    talk = Talk(tools.record([tools.seen(0, 9, {"acks": 0, "topic_data": []})]))

    assert talk.take() == [(2, "Produce")]
    assert [one.how for one in talk.outcomes] == ["silent"]
    assert (2 in talk.closed, talk.finished) == (True, FinishReplay())


def test_a_broker_that_cannot_be_reached_is_tried_once(tools: Any) -> None:
    """Its requests are not sent, and the report says why."""
    recording = tools.record([tools.seen(12, 3, {"group_id": "g"}, {}, at=at) for at in (0, 1)])
    talk = Talk(recording)
    talk.refused.add(("gone", 9092))
    talk.answer(1, 10, 3, node_id=4, host="gone", port=9092)

    assert talk.opened == [BOOT, ("gone", 9092)]
    assert {one.reason for one in talk.outcomes} == {"gone:9092 cannot be reached: connection refused"}
    assert talk.finished == FinishReplay()


def test_a_target_that_is_not_there_ends_it_before_it_begins(tools: Any) -> None:
    """With the reason; nothing is told of exchanges."""
    outcomes: list[ReplayOutcome] = []
    player = ReplayPlayer(beats(tools, (0, 1, 1)), TargetCluster(BOOT), Pace(None), outcomes.append)
    player.begin(0)
    player.failed(1, "connection refused", 1)

    assert player.commands[-1] == FinishReplay("the target boot:9092 does not answer: connection refused")
    assert outcomes == []


@pytest.mark.parametrize("frame", [b"", b"\0\0"])
def test_an_answer_without_a_number_ends_its_connection(tools: Any, frame: bytes) -> None:
    """Nothing after it could be told apart."""
    talk = Talk(beats(tools, (0, 1, 1)))
    talk.take()
    talk.player.received(2, frame, talk.now)

    assert talk.outcomes[0].how == "unanswered"
