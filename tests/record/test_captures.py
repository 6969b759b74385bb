"""Captures by name: where they may be, how many, and how they come off again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
import structlog

from kproxy.base.errors import FilterError
from kproxy.record.captures import running_captures as module
from kproxy.record.captures.capture_file import CaptureLimits
from kproxy.record.captures.policy import Policy
from kproxy.record.captures.reader import Capture, read
from kproxy.record.captures.running_captures import CaptureRefused, Captures, NoSuchCapture
from kproxy.record.fanout import Fanout
from kproxy.record.filters import ExchangeView
from tests.support.capture_files import SERVER, client, metadata


class Wired:
    """Captures in a folder; what is to be done in the loop waits in `loop`."""

    def __init__(self, folder: Path | None) -> None:
        self.fanout = Fanout(structlog.get_logger())
        self.clocks: list[Callable[[float], float]] = []
        self.loop: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.captures = Captures(
            folder, self.fanout, server=lambda who: SERVER, soon=self.loop.put,
            wall=lambda: self.clocks.pop() if self.clocks else float,
            view=lambda seen: ExchangeView(seen, lambda one: {}), instance="here",
        )  # fmt: skip


@pytest.fixture
def wired(tmp_path: Path) -> Wired:
    return Wired(tmp_path / "captures")


def test_from_start_to_stop(wired: Wired, tmp_path: Path) -> None:
    """The folder is made, the sink is told of what passes until the capture is stopped, the file is whole."""
    made = wired.captures.start("orders", wanted="~k metadata", policy=Policy("full"), side="client")
    who = client()
    wired.fanout.opened(who, 999.0)
    wired.fanout.take(metadata(1, who=who))
    stopped = wired.captures.stop("orders.pcapng")
    wired.fanout.take(metadata(2, who=who))

    assert made is stopped is wired.captures["orders"]
    assert stopped.file.join(60)
    assert () == wired.fanout.sinks
    assert [1] == [seen.correlation_id for seen in read(tmp_path / "captures" / "orders.pcapng")]


def test_one_that_ends_by_itself_is_taken_off_in_the_loop(wired: Wired) -> None:
    """Its thread asks the loop to."""
    wired.captures.start("short", limits=CaptureLimits(exchanges=1))
    wired.fanout.take(metadata(1))
    detach = wired.loop.get(timeout=60)
    assert 1 == len(wired.fanout.sinks)
    detach()
    assert () == wired.fanout.sinks
    assert "max_exchanges" == wired.captures["short"].file.stopped


@pytest.mark.parametrize(
    "name", ["", "../out", "a/b", "/etc/passwd", ".hidden", "a b", "a\0b", "..", "-rf", "x" * 300, "c:\\x"]
)
def test_names_stay_in_the_folder(wired: Wired, tmp_path: Path, name: str) -> None:
    """Whatever else a name could mean."""
    with pytest.raises(CaptureRefused, match=f"make the name of a capture, found {len(name)}: ") as refused:
        wired.captures.start(name)
    assert "invalid_query" == refused.value.code
    assert not list(tmp_path.iterdir())


def test_what_is_refused(wired: Wired, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No folder in the config, files that are there, too many at a time, a folder that cannot be, a bad filter."""

    def code(captures: Captures, name: str, **given: Any) -> str:
        with pytest.raises(CaptureRefused) as refused:
            captures.start(name, **given)
        return refused.value.code

    assert "no_captures" == code(Wired(None).captures, "a")
    wired.captures.start("a")
    assert "capture_exists" == code(wired.captures, "a.pcapng")
    monkeypatch.setattr(module, "MOST_RUNNING", 1)
    assert "too_many_captures" == code(wired.captures, "b")
    wired.captures.stop("a")
    assert wired.captures["a"].file.join(60)
    (tmp_path / "file").write_text("")
    assert "capture_failed" == code(Wired(tmp_path / "file").captures, "a")
    with pytest.raises(FilterError):
        wired.captures.start("c", wanted="~nothing")
    with pytest.raises(NoSuchCapture, match='no capture "c"'):
        wired.captures.stop("c")
    assert ["a.pcapng"] == [path.name for path in (tmp_path / "captures").iterdir()]


def test_the_end_of_the_proxy(wired: Wired, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What runs is ended whole; of many that are over only the last are remembered."""
    monkeypatch.setattr(module, "MOST_REMEMBERED", 2)
    for name in "abcd":
        wired.captures.start(name)
        if name != "d":
            wired.captures.stop(name)
            assert wired.captures[name].file.join(60)
    assert ["b.pcapng", "c.pcapng", "d.pcapng"] == list(wired.captures.by_name)
    wired.fanout.take(metadata(1))
    wired.captures.close()

    assert "proxy_ended" == wired.captures["d"].file.stopped
    assert 1 == len(list(read(tmp_path / "captures" / "d.pcapng")))


def test_each_capture_has_the_clock_of_its_beginning(wired: Wired, tmp_path: Path) -> None:
    """The system's clock was an hour behind when the process began, and has been set right."""
    wired.clocks = [lambda when: when + 3600.0, float]
    for name in ("before", "after"):
        wired.captures.start(name)
        wired.fanout.take(metadata())
        assert wired.captures.stop(name).file.join(60)
    before, after = (next(iter(Capture(tmp_path / "captures" / f"{name}.pcapng"))) for name in ("before", "after"))

    assert before.request is not None and after.request is not None
    assert after.request.first - before.request.first == 3600.0
