"""What rules can do: one file a kind, and this table of them."""

from __future__ import annotations

from kproxy.rules.kinds.advertise import AdvertiseRule
from kproxy.rules.kinds.base import Rule
from kproxy.rules.kinds.limit_versions import LimitVersions
from kproxy.rules.kinds.prefix import PrefixRule
from kproxy.rules.kinds.rename_group import RenameGroup
from kproxy.rules.kinds.rename_topic import RenameTopic
from kproxy.rules.kinds.rename_transactional_id import RenameTransactionalId

KINDS: dict[str, type[Rule]] = {
    "rename_topic": RenameTopic,
    "rename_group": RenameGroup,
    "rename_transactional_id": RenameTransactionalId,
    "prefix": PrefixRule,
    "advertise": AdvertiseRule,
    "limit_versions": LimitVersions,
}
"""By the word that stands under `kind:`, in the order in which they are listed to users."""
