"""Recorders of files in a folder of the test's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from kproxy.record.audit.event_files import WriterIdentity
from kproxy.record.audit.outlets import FileOutlet, FileSettings
from kproxy.record.audit.recorder import Recorder


class Log:
    """Keeps what is logged: (level, text, words)."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str, dict[str, Any]]] = []

    def info(self, text: str, **words: Any) -> None:
        self.lines.append(("info", text, words))

    def warning(self, text: str, **words: Any) -> None:
        self.lines.append(("warning", text, words))

    def error(self, text: str, **words: Any) -> None:
        self.lines.append(("error", text, words))

    def texts(self, level: str) -> list[str]:
        return [text for own, text, _ in self.lines if own == level]


class Audit:
    """A started recorder, its outlet, its counters and its log."""

    def __init__(self, folder: Path, on_unblocked: Callable[[], None] = lambda: None, **settings: Any) -> None:
        self.folder, self.log = folder, Log()
        self.identity = WriterIdentity("host", str(uuid4()))
        self.outlet = FileOutlet(FileSettings(folder, self.identity, **settings), self.log)
        self.counters = self.outlet.counters
        self.recorder = Recorder(self.identity.source, [self.outlet], on_unblocked)
        self.number = 0
        self.recorder.start()

    def put(self, count: int = 1, **data: Any) -> None:
        """Numbered events."""
        for _ in range(count):
            self.number += 1
            self.recorder.put("kproxy.test.v1", 1_700_000_000.25, {"number": self.number, **data})

    def close(self, timeout: float = 20) -> bool:
        return self.recorder.close(timeout)


@pytest.fixture
def audit(tmp_path: Path) -> Iterator[Callable[..., Audit]]:
    """Makes recorders in `tmp_path/audit`, quick ones; closed after the test."""
    made: list[Audit] = []

    def make(**settings: Any) -> Audit:
        made.append(Audit(settings.pop("folder", tmp_path / "audit"), **{"flush": 0.02, "retry": 0.05, **settings}))
        return made[-1]

    yield make
    for one in made:
        one.close()
