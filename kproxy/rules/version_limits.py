"""Limits of versions: what all `limit_versions` rules that bind a connection leave to clients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kproxy.wire.table import schema

Span = tuple[int, int]
"""First and last version, both included; the first is above the last when there is none."""

NOTHING: Span = (0, -1)


@dataclass(frozen=True, slots=True)
class Limit:
    """Limit of one rule, by API key. `others`: whether APIs that are not in `spans` may be used in any version."""

    rule: str
    spans: Mapping[int, Span]
    others: bool = True

    def span(self, key: int) -> Span | None:
        """Return the versions that this rule leaves of an API; None: all of it."""
        return self.spans.get(key, None if self.others else NOTHING)


@dataclass(frozen=True, slots=True)
class VersionLimits:
    """Limits of several rules, of which all hold."""

    limits: tuple[Limit, ...]

    def span(self, key: int) -> Span | None:
        """Return the versions that are left of an API; None: no rule says anything about it."""
        spans = [span for limit in self.limits if (span := limit.span(key)) is not None]
        return (max(first for first, _ in spans), min(last for _, last in spans)) if spans else None

    def refusal(self, key: int, version: int) -> str:
        """Return why a frame of this version is stopped, with the first rule that is against it; empty: it may pass."""
        for limit in self.limits:
            span = limit.span(key)
            if span is not None and not span[0] <= version <= span[1]:
                name = schema.load(key).name if key in schema.paths() else f"api key {key}"
                if span[0] > span[1]:
                    return f'{name} is hidden by the rule "{limit.rule}"'
                return f'{name} {version}: the rule "{limit.rule}" allows {spelled(span)}'
        return ""


def spelled(span: Span) -> str:
    """Return a span in words: `0-11`, `9`, `4 and newer`, `none`."""
    first, last = span
    if first > last:
        return "none"
    if last >= 32767:
        return f"{first} and newer"
    return f"{first}" if first == last else f"{first}-{last}"
