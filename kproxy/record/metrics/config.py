"""The `metrics` section of the config: by which names traffic is counted at the admin address.

metrics:
  by: [topic, client_id, principal, group]
  series: 200
  only: {topic: ["orders*"]}
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import Field

from kproxy.rules.select.match import Texts
from kproxy.rules.values.model import Model, Wrong

MetricLabel = Literal["topic", "client_id", "principal", "group"]
"""Label that metrics can be told by."""
MOST_SERIES = 500
"""Names with series of their own, of one label: some twenty lines each, of which Prometheus keeps all, and of which a
scrape makes those of one metric in one go."""


class MetricsConfig(Model):
    """Settings of the metrics by topic, client, principal and group."""

    by: list[MetricLabel] = Field(
        default_factory=list,
        description="labels by which traffic is counted: topic, client_id, principal, group; none if left out",
    )
    series: Annotated[int, Field(ge=1, le=MOST_SERIES)] = Field(
        default=200, description="names of each label that have series of their own; all others are added up as other"
    )
    only: dict[MetricLabel, Texts] = Field(
        default_factory=dict,
        description="names that may have series, exact, with * or as a /regular expression/, by label; all others are "
        "added up as other, and not counted as overflow",
    )

    @classmethod
    def cross_check(cls, raw: dict[Any, Any]) -> Iterable[Wrong]:
        """Check that each label stands once, and that names are chosen for labels that are told."""
        by, only = raw.get("by"), raw.get("only")
        labels = by if isinstance(by, list) else []
        for index, label in enumerate(labels):
            if label in labels[:index]:
                yield ("by", index), f'"{label}" stands here twice'
        if isinstance(only, dict):
            for label in only:
                if label not in labels:
                    yield ("only", label), f'nothing is told by "{label}": it is not in `by`'
