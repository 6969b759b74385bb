"""Requests that mean everything there is, of clients that live in a part of the cluster.

Strategy. Where an answer only lists, what belongs to others is left out of it (`plain.py`, `answers.py`). ElectLeaders
without topics acts on all partitions of the cluster, and no list that kproxy has could stand for the client's own: it
is sent as a request for none, and answered with CLUSTER_AUTHORIZATION_FAILED where the version has a code for it.
"""

from __future__ import annotations

from dataclasses import dataclass

from kproxy.core.rewrite import Apply, Buffer, Context, Hits
from kproxy.wire.edit import Edits
from kproxy.wire.primitives import read_uvarint
from kproxy.wire.scan.walk import Walk

CLUSTER_AUTHORIZATION_FAILED = b"\x00\x1f"
REFUSED = "elect_leaders_refused"


@dataclass(frozen=True, slots=True)
class NotAllPartitions:
    """Rewrite of `topic_partitions[]` in an ElectLeaders request: null becomes an empty array."""

    compact: bool
    wanted: frozenset[str] = frozenset(("topic_partitions[]",))

    def bind(self, walk: Walk) -> Apply:
        number = walk.find("count", "topic_partitions[]")

        def apply(buf: Buffer, hits: Hits, edits: Edits, context: Context) -> None:
            start, end = next((start, end) for mark, start, end in hits if mark == number)
            null = read_uvarint(buf, start)[0] == 0 if self.compact else buf[start] > 127
            if null:
                edits.replace(start, end, b"\x01" if self.compact else bytes(4))
                note = context.note = context.note or {}
                note[REFUSED] = True
                context.count(REFUSED)

        return apply


@dataclass(frozen=True, slots=True)
class RefusedElection:
    """Rewrite of the response to such a request: it becomes an error."""

    wanted: frozenset[str] = frozenset(("error_code",))

    def bind(self, walk: Walk) -> Apply:
        number = walk.find("value", "error_code")

        def apply(buf: Buffer, hits: Hits, edits: Edits, context: Context) -> None:
            if context.note and context.note.get(REFUSED):
                for mark, start, end in hits:
                    if mark == number:
                        edits.replace(start, end, CLUSTER_AUTHORIZATION_FAILED)

        return apply
