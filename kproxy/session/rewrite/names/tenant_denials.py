"""Refusals of tenants' requests that would act on other tenants or reveal them.

*Deletion of ACLs* for any name, or for all that matches a name. A filter cannot express "any name with my prefix", and
a filter for any name would delete the ACLs of others. A filter for all that matches a name would delete ACLs on `*`, or
on a prefix of the client's prefix. Both are sent as a filter that matches nothing, and answered with INVALID_REQUEST
and the reason.

*Election of leaders* of all partitions. ElectLeaders without topics acts on the whole cluster, and kproxy does not have
a complete list of the client's partitions. So it is sent as a request for none, and answered with
CLUSTER_AUTHORIZATION_FAILED if the version has a code for it. From responses that only list, foreign resources are
removed (`metadata.py`).

*Creation of topics* with colliding names. Names that differ only in dots and underscores collide: `a.x` cannot be
created if `a_x` exists. The broker's message contains the other name, which may belong to another tenant. The tenant
receives the reason without names.

*Fetch sessions* of other connections (KIP-227). A broker does not check the owner of a session: any client with its
number and its epoch receives the records of its partitions, and may close it. Here a session belongs to the connection
that created it, because the response to a Fetch of epoch 0 contains its number. The number of any other session is sent
as 0, for "no session". The broker then returns FETCH_SESSION_ID_NOT_FOUND, as after a restart, and the client begins a
new session. A client that reconnects has to do that once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kproxy.protocol.edit import Edits
from kproxy.protocol.framing import MAX_RESPONSE_HEADER, body_start
from kproxy.protocol.primitives import Buffer, read_uvarint
from kproxy.protocol.scan.walk import Hits, Walk, read_string, write_string
from kproxy.protocol.table import schema
from kproxy.protocol.table.api_keys import FETCH
from kproxy.session.rewrite.context import FETCH_SESSIONS, Context, session_lru
from kproxy.session.rewrite.rewriter import Apply

from .resources import IMPOSSIBLE, is_for_all_that_match, isolated_types
from .translator import Translators

MESSAGES_FROM: Final = 1  # the version of CreateTopics
INVALID_TOPIC_EXCEPTION: Final = b"\x00\x11"
TOPIC_CODE, TOPIC_MESSAGE = "topics[].error_code", "topics[].error_message"
COLLISION_REASON: Final = b"the topic name is not valid, or like another one but for dots and underscores"


@dataclass(frozen=True, slots=True)
class NoOtherNames:
    """Rewrite of the messages of a CreateTopics response, so that they name no topic of others."""

    compact: bool
    wanted: frozenset[str] = frozenset((TOPIC_CODE, TOPIC_MESSAGE))

    def bind(self, walk: Walk) -> Apply:
        code_mark, message_mark = (walk.find("value", path) for path in (TOPIC_CODE, TOPIC_MESSAGE))

        def apply(buf: Buffer, hits: Hits, edits: Edits, context: Context) -> None:
            code = b""
            for mark, start, end in hits:
                if mark == code_mark:
                    code = bytes(buf[start:end])
                elif mark == message_mark and code == INVALID_TOPIC_EXCEPTION:
                    edits.replace(start, end, write_string(COLLISION_REASON, self.compact))

        return apply


CLUSTER_AUTHORIZATION_FAILED = b"\x00\x1f"
ELECTION_REFUSED = "elect_leaders_refused"


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
                note[ELECTION_REFUSED] = True
                context.count(ELECTION_REFUSED)

        return apply


@dataclass(frozen=True, slots=True)
class RefusedElection:
    """Rewrite of the response to such a request: it becomes an error."""

    wanted: frozenset[str] = frozenset(("error_code",))

    def bind(self, walk: Walk) -> Apply:
        number = walk.find("value", "error_code")

        def apply(buf: Buffer, hits: Hits, edits: Edits, context: Context) -> None:
            if context.note and context.note.get(ELECTION_REFUSED):
                for mark, start, end in hits:
                    if mark == number:
                        edits.replace(start, end, CLUSTER_AUTHORIZATION_FAILED)

        return apply


INVALID_REQUEST = b"\x00\x2a"
DELETION_REASON = (
    b"this filter could delete the ACLs of others: give a name, and LITERAL, PREFIXED or ANY for its pattern"
)
DELETIONS_REFUSED = "acl_deletions_refused"
FILTERS, FILTER_KIND, FILTER_NAME = "filters[]", "filters[].resource_type_filter", "filters[].resource_name_filter"
FILTER_PATTERN = "filters[].pattern_type_filter"
RESULT, RESULT_CODE, RESULT_MESSAGE = (
    "filter_results[]",
    "filter_results[].error_code",
    "filter_results[].error_message",
)


@dataclass(frozen=True, slots=True)
class NamedOnly:
    """Rewrite of the filters of a DeleteAcls request: those that could reach ACLs of others match nothing."""

    translators: Translators
    compact: bool
    wanted: frozenset[str] = frozenset((FILTERS, FILTER_KIND, FILTER_NAME, FILTER_PATTERN))

    def bind(self, walk: Walk) -> Apply:
        kind_mark, name_mark, pattern_mark = (
            walk.find("value", path) for path in (FILTER_KIND, FILTER_NAME, FILTER_PATTERN)
        )
        element_mark = walk.find("element", FILTERS)
        kinds = isolated_types(self.translators)

        def apply(buf: Buffer, hits: Hits, edits: Edits, context: Context) -> None:
            refused, number, kind = set(), 0, 0
            for mark, start, end in hits:
                if mark == kind_mark:
                    kind = buf[start]
                elif mark == name_mark and kind in kinds and not read_string(buf, start, end, self.compact):
                    edits.replace(start, end, write_string(IMPOSSIBLE, self.compact))
                    refused.add(number)
                elif mark == pattern_mark and is_for_all_that_match(self.translators, kind, buf[start]):
                    refused.add(number)  # its name is put by `deletion_filter`
                elif mark == element_mark:
                    number += 1
            if refused:
                context.count(DELETIONS_REFUSED, len(refused))
                note = context.note = context.note or {}
                note[DELETIONS_REFUSED] = refused

        return apply


@dataclass(frozen=True, slots=True)
class RefusedDeletions:
    """Rewrite of the results of such filters, which are in the order of the filters."""

    compact: bool
    wanted: frozenset[str] = frozenset((RESULT, RESULT_CODE, RESULT_MESSAGE))

    def bind(self, walk: Walk) -> Apply:
        code_mark, message_mark, element_mark = (
            walk.find(what, path)
            for what, path in (("value", RESULT_CODE), ("value", RESULT_MESSAGE), ("element", RESULT))
        )

        def apply(buf: Buffer, hits: Hits, edits: Edits, context: Context) -> None:
            refused = (context.note or {}).get(DELETIONS_REFUSED, ())
            number = 0
            for mark, start, end in hits if refused else ():
                if mark == code_mark and number in refused:
                    edits.replace(start, end, INVALID_REQUEST)
                elif mark == message_mark and number in refused:
                    edits.replace(start, end, write_string(DELETION_REASON, self.compact))
                elif mark == element_mark:
                    number += 1

        return apply


SESSIONS_FROM: Final = 7  # the version of Fetch
NONE: Final = bytes(4)
OPENS: Final = "fetch_session_opens"
"""Key in the note of an exchange: its answer may contain the number of a new session."""
NUMBER_AT, HEAD_BYTES = 6, 10
"""Layout after the header of the answer: throttle_time_ms and error_code, then the number."""
MAX_HEAD: Final = 4 + MAX_RESPONSE_HEADER + HEAD_BYTES  # bytes of a response up to the number's end


@dataclass(frozen=True, slots=True)
class OwnSessions:
    """Rewrite of the session number in a Fetch request: a session of another connection becomes none."""

    wanted: frozenset[str] = frozenset(("session_id", "session_epoch"))

    def bind(self, walk: Walk) -> Apply:
        number_mark, epoch_mark = (walk.find("value", path) for path in ("session_id", "session_epoch"))

        def apply(buf: Buffer, hits: Hits, edits: Edits, context: Context) -> None:
            for mark, start, end in hits:
                if mark == number_mark:
                    number = bytes(buf[start:end])
                    if number != NONE and number not in session_lru(context.memory, FETCH_SESSIONS):
                        edits.replace(start, end, NONE)
                        context.count("fetch_sessions_unreachable")
                elif mark == epoch_mark:
                    if not any(buf[start:end]):
                        note = context.note = context.note or {}
                        note[OPENS] = True
                    return

        return apply


def learn_session(version: int, buf: Buffer, pos: int, n: int, end: int, context: Context) -> int:
    """Remember the session that the response at buf[pos:end] opens; the bytes before n have arrived.

    Return the bytes of the response, including its size, that have to arrive first, or 0 if no more are needed. Raises
    DecodeError.
    """
    header_version = schema.load(FETCH).header_version("response", version)
    here = min(n, end)
    body = body_start(buf, pos + 4, here, header_version, "response")
    if body is None or body + HEAD_BYTES > here:
        return min(max(2 * (here - pos), 32), end - pos, MAX_HEAD) if here < end else 0
    number = bytes(buf[body + NUMBER_AT : body + HEAD_BYTES])
    if number != NONE:
        session_lru(context.memory, FETCH_SESSIONS)[number] = None
    return 0
