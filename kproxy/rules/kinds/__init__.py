"""What rules can do: one file a kind, and this table of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from importlib import import_module
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from kproxy.rules.kinds.base import Rule

CLASSES = {
    "rename_topic": "RenameTopic",
    "rename_group": "RenameGroup",
    "rename_transactional_id": "RenameTransactionalId",
    "prefix": "PrefixRule",
    "advertise": "AdvertiseRule",
    "limit_versions": "LimitVersions",
    "deny": "DenyRule",
    "require": "RequireRule",
    "read_only": "ReadOnlyRule",
    "allow_from": "AllowFrom",
    "quota": "Quota",
    "error": "ErrorRule",
    "throttle_time": "ThrottleTimeRule",
    "delay": "DelayRule",
    "bandwidth": "Bandwidth",
    "slice": "Slice",
    "refuse": "Refuse",
    "blackhole": "Blackhole",
    "disconnect": "Disconnect",
    "drop": "DropRule",
    "truncate": "Truncate",
    "short_body": "ShortBody",
    "bad_length": "BadLength",
    "wrong_correlation_id": "WrongCorrelationId",
    "duplicate_response": "DuplicateResponse",
    "reorder_responses": "ReorderResponses",
    "trailing_bytes": "TrailingBytes",
    "unknown_tag": "UnknownTag",
    "corrupt": "Corrupt",
    "stale_metadata": "StaleMetadata",
    "move_leader": "MoveLeader",
    "no_leader": "NoLeader",
    "shift_epoch": "ShiftEpoch",
    "hide_node": "HideNode",
    "add_node": "AddNode",
    "wrong_address": "WrongAddress",
    "hide_topic": "HideTopic",
    "recreate_topic": "RecreateTopic",
    "change_partitions": "ChangePartitions",
    "no_controller": "NoController",
    "preferred_replica": "PreferredReplica",
    "rebalance": "Rebalance",
    "move_coordinator": "MoveCoordinator",
    "rewind_offset": "RewindOffset",
    "omit_offset": "OmitOffset",
    "drop_commit": "DropCommit",
    "bad_assignment": "BadAssignment",
    "fence_producer": "FenceProducer",
    "short_session": "ShortSession",
    "empty_fetch": "EmptyFetch",
    "duplicate_records": "DuplicateRecords",
    "drop_records": "DropRecords",
    "reorder_records": "ReorderRecords",
    "corrupt_records": "CorruptRecords",
    "poison_records": "PoisonRecords",
    "set_record": "SetRecord",
    "malformed_batch": "MalformedBatch",
    "set_watermark": "SetWatermark",
    "set": "SetRule",
    "python": "PythonRule",
}
"""By the word that stands under `kind:`, which is the module's name too, in the order in which they are listed."""


class Kinds(MutableMapping[str, "type[Rule]"]):
    """Kind → its class, imported when it is asked for: of sixty, a start needs those that its rules name."""

    def __init__(self, classes: Mapping[str, str]) -> None:
        self.classes: dict[str, str | type[Rule]] = dict(classes)

    def __getitem__(self, kind: str) -> type[Rule]:
        found = self.classes[kind]
        if isinstance(found, str):
            found = self.classes[kind] = getattr(import_module(f"{__name__}.{kind}"), found)
        return cast("type[Rule]", found)

    def __setitem__(self, kind: str, made: type[Rule]) -> None:
        self.classes[kind] = made

    def __delitem__(self, kind: str) -> None:
        del self.classes[kind]

    def __iter__(self) -> Iterator[str]:
        return iter(self.classes)

    def __len__(self) -> int:
        return len(self.classes)


KINDS = Kinds(CLASSES)
