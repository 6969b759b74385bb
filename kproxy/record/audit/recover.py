"""Recovery of event files that processes before this one have left behind.

Strategy: a process that lives holds locks on its mark (`event_files.ProcessMark`) and on its open files. A mark that
can be locked is that of a process with an unclean shutdown. First the `audit_gap` event becomes durable, then the file
is published, then the mark is deleted. After a kill at any point, the next start does the rest and may repeat the
event.

| killed | found | done |
|---|---|---|
| before the mark has its name | `.session.tmp` | deleted; nothing was written |
| before the first line is written, or between two files | the mark | an event without `file` |
| while a line is written | the mark, a file with a torn end | cut to whole lines, then published |
| before the file is synced | the same; after a power cut, holes of NUL | cut before the first hole, then published |
| after a failed write, before it is cut off | the same | the same: no line behind the cut is in another file |
| while it is compressed | the mark, source, `.gz.tmp` | compressed anew from the source, then published |
| after that, before the source is deleted | the mark, source, packed `.gz` | source deleted, packed one published |
| before it is published | the mark, packed `.gz` | published |
| after it is published, before the orderly end | the mark | an event without `file` |
| during recovery, before the event is durable | all as it was, perhaps cut | done again |
| during recovery, after that | the mark, file or packed one | done again: the event is there twice |
| with no line in the file | the mark, an empty file | deleted; the event says 0 lines |

A file whose first line is not an event is renamed to `….ndjson.bad`, and the event reports it.
"""

from __future__ import annotations

import gzip
import os
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from kproxy.record.events.column import EventData

from .event_files import BAD, NEW_SESSION, OPEN, PACKED, SESSION, hidden, lock_if_ended, publish, session_of, stem_of
from .lines import id_of

_FILE = re.compile(r"\..+-[0-9a-f]{8}-\d+-\d{12,}\.ndjson\.(tmp|gz)")


class _Head(msgspec.Struct):
    source: str
    time: str


_decode = msgspec.json.Decoder(_Head).decode


@dataclass
class WholeLineCount:
    """Whole lines at the beginning of a file: how many, their bytes, and the first and the last one."""

    lines: int = 0
    size: int = 0
    first: bytes = b""
    last: bytes = b""

    @classmethod
    def of(cls, lines: Iterable[bytes]) -> WholeLineCount:
        """Count the lines up to the first that is torn, or has a NUL, which only a power cut can leave there."""
        count = cls()
        for line in lines:
            if not line.endswith(b"\n") or b"\0" in line:
                break
            count.first = count.first or line
            count.lines, count.size, count.last = count.lines + 1, count.size + len(line), line
        return count


@dataclass
class LeftoverFile:
    """File that a process left behind. `fd` is None for a packed one. `data`: the event's data about it."""

    folder: Path
    stem: str
    day: str
    fd: int | None
    lines: int
    data: dict[str, object]

    def publish(self) -> None:
        """Publish the file, or delete it if it contains no lines. Raises OSError."""
        if self.lines:
            publish(self.folder, self.stem, self.day, self.fd)
        else:
            hidden(self.folder, self.stem, OPEN).unlink(missing_ok=True)
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None


@dataclass
class UncleanProcess:
    """Process with an unclean shutdown: its mark, locked by us, and its files."""

    mark: Path
    fd: int
    source: str
    files: list[LeftoverFile] = field(default_factory=list)

    def events(self) -> list[EventData]:
        """Return the data of an event for each file, or of one event if no files exist."""
        return [file.data for file in self.files] or [{"reason": "unclean_end", "of_source": self.source, "lines": 0}]

    def end(self) -> None:
        """Delete the mark, once all files are published. Raises OSError."""
        self.mark.unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        for fd in (self.fd, *(file.fd for file in self.files)):
            if fd is not None and fd >= 0:
                os.close(fd)
        self.fd, self.files = -1, []


def find_unclean(folder: Path, own: str) -> Iterator[UncleanProcess]:
    """Yield the processes with an unclean end, except the one whose files start with `own`. Raises OSError."""
    for path in _ending(folder, NEW_SESSION):
        if (fd := lock_if_ended(path)) is not None:
            path.unlink(missing_ok=True)
            os.close(fd)
    marks = {stem_of(path, SESSION) for path in _ending(folder, SESSION)}
    files = {session_of(path.name[1:].partition(".ndjson")[0]) for path in _files(folder)}
    for stem in sorted(marks | files):
        if stem != own and (dead := _unclean_process(folder, stem, marked=stem in marks)) is not None:
            yield dead


def _files(folder: Path) -> list[Path]:
    return sorted(folder / name for name in os.listdir(folder) if _FILE.fullmatch(name))


def _ending(folder: Path, ending: str) -> list[Path]:
    """Return the hidden files with an ending; unlike `glob`, raise OSError when the folder cannot be read."""
    return sorted(folder / name for name in os.listdir(folder) if name.startswith(".") and name.endswith(ending))


def _unclean_process(folder: Path, stem: str, *, marked: bool) -> UncleanProcess | None:
    mark = hidden(folder, stem, SESSION)
    fd = lock_if_ended(mark) if marked else -1
    if fd is None:
        return None
    source = os.pread(fd, 4096, 0).decode(errors="replace").strip() if marked else ""
    dead = UncleanProcess(mark, fd, source)
    paths = [path for path in _files(folder) if session_of(path.name[1:].partition(".ndjson")[0]) == stem]
    packed = {stem_of(path, PACKED) for path in paths if path.name.endswith(PACKED)}
    for path in paths:
        if path.name.endswith(PACKED):
            dead.files.append(_packed(folder, path))
        elif stem_of(path, OPEN) in packed:
            path.unlink()
        elif (held := lock_if_ended(path)) is not None:
            dead.files.append(_cut(folder, path, held))
    for file in dead.files if source else ():
        file.data.setdefault("of_source", source)  # a file without a whole line does not name its process
    return dead if marked or dead.files else None


def _cut(folder: Path, path: Path, fd: int) -> LeftoverFile:
    with open(fd, "rb", closefd=False) as lines:
        whole = WholeLineCount.of(lines)
    torn = os.fstat(fd).st_size - whole.size
    left = _leftover_file(folder, path, OPEN, fd, whole, torn)
    if torn and path.exists():
        os.ftruncate(fd, whole.size)
        os.fsync(fd)
    return left


def _packed(folder: Path, path: Path) -> LeftoverFile:
    try:
        with gzip.open(path) as lines:
            whole = WholeLineCount.of(lines)
    except (gzip.BadGzipFile, EOFError, zlib.error):
        whole = WholeLineCount(1, 0, b"{}")
    return _leftover_file(folder, path, PACKED, None, whole, 0)


def _leftover_file(
    folder: Path, path: Path, ending: str, fd: int | None, whole: WholeLineCount, torn: int
) -> LeftoverFile:
    stem = stem_of(path, ending)
    data: dict[str, object] = {"reason": "unclean_end", "file": f"{stem}{PACKED}", "lines": whole.lines}
    data["cut_bytes"] = torn
    if not whole.lines:
        return LeftoverFile(folder, stem, "", fd, 0, data)
    try:
        head = _decode(whole.first)
        data |= {"of_source": head.source, "first_id": id_of(whole.first), "last_id": id_of(whole.last)}
    except (ValueError, RecursionError) as error:
        aside = hidden(folder, stem, BAD)
        path.rename(aside)
        data |= {
            "lines": 0,
            "cut_bytes": 0,
            "message": f"put aside as {aside.name}, its first line is no event: {error}",
        }
        return LeftoverFile(folder, stem, "", fd, 0, data)
    return LeftoverFile(folder, stem, head.time[:10], fd, whole.lines, data)
