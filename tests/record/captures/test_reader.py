"""Captures read: kproxy's own, real traffic recorded by dumpcap, and what can be wrong with such files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from random import Random
from struct import pack
from typing import Any

import pytest

from kproxy.base.errors import CaptureError
from kproxy.record.captures.captured_connection import CapturedConnection
from kproxy.record.captures.connection import FlowKey
from kproxy.record.captures.pcapng import LINK_RAW
from kproxy.record.captures.policy import Policy
from kproxy.record.captures.reader import AT_ONCE, MOST_CONNECTIONS, Capture, connections, read
from kproxy.record.exchange import Form, ObservedExchange
from tests.support.capture_files import client, metadata, packets, pcap, produce, tshark, written

pytestmark = [pytest.mark.process, pytest.mark.tools("tshark")]
ETHERNET_HEADER = 14
Facts = tuple[Any, ...]


def facts(seen: ObservedExchange) -> Facts:
    """What an exchange is, however it was recorded."""
    return (
        seen.who.client_port, seen.number, seen.api, seen.version, seen.correlation_id, seen.client_id, seen.outcome,
        seen.acks, seen.request and (seen.request.size, seen.request.data),
        seen.response and (seen.response.size, seen.response.data),
    )  # fmt: skip


def all_of(path: Path, **options: Any) -> list[Facts]:
    return sorted(facts(seen) for seen in Capture(path, **options))


@pytest.fixture(scope="module")
def wanted(golden: Path) -> list[Facts]:
    """What is in the golden capture."""
    return all_of(golden)


def ip_packets(path: Path) -> list[tuple[float, bytes, int]]:
    """Without Ethernet."""
    return [(one.time, one.data[ETHERNET_HEADER:], one.length - ETHERNET_HEADER) for one in packets(path)]


def test_real_traffic_as_wireshark_sees_it(golden: Path, golden_port: int, wanted: list[Facts]) -> None:
    """The same requests with the same ids, and as many responses, as tshark's dissector finds."""
    fields = ("kafka.api_key", "kafka.api_version", "kafka.correlation_id", "kafka.client_id")
    asked: Counter[tuple[int, int, int, str]] = Counter()
    columns = [part for name in fields for part in ("-e", name)]
    for port, *line in tshark(golden, "-Y", f"kafka && tcp.dstport == {golden_port}", "-T", "fields", "-e",
                              "tcp.srcport", *columns, port=golden_port):  # fmt: skip
        for key, version, correlation_id, name in zip(*(column.split(",") for column in line), strict=True):
            asked[int(port), int(key), int(version), f"{correlation_id} {name}"] += 1
    responses = sum(
        one.count(",") + 1
        for (one,) in tshark(golden, "-Y", f"kafka && tcp.srcport == {golden_port}", "-T", "fields", "-e", "kafka.len",
                             port=golden_port)
    )  # fmt: skip

    found = list(read(golden))

    assert asked == Counter(
        (seen.who.client_port, seen.key, seen.version, f"{seen.correlation_id} {seen.client_id}") for seen in found
    )
    assert responses == sum(seen.outcome == "answered" for seen in found)


def test_real_traffic_can_be_read(golden: Path) -> None:
    """Bodies, records, names of topic ids, client software; the clients' own numbers come out."""
    capture = Capture(golden)
    found = list(capture)

    assert {Form.WHOLE} == {frame.form for seen in found for frame in (seen.request, seen.response) if frame}
    assert not [seen.unread for seen in found if (seen.request_body, seen.response_body) and seen.unread]
    written_records = Counter[str]()
    for seen in found:
        if seen.api == "Produce":
            assert seen.request_body and seen.client_id
            for topic in seen.request_body["topic_data"]:
                written_records[seen.client_id] += sum(one["records"].records for one in topic["partition_data"])
    assert {"shop": 20, "careless": 3} == written_records
    assert {"confluent-kafka-python"} == {seen.who.software_name for seen in found}
    assert {"shop", "careless", "billing"} == {seen.client_id for seen in found}
    fetched = {topic["topic_id"] for seen in found if seen.api == "Fetch" and seen.request_body
               for topic in seen.request_body["topics"]}  # fmt: skip
    assert {"orders"} == {found[-1].who.topic_of(str(one)) for one in fetched}
    counts = capture.counts
    assert (144, 0, 0, 7, 0, 34, 0, 0) == (
        counts.packets, counts.other_packets, counts.truncated, counts.connections, counts.not_kafka,
        counts.exchanges, counts.gaps, counts.strangers,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("link", "header"),
    [(101, b""), (0, b"\2\0\0\0"), (113, b"\0" * 14 + b"\x08\0"), (276, b"\x08\0" + b"\0" * 18),
     (1, b"\2" * 12 + b"\x81\0\0\x05\x08\0")],
    ids=["raw", "loopback", "Linux cooked", "Linux cooked 2", "VLAN"],
)  # fmt: skip
def test_the_same_under_other_link_layers(
    golden: Path, wanted: list[Facts], tmp_path: Path, link: int, header: bytes
) -> None:
    """As tcpdump records on other interfaces, in pcap."""
    found = [(time, header + data, len(header) + length) for time, data, length in ip_packets(golden)]
    assert wanted == all_of(pcap(tmp_path / "c.pcap", link, found))


@pytest.mark.parametrize("seed", range(10))
def test_disorder_and_repetition_change_nothing(golden: Path, wanted: list[Facts], tmp_path: Path, seed: int) -> None:
    """Packets of one direction in another order, or twice as on the interface `any`, also long after; and so in a
    capture with frames of many segments."""
    random = Random(seed)
    who = client()
    path = written(tmp_path / "own.pcapng", [produce(1, who=who, size=700_000), metadata(2, who=who)])
    long = [(one.time, one.data, one.length) for one in packets(path)]

    def disorder(found: list[tuple[float, bytes, int]]) -> list[tuple[float, bytes, int]]:
        runs = [list(run) for _, run in groupby(found, lambda one: (one[1][20:24], one[1][33] & 7))]
        for run in runs:
            random.shuffle(run)
        flat = [one for run in runs for one in run]
        again = [[old for old in flat[:number] if not old[1][33] & 2] for number in range(len(flat))]
        return [one for old, new in zip(again, flat, strict=True) for one in (new, *random.sample(old, k=len(old) > 0))]

    assert wanted == all_of(pcap(tmp_path / "c.pcap", LINK_RAW, disorder(ip_packets(golden))))
    assert all_of(path) == all_of(pcap(tmp_path / "d.pcap", LINK_RAW, disorder(long)))


@pytest.mark.parametrize("seed", range(10))
def test_lost_packets_cost_what_was_in_them(golden: Path, wanted: list[Facts], tmp_path: Path, seed: int) -> None:
    """What is still found was there; most of it is, and answers are never given to the wrong request."""
    random = Random(seed)
    whole = {one[:1] + one[2:6]: one for one in wanted}
    kept = [one for one in ip_packets(golden) if random.random() > 0.1]
    capture = Capture(pcap(tmp_path / "c.pcap", LINK_RAW, kept), ports=[24476])

    found = list(capture)

    assert len(wanted) * 0.6 < len(found) <= len(wanted)
    assert capture.counts.gaps
    for seen in found:
        told = facts(seen)
        right = whole[told[:1] + told[2:6]]
        for here, there in zip(told[-2:], right[-2:], strict=True):
            assert here is None or (there and here[0] == there[0] and there[1].startswith(here[1]))


def test_short_snaplen(golden: Path, wanted: list[Facts], tmp_path: Path) -> None:
    """With 96 bytes of each packet: all frames with their sizes, of long ones only the beginning."""
    found = [(time, data[:82], length) for time, data, length in ip_packets(golden)]
    capture = Capture(pcap(tmp_path / "c.pcap", LINK_RAW, found))

    exchanges = sorted(capture, key=facts)

    assert capture.counts.truncated
    assert len(wanted) == len(exchanges)
    for one, seen in zip(wanted, exchanges, strict=True):
        assert one[:7] == facts(seen)[:7]
        for frame, there in ((seen.request, one[-2]), (seen.response, one[-1])):
            if frame is not None:
                assert there[0] == frame.size and there[1].startswith(frame.data)
                assert (frame.form is Form.WHOLE) == (len(there[1]) == len(frame.data))


@pytest.mark.parametrize("ports", [(24476,), ()], ids=["port known", "port not known"])
def test_a_capture_that_begins_in_the_middle(golden: Path, tmp_path: Path, ports: Iterable[int]) -> None:
    """Without handshakes the server is known by its port, else by whose bytes are requests."""
    found = [one for one in ip_packets(golden) if not one[1][33] & 2]
    capture = Capture(pcap(tmp_path / "c.pcap", LINK_RAW, found), ports=ports)

    exchanges = list(capture)

    assert 34 == len(exchanges)
    assert {24476} == {seen.who.server_port for seen in exchanges if isinstance(seen.who, CapturedConnection)}
    half = Capture(pcap(tmp_path / "h.pcap", LINK_RAW, found[len(found) // 2 :]), ports=ports)
    assert 10 < len(list(half)) < 34


def test_other_traffic_is_told_apart(golden: Path, tmp_path: Path) -> None:
    """TLS and HTTP on other ports give no exchanges; they are counted."""
    talk: list[tuple[float, bytes, int]] = []
    for port, data in ((443, b"\x16\x03\x01\x02\0\x01\0\1\xfc\3\3" + b"x" * 200), (80, b"GET / HTTP/1.1\r\n\r\n")):
        head = b"\x45\0" + (40 + len(data)).to_bytes(2, "big") + b"\0\0\x40\0\x40\x06\0\0\1\1\1\1\2\2\2\2"
        for flags, payload in ((2, b""), (16, data)):
            tcp = pack(">HHIIBBHHH", 5000, port, 1 + (flags == 16), 0, 80, flags, 0, 0, 0)
            talk.append((1.0, head + tcp + payload, len(head) + 20 + len(payload)))
    udp = b"\x45\0\0\x20\0\0\x40\0\x40\x11" + b"\0" * 22
    capture = Capture(pcap(tmp_path / "c.pcap", LINK_RAW, [*talk, (1.0, udp, 32), *ip_packets(golden)]))

    assert 34 == len(list(capture))
    assert (2, 1) == (capture.counts.not_kafka, capture.counts.other_packets)


def test_connections_in_order_of_their_requests(golden: Path, tmp_path: Path) -> None:
    """Each once, with all of its exchanges; writes without acks stand where they were sent."""
    found = list(connections(golden))
    assert 7 == len(found) == len({one.who for one in found})
    assert 34 == sum(len(one.exchanges) for one in found)
    for one in found:
        assert list(range(1, len(one.exchanges) + 1)) == [seen.number for seen in one.exchanges]
        assert one.who.over is not None

    who = client()
    mixed = [produce(1, who=who, acks=0), metadata(2, who=who)]
    (only,) = connections(written(tmp_path / "own.pcapng", mixed))
    assert [1, 2] == [seen.correlation_id for seen in only.exchanges]


def test_a_port_that_is_used_again_is_another_connection(tmp_path: Path) -> None:
    """A SYN on known addresses ends what was there."""
    found = []
    for number in (1, 2, 3):
        who = client(number)
        who.client_port = 40000
        found.append(packets(written(tmp_path / "c.pcapng", [metadata(1, who=who)])))
    unfinished, *others = [[(one.time, one.data, one.length) for one in some] for some in found]
    again = pcap(tmp_path / "c.pcap", LINK_RAW, [*unfinished[:-3], *others[0], *others[1]])

    told = list(connections(again))

    assert [1, 2, 3] == [one.who.number for one in told]
    assert [1, 1, 1] == [len(one.exchanges) for one in told]


def test_memory_is_bounded_by_connections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of too many that never end, the one that was silent longest is given up."""
    assert MOST_CONNECTIONS >= 1000
    monkeypatch.setattr("kproxy.record.captures.reader.MOST_CONNECTIONS", 3)
    path = written(tmp_path / "c.pcapng", [metadata(number, who=client(number)) for number in range(1, 10)])
    found = [(one.time, one.data, one.length) for one in packets(path)][: 9 * 5]
    capture = Capture(pcap(tmp_path / "c.pcap", LINK_RAW, found))

    for _ in capture:
        assert len(capture.open) <= 3

    assert 9 == capture.counts.exchanges


def test_connections_that_never_end_cost_as_much_each_however_many_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Room is made for many at a time: not all of them are looked at for each new one."""
    most, looked = 160, 0
    monkeypatch.setattr("kproxy.record.captures.reader.MOST_CONNECTIONS", most)
    path = written(tmp_path / "c.pcapng", [metadata(number, who=client(number)) for number in range(1, 601)])
    found = [(one.time, one.data, one.length) for one in packets(path)][: 600 * 5]
    capture = Capture(pcap(tmp_path / "c.pcap", LINK_RAW, found))
    last_heard = Capture._last_heard

    def counted(self: Capture, key: FlowKey) -> float:
        nonlocal looked
        looked += 1
        return last_heard(self, key)

    monkeypatch.setattr(Capture, "_last_heard", counted)

    assert sum(1 for _ in capture) == 600
    assert most <= looked <= 600 * AT_ONCE + most


def test_policies_of_kproxys_own_captures(tmp_path: Path) -> None:
    """With less payload there are the same exchanges, sizes and times; what is kept says how much it is."""
    exchanges = [metadata(1), produce(2, size=200_000), produce(3, acks=0, size=70_000), metadata(4)]
    for payload, head in (("full", 0), ("head", 20), ("none", 0)):
        path = written(tmp_path / payload, exchanges, Policy(payload, head))

        found = sorted(read(path), key=lambda seen: seen.number)

        for one, other in zip(exchanges, found, strict=True):
            assert (one.correlation_id, one.client_id, one.outcome) == (
                other.correlation_id, other.client_id, other.outcome
            )  # fmt: skip
            for before, after in ((one.request, other.request), (one.response, other.response)):
                assert (before is None) == (after is None)
                if before and after:
                    assert (before.size, before.first, before.last) == (after.size, after.first, after.last)
                    assert before.data.startswith(after.data)
                    assert (after.form is Form.WHOLE) == (before.data == after.data)
        if payload != "none":
            assert [None, 1, 0, None] == [seen.acks for seen in found]


@pytest.mark.parametrize("seed", range(200))
def test_damaged_files(golden: Path, tmp_path: Path, seed: int) -> None:
    """Whatever the bytes are, there are exchanges or a CaptureError; what was exchanged can be asked for."""
    random = Random(seed)
    own = written(tmp_path / "own", [metadata(1), produce(2, size=90_000), produce(3, acks=0)], Policy("head", 40))
    data = bytearray(random.choice((golden, own)).read_bytes())
    for _ in range(random.choice((1, 5, 50))):
        place = random.randrange(len(data))
        data[place] = random.choice((0, 255, 127, 128, random.randrange(256), data[place] ^ 1 << random.randrange(8)))
    path = tmp_path / "c"
    path.write_bytes(data)

    with suppress(CaptureError):
        for seen in Capture(path, side=random.choice(("client", "both"))):
            assert seen.request is not None
            assert len((seen.request_body, seen.response_body, seen.api)) == 3
