"""The writer's thread: beats, rolls, refusals. Disks are fakes here; see test_disks.py for real ones."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kproxy.record.audit import event_files
from tests.record.audit.conftest import Audit
from tests.support.audit_reader import by_source, hidden, published, recovered
from tests.support.wait import until

Make = Callable[..., Audit]


def numbers(audit: Audit) -> list[int]:
    """Of the events that are published, without reports."""
    own = by_source(published(audit.folder))[audit.identity.source]
    return [event["data"]["number"] for event in own if "number" in event["data"]]


class Trouble:
    """Fake of a function of `os` in event_files.py for the writing thread: raises `error`, if set, `times` times."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        self.real: Callable[..., Any] = getattr(os, name)
        self.error, self.times, self.hits = 0, 1 << 30, 0
        self.gate = threading.Event()
        self.gate.set()
        monkeypatch.setattr(event_files, "os", _Os(name, self))

    def __call__(self, *arguments: Any) -> Any:
        if threading.current_thread().name != "audit writer":
            return self.real(*arguments)
        self.gate.wait()
        if self.error and self.times > 0:
            self.times, self.hits = self.times - 1, self.hits + 1
            if self.real is os.write:
                os.write(arguments[0], arguments[1][: len(arguments[1]) // 2])  # as a full disk does it
            raise OSError(self.error, os.strerror(self.error))
        return self.real(*arguments)


class _Os:
    def __init__(self, name: str, stand_in: Callable[..., Any]) -> None:
        self.__dict__[name] = stand_in

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)


def test_events_are_durable_before_the_file_is_published(audit: Make) -> None:
    """A beat after they were put they are in the file with the dot, which readers pass over."""
    own = audit()
    own.put(3)
    until(lambda: own.counters.written == 3)

    assert published(own.folder) == []
    assert hidden(own.folder) == [f".{own.identity.stem}-000000000001.ndjson.tmp", f".{own.identity.stem}.session"]
    assert (own.counters.queued, own.counters.queued_bytes, own.counters.failing) == (0, 0, False)
    assert own.counters.last_durable > 1_700_000_000


def test_an_orderly_end_publishes_what_is_there(audit: Make) -> None:
    """By day and first number; no hidden file remains, and putting afterwards is counted."""
    own = audit(flush=30.0)
    own.put(5)
    closed = own.close()
    own.put()

    assert closed
    assert numbers(own) == [1, 2, 3, 4, 5]
    assert [p.name for p in own.folder.iterdir()] == ["dt=2023-11-14"]
    assert [p.name for p in own.folder.glob("*/*")] == [f"{own.identity.stem}-000000000001.ndjson.gz"]
    assert own.counters.dropped == {"closed": 1}


def test_nothing_is_published_where_nothing_happened(audit: Make) -> None:
    """No empty file."""
    own = audit()

    assert own.close()
    assert list(own.folder.iterdir()) == []


def test_files_are_rolled_by_size(audit: Make) -> None:
    """Each is a little over the size, since a batch is not divided."""
    own = audit(roll_size=3000)
    for _ in range(6):
        own.put(10)
        until(lambda: own.counters.queued == 0)
        until(lambda: own.counters.files >= (own.number - 10) // 20)
    own.close()

    assert numbers(own) == list(range(1, 61))
    assert own.counters.files == 3


def test_files_are_rolled_by_age(audit: Make) -> None:
    """Also when nothing new comes."""
    own = audit(roll_age=0.1)
    own.put()
    until(lambda: own.counters.files == 1)

    assert numbers(own) == [1]


def test_a_new_day_is_a_new_file(audit: Make) -> None:
    """An event of the day before that comes late stays where it comes."""
    own = audit(flush=30.0)
    for day in (1, 2, 1, 2):
        own.recorder.put("kproxy.test.v1", 86_400.0 * day, {"number": day})
    own.close()
    files = {path.parent.name: path for path in own.folder.glob("*/*")}

    assert sorted(files) == ["dt=1970-01-02", "dt=1970-01-03"]
    assert [event["time"][:10] for event in published(own.folder)] == [
        "1970-01-02", "1970-01-03", "1970-01-02", "1970-01-03",
    ]  # fmt: skip


def test_an_event_that_cannot_be_encoded_is_told(audit: Make) -> None:
    """The others are written; the gap is on record."""
    own = audit()
    own.put()
    own.put(bad=object())
    own.put()
    own.close()
    (told,) = recovered(published(own.folder), "dropped")

    assert numbers(own) == [1, 3]
    assert told == {"reason": "dropped", "dropped": 1, "first_id": 2, "last_id": 2, "message": "files: unencodable 1"}


@pytest.mark.parametrize(
    ("code", "reason"), [(errno.ENOSPC, "disk_full"), (errno.EROFS, "read_only"), (errno.EIO, "io_error")]
)
def test_drop_while_the_disk_refuses(audit: Make, monkeypatch: pytest.MonkeyPatch, code: int, reason: str) -> None:
    """As many events as the queue holds wait; those beyond are dropped, counted, and told once it is over. It is logged
    once, and each write that the disk cut short is cut off."""
    trouble = Trouble(monkeypatch, "write")
    own = audit(queue=10)
    own.put(4)
    until(lambda: own.counters.written == 4)
    trouble.error = code
    own.put(10)
    until(lambda: trouble.hits >= 3)
    own.put(5)
    blocked = own.recorder.blocked
    trouble.error = 0
    until(lambda: own.counters.queued == 0)
    own.put(1)
    own.close()
    (told,) = recovered(published(own.folder), "dropped")

    assert numbers(own) == [*range(1, 15), 20]
    assert told == {"reason": "dropped", "dropped": 5, "first_id": 15, "last_id": 19, "message": f"files: {reason} 5"}
    assert own.counters.dropped == {reason: 5}
    assert own.counters.errors[reason] == trouble.hits
    assert not blocked
    assert len(own.log.texts("warning")) == 1
    assert own.log.texts("info") == ["audit: events are written again"]
    assert by_source(published(own.folder))[own.identity.source][-1]["id"] == "21"


def test_block_while_the_disk_refuses(audit: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is dropped; the writer tells when it goes on."""
    trouble, free = Trouble(monkeypatch, "write"), threading.Event()
    own = audit(queue=10, when_full="block", on_unblocked=free.set)
    trouble.error = errno.ENOSPC
    own.put()
    until(lambda: own.recorder.blocked)
    own.put(12)
    trouble.error = 0

    assert free.wait(60)
    assert not own.recorder.blocked
    assert own.close()
    assert numbers(own) == list(range(1, 14))
    assert own.counters.dropped == {}


@pytest.mark.parametrize("when_full", ["drop", "block"])
def test_a_slow_disk(audit: Make, monkeypatch: pytest.MonkeyPatch, when_full: str) -> None:
    """While a sync takes its time the queue fills: beyond that events are dropped, or readers are asked to wait."""
    trouble, free = Trouble(monkeypatch, "fsync"), threading.Event()
    own = audit(queue=10, when_full=when_full, on_unblocked=free.set)
    trouble.gate.clear()
    own.put(12)
    blocked = own.recorder.blocked
    trouble.gate.set()
    if blocked:
        assert free.wait(60)
    assert own.close()

    assert blocked == (when_full == "block")
    assert own.counters.dropped == ({} if blocked else {"queue_full": 2})
    assert numbers(own) == list(range(1, 13 if blocked else 11))
    assert own.log.lines == []


def test_a_failed_sync_makes_the_lines_be_written_again(audit: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the kernel may have forgotten is cut off and written anew: all are there, none is double."""
    trouble = Trouble(monkeypatch, "fsync")
    own = audit()
    own.put(3)
    until(lambda: own.counters.written == 3)
    trouble.error, trouble.times = errno.EIO, 2
    own.put(3)
    until(lambda: own.counters.written == 6)
    own.close()

    assert trouble.hits == 2
    assert numbers(own) == [1, 2, 3, 4, 5, 6]


def test_an_end_while_the_disk_refuses(audit: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not waited for: what could not be written is counted, and the next start has the end on record."""
    trouble = Trouble(monkeypatch, "write")
    own = audit()
    own.put(2)
    until(lambda: own.counters.written == 2)
    trouble.error = errno.ENOSPC
    own.put(3)
    closed = own.close()
    trouble.error = 0
    after = audit()
    until(lambda: after.counters.unclean_shutdowns == 1)
    after.close()
    (told,) = recovered(published(own.folder), "unclean_end")

    assert not closed
    assert own.counters.dropped == {"disk_full": 3}
    assert numbers(own) == [1, 2]
    assert told == {"reason": "unclean_end", "of_source": own.identity.source, "lines": 0}


def test_an_end_before_there_could_be_a_file(audit: Make, tmp_path: Path) -> None:
    """A file stands where the folder should be: all is given up, and nothing says that events are written again."""
    (tmp_path / "taken").write_text("")
    own = audit(folder=tmp_path / "taken")
    own.put(3)

    assert not own.close()
    assert own.counters.dropped == {"other": 3}
    assert own.log.texts("info") == []


def test_an_end_that_takes_too_long(audit: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the timeout the sink returns, and what is not durable counts as dropped."""
    trouble = Trouble(monkeypatch, "fsync")
    own = audit()
    trouble.gate.clear()
    own.put(3)
    closed = own.close(0.1)
    trouble.gate.set()

    assert not closed
    assert own.counters.dropped == {"close_timeout": 3}


def test_a_mistake_in_the_writer_is_not_its_end(audit: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is logged with its trace, and tried again."""
    own = audit()
    own.put()
    until(lambda: own.counters.written == 1)
    with monkeypatch.context() as patch:
        patch.setattr(event_files.OpenFile, "append", lambda _self, _data: 1 / 0)
        own.put()
        until(lambda: own.counters.errors["mistake"] >= 2)
    until(lambda: own.counters.written == 2)

    assert own.log.texts("error") == ["audit: bug in kproxy, events cannot be written"]
    assert "ZeroDivisionError" in repr(own.log.lines[0][2]["exc_info"])
