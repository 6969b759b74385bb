"""Outcome of the checks that found nothing: clean, or not checked and why; and the figures of what was checked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .checks import CheckDefinition, checks
from .reading import ReadCounts
from .terms import MissingPart, VerifyTerms, of_apis
from .view import ViewVerifier

NOTHING = "there is nothing of it in the record"


def outcome(
    terms: VerifyTerms, views: Sequence[ViewVerifier], counts: Sequence[ReadCounts], found: set[str], *, events: bool
) -> tuple[list[str], dict[str, str]]:
    """Return the clean checks, and those that were not made or not of everything, each with the reason.

    A check is clean if the record has all that it needs, and a comparison that could have proved a violation. `counts`:
    figures of the reading of each side. `events`: some exchanges are request events.
    """
    clean, not_checked = [], {}
    for name, check in checks().items():
        if not terms.wants(name):
            continue
        reason = obstacle(terms, views, counts, check, events=events)
        if not reason and name not in found and check.level == "proved":
            reasons = [view.state.compared.obstacle(name) for view in views if view.state.compared.made(name)]
            reason = "" if "" in reasons else reasons[0]
        if reason:
            not_checked[name] = reason
        elif name not in found:
            clean.append(name)
    return clean, not_checked


def obstacle(
    terms: VerifyTerms, views: Sequence[ViewVerifier], counts: Sequence[ReadCounts], check: CheckDefinition, *,
    events: bool,
) -> str:  # fmt: skip
    """Return why a check was not made, or not of everything; empty if it was."""
    for side in counts:
        lacking = not_in_record(side, check.name)
        if lacking:
            return lacking
    if events and check.events:
        return f"request events do not tell {check.events}"
    missing = terms.undecided(check.apis)
    if missing:
        return missing
    reasons = [reason for view in views if (reason := view.obstacle(check.name))]
    if reasons:
        return reasons[0]
    return "" if any(view.state.compared.made(check.name) for view in views) else NOTHING


def not_in_record(counts: ReadCounts, check: str) -> str:
    """Return which exchanges a check needs that the record does not have, or not whole; empty if it has all."""
    for kept, says in (
        (counts.not_kept, "not kept, or not as much as is needed"),
        (counts.damaged, "cannot be read"),
    ):
        for api in checks()[check].apis:
            if kept[api]:
                return f"{kept[api]} of {kept[api] + counts.looked[api]} {api} {counts.side}are {says}"
    return ""


def told_of_reading(terms: VerifyTerms, views: Sequence[ViewVerifier], counts: Sequence[ReadCounts]) -> list[str]:
    """Return sentences about exchanges that could not be read, times that went back, and findings that are omitted."""
    told = [part.text for side in counts for part in not_read(side)]
    late = max((view.order.late for view in views), default=0)
    if late:
        told.append(f"{late} exchanges came more than ten seconds late, as with clocks that go back")
    if terms.clock.back:
        back = f"{terms.clock.back:.1f} s"
        told.append(f"the clock went back by {back}: of exchanges that are closer in time, none is known to be first")
    dropped = sum(view.state.suspicions.dropped + view.state.suspicions.dropped_late for view in views)
    if dropped:
        told.append(f"{dropped} findings at other places are not told")
    return told


def not_remembered(views: Sequence[ViewVerifier]) -> Iterator[MissingPart]:
    """Yield a part if facts were evicted from memory."""
    forgotten = sum(view.state.partitions.evicted + view.state.topics.by_name.dropped for view in views)
    forgotten += sum(view.forgotten(check) for view in views for check in checks())
    if forgotten:
        yield MissingPart("not all of it was remembered, for want of memory")


def not_read(counts: ReadCounts) -> Iterator[MissingPart]:
    """Yield for each API the exchanges that could not be read."""
    for by_api, says in ((counts.not_kept, "were not kept"), (counts.damaged, "cannot be read")):
        yield from (of_apis(f"{count} {api} {counts.side}{says}", api) for api, count in by_api.items() if count)


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
