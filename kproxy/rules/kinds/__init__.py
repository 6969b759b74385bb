"""What rules can do: one file a kind, and this table of them."""

from __future__ import annotations

from kproxy.rules.kinds.advertise import AdvertiseRule
from kproxy.rules.kinds.bad_length import BadLength
from kproxy.rules.kinds.bandwidth import Bandwidth
from kproxy.rules.kinds.base import Rule
from kproxy.rules.kinds.blackhole import Blackhole
from kproxy.rules.kinds.corrupt import Corrupt
from kproxy.rules.kinds.delay import DelayRule
from kproxy.rules.kinds.disconnect import Disconnect
from kproxy.rules.kinds.drop import DropRule
from kproxy.rules.kinds.duplicate_response import DuplicateResponse
from kproxy.rules.kinds.limit_versions import LimitVersions
from kproxy.rules.kinds.prefix import PrefixRule
from kproxy.rules.kinds.quota import Quota
from kproxy.rules.kinds.refuse import Refuse
from kproxy.rules.kinds.rename_group import RenameGroup
from kproxy.rules.kinds.rename_topic import RenameTopic
from kproxy.rules.kinds.rename_transactional_id import RenameTransactionalId
from kproxy.rules.kinds.reorder_responses import ReorderResponses
from kproxy.rules.kinds.short_body import ShortBody
from kproxy.rules.kinds.slice import Slice
from kproxy.rules.kinds.trailing_bytes import TrailingBytes
from kproxy.rules.kinds.truncate import Truncate
from kproxy.rules.kinds.unknown_tag import UnknownTag
from kproxy.rules.kinds.wrong_correlation_id import WrongCorrelationId

KINDS: dict[str, type[Rule]] = {
    "rename_topic": RenameTopic,
    "rename_group": RenameGroup,
    "rename_transactional_id": RenameTransactionalId,
    "prefix": PrefixRule,
    "advertise": AdvertiseRule,
    "limit_versions": LimitVersions,
    "quota": Quota,
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
}
"""By the word that stands under `kind:`, in the order in which they are listed to users."""
