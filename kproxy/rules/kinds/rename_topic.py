"""rename_topic: clients see other topic names than the brokers have."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Literal

from pydantic import Field

from kproxy.rules.explain import Wrong
from kproxy.rules.kinds.base import Need, Rule
from kproxy.rules.name_checks import check_topics


class RenameTopic(Rule):
    """Gives topics other names on the client side than on the broker side.

    The map must be invertible: names are changed in requests and changed back in answers. A topic of the brokers
    whose client-side spelling is taken by a rename is hidden, and a client that names a rename's target gets
    UNKNOWN_TOPIC_OR_PARTITION. Internal topics are never renamed.
    """

    needs: ClassVar[tuple[Need, ...]] = ("topic names",)
    example: ClassVar[str] = """\
- name: orders lives under another name upstream
  kind: rename_topic
  topics: {orders: prod.orders, "clicks-*": "prod.clicks-*"}
"""

    kind: Literal["rename_topic"] = Field(description="what the rule does")
    topics: dict[str, str] = Field(
        min_length=1,
        description="client-side name: broker-side name; both exact, or both with one *. An exact name beats a glob, "
        "of several globs the longest literal prefix wins",
    )

    @classmethod
    def cross_check(cls, raw: dict[Any, Any]) -> Iterable[Wrong]:
        """Every line of the map, and that it can be undone."""
        topics = raw.get("topics")
        if isinstance(topics, dict):
            for where, message in check_topics(topics):
                yield ("topics", *where), message
