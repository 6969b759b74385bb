"""Losses of captures: connections that are older, requests under way at the end, and workers that ended before it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kproxy.record.captures import connection
from kproxy.record.captures.capture_file import CaptureFile, CaptureLimits
from kproxy.record.captures.info import losses, noted_losses
from kproxy.record.captures.pcapng import interface, section
from kproxy.record.captures.policy import Policy
from kproxy.record.captures.reader import Capture
from kproxy.record.captures.writer import CaptureWriter, Conversation
from kproxy.record.exchange import ObservedExchange
from tests.support.capture_files import SERVER, begun_part, client, frame, metadata, produce, response, written


def seen_late(number: int = 1) -> ObservedExchange:
    """Return an exchange with a request before the capture."""
    seen = metadata(number)
    seen.request, seen.response = None, frame(response("Metadata", 8, number, {}), 1000.0)
    return seen


def read(path: Path) -> Capture:
    """Return a capture after reading it to its end."""
    capture = Capture(path)
    list(capture)
    return capture


def older(path: Path) -> Capture:
    """Return a capture that began while a connection waited for a response."""
    with path.open("wb") as file:
        writer = CaptureWriter(file, Policy("full"))
        for seen in (seen_late(), produce(2)):
            writer.write(seen, SERVER, older=True)
        writer.finish_part(1001.0, {})
        writer.finish(1001.0, "asked")
    return read(path)


def test_older_connection_is_marked_and_its_response_passed_over(tmp_path: Path) -> None:
    """The response to an earlier request is not a stranger. Its API counts for the connection."""
    capture = older(tmp_path / "c")
    counts = capture.counts
    assert (counts.older, counts.earlier, counts.strangers, counts.exchanges) == (1, 1, 0, 1)
    (loss,) = [*losses(capture), *noted_losses(capture)]
    assert loss.text == "1 connection older than it; 1 response to earlier requests passed over"
    assert (loss.apis, loss.within) == ({"Metadata", "Produce"}, frozenset())


def test_newer_connection_with_earlier_response_is_told(tmp_path: Path) -> None:
    """A response without a request on a connection that began in the capture is a stranger."""
    path = written(tmp_path / "c", [produce(1), metadata(2), produce(3)])
    data = path.read_bytes()
    asked = metadata(2).request
    assert asked is not None
    path.write_bytes(data.replace(asked.data, bytes(len(asked.data))))
    assert read(path).counts.strangers == 1


def test_tcpdump_connection_without_syn_is_older(tmp_path: Path) -> None:
    """Responses before the first match may belong to requests before the capture; later ones are strangers."""

    def responses(numbers: list[int]) -> Iterator[ObservedExchange]:
        for number in numbers:
            seen = metadata(number)
            if number in (1, 2, 4):
                seen.request = None
            yield seen

    own = written(tmp_path / "own", responses([1, 2, 3, 4, 5])).read_bytes()
    path = tmp_path / "c"
    path.write_bytes(without_handshake(own.replace(b"kproxy", b"tshark")))
    capture = read(path)
    assert (capture.counts.older, capture.counts.strangers) == (1, 1)
    assert any("older" in loss.text for loss in losses(capture))


def without_handshake(data: bytes) -> bytes:
    """Return a pcapng file without packets that have SYN set: flags are at byte 33 of IPv4 and TCP."""
    kept, at = [], 0
    while at < len(data):
        size = int.from_bytes(data[at + 4 : at + 8], "little")
        block = data[at : at + size]
        if not (block[:4] == b"\x06\0\0\0" and block[28 + 33] & 2):
            kept.append(block)
        at += size
    return b"".join(kept)


def ended(path: Path, *put: ObservedExchange, loop: Callable[[CaptureFile], None] | None = None) -> CaptureFile:
    """Return a capture file after its end. `loop` adds entries at the end."""
    made: list[CaptureFile] = []
    file = CaptureFile(
        path, Policy("full"), CaptureLimits(exchanges=1), float, lambda: None, begun_part(path),
        None if loop is None else lambda: loop(made[0]),
    )  # fmt: skip
    made.append(file)
    for seen in put:
        file.exchange(seen, SERVER, 1.0, behind=False)
    assert file.join(60)
    with path.open("ab") as whole:
        CaptureWriter(whole, Policy("full"), begun=True).finish(2000.0, file.stopped, writers=1)
    return file


def test_requests_under_way_at_the_end_are_told_by_api(tmp_path: Path) -> None:
    """The loop counts them when the capture has ended, and the file has them by API."""

    def add(file: CaptureFile) -> None:
        file.open.update({"Produce": 2, "Fetch": 1})
        file.done()

    file = ended(tmp_path / "c", metadata(1), loop=add)
    (loss,) = noted_losses(read(tmp_path / "c"))
    assert loss.text == "3 requests in flight at its end (1 Fetch, 2 Produce)"
    assert (loss.apis, loss.within, file.stopped) == ({"Fetch", "Produce"}, frozenset(), "max_exchanges")


def test_loop_that_adds_nothing_ends_the_capture(tmp_path: Path) -> None:
    """The thread waits for a bounded time; the file has the reason."""
    ended(tmp_path / "c", metadata(1), loop=lambda file: None)
    (loss,) = noted_losses(read(tmp_path / "c"))
    assert loss.text == "topics and their configs were not all recorded: no answer in 2 s"
    assert (loss.apis, loss.within) == (frozenset(), frozenset())


def test_own_exchanges_are_written_after_the_limit(tmp_path: Path) -> None:
    """They are broker-side exchanges, and count neither as exchanges nor as connections."""
    own = produce(5, who=client(0))

    def add(file: CaptureFile) -> None:
        file.own([own], ("10.9.9.9", 9092), 1002.0)
        file.done()

    file = ended(tmp_path / "c", metadata(1), loop=add)
    capture = Capture(tmp_path / "c", side="broker")
    assert [seen.correlation_id for seen in capture] == [5]
    assert (file.written.exchanges, file.written.broker_exchanges, file.written.connections) == (1, 0, 1)


def test_worker_that_ended_before_the_capture_is_told(tmp_path: Path) -> None:
    """Each worker writes a note at its end, newer than the last note. One without has lost a second of traffic."""
    path = tmp_path / "c"
    with path.open("wb") as file:
        writer = CaptureWriter(file, Policy("full"))
        writer.write(metadata(1), SERVER)
        writer.finish_part(1001.0, {"dropped": {"Fetch": 2}})
        writer.finish(1002.0, "asked", 0, writers=2)
    dropped, lost = noted_losses(read(path))
    assert (dropped.text, dropped.apis, dropped.within) == (
        "its writer had no time for 2 exchanges (2 Fetch)", {"Fetch"}, {"Fetch"},
    )  # fmt: skip
    assert lost.text == "1 of 2 workers ended before it: up to a second of their traffic is missing"
    assert (lost.apis, lost.within) == (None, frozenset())


def test_dropped_exchanges_of_unknown_apis_concern_all(tmp_path: Path) -> None:
    """Notes by API that do not add up to the total, as in a file of another version, limit nothing."""
    path = tmp_path / "c"
    with path.open("wb") as file:
        writer = CaptureWriter(file, Policy("full"))
        writer.write(metadata(1), SERVER)
        writer.finish_part(1002.0, {"dropped": {"Fetch": 2, "Produce": -1, "x" * 61: 1}})
        writer.finish(1002.0, "asked", 3)
    (loss,) = noted_losses(read(path))
    assert (loss.text, loss.apis, loss.within) == ("its writer had no time for 3 exchanges", None, None)


def test_capture_without_an_end_is_told(tmp_path: Path) -> None:
    """As of a process that was killed: nothing is missing between recorded exchanges."""
    path = written(tmp_path / "c", [metadata(1)])
    os.truncate(path, path.stat().st_size - 20)
    capture = read(path)
    assert [(loss.text, loss.within) for loss in (*losses(capture), *noted_losses(capture))] == [
        ("its last packet is not all there", frozenset()),
        ("it has no end: kproxy writes it still, or ended while it did", frozenset()),
    ]


def test_gap_is_told_with_its_time_and_the_apis_of_its_connection(tmp_path: Path) -> None:
    """Another connection's APIs are not concerned."""
    path = written(tmp_path / "c", [*(produce(number) for number in range(1, 4)), metadata(1, who=client(9))])
    data = path.read_bytes()
    blocks, at = [], 0
    while at < len(data):
        size = int.from_bytes(data[at + 4 : at + 8], "little")
        blocks.append(data[at : at + size])
        at += size
    packets = [place for place, block in enumerate(blocks) if block[:4] == b"\x06\0\0\0" and len(block) > 150]
    del blocks[packets[1]]
    path.write_bytes(b"".join(blocks))
    capture = read(path)
    gap = next(loss for loss in losses(capture) if "bytes missing" in loss.text)
    assert gap.within == {"Produce"}
    assert gap.apis is None
    assert " from 00:16:4" in gap.text


@pytest.mark.parametrize(
    ("frames", "ended", "lost"),
    [
        (">1 <1 <1 >2 <2", True, 0),  # twice
        (">1 >2 >3 <2 <1 <3", True, 0),  # out of order
        (">1 <1 <1 >2 <2", False, 1),  # the client's last bytes may be missing
        (">1 <1 <2 >2 >3 <3", True, 1),  # the packets of the second exchange are in the wrong order
        (">1 >2 >3 <1 <2 <3", True, 1),  # more requests wait than are kept
    ],
)
def test_strangers_with_lost_requests_are_losses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, frames: str, ended: bool, lost: int
) -> None:
    """A response has no request for certain if the capture has all bytes of the client in order."""
    monkeypatch.setattr(connection, "MOST_WAITING", 2 if frames.count(">") == 3 and "<1 <2 <3" in frames else 100)
    talk = Conversation(0, (bytes((127, 0, 0, 1)), 50000), (bytes((127, 0, 0, 1)), 9092))
    blocks = [section("dumpcap"), interface("lo"), *talk.open(1000.0, "")]
    for number, text in enumerate(frames.split()):
        side, one = text[0], metadata(int(text[1]))
        frame = one.request if side == ">" else one.response
        assert frame is not None
        data = (len(frame.data)).to_bytes(4, "big") + frame.data
        blocks += talk.send("><".index(side), data, len(data), 1001.0 + number, 1001.0 + number, "")
    blocks += talk.close(2000.0) if ended else ()
    path = tmp_path / "c"
    path.write_bytes(b"".join(blocks))
    counts = read(path).counts
    assert (counts.strangers, counts.requests_lost) == (1, lost)
