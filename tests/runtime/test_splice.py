"""Long bodies that go through a pipe: every byte, in order, and all the ends that there are."""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from time import monotonic
from types import SimpleNamespace
from typing import Any, get_args

import pytest
import trio
import trio.lowlevel

from kproxy.protocol.records import Record, encode_batch
from kproxy.record.captures.policy import Payload, Policy
from kproxy.record.captures.reader import Capture
from kproxy.record.captures.writer import CaptureWriter
from kproxy.record.exchange import Depth, ObservedExchange
from kproxy.rules.names.composed import NameMaps
from kproxy.runtime import timeouts
from kproxy.runtime.io import side, splice
from kproxy.runtime.io.splice import MOST, PIPE, Pipe, wait_for_more
from kproxy.session.commands import LONG
from kproxy.session.plan import ConnectionSettings, Plan
from kproxy.session.session import Session
from kproxy.session.shared import ClusterState
from kproxy.tools.rehearse.dialogue import request, response
from tests.support.tapped_session import Hungry

pytestmark = [pytest.mark.trio, pytest.mark.filterwarnings("error")]
MB = 1 << 20
PRODUCE, FETCH, HEARTBEAT, SYNC_GROUP = 0, 1, 12, 14
RST = struct.pack("ii", 1, 0)


@pytest.fixture(autouse=True, params=["measured", "largest"])
def marks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How low-water marks are chosen: by the rate, or always as large as the frame and the limit allow."""
    if request.param == "largest":
        monkeypatch.setattr(splice, "LONGEST_WAIT", 1e9)
    return str(request.param)


@pytest.fixture
def passage(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The sizes of what went through the pipe."""
    taken: list[int] = []

    class Counting(Pipe):
        def fill(self, source: int, size: int) -> int:
            taken.append(super().fill(source, size))
            return taken[-1]

    pipe = Counting()
    monkeypatch.setattr(splice, "PASSAGE", pipe)
    yield taken
    pipe.close()


def frame(size: int, seed: int) -> bytes:
    """`size` bytes with their length in front; the header of a request or a response may be anything here."""
    return struct.pack(">i", size - 4) + random.Random(seed).randbytes(size - 4)


async def exactly(stream: trio.SocketStream, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        more = await stream.receive_some(min(size - len(data), MB))
        assert more, f"the stream ends after {len(data)} bytes, expected {size}"
        data += more
    return bytes(data)


async def test_every_byte_in_order_both_ways(net: Any, driver: str, passage: list[int]) -> None:
    """Long and short frames, in pieces of any size, arrive as they were sent; the long ones go through the pipe."""
    rng = random.Random(4)
    sizes = [rng.choice((20, 300, 5_000, 16_384, 70_000, LONG + 5, 300_000, 2 * MB)) for _ in range(40)]
    asked = b"".join(frame(size, number) for number, size in enumerate(sizes))
    said = b"".join(frame(size, -number) for number, size in enumerate(reversed(sizes)))
    broker = await net.open_broker()

    async def send(stream: Any, data: bytes) -> None:
        pos, rng = 0, random.Random(len(data))
        while pos < len(data):
            step = rng.choice((1, 100, 16_384, 20_000, 400_000, 3 * MB))
            await stream.send_all(data[pos : pos + step])
            pos += step

    async with net.serving(net.config(broker.port), driver=driver) as running, await running.client() as client:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send, client, asked)
            upstream = await broker.accept()
            nursery.start_soon(send, upstream, said)
            got: dict[str, bytes] = {}

            async def take(name: str, stream: Any, size: int) -> None:
                got[name] = await exactly(stream, size)

            nursery.start_soon(take, "broker", upstream, len(asked))
            nursery.start_soon(take, "client", client, len(said))
        assert got == {"broker": asked, "client": said}
        assert sum(passage) > len(asked)  # more than half of all
        (connection,) = running.server.connections
        assert (connection.client.got, connection.broker.got) == (len(asked), len(said))


async def test_long_frame_in_pieces_wakes_the_loop_seldom(
    net: Any, driver: str, passage: list[int], marks: str
) -> None:
    """128 pieces of 8 KiB. The loop has time to read after each. With low-water marks it reads a few times."""
    broker = await net.open_broker()
    asked, piece = frame(MB, 1), 8192

    async def ask(client: Any) -> None:
        for at in range(0, len(asked), piece):
            await client.send_all(asked[at : at + piece])
            await trio.sleep(0.001)

    async with (
        net.serving(net.config(broker.port), driver=driver) as running,
        await running.client() as client,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(ask, client)
        upstream = await broker.accept()
        assert await exactly(upstream, len(asked)) == asked
    assert sum(passage) > MB / 2
    assert marks == "measured" or len(passage) <= 16


@pytest.mark.parametrize("then", ["goes on", "closes", "resets"])
async def test_peer_that_stops_in_a_frame_stalls_nothing(
    net: Any, driver: str, passage: list[int], monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    """Fewer bytes than the low-water mark are forwarded by the next sweep. Then the frame ends, or the connection."""
    monkeypatch.setattr(timeouts, "INTERVAL", 0.02)
    broker = await net.open_broker()
    asked, after, at = frame(2 * MB, 1), frame(300, 2), MB
    with trio.fail_after(60):
        async with net.serving(net.config(broker.port), driver=driver) as running, await running.client() as client:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(client.send_all, asked[:MB])
                upstream = await broker.accept()
                assert await exactly(upstream, MB) == asked[:MB]
            for size in (1, 1000, 50_000):
                await client.send_all(asked[at : at + size])
                assert await exactly(upstream, size) == asked[at : at + size]
                at += size
            if then == "goes on":
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(client.send_all, asked[at:] + after)
                    assert await exactly(upstream, len(asked) - at + len(after)) == asked[at:] + after
                (connection,) = running.server.connections
                assert connection.client.low_water == 1
            elif then == "closes":
                await client.aclose()
                assert await upstream.receive_some(10) == b""
                await upstream.aclose()
            else:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RST)
                client.socket.close()
            if then != "goes on":
                await running.settled()
                assert sum(running.causes().values()) == 1


async def test_low_water_mark_ends_when_a_frame_is_read_again(
    net: Any, driver: str, passage: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest of a long frame cannot be spliced any more, as after the begin of a recording. Few bytes are read."""
    monkeypatch.setattr(splice, "LONGEST_WAIT", 1e9)
    monkeypatch.setattr(timeouts, "note_progress", lambda connection, now: None)
    broker = await net.open_broker()
    asked, after = frame(2 * MB, 1), frame(300, 2)
    async with net.serving(net.config(broker.port), driver=driver) as running, await running.client() as client:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.send_all, asked[:MB])
            upstream = await broker.accept()
            got = await exactly(upstream, MB - MOST)
        (connection,) = running.server.connections
        await running.until(lambda: connection.client.low_water == MOST)
        monkeypatch.setattr(side, "can_splice", lambda one: False)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.send_all, asked[MB:-10])
            got += await exactly(upstream, len(asked) - 10 - len(got))
        assert (got == asked[:-10], connection.client.low_water) == (True, 1)
        await client.send_all(asked[-10:] + after)
        assert await exactly(upstream, 10 + len(after)) == asked[-10:] + after


async def test_low_water_mark_ends_with_the_turn_of_a_connection(
    net: Any, driver: str, passage: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest of the frame is shorter than the mark. It passes although no sweep removes the mark."""
    monkeypatch.setattr(splice, "LONGEST_WAIT", 1e9)
    monkeypatch.setattr(timeouts, "note_progress", lambda connection, now: None)
    broker = await net.open_broker()
    asked, at = frame(MB, 1), MB - MOST - 1000
    with trio.fail_after(60):
        async with net.serving(net.config(broker.port), driver=driver) as running, await running.client() as client:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(client.send_all, asked[:at])
                upstream = await broker.accept()
                got = await exactly(upstream, at - MOST)
            (connection,) = running.server.connections
            await running.until(lambda: connection.client.low_water == MOST)
            monkeypatch.setattr(splice, "TURN", 1)
            await client.send_all(asked[at:])
            got += await exactly(upstream, MB - len(got))
            assert (got == asked, connection.client.low_water) == (True, 1)


async def test_low_water_mark_follows_the_rate(monkeypatch: pytest.MonkeyPatch, marks: str) -> None:
    """Bytes of two milliseconds at the last rate, within the rest of the frame; small changes cause no system call."""
    monkeypatch.setattr(splice, "LONGEST_WAIT", 0.002)
    set_to: list[int] = []
    sock = SimpleNamespace(setsockopt=lambda level, option, value: set_to.append(value))
    one: Any = SimpleNamespace(got=0, low_water=1, waited_since=0.0, waited_got=0, sock=sock)

    def wait(came: int, after: float, unseen: int = 10 * MB) -> list[int]:
        one.got, one.waited_since = one.got + came, 0.0
        wait_for_more(one, unseen, after)
        found = list(set_to)
        set_to.clear()
        return found

    assert wait(65536, 5000.0) == []  # the first wait of a connection
    assert wait(65536, 0.001) == [131072]
    assert wait(131072, 0.0021) == []
    assert wait(131072, 0.002, unseen=100_000) == [100_000]
    assert wait(10 * MB, 0.001) == [MOST]
    assert wait(MOST, 0.0) == [1]
    assert wait(MOST, 0.002) == [MOST]
    assert wait(8191, 0.001) == [1]
    assert wait(0, 1.0) == []


async def test_a_reader_that_rests_stops_the_writer(net: Any, driver: str, passage: list[int]) -> None:
    """What waits for it is no more than one reading, and all of it arrives later."""
    broker = await net.open_broker()
    async with net.serving(net.config(broker.port), driver=driver) as running, await running.client() as client:
        await client.send_all(net.request(1))
        upstream = await broker.accept()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        said = frame(16 * MB, 1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(upstream.send_all, said)
            (connection,) = running.server.connections
            await running.until(lambda: connection.client.out is not None)
            assert 0 < connection.client.pending <= MOST
            passed = connection.broker.got
            for _ in range(50):
                await trio.lowlevel.checkpoint()
            assert connection.broker.got == passed < len(said)
            assert await exactly(client, len(said)) == said


async def test_a_broker_that_ends_in_the_middle(net: Any, driver: str, passage: list[int]) -> None:
    """The client gets what came, and then the end."""
    broker = await net.open_broker()
    async with net.serving(net.config(broker.port), driver=driver) as running, await running.client() as client:
        await client.send_all(net.request(1))
        upstream = await broker.accept()
        assert await exactly(upstream, 40)
        said = frame(8 * MB, 1)[: 3 * MB]
        async with trio.open_nursery() as nursery:

            async def say() -> None:
                await upstream.send_all(said)
                await upstream.aclose()

            nursery.start_soon(say)
            assert await exactly(client, len(said)) == said
            assert await client.receive_some(10) == b""
        await client.aclose()
        await running.settled()
        assert running.causes() == {"broker_closed": 1}
        assert passage


async def test_a_client_that_half_closes_behind_a_long_request(net: Any, driver: str, passage: list[int]) -> None:
    """The request arrives whole, and so does its answer."""
    broker = await net.open_broker()
    async with net.serving(net.config(broker.port), driver=driver) as running, await running.client() as client:
        asked, said = frame(3 * MB, 1), frame(2 * MB, 2)
        async with trio.open_nursery() as nursery:

            async def ask() -> None:
                await client.send_all(asked)
                await client.send_eof()

            nursery.start_soon(ask)
            upstream = await broker.accept()
            assert await exactly(upstream, len(asked)) == asked
            nursery.start_soon(upstream.send_all, said)
            assert await exactly(client, len(said)) == said
        await running.settled()
        assert running.causes() == {"client_closed": 1}
        assert passage


async def test_what_a_dead_reader_leaves_in_the_pipe_goes_to_nobody_else(
    net: Any, driver: str, passage: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its bytes were under way when it was reset: another connection gets its own only."""
    broker = await net.open_broker()
    async with net.serving(net.config(broker.port), driver=driver) as running:
        victim = await running.client()
        await victim.send_all(net.request(1))
        upstream = await broker.accept()
        async with trio.open_nursery() as nursery:

            async def say() -> None:
                with pytest.raises(trio.BrokenResourceError):
                    await upstream.send_all(frame(20 * MB, 1))

            fill = type(splice.PASSAGE).fill

            def fill_and_reset(self: Pipe, source: int, size: int) -> int:
                taken = fill(self, source, size)
                monkeypatch.setattr(type(splice.PASSAGE), "fill", fill)
                victim.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RST)
                victim.socket.close()
                return taken

            monkeypatch.setattr(type(splice.PASSAGE), "fill", fill_and_reset)
            nursery.start_soon(say)
        await running.settled()
        assert running.causes() == {"client_reset": 1}
        async with await running.client() as client:
            await client.send_all(net.request(1))
            upstream = await broker.accept()
            said = frame(4 * MB, 2)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(upstream.send_all, said)
                assert await exactly(client, len(said)) == said


def watched() -> Session:
    """A session that lets all of Kafka's frames pass."""
    return Session(Plan(ConnectionSettings(NameMaps(), advertise=False)), ClusterState())


@pytest.mark.parametrize("depth", list(Depth))
async def test_who_watches_sees_what_is_wanted_and_no_more(
    net: Any, driver: str, passage: list[int], depth: Depth
) -> None:
    """The inside of record batches goes through the pipe, also where their headers are read; what is kept does not."""
    records = encode_batch([Record(0, 0, None, random.Random(1).randbytes(3 * MB))])
    partition = {"index": 0, "records": records}
    asked = request(0, 9, 1, acks=1, topic_data=[{"name": "a", "partition_data": [partition] * 2}])
    told = {"partition_index": 0, "high_watermark": 6, "records": records}
    said = response(1, 12, 2, responses=[{"topic": "a", "partitions": [told] * 2}])
    fetch = request(1, 12, 2)
    sink = Hungry(broker_side=False, most=depth)
    broker = await net.open_broker()
    async with net.serving(net.config(broker.port), lambda *_: watched(), driver=driver) as running:
        running.server.taps.fanout.add(sink)
        async with await running.client() as client, trio.open_nursery() as nursery:
            nursery.start_soon(client.send_all, asked + fetch)
            upstream = await broker.accept()
            assert await exactly(upstream, len(asked + fetch)) == asked + fetch
            answer = response(0, 9, 1)
            nursery.start_soon(upstream.send_all, answer + said)
            assert await exactly(client, len(answer + said)) == answer + said
        await running.settled()

    (end,) = (one.end for one in sink.over)  # type: ignore[attr-defined]  # live connections'
    assert (end.request_bytes, end.response_bytes) == (len(asked + fetch), len(answer + said))
    assert sum(passage) > 8 * MB  # of 12
    if depth < Depth.LINES:
        assert not sink.seen
        return
    produce, fetched = sink.seen
    assert produce.request is not None and fetched.response is not None
    assert (produce.request.size, fetched.response.size) == (len(asked), len(said))
    assert (produce.outcome, fetched.outcome) == ("answered", "answered")
    digests = [one["records"] for one in produce.request_body["topic_data"][0]["partition_data"]]
    digests += [one["records"] for one in fetched.response_body["responses"][0]["partitions"]]
    assert [(one.records, one.size) for one in digests] == [(1, len(records))] * 4
    if depth is Depth.FULL:  # the watcher keeps the first MB
        assert len(produce.request.data) == len(fetched.response.data) == 1 << 20


@pytest.mark.parametrize("depth", [Depth.LINES, Depth.SKETCH, Depth.FULL])
async def test_whoever_watches_misses_nothing_behind_a_long_frame(
    net: Any, driver: str, passage: list[int], depth: Depth, tmp_path: Path
) -> None:
    """Long frames of every length and kind, pipelined, a short one behind each: observers of both sides, and captures
    of every payload, have each exchange in its order and with its lengths."""
    asked: list[bytes] = []
    told: list[bytes] = []
    for size in (LONG - 1, LONG, LONG + 1, 2 * LONG, 3 * MB):
        records = encode_batch([Record(0, 0, None, random.Random(size).randbytes(size - 300))])
        place = {"topic": "a", "partitions": [{"partition_index": 0, "records": records}]}
        topic = {"name": "a", "partition_data": [{"index": 0, "records": records}]}
        number = len(asked)
        pairs = [
            (request(PRODUCE, 9, number, acks=1, topic_data=[topic]), response(PRODUCE, 9, number)),
            (request(HEARTBEAT, 4, number + 1), response(HEARTBEAT, 4, number + 1)),
            (request(FETCH, 12, number + 2), response(FETCH, 12, number + 2, responses=[place])),
            (request(HEARTBEAT, 4, number + 3), response(HEARTBEAT, 4, number + 3)),
            (request(SYNC_GROUP, 3, number + 4), response(SYNC_GROUP, 3, number + 4, assignment=bytes(size))),
            (request(HEARTBEAT, 4, number + 5), response(HEARTBEAT, 4, number + 5)),
        ]
        asked += [one for one, _ in pairs]
        told += [one for _, one in pairs]
    sink = Hungry(broker_side=True, most=depth)
    broker = await net.open_broker()
    async with net.serving(net.config(broker.port), lambda *_: watched(), driver=driver) as running:
        running.server.taps.fanout.add(sink)
        async with await running.client() as client, trio.open_nursery() as nursery:
            nursery.start_soon(client.send_all, b"".join(asked))
            upstream = await broker.accept()
            assert await exactly(upstream, sum(map(len, asked))) == b"".join(asked)
            nursery.start_soon(upstream.send_all, b"".join(told))
            assert await exactly(client, sum(map(len, told))) == b"".join(told)
        await running.settled()

    expected = [(number, len(one), len(other)) for number, (one, other) in enumerate(zip(asked, told, strict=True))]
    assert lengths(sink.seen) == lengths(sink.behind) == expected
    assert sum(passage) > 3 * MB or depth is Depth.FULL
    for payload in get_args(Payload):
        path = tmp_path / f"{payload}.pcapng"
        with path.open("wb") as file:
            writer = CaptureWriter(file, Policy(payload))
            for seen in sink.seen:
                writer.write(seen, ("kproxy", 9092))
            writer.finish(monotonic(), "asked")
        capture = Capture(path)
        assert lengths(capture) == expected
        assert (capture.counts.unread, capture.counts.strangers, capture.counts.lost_places) == (0, 0, 0)


async def test_who_comes_late_leaves_long_frames_alone(net: Any, driver: str, passage: list[int]) -> None:
    """Frames under way are of no concern to who begins behind one of them, however many follow without a gap."""
    records = encode_batch([Record(0, 0, None, random.Random(1).randbytes(3 * MB))])
    topic = {"name": "a", "partition_data": [{"index": at, "records": records} for at in range(6)]}
    asked = [request(PRODUCE, 9, number, acks=1, topic_data=[topic]) for number in range(3)]
    told = [response(PRODUCE, 9, number) for number in range(3)]
    beat, beaten = request(HEARTBEAT, 4, 3), response(HEARTBEAT, 4, 3)
    sink = Hungry(broker_side=True, most=Depth.SKETCH)
    broker = await net.open_broker()
    async with net.serving(net.config(broker.port), lambda *_: watched(), driver=driver) as running:
        async with await running.client() as client, trio.open_nursery() as nursery:
            nursery.start_soon(client.send_all, b"".join(asked))
            upstream = await broker.accept()
            begun = await exactly(upstream, MB)
            running.server.taps.fanout.add(sink)
            before = sum(passage)
            assert begun + await exactly(upstream, sum(map(len, asked)) - MB) == b"".join(asked)
            await upstream.send_all(b"".join(told))
            assert await exactly(client, sum(map(len, told))) == b"".join(told)
            assert sum(passage) - before > 40 * MB  # of 54, of which some may have passed before
            await client.send_all(beat)
            assert await exactly(upstream, len(beat)) == beat
            await upstream.send_all(beaten)
            assert await exactly(client, len(beaten)) == beaten
        await running.settled()

    every = [*zip(range(3), map(len, asked), map(len, told), strict=True), (3, len(beat), len(beaten))]
    seen = lengths(sink.seen)
    assert seen == lengths(sink.behind) == every[-len(seen) :]  # it begins between two of them, or behind all


def lengths(exchanges: Iterable[ObservedExchange]) -> list[tuple[int, int, int]]:
    """The number and the lengths of both frames of each exchange."""
    return [
        (one.correlation_id, one.request.size, one.response.size) for one in exchanges if one.request and one.response
    ]


async def test_a_target_that_takes_a_part_only() -> None:
    """What it does not take comes back, in order, and the pipe is empty."""
    one, source = socket.socketpair()
    target, reader = socket.socketpair()
    pipe = Pipe()
    try:
        for sock in (one, source, target, reader):
            sock.setblocking(False)
        target.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        data = random.Random(1).randbytes(100_000)
        sent = one.send(data)
        taken = pipe.fill(source.fileno(), PIPE)
        rest = pipe.drain(target.fileno(), taken)
        assert 0 < len(rest) < taken <= sent
        assert reader.recv(taken) + rest == data[:taken]
        with pytest.raises(BlockingIOError):
            pipe.read(1)
    finally:
        pipe.close()
        for sock in (one, source, target, reader):
            sock.close()
