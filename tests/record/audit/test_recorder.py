"""The recorder in front of several outlets."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from kproxy.record.audit.event_sink import OutletCounters
from kproxy.record.audit.kafka_outlet import WrongOptions
from kproxy.record.audit.recorder import Gap, LineQueue, PutGapEvent, Recorder, gap_event
from kproxy.record.events.schema import AUDIT_GAP_EVENT


class Fake:
    """An outlet without a thread: a queue, and what it was told at the start."""

    def __init__(self, name: str, events: int = 100, when_full: Any = "drop") -> None:
        self.name, self.counters = name, OutletCounters()
        self.queue: LineQueue[bytes] = LineQueue(self.counters, when_full, events, 1 << 20)
        self.put_gap_event: PutGapEvent
        self.closed_in: float | None = None
        self.well = True

    @property
    def blocked(self) -> bool:
        return self.queue.blocked

    def start(self, put_gap_event: PutGapEvent, on_unblocked: Callable[[], None]) -> None:
        self.put_gap_event, self.queue.on_unblocked = put_gap_event, on_unblocked

    def add(self, line: bytes, number: int, day: str, _type: str, _data: object, **words: Any) -> None:
        self.queue.add(number, day, line, len(line), **words)

    def missing(self, number: int, reason: str) -> None:
        self.queue.missing(number, reason)

    def close(self, timeout: float) -> bool:
        self.closed_in = timeout
        return self.well

    def lines(self) -> list[bytes]:
        return [line for batch in self.queue.take() for line in batch.items]


def both(on_unblocked: Callable[[], None] = lambda: None, **settings: Any) -> tuple[Fake, Fake, Recorder]:
    files, kafka = Fake("files", **settings), Fake("kafka", **settings)
    recorder = Recorder("host/boot/0", [files, kafka], on_unblocked)
    recorder.start()
    return files, kafka, recorder


def test_all_outlets_get_the_same_line() -> None:
    """With the same number, so that readers of both can drop what is double."""
    files, kafka, recorder = both()
    recorder.put("kproxy.test.v1", 0.0, {"a": 1})
    recorder.put("kproxy.test.v1", 0.0, {"a": 2})
    lines = files.lines()

    assert lines == kafka.lines()
    assert [msgspec.json.decode(line)["id"] for line in lines] == ["1", "2"]
    assert {name: counters.queued for name, counters in recorder.counters.items()} == {"files": 2, "kafka": 2}


def test_what_one_outlet_tells_all_of_them_get() -> None:
    """Numbers stay gapless in each; the one that told is called when it is durable there."""
    files, kafka, _ = both()
    called: list[str] = []
    files.put_gap_event({"reason": "unclean_end"}, lambda: called.append("durable"))
    (batch,), (other,) = files.queue.take(), kafka.queue.take()
    told = msgspec.json.decode(batch.items[0])

    assert (told["type"], told["id"], told["data"]) == (AUDIT_GAP_EVENT.name, "1", {"reason": "unclean_end"})
    assert batch.items == other.items
    assert (len(batch.then), other.then, called) == (1, [], [])


@pytest.mark.parametrize("data", [{"x": object()}, {1.5j: 1}, {"x": "\udcff"}])
def test_put_never_raises(data: dict[Any, Any]) -> None:
    """What cannot be encoded is counted at each outlet; its number stays free."""
    files, kafka, recorder = both()
    recorder.put("kproxy.test.v1", 0.0, data)
    recorder.put("kproxy.test.v1", 0.0, {})
    gap = kafka.queue.take_gap()

    assert [msgspec.json.decode(line)["id"] for line in files.lines()] == ["2"]
    assert files.counters.dropped == kafka.counters.dropped == {"unencodable": 1}
    assert gap is not None
    assert (gap.first_id, gap.last_id) == (1, 1)


def test_blocked_as_long_as_one_of_them_is() -> None:
    """It is told when the last one goes on."""
    told: list[bool] = []
    files, kafka, recorder = both(lambda: told.append(recorder.blocked), when_full="block")
    files.queue.refuse("disk_full")
    kafka.queue.refuse("unreachable")
    first = recorder.blocked
    files.queue.refuse("")
    second = (recorder.blocked, list(told))
    kafka.queue.refuse("")

    assert (first, second) == (True, (True, []))
    assert (recorder.blocked, told) == (False, [False])


def test_close_closes_all_of_them() -> None:
    """Also when the first one was not well; each has the time that was given."""
    files, kafka, recorder = both()
    files.well = False

    assert recorder.close(7.0) is False
    assert (files.closed_in, kafka.closed_in) == (7.0, 7.0)


def test_an_outlet_that_cannot_be_started() -> None:
    """Those that were are closed again, so that they leave nothing behind."""

    class Wrong(Fake):
        def start(self, put_gap_event: PutGapEvent, on_unblocked: Callable[[], None]) -> None:
            raise WrongOptions("audit.kafka: no")

    files, kafka = Fake("files"), Wrong("kafka")
    recorder = Recorder("host/boot/0", [files, kafka])
    with pytest.raises(WrongOptions):
        recorder.start()

    assert files.closed_in is not None
    assert kafka.closed_in is None


def test_threads_may_put_at_the_same_time() -> None:
    """Each number is there once, and in order."""
    files, _, recorder = both(events=10_000)
    threads = [
        threading.Thread(target=lambda: [recorder.put("kproxy.test.v1", 0.0, {}) for _ in range(1000)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [int(msgspec.json.decode(line)["id"]) for line in files.lines()] == list(range(1, 4001))


def test_the_words_of_a_gap() -> None:
    """All its columns are the schema's; reasons stand in the message, the most frequent first."""
    gap = Gap()
    gap.add(10, 19, "disk_full")
    gap.add(5, 5, "unencodable")
    told = gap_event(gap, "files")

    said = "files: disk_full 10, unencodable 1"
    assert told == {"reason": "dropped", "dropped": 11, "first_id": 5, "last_id": 19, "message": said}
    assert set(told) <= {column.name for column in AUDIT_GAP_EVENT.columns}
