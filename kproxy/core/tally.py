"""Counts of the frames of one (api, version), by all connections and through all changes of rules."""

from __future__ import annotations

from kproxy.wire.table import schema

from .histogram import BROKER_BOUNDS, Histogram

Label = tuple[str, str, str]


class Tally:
    """Count of requests of one API and version, and their responses: `latency` has the time since the request's header
    was read."""

    __slots__ = ("api", "depth", "latency", "requests", "version")

    def __init__(self, api: str, version: str, depth: str) -> None:
        self.api, self.version, self.depth = api, version, depth
        self.requests = 0
        self.latency = Histogram(BROKER_BOUNDS)

    @property
    def responses(self) -> int:
        return self.latency.count


class Tallies(dict[Label, Tally]):
    """Tallies by api, version and how deep the plan looks. Bounded by the protocol's table."""

    def of(self, key: int, version: int, api: str, depth: str) -> Tally:
        """Return the tally of this API and version. A client may send any version of any API: only those of the table
        have a label of their own."""
        known = key in schema.paths() and version in schema.load(key).versions
        label = (api, str(version) if known else "unknown", depth)
        return self.setdefault(label, Tally(*label))
