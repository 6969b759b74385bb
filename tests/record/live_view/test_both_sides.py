"""What passed at the broker belongs to the same exchange for all who read kproxy's own captures: in pairs, into the
view's spool, and for the view in a terminal."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from kproxy.cli.tui.sources import ViewedFiles
from kproxy.record.captures import pairs
from kproxy.record.captures.pairs import SideMatcher, paired
from kproxy.record.captures.reader import Capture
from kproxy.record.captures.writer import CaptureWriter
from kproxy.record.exchange import ObservedExchange
from kproxy.record.filters import ExchangeView
from kproxy.record.live_view import reading
from kproxy.record.live_view.reading import Spool, read_places
from tests.support.capture_files import FULL, SERVER, client, produce

BROKER = ("10.9.9.9", 9092)
OWN = -0x6B70
"""Correlation id that kproxy's own requests have."""
Found = dict[int, int | None]
"""Sizes of the requests at the broker by those at the client, None where the same passed there."""


def size(seen: ObservedExchange | None) -> int | None:
    """Size of the request, which names an exchange here."""
    return None if seen is None or seen.request is None else seen.request.size


def in_pairs(path: Path) -> Found:
    """What the pairs of a capture say."""
    found = {size(front): size(behind) for front, behind in paired(Capture(path, side="both"))}
    return {front: behind for front, behind in found.items() if front is not None}


def in_spool(path: Path) -> Found:
    """What the spool of a capture has."""
    spooled = path.parent / "spool"
    with spooled.open("wb") as file:
        result = reading.read(file, str(path))
    number = os.open(spooled, os.O_RDONLY)
    spool = Spool(number, read_places(number, result), result.topics)
    found = {size(spool.exchange(one)) or 0: size(spool.behind(one)) for one in range(1, len(spool) + 1)}
    spool.close()
    return found


def seen_in(view: object) -> ObservedExchange:
    assert isinstance(view, ExchangeView)
    return view.seen


def in_terminal(path: Path, kept: int = 64 << 20) -> Found:
    """What the view of files shows of each row, and marks."""
    files = ViewedFiles([str(path)])
    files.kept.budget.max_bytes = kept
    thread = files.open("")
    thread.start()
    idents: dict[str, bool] = {}
    while True:
        event = thread.events.get(timeout=60)
        if event.name == "rows":
            for row in event.data["rows"]:
                idents[row[0]] = row[0] in idents
        if event.name == "state":
            break
    found: Found = {}
    for ident, marked in idents.items():
        front, behind = files.view(ident)
        assert marked is (behind is not None) or kept == 1
        found[size(seen_in(front)) or 0] = None if behind is None else size(seen_in(behind))
    return found


def read_again(path: Path) -> Found:
    """What the view of files shows of exchanges that it does not keep."""
    return in_terminal(path, kept=1)


READERS = [in_pairs, in_spool, in_terminal, read_again]
Expected = dict[int, int | None]


def repeated(writer: CaptureWriter, random: Random, behind_first: float) -> Expected:
    """Write exchanges of connections that come and go, with the same few correlation ids again and again, answered or
    not; return which belong together."""
    expected: Expected = {}
    at, connections, next_number = 1000.0, [client(number) for number in range(1, 4)], 4
    for number in range(50):
        who = random.choice(connections)
        at += random.choice([0.0, 0.001, 0.7])
        acks = random.choice([0, 1, 1])
        ident = random.choice([7, 7, 8, OWN])
        front = replace(produce(1, who=who, size=200 + number, acks=acks, at=at), correlation_id=ident)
        sides: list[Callable[[], None]] = [lambda front=front: writer.write(front, SERVER)]
        behind = None
        if acks == 0 or random.random() < 0.5:
            behind = replace(produce(1, who=who, size=1000 + number, acks=acks, at=at), correlation_id=ident)
            sides.append(lambda behind=behind: writer.write_broker(behind, BROKER))
        if random.random() < behind_first:
            sides.reverse()
        for write in sides:
            write()
        expected[size(front) or 0] = size(behind)
        at += 0.501 * bool(acks)
        if random.random() < 0.1:  # of kproxy itself, on the same connection
            own = replace(produce(1, who=who, size=5000 + number, at=at + 0.001), correlation_id=OWN)
            writer.write_broker(own, BROKER)
            at += 0.6
        if random.random() < 0.05:
            writer.closed(who, at)
            connections.remove(who)
            connections.append(client(next_number))
            next_number += 1
    return expected


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("behind_first", [0.0, 0.5])
def test_ids_that_clients_repeat(tmp_path: Path, reader: Callable[[Path], Found], behind_first: float) -> None:
    """Each exchange has what was written for it, whichever side came first, and no request of kproxy's own."""
    path = tmp_path / "both.pcapng"
    for seed in range(1 if reader is read_again else 2):
        with path.open("wb") as file:
            writer = CaptureWriter(file, FULL)
            expected = repeated(writer, Random(seed), behind_first)
            writer.finish(2000.0, "asked")
        assert reader(path) == expected


@pytest.mark.parametrize("reader", READERS)
def test_exchanges_that_are_over_together(tmp_path: Path, reader: Callable[[Path], Found]) -> None:
    """Of requests with one id that were sent at once and never answered, those at the broker come in their order."""
    path = tmp_path / "both.pcapng"
    with path.open("wb") as file:
        writer = CaptureWriter(file, FULL)
        fronts = [produce(1, acks=0, size=200 + number) for number in range(3)]
        behinds = [produce(1, acks=0, size=1000 + number) for number in range(3)]
        for seen in fronts:
            writer.write(seen, SERVER)
        for seen in behinds:
            writer.write_broker(seen, BROKER)
        writer.finish(2000.0, "asked")
    assert reader(path) == dict(zip(map(size, fronts), map(size, behinds), strict=True))


@pytest.mark.parametrize("reader", READERS)
def test_a_number_that_another_connection_has(tmp_path: Path, reader: Callable[[Path], Found]) -> None:
    """Of two captures in one file: nothing of the second belongs to what the first one left open."""
    path = tmp_path / "both.pcapng"
    with path.open("wb") as file:
        for run in range(2):
            writer, who = CaptureWriter(file, FULL), client(7)
            if run:
                writer.write_broker(produce(1, who=who, acks=0, size=1000, at=1001.0), BROKER)
                writer.write(produce(1, who=who, acks=0, size=500, at=1001.0), SERVER)
            else:
                writer.write_broker(produce(2, who=who, acks=0, size=900, at=999.0), BROKER)
                writer.write(produce(1, who=who, acks=0, size=200, at=1000.0), SERVER)
            writer.closed(who, 1000.5 + run)
            writer.finish(1000.6 + run, "asked")
    found = reader(path)
    assert [behind is None for _, behind in sorted(found.items())] == [True, False]


def test_what_waits_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """In exchanges of one connection, of all connections, in bytes, and in time; what is let go of is given back."""
    matcher, who = SideMatcher[int, int](), client(9)
    given = [pair for number in range(500) for pair in matcher.front(produce(number, who=who), number)]
    assert given == [(number, None) for number in range(300)]
    assert len(matcher.waiting) == pairs.MOST_UNMATCHED
    assert matcher.flush() == [(number, None) for number in range(300, 500)]
    assert (matcher.size, len(matcher.waiting)) == (0, 0)

    given = [pair for one in range(8) for pair in matcher.behind(produce(1, who=client(one)), one, 10 << 20)]
    assert given == [(None, 0), (None, 1)]
    monkeypatch.setattr(pairs, "MOST_IN_ALL", 3)
    assert matcher.front(produce(1, who=who), 9) == [(None, one) for one in (2, 3, 4, 5)]
    assert matcher.front(produce(2, who=who, at=2000.0), 10) == [(None, 6), (None, 7), (9, None)]
    assert [one.sides.number for one in matcher.waiting] == [9]
    monkeypatch.setattr(pairs, "MOST_CONNECTIONS", 20)
    for number in range(100, 150):
        matcher.front(produce(3, who=client(number), at=2000.0), number)
        assert matcher.behind(produce(3, who=client(number), at=2000.0), number) == [(number, number)]
    assert len(matcher.connections) <= 21
    assert 9 in matcher.connections
    assert matcher.end(9) == [(10, None)]
    assert (matcher.end(9), len(matcher.waiting)) == ([], 0)
