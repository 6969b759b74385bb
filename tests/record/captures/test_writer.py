"""What is written of exchanges, and what of it comes back."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import pytest

from kproxy.record.captures.captured_connection import CapturedConnection
from kproxy.record.captures.pcapng import PacketFile, read_note
from kproxy.record.captures.policy import Policy
from kproxy.record.captures.reader import Capture, read
from kproxy.record.captures.writer import MOST_KNOWN, CaptureWriter
from kproxy.record.exchange import Frame
from tests.support.capture_files import SERVER, client, frame, metadata, packets, produce, response, tshark, written

pytestmark = [pytest.mark.process, pytest.mark.tools("tshark")]


def notes(path: Path) -> list[dict[str, object]]:
    return [read_note(one.comment) for one in packets(path) if one.comment]


def test_what_the_bytes_do_not_say_comes_back(tmp_path: Path) -> None:
    """Who the client is, as soon as it is known; rules, waits, who answered, how it ended, what was withheld."""
    who = client(12, cluster="main", listener="l", node=0)
    exchanges = [metadata(1, who=who), metadata(2, who=who), produce(3, who=who, acks=0), produce(4, who=who)]
    first, _, _, last = exchanges
    first.rules, first.answered_by_rule = ["slow", "deny"], True
    first.rule_wait, first.other_wait = (0.25, 0.0), (0.0, 0.5)
    assert first.response
    first.response.withheld = "SASL token"
    last.outcome, last.response = "closed", None
    path = tmp_path / "c"
    with path.open("wb") as file:
        writer = CaptureWriter(file, Policy("full"), about={"instance": "here"})
        for seen in exchanges:
            writer.write(seen, SERVER, opened=999.0)
            who.principal = "User:anna"
        writer.finish(1001.0, "max_size", 3)

    capture = Capture(path)
    found = list(capture)

    assert ["answered", "no_answer_due", "answered", "closed"] != [seen.outcome for seen in found]
    assert {1: "answered", 2: "answered", 3: "no_answer_due", 4: "closed"} == {
        seen.correlation_id: seen.outcome for seen in found
    }
    one = found[0]
    assert (["slow", "deny"], True, (0.25, 0.0), (0.0, 0.5)) == (
        one.rules, one.answered_by_rule, one.rule_wait, one.other_wait
    )  # fmt: skip
    assert one.response and "SASL token" == one.response.withheld
    assert (12, "main", "l", 0, "User:anna", 999.0) == (
        one.who.number, one.who.cluster, one.who.listener, one.who.node, one.who.principal,
        isinstance(one.who, CapturedConnection) and one.who.opened,
    )  # fmt: skip
    assert [{"payload": "full", "instance": "here"}] == [read_note(one) for one in capture.file.notes]
    assert 3 == capture.file.dropped
    assert "max_size" == read_note(capture.file.ends[0])["stopped"]


def test_notes_are_written_only_where_there_is_something_to_say(tmp_path: Path) -> None:
    """One about the connection at its first packet, none for plain exchanges."""
    found = notes(written(tmp_path / "c", [metadata(number, who=client(3)) for number in range(20)]))
    assert [{"connection": 3}] == found


def test_two_interfaces_are_two_streams(tmp_path: Path) -> None:
    """What brokers saw stands on an interface of its own, with the broker's address; readers take what they ask for."""
    path = tmp_path / "c.pcapng"
    who = client()
    with path.open("wb") as file:
        writer = CaptureWriter(file, Policy("full"))
        writer.write(metadata(1, who=who, topic="orders"), SERVER)
        writer.write_broker(metadata(1, who=who, topic="prod.orders"), ("10.9.9.9", 9093))
        writer.write(metadata(2, who=who), SERVER)
        writer.write_broker(metadata(2, who=who, topic="prod.orders"), ("broker.example", 9092))
        writer.closed(who, 1001.0)
        writer.finish(1002.0, "asked")

    def topics(side: str) -> list[object]:
        return [seen.request_body and seen.request_body["topics"][0]["name"] for seen in read(path, side=side)]

    assert ["orders"] * 2 == topics("client")
    assert ["prod.orders"] * 2 == topics("broker")
    assert 4 == len(topics("both"))
    assert {("client", "0"), ("broker", "1")} == {
        (name, stream)
        for name, stream in tshark(path, "-T", "fields", "-e", "frame.interface_name", "-e", "tcp.stream")
    }
    assert (2, 2, 1) == (writer.written.exchanges, writer.written.broker_exchanges, writer.written.connections)


def test_hosts_without_an_address(tmp_path: Path) -> None:
    """A broker that is known by name gets an address nobody has, and Wireshark is told the name."""
    path = tmp_path / "c.pcapng"
    with path.open("wb") as file:
        writer = CaptureWriter(file, Policy("full"))
        writer.write_broker(metadata(1), ("broker.example", 9092))
        writer.write_broker(metadata(2, who=client(8)), ("broker.example", 9092))
        writer.finish(1002.0, "asked")

    found = {tuple(one) for one in tshark(path, "-N", "n", "-T", "fields", "-e", "ip.dst", "-e", "ip.dst_host",
                                          "-Y", "tcp.dstport == 9092")}  # fmt: skip
    assert {"198.18.0.1"} == {address for address, _ in found}


def test_the_file_never_grows_by_more_than_was_said() -> None:
    """`most` is a bound for every policy and size, the first exchange of a connection and the end included."""
    for policy in (Policy("none"), Policy("head", 20), Policy("head", 5000), Policy("full")):
        for seen in (metadata(1), produce(2, size=300_000), produce(3, acks=0, size=70_000)):
            file = BytesIO()
            writer = CaptureWriter(file, policy)
            before = len(file.getvalue())
            bound = writer.most(seen)
            writer.write(seen, SERVER)
            writer.closed(seen.who, 1001.0)
            writer.finish(1002.0, "asked", 1)
            assert len(file.getvalue()) - before <= bound


def test_connections_that_are_remembered_are_bounded(monkeypatch: object) -> None:
    """Of too many the oldest is forgotten; should it speak again, it is another connection in the file."""
    assert MOST_KNOWN >= 10_000
    writer = CaptureWriter(BytesIO(), Policy("none"))
    for number in range(MOST_KNOWN + 10):
        writer.open[0, number] = None
    writer.write(metadata(1, who=client(-1)), SERVER)
    assert MOST_KNOWN == len(writer.open)


def test_every_block_is_in_the_file_at_once(tmp_path: Path) -> None:
    """A capture that was killed has all that was flushed."""
    path = tmp_path / "c"
    with path.open("wb") as file:
        writer = CaptureWriter(file, Policy("full"))
        writer.write(metadata(1), SERVER)
        file.flush()
        reader = PacketFile(path)
        assert 5 == len(list(reader))
        assert not reader.torn


def test_responses_whose_requests_were_not_seen(tmp_path: Path) -> None:
    """A capture that starts while a request is in flight has the response only; it counts as earlier."""
    seen = metadata(1)
    seen.request = None
    seen.response = frame(response("Heartbeat", 0, 1, {}), 1000.0)
    empty = metadata(2)
    empty.request = empty.response = None
    capture = Capture(written(tmp_path / "c", [seen, empty, metadata(3)]))

    assert [3] == [one.correlation_id for one in capture]
    assert (capture.counts.strangers, capture.counts.earlier) == (0, 1)


def test_tiny_frames(tmp_path: Path) -> None:
    """A response of nothing but its length, as raw SASL has, is no trouble."""
    seen = metadata(1)
    seen.response = Frame(4, 1000.0, 1000.5)
    assert 1 == sum(one.outcome != "answered" for one in read(written(tmp_path / "c", [seen])))
