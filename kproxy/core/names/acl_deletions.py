"""DeleteAcls for any name, or for all that matches a name, from clients that live in a part of the cluster.

Strategy. A filter cannot say "any name with my prefix", and one for any name would delete the ACLs of others. One for
all that matches a name would delete those that cover more than the client: `*`, or a prefix of its prefix. Both are
sent as a filter that matches nothing, noted by its place, and answered with INVALID_REQUEST and the reason.
"""

from __future__ import annotations

from dataclasses import dataclass

from kproxy.core.rewrite import Apply, Buffer, Context, Hits
from kproxy.wire.edit import Edits
from kproxy.wire.scan.walk import Walk, read_string, write_string

from .acls import IMPOSSIBLE, Spellings, is_for_all_that_match, isolated_types

INVALID_REQUEST = b"\x00\x2a"
REASON = b"this filter could delete the ACLs of others: give a name, and LITERAL, PREFIXED or ANY for its pattern"
REFUSED = "acl_deletions_refused"
FILTERS, KIND, NAME = "filters[]", "filters[].resource_type_filter", "filters[].resource_name_filter"
PATTERN = "filters[].pattern_type_filter"
RESULTS, CODE, MESSAGE = "filter_results[]", "filter_results[].error_code", "filter_results[].error_message"


@dataclass(frozen=True, slots=True)
class NamedOnly:
    """Rewrite of the filters of a DeleteAcls request: those that could reach ACLs of others match nothing."""

    spellings: Spellings
    compact: bool
    wanted: frozenset[str] = frozenset((FILTERS, KIND, NAME, PATTERN))

    def bind(self, walk: Walk) -> Apply:
        kind_mark, name_mark, pattern_mark = (walk.find("value", path) for path in (KIND, NAME, PATTERN))
        element_mark = walk.find("element", FILTERS)
        kinds = isolated_types(self.spellings)

        def apply(buf: Buffer, hits: Hits, edits: Edits, context: Context) -> None:
            refused, number, kind = set(), 0, 0
            for mark, start, end in hits:
                if mark == kind_mark:
                    kind = buf[start]
                elif mark == name_mark and kind in kinds and not read_string(buf, start, end, self.compact):
                    edits.replace(start, end, write_string(IMPOSSIBLE, self.compact))
                    refused.add(number)
                elif mark == pattern_mark and is_for_all_that_match(self.spellings, kind, buf[start]):
                    refused.add(number)  # its name is put by `acls.deleted`
                elif mark == element_mark:
                    number += 1
            if refused:
                context.count(REFUSED, len(refused))
                note = context.note = context.note or {}
                note[REFUSED] = refused

        return apply


@dataclass(frozen=True, slots=True)
class RefusedDeletions:
    """Rewrite of the results of such filters, which stand in the order of the filters."""

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
