"""DeleteAcls for any name, from clients that live in a part of the cluster.

Strategy. A filter cannot say "any name with my prefix", and one for any name would delete the ACLs of others. It is
sent as one that matches nothing, noted by its place, and answered with INVALID_REQUEST and the reason.
"""

from __future__ import annotations

from dataclasses import dataclass

from kproxy.core.rewrite import Apply, Buffer, Context, Hits
from kproxy.wire.edit import Edits
from kproxy.wire.walk import Walk, read_string, write_string

from .acls import ANY_TYPE, IMPOSSIBLE, TYPES, Spellings

INVALID_REQUEST = b"\x00\x2a"
REASON = b"this filter is for any name, and would delete the ACLs of others: give a name"
REFUSED = "acl_deletions_refused"
FILTERS, KIND, NAME = "filters[]", "filters[].resource_type_filter", "filters[].resource_name_filter"
RESULTS, CODE, MESSAGE = "filter_results[]", "filter_results[].error_code", "filter_results[].error_message"


@dataclass(frozen=True, slots=True)
class NamedOnly:
    """The filters of a request."""

    spellings: Spellings
    compact: bool
    wanted: frozenset[str] = frozenset((FILTERS, KIND, NAME))

    def bind(self, walk: Walk) -> Apply:
        kind_mark, name_mark, element_mark = (
            walk.find(what, path) for what, path in (("value", KIND), ("value", NAME), ("element", FILTERS))
        )
        isolated = {space for space, spelling in self.spellings.items() if spelling.names.isolates}
        kinds = {ANY_TYPE, *(kind for kind, space in TYPES.items() if space in isolated)}

        def apply(buf: Buffer, hits: Hits, edits: Edits, context: Context) -> None:
            refused, number, kind = set(), 0, 0
            for mark, start, end in hits:
                if mark == kind_mark:
                    kind = buf[start]
                elif mark == name_mark and kind in kinds and read_string(buf, start, end, self.compact) is None:
                    edits.replace(start, end, write_string(IMPOSSIBLE, self.compact))
                    refused.add(number)
                elif mark == element_mark:
                    number += 1
            if refused:
                context.count(REFUSED, len(refused))
                note = context.note = context.note or {}
                note[REFUSED] = refused

        return apply


@dataclass(frozen=True, slots=True)
class RefusedDeletions:
    """The results of such filters, which stand in the order of the filters."""

    compact: bool
    wanted: frozenset[str] = frozenset((RESULTS, CODE, MESSAGE))

    def bind(self, walk: Walk) -> Apply:
        code_mark, message_mark, element_mark = (
            walk.find(what, path) for what, path in (("value", CODE), ("value", MESSAGE), ("element", RESULTS))
        )

        def apply(buf: Buffer, hits: Hits, edits: Edits, context: Context) -> None:
            refused = (context.note or {}).get(REFUSED, ())
            number = 0
            for mark, start, end in hits if refused else ():
                if mark == code_mark and number in refused:
                    edits.replace(start, end, INVALID_REQUEST)
                elif mark == message_mark and number in refused:
                    edits.replace(start, end, write_string(REASON, self.compact))
                elif mark == element_mark:
                    number += 1

        return apply
