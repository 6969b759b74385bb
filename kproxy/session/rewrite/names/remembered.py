"""Bounded memories inside the context: the value that was put first is forgotten first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, MutableMapping
from typing import Any, Final

REGEXES: Final = "topic_regexes"
MAX_REGEXES: Final = 10_000
"""Members that subscribe by a regular expression, per cluster and tenant, so that none makes kproxy forget another's.
One that is forgotten keeps the topics it had, and sees new ones again after it has rejoined."""
MAX_REGEX_BYTES: Final = 4_096
"""Bytes of group id, member id and pattern together, for a member to be remembered: 40 MB a tenant at most."""
REGEX_TOPICS: Final = "topic_regex_topics"
REGEX_ANSWERS: Final = "topic_regex_answers"
MAX_REGEX_ANSWERS: Final = 64
"""Patterns last sent in place of clients' own, per cluster: 4 MB at most."""
TOPIC_IDS: Final = "topic_ids"
MAX_IDS: Final = 100_000
"""Topic ids with their names, per cluster: some 30 MB at most. One that is forgotten is asked for again."""
ASKED_IDS: Final = "topic_ids_asked"
MAX_ASKED_IDS: Final = 1_000
"""Topic ids of one connection that the broker was asked for because nobody knew them, with the time."""
MAX_ASKED_AT_ONCE: Final = 10_000
"""Topic ids of one question; a request of more that nobody knows has the rest taken for somebody else's."""
DISGUISES: Final = "topic_id_disguises"
MAX_DISGUISES: Final = 10_000
"""Disguises of one connection that do not lead back by themselves: 3 MB at most, of a client that means harm."""
FETCH_SESSIONS: Final = "fetch_sessions"
MAX_FETCH_SESSIONS: Final = 16
"""Fetch sessions of one connection; a client has one. One that is forgotten is begun anew by its client."""
CURSORS: Final = "topic_cursors"
MAX_CURSORS: Final = 1_000
"""Places at which long answers go on, per cluster and tenant; a client whose place is forgotten begins again."""
PROTOCOLS: Final = "group_protocols"
MAX_PROTOCOLS: Final = 1_000
"""Groups of one connection; a client is in a few."""
MAX_GROUP_BYTES: Final = 1_024
"""Bytes of a group id and a protocol type, to be remembered: 1 MB a connection at most, of a client that means harm."""


def recall(memory: MutableMapping[Any, Any], what: Hashable) -> OrderedDict[Any, Any]:
    """Return the memory of this name, made when first asked for."""
    found = memory.get(what)
    if not isinstance(found, OrderedDict):
        found = memory[what] = OrderedDict()
    return found


def remember(kept: OrderedDict[Any, Any], key: object, value: object, limit: int) -> None:
    """Keep a value; the one not touched for the longest time goes when there are more than `limit`."""
    kept[key] = value
    kept.move_to_end(key)
    while len(kept) > limit:
        kept.popitem(last=False)
