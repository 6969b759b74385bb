"""rename_transactional_id: clients see other transactional ids than the brokers have."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from kproxy.rules.kinds.base.name_rule import RenameRule
from kproxy.rules.kinds.base.rule import VisiblePart
from kproxy.rules.names.layer import TRANSACTIONAL_ID, Namespace


class RenameTransactionalId(RenameRule):
    """Gives transactional ids other spellings on the client side than on the broker side.

    The map must be invertible. If a rename takes the client-side name of a broker's id, that id is hidden. A client
    that uses a rename's target gets an unused id: `!unreachable:` and the broker-side id.
    """

    group = "names"
    space: ClassVar[Namespace] = TRANSACTIONAL_ID
    field: ClassVar[str] = "ids"
    needs: ClassVar[tuple[VisiblePart, ...]] = ("transactional ids",)
    example: ClassVar[str] = """\
- name: two installations use the same transactional ids
  kind: rename_transactional_id
  ids: {payments: blue.payments, "worker-*": "blue.worker-*"}
"""

    kind: Literal["rename_transactional_id"] = Field(description="kind of the rule")
    ids: dict[str, str] = Field(
        min_length=1,
        description="client-side id: broker-side id; both exact, or both with one *, as in rename_topic",
    )
