"""Table of numbers that all workers share, in common memory: the counts of triggers, the levels of buckets.

Strategy. A fixed number of slots in groups of eight; the digest of a key selects its group, and any slot of that group
may hold the key. In a full group the least recently used numbers are evicted, and of buckets those that are full or
will be first: as in one process, where tables of counts and buckets are bounded as well. Numbers of a whole rule are
evicted only if the group has no others. `forget` frees the slots of a rule.

The supervisor makes the memory, workers inherit it (`fd`). A group is locked by a record lock (fcntl) while its numbers
are in use. The kernel releases the locks of a process that ends for any reason; numbers not yet written back keep their
old values. Record locks do not exclude threads of the same process, so a mutex does that.

    head   16 bytes: the table's mark, number of groups
    slot   16 bytes key (8 of its owner, 8 of the counted value), 8 bytes last use or `until`, 6 × 8 bytes numbers
"""

from __future__ import annotations

import mmap
import os
import threading
from collections.abc import Set as AbstractSet
from hashlib import blake2b
from math import inf
from struct import Struct

from kproxy.base.errors import InternalError
from kproxy.base.system import fcntl
from kproxy.rules.shared_numbers import MOST_NUMBERS, NumberCells

GROUPS = 1 << 13
"""Eight slots each, 4.7 MB in all: several rules with 10,000 clients each (`rules.trigger.MOST_COUNTS`)."""
WAYS = 8
MARK = b"kpshared"
HEAD = Struct("<8sQ")
KEY, STAMP = 16, 8
SLOT = KEY + STAMP + 8 * MOST_NUMBERS
GROUP = WAYS * SLOT
FREE = bytes(KEY)
OWNER = Struct(f"8s{SLOT - 8}x")

_NUMBERS = tuple(Struct(f"<{count}d") for count in range(MOST_NUMBERS + 1))
_STAMPED = tuple(Struct(f"<{count + 1}d") for count in range(MOST_NUMBERS + 1))
_STAMP = Struct("<d")


class SharedTable:
    """Shared table. `create` makes one, `open` attaches to an inherited one."""

    def __init__(self, fd: int, groups: int) -> None:
        self.fd, self.groups = fd, groups
        self.memory = mmap.mmap(fd, HEAD.size + groups * GROUP)
        self.mutex = threading.Lock()

    @classmethod
    def create(cls, groups: int = GROUPS) -> SharedTable:
        """Make an empty table in new memory; `fd` is closed when another program is executed, unless it is passed
        on."""
        fd = os.memfd_create("kproxy-shared", os.MFD_CLOEXEC)
        os.ftruncate(fd, HEAD.size + groups * GROUP)
        table = cls(fd, groups)
        table.memory[: HEAD.size] = HEAD.pack(MARK, groups)
        return table

    @classmethod
    def open(cls, fd: int) -> SharedTable:
        """Open the table that another process has made. Raises InternalError if the memory does not contain a table."""
        head = os.pread(fd, HEAD.size, 0)
        mark, groups = HEAD.unpack(head) if len(head) == HEAD.size else (b"", 0)
        size = os.fstat(fd).st_size
        if mark != MARK or size != HEAD.size + groups * GROUP:
            raise InternalError(
                f"expected a shared table at descriptor {fd}, got {size} bytes, mark {mark!r}, {groups} groups"
            )
        return cls(fd, groups)

    def cells(self, owner: bytes, what: str | None) -> NumberCells:
        """Return the numbers of one key, see `rules.shared_numbers.FindCells`. Keep the result if the numbers are
        used often."""
        inner = bytes(8) if what is None else blake2b(what.encode(errors="surrogatepass"), digest_size=8).digest()
        return SharedCells(self, owner + inner, stays=what is None)

    def forget(self, owners: AbstractSet[bytes]) -> None:
        """Free all slots of these owners in one pass over the table, which takes some 10 ms."""
        for number, (owner,) in enumerate(OWNER.iter_unpack(self.memory[HEAD.size :])):
            if owner in owners:
                at, group = HEAD.size + number * SLOT, number // WAYS
                self.lock(group)
                try:
                    if self.memory[at : at + 8] == owner:
                        self.memory[at : at + KEY] = FREE
                finally:
                    self.unlock(group)

    def used(self) -> int:
        """Count the used slots. For tests: iterates over all of them in Python."""
        memory = self.memory
        return sum(memory[at : at + KEY] != FREE for at in range(HEAD.size, len(memory), SLOT))

    def close(self) -> None:
        """Unmap the memory; other processes keep it."""
        self.memory.close()
        os.close(self.fd)

    def lock(self, group: int) -> None:
        self.mutex.acquire()
        try:
            fcntl.lockf(self.fd, fcntl.LOCK_EX, 1, group)
        except BaseException:
            self.mutex.release()
            raise

    def unlock(self, group: int) -> None:
        try:
            fcntl.lockf(self.fd, fcntl.LOCK_UN, 1, group)
        finally:
            self.mutex.release()


class SharedCells:
    """Numbers of one key, in any slot."""

    __slots__ = ("at", "first", "group", "key", "now", "stays", "table")

    def __init__(self, table: SharedTable, key: bytes, stays: bool) -> None:
        self.table, self.key, self.stays = table, key, stays
        self.group = int.from_bytes(blake2b(key, digest_size=8).digest(), "little") % table.groups
        self.first = self.at = HEAD.size + self.group * GROUP
        self.now = 0.0

    def take(self, now: float) -> tuple[float, ...] | None:
        """Lock the group and return the numbers; see `rules.shared_numbers.NumberCells`."""
        table = self.table
        table.lock(self.group)
        memory = table.memory
        self.now = now
        if memory[self.at : self.at + KEY] != self.key and not self.find(memory):
            self.at = self.free(memory)
            memory[self.at : self.at + KEY] = FREE  # until its numbers are written
            return None
        return _NUMBERS[MOST_NUMBERS].unpack_from(memory, self.at + KEY + STAMP)

    def put(self, *numbers: float, until: float | None = None) -> None:
        """Write the numbers and unlock. Without numbers, nothing is written."""
        memory, at = self.table.memory, self.at
        try:
            if numbers:
                stamp = inf if self.stays else self.now if until is None else until
                _STAMPED[len(numbers)].pack_into(memory, at + KEY, stamp, *numbers)
                memory[at : at + KEY] = self.key
        finally:
            self.table.unlock(self.group)

    def find(self, memory: mmap.mmap) -> bool:
        """Return True if the key has moved to another slot, and set `at` to that."""
        for at in range(self.first, self.first + GROUP, SLOT):
            if memory[at : at + KEY] == self.key:
                self.at = at
                return True
        return False

    def free(self, memory: mmap.mmap) -> int:
        """Return a free slot, otherwise the least recently used one, or the one that is needed for the shortest
        time."""
        slot, oldest = self.first, inf
        for at in range(self.first, self.first + GROUP, SLOT):
            if memory[at : at + KEY] == FREE:
                return at
            stamp: float = _STAMP.unpack_from(memory, at + KEY)[0]
            if stamp < oldest:
                slot, oldest = at, stamp
        return slot
