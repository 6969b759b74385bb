"""Both sides of kproxy's own captures, put together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kproxy.base.errors import CaptureError
from kproxy.record.captures import pairs
from kproxy.record.captures.pairs import BothSides, paired
from kproxy.record.captures.reader import Capture
from kproxy.record.captures.writer import CaptureWriter
from kproxy.record.exchange import ObservedExchange
from tests.support.capture_files import FULL, SERVER, client, produce

BROKER = ("10.9.9.9", 9092)
Write = Callable[..., Any]


def capture_of(path: Path, write: Callable[[CaptureWriter], None], **options: Any) -> list[BothSides]:
    """What is read of a file that is written so."""
    with path.open("wb") as file:
        writer = CaptureWriter(file, FULL)
        write(writer)
        writer.finish(2000.0, "asked")
    return list(paired(Capture(path, side="both", **options)))


def shown(found: list[BothSides]) -> list[tuple[tuple[int, int] | None, tuple[int, int] | None]]:
    """Connection and size of the request of each side."""
    return [(told(one.front), told(one.behind)) for one in found]


def told(seen: ObservedExchange | None) -> tuple[int, int] | None:
    return None if seen is None or seen.request is None else (seen.who.number, seen.request.size)


@pytest.mark.parametrize("most", [200, 3])
@pytest.mark.parametrize("seed", range(8))
def test_each_has_its_own_counterpart(tmp_path: Path, seed: int, most: int, monkeypatch: Any) -> None:
    """Of connections that come and go, with the same few correlation ids again and again, answered or not: what passed
    at the broker goes with the exchange that it was written for, and each exchange comes once."""
    monkeypatch.setattr(pairs, "MOST_UNMATCHED", most)
    random, expected = Random(seed), []

    def write(writer: CaptureWriter) -> None:
        at, open_ = 1000.0, [client(number) for number in range(1, 4)]
        for size in range(200, 400):
            who = random.choice(open_)
            at += 1
            number = random.randrange(3)
            seen = replace(produce(number, who=who, size=size, at=at), correlation_id=number)
            writer.write(seen, SERVER)
            behind = None
            if random.random() < 0.4:
                behind = produce(number, who=who, size=size + 1000, at=at)
                writer.write_broker(behind, BROKER)
            expected.append((told(seen), told(behind)))
            if random.random() < 0.1:
                own = produce(10_000 + size, who=who, size=size + 5000, at=at)
                writer.write_broker(own, BROKER)
                expected.append((None, told(own)))
            if random.random() < 0.05:
                writer.closed(who, at)
                open_.remove(who)
                open_.append(client(size))

    found = capture_of(tmp_path / "both.pcapng", write)
    assert shown(found) == expected


def test_what_the_broker_saw(tmp_path: Path) -> None:
    """The same as the client, where nothing else is there; nothing, where kproxy has answered."""

    def write(writer: CaptureWriter) -> None:
        writer.write(produce(1, at=1.0), SERVER)
        answered = produce(2, at=2.0)
        answered.answered_by_rule = True
        writer.write(answered, SERVER)
        writer.write(produce(3, at=3.0), SERVER)
        writer.write_broker(produce(3, size=300, at=3.0), BROKER)
        writer.write_broker(produce(900, at=4.0), BROKER)

    made = capture_of(tmp_path / "a", write)
    found = {None if one.front is None else one.front.correlation_id: one for one in made}
    assert found[1].at_broker is found[1].front
    assert found[2].at_broker is None
    assert found[3].at_broker is found[3].behind is not None
    assert found[None].at_broker is found[None].behind is not None


def test_memory_is_given_back(tmp_path: Path) -> None:
    """What waits is handed out after some seconds of the capture's time, long before the file is over."""
    path = tmp_path / "many"

    def write(writer: CaptureWriter) -> None:
        for number in range(100):
            writer.write(produce(1, who=client(number), at=float(number)), SERVER)
            writer.closed(client(number), float(number))

    capture_of(path, write)
    reading = Capture(path, side="both")
    first = next(paired(reading))
    assert first.front is not None and first.front.who.number == 0
    assert reading.counts.connections < 10


def test_a_damaged_capture(tmp_path: Path) -> None:
    """What stands before the damage is given out, and then it is said."""
    path = tmp_path / "damaged"
    with path.open("wb") as file:
        writer = CaptureWriter(file, FULL)
        writer.write(produce(1), SERVER)
        writer.write_broker(produce(1, size=300), BROKER)
        writer.write(produce(2, at=1001.0), SERVER)
        file.write(b"\x06\0\0\0\xff\xff\xff\x7f" + bytes(100))
    reading = paired(Capture(path, side="both"))
    assert [next(reading).behind is None for _ in range(2)] == [False, True]
    with pytest.raises(CaptureError):
        next(reading)


def test_a_capture_of_one_side(tmp_path: Path) -> None:
    """That it cannot be is said."""
    with pytest.raises(ValueError, match="the capture is read for the client's side only"):
        list(paired(Capture(tmp_path / "x")))
