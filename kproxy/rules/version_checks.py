"""What can be wrong between rules that limit versions: together they leave nothing of an API."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kproxy.rules.kinds.limit_versions import LimitVersions
from kproxy.rules.version_limits import VersionLimits, spelled
from kproxy.rules.written import Written
from kproxy.wire import schema


def check_versions(written: Sequence[Written]) -> None:
    """Note, at the rule that stands later, an API of which two rules that surely hold together leave no version.

    An API that one of them hides on purpose is no mistake.
    """
    limits = [(one, one.rule) for one in written if isinstance(one.rule, LimitVersions)]
    for number, (one, rule) in enumerate(limits):
        for _, earlier in limits[:number]:
            if _hold_together(earlier, rule):
                for name, message in _lost(earlier, rule):
                    one.note(("apis", name), message)


def _hold_together(one: LimitVersions, other: LimitVersions) -> bool:
    """Whether a connection that the second matches is surely matched by the first, or the other way round."""
    same = repr((one.match, one.not_)) == repr((other.match, other.not_))
    return same or one.is_unconditional or other.is_unconditional


def _lost(earlier: LimitVersions, rule: LimitVersions) -> Iterator[tuple[str | int, str]]:
    for name in rule.apis or ():
        key = schema.names().get(str(name))
        key = int(name) if key is None else key
        before = earlier.limit.span(key)
        both = VersionLimits((earlier.limit, rule.limit)).span(key)
        if before is not None and before[0] <= before[1] and both is not None and both[0] > both[1]:
            yield name, f'nothing is left of {name}: the rule "{earlier.name}" allows {spelled(before)}'
