"""rename_transactional_id: clients see other transactional ids than the brokers have."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from kproxy.rules.kinds.base.name_rule import RenameRule
from kproxy.rules.kinds.base.rule import VisiblePart
from kproxy.rules.names.layer import TRANSACTIONAL_ID, Namespace


class RenameTransactionalId(RenameRule):
    """Gives transactional ids other spellings on the client side than on the broker side.

    The map must be invertible. An id of the brokers whose client-side spelling is taken by a rename is hidden; a
    client that names a rename's target means an id that nobody uses, `!unreachable:` and the id on the brokers.
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

    kind: Literal["rename_transactional_id"] = Field(description="what the rule does")
    ids: dict[str, str] = Field(
        min_length=1,
        description="client-side id: broker-side id; both exact, or both with one *, as in rename_topic",
    )
