"""What rules can do: one file a kind, and this table of them."""

from __future__ import annotations

from kproxy.rules.kinds.add_node import AddNode
from kproxy.rules.kinds.advertise import AdvertiseRule
from kproxy.rules.kinds.bad_assignment import BadAssignment
from kproxy.rules.kinds.bad_length import BadLength
from kproxy.rules.kinds.bandwidth import Bandwidth
from kproxy.rules.kinds.base import Rule
from kproxy.rules.kinds.blackhole import Blackhole
from kproxy.rules.kinds.change_partitions import ChangePartitions
from kproxy.rules.kinds.corrupt import Corrupt
from kproxy.rules.kinds.corrupt_records import CorruptRecords
from kproxy.rules.kinds.delay import DelayRule
from kproxy.rules.kinds.deny import DenyRule
from kproxy.rules.kinds.disconnect import Disconnect
from kproxy.rules.kinds.drop import DropRule
from kproxy.rules.kinds.drop_commit import DropCommit
from kproxy.rules.kinds.drop_records import DropRecords
from kproxy.rules.kinds.duplicate_records import DuplicateRecords
from kproxy.rules.kinds.duplicate_response import DuplicateResponse
from kproxy.rules.kinds.empty_fetch import EmptyFetch
from kproxy.rules.kinds.error import ErrorRule
from kproxy.rules.kinds.fence_producer import FenceProducer
from kproxy.rules.kinds.hide_node import HideNode
from kproxy.rules.kinds.hide_topic import HideTopic
from kproxy.rules.kinds.limit_versions import LimitVersions
from kproxy.rules.kinds.malformed_batch import MalformedBatch
from kproxy.rules.kinds.move_coordinator import MoveCoordinator
from kproxy.rules.kinds.move_leader import MoveLeader
from kproxy.rules.kinds.no_controller import NoController
from kproxy.rules.kinds.no_leader import NoLeader
from kproxy.rules.kinds.omit_offset import OmitOffset
from kproxy.rules.kinds.poison_records import PoisonRecords
from kproxy.rules.kinds.preferred_replica import PreferredReplica
from kproxy.rules.kinds.prefix import PrefixRule
from kproxy.rules.kinds.python import PythonRule
from kproxy.rules.kinds.quota import Quota
from kproxy.rules.kinds.read_only import ReadOnlyRule
from kproxy.rules.kinds.rebalance import Rebalance
from kproxy.rules.kinds.recreate_topic import RecreateTopic
from kproxy.rules.kinds.refuse import Refuse
from kproxy.rules.kinds.rename_group import RenameGroup
from kproxy.rules.kinds.rename_topic import RenameTopic
from kproxy.rules.kinds.rename_transactional_id import RenameTransactionalId
from kproxy.rules.kinds.reorder_records import ReorderRecords
from kproxy.rules.kinds.reorder_responses import ReorderResponses
from kproxy.rules.kinds.require import RequireRule
from kproxy.rules.kinds.rewind_offset import RewindOffset
from kproxy.rules.kinds.set import SetRule
from kproxy.rules.kinds.set_record import SetRecord
from kproxy.rules.kinds.set_watermark import SetWatermark
from kproxy.rules.kinds.shift_epoch import ShiftEpoch
from kproxy.rules.kinds.short_body import ShortBody
from kproxy.rules.kinds.short_session import ShortSession
from kproxy.rules.kinds.slice import Slice
from kproxy.rules.kinds.stale_metadata import StaleMetadata
from kproxy.rules.kinds.throttle_time import ThrottleTimeRule
from kproxy.rules.kinds.trailing_bytes import TrailingBytes
from kproxy.rules.kinds.truncate import Truncate
from kproxy.rules.kinds.unknown_tag import UnknownTag
from kproxy.rules.kinds.wrong_address import WrongAddress
from kproxy.rules.kinds.wrong_correlation_id import WrongCorrelationId

KINDS: dict[str, type[Rule]] = {
    "rename_topic": RenameTopic,
    "rename_group": RenameGroup,
    "rename_transactional_id": RenameTransactionalId,
    "prefix": PrefixRule,
    "advertise": AdvertiseRule,
    "limit_versions": LimitVersions,
    "deny": DenyRule,
    "require": RequireRule,
    "read_only": ReadOnlyRule,
    "quota": Quota,
    "error": ErrorRule,
    "throttle_time": ThrottleTimeRule,
    "delay": DelayRule,
    "bandwidth": Bandwidth,
    "slice": Slice,
    "refuse": Refuse,
    "blackhole": Blackhole,
    "disconnect": Disconnect,
    "drop": DropRule,
    "truncate": Truncate,
    "short_body": ShortBody,
    "bad_length": BadLength,
    "wrong_correlation_id": WrongCorrelationId,
    "duplicate_response": DuplicateResponse,
    "reorder_responses": ReorderResponses,
    "trailing_bytes": TrailingBytes,
    "unknown_tag": UnknownTag,
    "corrupt": Corrupt,
    "stale_metadata": StaleMetadata,
    "move_leader": MoveLeader,
    "no_leader": NoLeader,
    "shift_epoch": ShiftEpoch,
    "hide_node": HideNode,
    "add_node": AddNode,
    "wrong_address": WrongAddress,
    "hide_topic": HideTopic,
    "recreate_topic": RecreateTopic,
    "change_partitions": ChangePartitions,
    "no_controller": NoController,
    "preferred_replica": PreferredReplica,
    "rebalance": Rebalance,
    "move_coordinator": MoveCoordinator,
    "rewind_offset": RewindOffset,
    "omit_offset": OmitOffset,
    "drop_commit": DropCommit,
    "bad_assignment": BadAssignment,
    "fence_producer": FenceProducer,
    "short_session": ShortSession,
    "empty_fetch": EmptyFetch,
    "duplicate_records": DuplicateRecords,
    "drop_records": DropRecords,
    "reorder_records": ReorderRecords,
    "corrupt_records": CorruptRecords,
    "poison_records": PoisonRecords,
    "set_record": SetRecord,
    "malformed_batch": MalformedBatch,
    "set_watermark": SetWatermark,
    "set": SetRule,
    "python": PythonRule,
}
"""By the word that stands under `kind:`, in the order in which they are listed to users."""
