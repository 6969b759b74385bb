"""Columns of events that are single fields of the protocol, as tables by field name: of the body, and of partitions.

Field names of the protocol mean the same wherever they stand, so the tables are not per API. A later line goes before
an earlier one, and a response before its request.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kproxy.protocol.table.api_keys import NEW_HEARTBEATS
from kproxy.protocol.table.layout import Struct
from kproxy.record.audit.lines import plain

ColumnFields = tuple[tuple[str, str, bool], ...]
"""(column, field, whether negative numbers are values, not absence)"""

REQUEST = (
    ("acks", "acks"),
    ("isolation", "isolation_level"),
    ("instance", "group_instance_id"),
    ("instance", "instance_id"),
    ("generation", "generation_id"),
    ("generation", "generation_id_or_member_epoch"),
    ("generation", "member_epoch"),
    ("protocol", "protocol_name"),
    ("protocol", "server_assignor"),
    ("producer_id", "v3_and_below_producer_id"),
    ("producer_epoch", "v3_and_below_producer_epoch"),
    ("producer_id", "producer_id"),
    ("producer_epoch", "producer_epoch"),
)
RESPONSE = (
    ("throttle_ms", "throttle_time_ms"),
    ("member", "member_id"),
    ("generation", "generation_id"),
    ("generation", "member_epoch"),
    ("protocol", "protocol_name"),
    ("producer_id", "producer_id"),
    ("producer_epoch", "producer_epoch"),
)
NEGATIVE = {"acks": frozenset((0,)), "generation": NEW_HEARTBEATS}
"""Column → APIs in which a number below zero says something: acks=all, and the epochs with which a member leaves
(KIP-848)."""

OF_PARTITION_REQUESTED = (
    ("fetch_offset", "fetch_offset"),
    ("offset", "offset"),
    ("committed_offset", "start_offset"),
    ("committed_offset", "committed_offset"),
    ("leader_epoch", "current_leader_epoch"),
    ("leader_epoch", "committed_leader_epoch"),
    ("leader_epoch", "leader_epoch"),
    ("leader", "leader"),
)
OF_PARTITION_ANSWERED = (
    ("base_offset", "base_offset"),
    ("offset", "offset"),
    ("offset", "end_offset"),
    ("high_watermark", "high_watermark"),
    ("last_stable_offset", "last_stable_offset"),
    ("log_start_offset", "log_start_offset"),
    ("log_start_offset", "low_watermark"),
    ("committed_offset", "start_offset"),
    ("committed_offset", "committed_offset"),
    ("leader_epoch", "committed_leader_epoch"),
    ("leader_epoch", "leader_epoch"),
    ("leader", "leader_id"),
)


def present(table: tuple[tuple[str, str], ...], struct: Struct | None, key: int = -1) -> ColumnFields:
    """Return the lines of a table whose field this struct has.

    `key`: of the API, where numbers below zero may count.
    """
    if struct is None:
        return ()
    names = {slot.name for slot in struct.slots if not slot.array}
    return tuple((column, field, key in NEGATIVE.get(column, ())) for column, field in table if field in names)


def put(data: dict[str, Any], columns: ColumnFields, body: Mapping[str, Any]) -> None:
    for column, field, negative in columns:
        value = body.get(field)
        if isinstance(value, str):
            value = plain(value)
        elif value is not None and value < 0 and not negative:
            continue
        if value is not None:
            data[column] = value
