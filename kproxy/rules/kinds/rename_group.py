"""rename_group: clients see other group ids than the brokers have."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from kproxy.rules.kinds.base.name_rule import RenameRule
from kproxy.rules.kinds.base.rule import VisiblePart
from kproxy.rules.names.layer import GROUP, Namespace


class RenameGroup(RenameRule):
    """Gives consumer, share and streams groups other ids on the client side than on the broker side.

    The map must be invertible. A group of the brokers whose client-side spelling is taken by a rename is hidden; a
    client that names a rename's target means a group that is not there, `!unreachable:` and the name on the brokers.
    """

    group = "names"
    space: ClassVar[Namespace] = GROUP
    field: ClassVar[str] = "groups"
    needs: ClassVar[tuple[VisiblePart, ...]] = ("group ids",)
    example: ClassVar[str] = """\
- name: groups of the shop have a prefix upstream
  kind: rename_group
  groups: {app: prod.app, "team-*": "x.team-*"}
"""

    kind: Literal["rename_group"] = Field(description="what the rule does")
    groups: dict[str, str] = Field(
        min_length=1,
        description="client-side id: broker-side id; both exact, or both with one *, as in rename_topic",
    )
