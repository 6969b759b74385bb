"""ListTransactions with a pattern (KIP-1152): the broker would match it against its own transactional ids.

Strategy. The answer lists the ids, so kproxy can do the matching itself: it asks for all of them and leaves out of the
answer those that the pattern does not match under the client's translator, with RE2 and over the whole id as the broker
does. A pattern that RE2 refuses is sent as one that the broker refuses, too: INVALID_REGULAR_EXPRESSION.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kproxy.protocol.edit import Edits
from kproxy.protocol.primitives import MAX_STRING, Buffer
from kproxy.protocol.scan.walk import Hit, Hits, Walk, read_string, write_string
from kproxy.session.rewrite.context import Context
from kproxy.session.rewrite.rewriter import Apply

from .patterns import Matcher, TooDear, compiled
from .regex import INVALID
from .translator import NameTranslator

PATTERN = "transactional_id_pattern"
INVALID_REGULAR_EXPRESSION = b"\x00\x80"
DEAR = "transactional_id_regex_too_dear"
CODE = "error_code"
ARRAY, ID = "transaction_states[]", "transaction_states[].transactional_id"


@dataclass(frozen=True, slots=True)
class PatternAside:
    """Rewrite that takes the pattern out of the request and notes it. A bad one stays, as one that no broker
    accepts."""

    wanted: frozenset[str] = frozenset((PATTERN,))

    def bind(self, walk: Walk) -> Apply:
        number = walk.find("value", PATTERN)

        def apply(buf: Buffer, hits: Hits, edits: Edits, context: Context) -> None:
            start, end = next((start, end) for mark, start, end in hits if mark == number)
            regex = read_string(buf, start, end, True)
            if not regex:  # the broker, too, takes an empty one for none
                return
            if compiled(regex) is None:
                context.count("transactional_id_regex_invalid")
                edits.replace(start, end, write_string((INVALID + regex)[:MAX_STRING], True))
                return
            note = context.note = context.note or {}
            note[PATTERN] = regex
            edits.replace(start, end, write_string(None, True))
            context.rewrote("transactional_id_regexes")

        return apply


@dataclass(frozen=True, slots=True)
class MatchingOnly:
    """Rewrite that leaves out of the response the ids that the noted pattern does not match; hidden ids are left to
    others."""

    translator: NameTranslator
    wanted: frozenset[str] = frozenset((CODE, ARRAY, ID))

    def bind(self, walk: Walk) -> Apply:
        code_mark, name_mark, count_mark, element_mark = (
            walk.find(what, path)
            for what, path in (("value", CODE), ("value", ID), ("count", ARRAY), ("element", ARRAY))
        )

        def apply(buf: Buffer, hits: Hits, edits: Edits, context: Context) -> None:
            regex = (context.note or {}).get(PATTERN)
            if regex is None:
                return
            shown = [self.shown(buf, start, end) for mark, start, end in hits if mark == name_mark]
            keep = iter(self.kept(compiled(regex), shown, context))
            dear = len(shown) > 0 and DEAR in (context.note or {})
            count: Hit = (0, 0, 0)
            for hit in hits:
                mark, start, end = hit
                if mark == code_mark and dear:
                    edits.replace(start, end, INVALID_REGULAR_EXPRESSION)
                elif mark == count_mark:
                    count = hit
                elif mark == element_mark and not next(keep):
                    edits.remove(start, end, count)

        return apply

    def shown(self, buf: Buffer, start: int, end: int) -> bytes | None:
        """Return the client's name for an id; None: others remove it."""
        return self.translator.names.to_client(read_string(buf, start, end, True) or b"")

    def kept(self, pattern: Any, shown: list[bytes | None], context: Context) -> list[bool]:
        """Return for each id if it stays: those that match and hidden ones; if matching takes too long, which is noted,
        only hidden ones."""
        matcher = Matcher(pattern, context.cluster_memory, self.translator.names.owner, context.now)
        try:
            found = [one is None or matcher.matches(one) for one in shown]
        except TooDear:
            context.count("transactional_id_regex_too_dear")
            note = context.note = context.note or {}
            note[DEAR] = True
            return [one is None for one in shown]
        matcher.end()
        return found
