"""Reload of rule files: polled once a second, read again after a change.

Strategy. Each poll runs `stat` on every file, in a thread. inotify would be faster but less reliable. It misses changes
on network and overlay file systems and in files that are mounted one by one. Kubernetes updates a ConfigMap by swapping
a symbolic link in the path, and editors rename a new file over the old one; both would need watches on every folder and
link of the path, renewed after each change. A `stat` through the path detects all of these. A hundred files cost a
millisecond a second.

A change takes effect after two polls in a row agree. A missing file gets some time to reappear, since editors remove
files briefly. SIGHUP always reads the files. Rules that a worker could not load are retried at the next poll, because
the files are authoritative.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Container, Iterable, Sequence
from pathlib import Path

import trio
from structlog.typing import FilteringBoundLogger

from kproxy.base.errors import DocumentError, NotEverywhere
from kproxy.base.named_file import PathGuard
from kproxy.base.system import HANGUP
from kproxy.rules.document.read import Document, read_document, rule_files
from kproxy.rules.values.source import Source
from kproxy.runtime.rule_keeper import RuleKeeper

INTERVAL = 1.0
"""Seconds between two polls."""
SETTLE = 0.2
"""Seconds without a change before files are read, since a file may be written in pieces."""
PATIENCE = 10
"""Maximum polls, SETTLE apart, before files are read even if they still change or one is missing."""

FileVersions = tuple[tuple[str, tuple[int, ...] | None], ...]
"""Each file with its version. None: the file is missing."""


def read_versions(paths: Sequence[str]) -> FileVersions:
    """Return the files below `paths` with their current versions."""
    try:
        files = rule_files(paths)
    except OSError:  # a folder went away while it was read
        return ((str(paths[0]), None),)
    return tuple((str(file), file_version(file)) for file in files)


def file_version(file: Path) -> tuple[int, ...] | None:
    """Return the version of a file. None: the file is missing."""
    try:
        stat = os.stat(file)
    except OSError:
        return None
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns


def absolute(path: str) -> str:
    """Return the absolute path. `..` is kept, since a link may precede it."""
    return str(Path.cwd() / path)


def read(paths: Sequence[str], code_paths: Container[str], guard: PathGuard) -> list[Document]:
    """Read all documents. Errors in them are noted in their sources.

    Files of `code_paths`, which are absolute, may have rules that run code. The admin API named all others: `guard`
    checks each of them, and their sources are hidden. Raises OSError for a folder that cannot be listed.
    """
    trusted = set(rule_files(path for path in paths if absolute(path) in code_paths))
    return [
        read_document(Source.open(file) if file in trusted else Source.open(file, guard), code=file in trusted)
        for file in rule_files(paths)
    ]


class RuleFiles:
    """Rule files of the config in force.

    `seen`: the versions read last. Empty: read again. `code_paths`: the paths that the command line and kproxy's own
    config file, as it was applied last, name. Only their files may have rules that run code. `written`: the files and
    folders that kproxy writes. `named`: files that the rules name; they are polled, and a change reloads the rules.
    """

    def __init__(self, paths: Sequence[str], log: FilteringBoundLogger, written: Sequence[str] = ()) -> None:
        self.paths, self.log, self.written = paths, log, written
        self.allow_code(paths)
        self.named: tuple[str, ...] = ()
        self.seen: FileVersions = ()
        self.reading = trio.Lock()
        self.on_hangup: Callable[[], Awaitable[bool]] | None = None
        """Called at each SIGHUP, before the files are read; returns True if it has read them itself."""

    def first(self) -> list[Document]:
        documents = self.read(self.paths)
        self.seen = self.versions()
        return documents

    def allow_code(self, paths: Iterable[str]) -> None:
        """From the next read, allow only rules of these files to run code."""
        self.code_paths = frozenset(map(absolute, paths))

    def guard(self) -> PathGuard:
        return PathGuard(self.written)

    def read(self, paths: Sequence[str], more_code_paths: Sequence[str] = ()) -> list[Document]:
        """Return the documents of these paths. Blocks. Raises OSError as `read` does."""
        documents = read(paths, self.code_paths.union(map(absolute, more_code_paths)), self.guard())
        rules = [parsed.rule for document in documents for parsed in document.parsed_rules]
        if all(rules):  # otherwise the file that an invalid rule names is still polled
            self.named = tuple(dict.fromkeys(file for rule in rules if rule is not None for file in rule.files))
        return documents

    def versions(self) -> FileVersions:
        """Return the current versions of the rule files, and of the files that rules name. Blocks."""
        return read_versions(self.paths) + tuple((file, file_version(Path(file))) for file in self.named)

    async def watch(self, keeper: RuleKeeper, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Read changed files, and all files at each SIGHUP (where supported), until cancelled."""
        if HANGUP is None:
            task_status.started()
            await self._poll(keeper)
            return
        with trio.open_signal_receiver(HANGUP) as signals:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._poll, keeper)
                task_status.started()
                async for _ in signals:
                    self.log.info("signal", name="SIGHUP")
                    if self.on_hangup is None or not await self.on_hangup():
                        await self.reload(keeper)

    async def reload(self, keeper: RuleKeeper) -> bool:
        """Read all files now; return True if their rules are in force. Failures are logged."""
        async with self.reading:
            self.seen = await trio.to_thread.run_sync(self.versions)
            try:
                named = self.named
                documents = await trio.to_thread.run_sync(self.read, self.paths)
                if self.named != named:
                    self.seen = await trio.to_thread.run_sync(self.versions)
                await keeper.load_everywhere("file", lambda store, now: store.replace_files(documents, now))
            except DocumentError:
                return False
            except NotEverywhere:  # the files are valid: the next poll reads them again
                self.seen = ()
                return False
            except OSError as error:
                self.log.error("rules cannot be read", error=str(error))
                return False
            return True

    async def _poll(self, keeper: RuleKeeper) -> None:
        while self.paths or self.on_hangup is not None:  # a later config may name files
            await trio.sleep(INTERVAL)
            if await trio.to_thread.run_sync(self.versions) != self.seen:
                await self._settled()
                await self.reload(keeper)

    async def _settled(self) -> None:
        before = None
        for _ in range(PATIENCE):
            now = await trio.to_thread.run_sync(self.versions)
            if now == before and all(version is not None for _, version in now):
                return
            before = now
            await trio.sleep(SETTLE)
