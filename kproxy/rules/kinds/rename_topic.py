"""rename_topic: clients see other topic names than the brokers have."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from kproxy.rules.kinds.base.name_rule import RenameRule
from kproxy.rules.kinds.base.rule import VisiblePart
from kproxy.rules.names.layer import TOPIC, Namespace


class RenameTopic(RenameRule):
    """Gives topics other names on the client side than on the broker side.

    The map must be invertible: names are changed in requests and changed back in responses. If a rename takes the
    client-side name of a broker's topic, that topic is hidden. A client that uses a rename's target gets
    UNKNOWN_TOPIC_OR_PARTITION. Internal topics are never renamed.
    """

    group = "names"
    space: ClassVar[Namespace] = TOPIC
    field: ClassVar[str] = "topics"
    needs: ClassVar[tuple[VisiblePart, ...]] = ("topic names",)
    example: ClassVar[str] = """\
- name: orders lives under another name upstream
  kind: rename_topic
  topics: {orders: prod.orders, "clicks-*": "prod.clicks-*"}
"""

    kind: Literal["rename_topic"] = Field(description="kind of the rule")
    topics: dict[str, str] = Field(
        min_length=1,
        description="client-side name: broker-side name; both exact, or both with one *. An exact name beats a glob, "
        "of several globs the longest literal prefix wins",
    )
