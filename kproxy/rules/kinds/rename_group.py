"""rename_group: clients see other group ids than the brokers have."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from kproxy.rules.kinds.base.name_rule import RenameRule
from kproxy.rules.kinds.base.rule import VisiblePart
from kproxy.rules.names.layer import GROUP, Namespace


class RenameGroup(RenameRule):
    """Gives consumer, share and streams groups other ids on the client side than on the broker side.

    The map must be invertible. If a rename takes the client-side name of a broker's group, that group is hidden. A
    client that uses a rename's target gets a missing group: `!unreachable:` and the broker-side name.
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

    kind: Literal["rename_group"] = Field(description="kind of the rule")
    groups: dict[str, str] = Field(
        min_length=1,
        description="client-side id: broker-side id; both exact, or both with one *, as in rename_topic",
    )
