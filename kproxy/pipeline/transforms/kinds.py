"""Kinds of lines to silver, one for every way in which silver's tables need lines.

Bronze keeps lines of different kinds in different folders, so a silver table reads no line that it is not made of.
"""

from __future__ import annotations

from hashlib import blake2s

from pyspark.sql import Column
from pyspark.sql import functions as F

from kproxy.events.schema import (
    CONNECTION_EVENT,
    RECOVERED_EVENT,
    REQUEST_EVENT,
    RULE_EVENT,
    SUMMARY_EVENT,
    TOPOLOGY_EVENT,
)
from kproxy.pipeline.tables import COMMIT_APIS, GROUP_APIS, READ_APIS, WRITE_APIS

REQUEST = "request"
SUMMARY = "summary"
OTHER = "other"
WRITE, READ, COMMIT, GROUP = "request_write", "request_read", "request_commit", "request_group"
SUMMARY_WRITE, SUMMARY_READ = "summary_write", "summary_read"
CONNECTION, RULE, TOPOLOGY, RECOVERED = "connection", "rule", "topology", "recovered"

_OF_REQUESTS = {WRITE: WRITE_APIS, READ: READ_APIS, COMMIT: COMMIT_APIS, GROUP: GROUP_APIS}
_OF_SUMMARIES = {SUMMARY_WRITE: WRITE_APIS, SUMMARY_READ: READ_APIS}
_OF_TYPES = {CONNECTION: CONNECTION_EVENT, RULE: RULE_EVENT, TOPOLOGY: TOPOLOGY_EVENT, RECOVERED: RECOVERED_EVENT}

REQUESTS = (REQUEST, *_OF_REQUESTS)
"""Kinds of request events: those about some APIs, and all others."""

KINDS = (*REQUESTS, SUMMARY, *_OF_SUMMARIES, *_OF_TYPES, OTHER)
"""Kinds of lines. `summary` is about an API as such, `summary_write` and `summary_read` are about topics; `other`
are types that this kproxy does not know, and what no table is made of."""


def kind_of(type_name: Column, api: Column, by_topic: Column) -> Column:
    """Return the kind of an event of this type, about this API; `by_topic`: it is about one topic or partition."""
    request, summary = type_name == F.lit(REQUEST_EVENT.name), type_name == F.lit(SUMMARY_EVENT.name)
    kind = F.when(request, _by_api(api, _OF_REQUESTS, REQUEST))
    kind = kind.when(summary & by_topic, _by_api(api, _OF_SUMMARIES, OTHER)).when(summary, SUMMARY)
    for name, event in _OF_TYPES.items():
        kind = kind.when(type_name == F.lit(event.name), name)
    return kind.otherwise(OTHER)


def kinds_known() -> str:
    """Return a digest of what the kinds are: lines that another kproxy has sorted otherwise are sorted anew."""
    types = [event.name for event in (REQUEST_EVENT, SUMMARY_EVENT, *_OF_TYPES.values())]
    described = repr((types, list(KINDS), _OF_REQUESTS, _OF_SUMMARIES))
    return blake2s(described.encode(), digest_size=8).hexdigest()


def _by_api(api: Column, kinds: dict[str, tuple[str, ...]], otherwise: str) -> Column:
    kind = F.lit(otherwise)
    for name, apis in kinds.items():
        kind = F.when(api.isin(*apis), name).otherwise(kind)
    return kind
