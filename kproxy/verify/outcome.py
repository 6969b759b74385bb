"""Outcome of the checks that found nothing: clean, or not checked and why; and the figures of what was checked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .checks import CheckDefinition, checks
from .reading import ReadCounts
from .terms import VerifyTerms
from .view import OF_MARKERS, ViewVerifier


def outcome(
    terms: VerifyTerms, views: Sequence[ViewVerifier], counts: ReadCounts, found: set[str], *, events: bool
) -> tuple[list[str], dict[str, str]]:
    """Return the checks that looked and found nothing, and those that could not look, or not at everything, each with
    the reason. `events`: some exchanges were told by request events."""
    clean, not_checked = [], {}
    for name, check in checks().items():
        if not terms.wants(name):
            continue
        reason = obstacle(terms, views, counts, check, events=events)
        if reason:
            not_checked[name] = reason
        elif name not in found:
            clean.append(name)
    return clean, not_checked


def obstacle(
    terms: VerifyTerms, views: Sequence[ViewVerifier], counts: ReadCounts, check: CheckDefinition, *, events: bool
) -> str:
    """Return why a check could not look at everything; empty if it could."""
    for kept, says in (
        (counts.not_kept, "not kept, or not as much as is needed"),
        (counts.damaged, "cannot be read"),
    ):
        for api in check.apis:
            if kept[api]:
                return f"{kept[api]} of {kept[api] + counts.looked[api]} {api} are {says}"
    if events and check.events:
        return f"request events do not tell {check.events}"
    if terms.incomplete:
        return terms.incomplete[0]
    forgotten = sum(view.forgotten(check.name) for view in views)
    if forgotten:
        return f"not all of it was remembered: {forgotten} entries were forgotten for want of memory"
    if not any(view.state.looked[check.name] for view in views):
        return "there is nothing of it in the record"
    forgotten = sum(view.state.partitions.evicted for view in views)
    if forgotten and check.detail == "headers":
        return f"compared with the newest batches only: {forgotten} were forgotten for want of memory"
    markers = max(view.state.unread_markers for view in views)
    if markers and check.name in OF_MARKERS:
        return f"the record does not tell which end {markers} markers of transactions are"
    recast = max(view.state.recast for view in views)
    if recast and check.name == "inconsistent-offset" and not terms.records:
        return f"{recast} batches are stored in another form than they were sent in, so that headers do not tell"
    return ""


def told_of_reading(views: Sequence[ViewVerifier], counts: ReadCounts) -> list[str]:
    """Return sentences about what the record does not have, as it was read."""
    told = list(not_read(counts))
    late = max((view.order.late for view in views), default=0)
    if late:
        told.append(f"{late} exchanges came more than ten seconds late, as with clocks that go back")
    dropped = sum(view.state.suspicions.dropped + view.state.suspicions.dropped_late for view in views)
    if dropped:
        told.append(f"{dropped} findings at other places are not told")
    return told


def not_remembered(views: Sequence[ViewVerifier]) -> Iterator[str]:
    """Yield in a sentence that not all of what was read could be remembered."""
    forgotten = sum(view.state.partitions.evicted for view in views)
    forgotten += sum(view.forgotten(check) for view in views for check in checks())
    if forgotten:
        yield "not all of it was remembered, for want of memory"


def not_read(counts: ReadCounts) -> Iterator[str]:
    """Yield in sentences what of the record could not be read."""
    for by_api, says in ((counts.not_kept, "were not kept"), (counts.damaged, "cannot be read")):
        yield from (f"{count} {api} {says}" for api, count in by_api.items() if count)


def counts_of(views: Sequence[ViewVerifier]) -> dict[str, int]:
    """Return the figures for the line that says what was checked, of one view of each cluster."""
    figures = dict.fromkeys(
        ("acknowledged writes", "read afterwards", "not read", "commits", "groups", "transactions"), 0
    )
    for view in views:
        counts = view.state.counts
        written, unread = counts["acknowledged writes"], min(counts["not read"], counts["acknowledged writes"])
        figures["acknowledged writes"] += written
        figures["read afterwards"] += written - unread
        figures["not read"] += unread
        for name in ("commits", "groups", "transactions"):
            figures[name] += counts[name]
    return figures
