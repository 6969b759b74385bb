"""Publication of an event file: compressed, renamed, and synced.

Strategy: five steps, each durable before the next. At every moment the lines are in exactly one place that counts: the
source as long as there is no packed file, then the packed one, then the published one. What consumers do with published
files, even that they delete them, plays no part in it.

    1. compress to …ndjson.gz.tmp, and sync it      a kill: the source counts, the compressed one is made anew
    2. rename it to .…ndjson.gz, sync the folder    a kill: the packed one counts, the source is deleted
    3. delete the source                            a kill: the packed one is all there is, and is published
    4. rename it to dt=…/…ndjson.gz                 a kill: it is published
    5. sync both folders                            a power cut before: it is packed or published, never both
"""

from __future__ import annotations

import os
import zlib
from pathlib import Path

from .event_files import MODE, sync_folder
from .file_names import OPEN, PACKED, PACKING, hidden, published

CHUNK = 1 << 18
"""256 KiB at a time: zlib works without Python's lock, which other threads get for milliseconds on end."""

LEVEL = 6  # zlib's own default: 11 % of the size at 75 MB/s; level 1 is 2.6 times as fast and leaves 14 %
_GZIP = 31  # zlib: the largest window, and gzip's header instead of zlib's


def publish(folder: Path, stem: str, day: str, source: int | None) -> None:
    """Publish the open file `source`, or what an earlier attempt has packed. Raises OSError: try again later."""
    packed, target = hidden(folder, stem, PACKED), published(folder, day, stem)
    if source is not None and not packed.exists():
        _pack(source, hidden(folder, stem, PACKING))
        hidden(folder, stem, PACKING).rename(packed)
        sync_folder(folder)
    hidden(folder, stem, OPEN).unlink(missing_ok=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        packed.rename(target)
    except FileNotFoundError:
        if not target.exists():
            raise
    sync_folder(target.parent)
    sync_folder(folder)


def _pack(source: int, target: Path) -> None:
    packer = zlib.compressobj(LEVEL, zlib.DEFLATED, _GZIP)
    fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, MODE)
    try:
        offset = 0
        while chunk := os.pread(source, CHUNK, offset):
            offset += len(chunk)
            write_all(fd, packer.compress(chunk))
        write_all(fd, packer.flush())
        os.fsync(fd)
    except OSError:
        target.unlink(missing_ok=True)  # it may have filled the disk
        raise
    finally:
        os.close(fd)


def write_all(fd: int, data: bytes) -> None:
    """Write all of the data, or raise OSError with some of it written."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]
