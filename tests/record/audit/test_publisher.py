"""The thread that publishes, and what becomes of writing while it cannot."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable

from kproxy.record.audit.event_files import Publisher
from kproxy.record.audit.event_sink import OutletCounters
from tests.record.audit.conftest import Audit, Log
from tests.support.audit_reader import hidden, published
from tests.support.wait import until


def publisher() -> tuple[Publisher, OutletCounters, Log]:
    counters, log = OutletCounters(), Log()
    own = Publisher(counters, log, 0.01)
    own.start()
    return own, counters, log


def test_jobs_are_done_one_after_the_other() -> None:
    """In the order in which they were given, also those that are left at the end."""
    own, counters, log = publisher()
    done: list[int] = []
    for number in range(20):
        own.do(lambda number=number: done.append(number))

    assert own.close(20)
    assert done == list(range(20))
    assert (own.backlog, counters.errors, log.lines) == (0, {}, [])


def test_a_refused_job_is_tried_again() -> None:
    """It is logged once; the jobs behind it wait."""
    own, counters, log = publisher()
    left, done = [errno.ENOSPC, errno.EIO, errno.EIO], list[str]()

    def job() -> None:
        if left:
            raise OSError(left.pop(0), "no")
        done.append("first")

    own.do(job)
    own.do(lambda: done.append("second"))
    until(lambda: len(done) == 2)

    assert own.close(20)
    assert done == ["first", "second"]
    assert counters.errors == {"disk_full": 1, "io_error": 2}
    assert log.texts("warning") == ["audit: files cannot be published or recovered, kproxy tries again"]


def test_at_the_end_nobody_waits_for_the_disk() -> None:
    """Each job that is left is tried once more."""
    own, counters, _ = publisher()
    tried = threading.Event()

    def job() -> None:
        tried.set()
        raise OSError(errno.ENOSPC, "full")

    own.do(job)
    assert tried.wait(60)

    assert own.close(20) is False
    assert own.ended
    assert own.backlog == 1
    assert counters.last_error == "[Errno 28] full"


def test_a_mistake_ends_the_job_and_not_the_thread() -> None:
    """It is logged with its trace; the end is not called clean."""
    own, counters, log = publisher()
    done: list[str] = []
    own.do(lambda: done.append(str(1 // 0)))
    own.do(lambda: done.append("second"))

    assert own.close(20) is False
    assert done == ["second"]
    assert counters.errors == {"mistake": 1}
    assert isinstance(log.lines[0][2]["exc_info"], ZeroDivisionError)


def test_writing_goes_on_while_nothing_can_be_published(audit: Callable[..., Audit]) -> None:
    """Two files wait, then the open one grows beyond its size; all of it is published once that is possible."""
    own = audit(roll_size=500)
    own.folder.mkdir(exist_ok=True)
    stone = own.folder / "dt=2023-11-14"
    stone.write_text("a file where the folder should be")
    for _ in range(8):
        own.put(5)
        until(lambda: own.counters.queued == 0)
    until(lambda: own.counters.errors["other"] >= 2)
    waiting = [name for name in hidden(own.folder) if "ndjson" in name]
    before = (own.counters.files, own.counters.failing, own.counters.dropped.total())
    stone.unlink()
    assert own.close()

    assert len(waiting) == 3
    assert before == (0, False, 0)
    assert [event["data"]["number"] for event in published(own.folder)] == list(range(1, 41))
    assert own.counters.files == 3
