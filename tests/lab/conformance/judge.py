"""The judge of one run: what the client's program told, what is on the brokers, and which outcome that is.

The program is believed about what it was given and told by its library, and about nothing else: what is stored is read
from the brokers themselves, past kproxy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from kproxy.base.errors import plural

OUTCOMES = {
    "recovered": "all acknowledged records were stored once and read once, and the program received no error",
    "raised": "the program received an error and no false information",
    "doubled": "a record is stored or was read more than once",
    "lost": "an acknowledged record is not stored, or the reader skipped it",
    "lied": "the program received a record that was not written, or a wrong partition or offset of a record",
    "hung": "a call did not return, or the reader stopped reading, without an error",
    "died": "the process ended by itself before its work was done",
    "not exercised": "the fault's exchange did not occur, so the run has no result",
    "broken": "the run itself failed, so it has no result for the client",
}
"""Outcomes and what they mean; of several the gravest is told: see `GRAVITY`."""
GRAVITY = ("died", "hung", "lied", "lost", "doubled", "raised", "recovered")
SHOWN = 3

Stored = Mapping[tuple[int, int], str | None]
"""Values by partition and offset, as the brokers have them."""


@dataclass(frozen=True)
class Told:
    """What a program told of its traffic; places are partition and offset, an offset below 0 is not known to it."""

    sent: Sequence[str] = ()
    acknowledged: Sequence[tuple[str, int, int]] = ()
    failed: Sequence[tuple[str, str]] = ()
    read: Sequence[tuple[str | None, int, int]] = ()
    errors: Sequence[str] = ()
    seconds: float = 0.0

    @classmethod
    def of(cls, line: Mapping[str, Any]) -> Told:
        """Return what a line of the step `traffic` says. Raises ValueError if it is not of that form."""
        try:
            seconds = float(line["seconds"])
            if not isfinite(seconds):
                raise TypeError(seconds)
            return cls(
                [str(value) for value in line["sent"]],
                [(str(value), int(partition), int(offset)) for value, partition, offset in line["acknowledged"]],
                [(str(value), str(error)) for value, error in line["failed"]],
                [(value, int(partition), int(offset)) for value, partition, offset in line["read"]],
                [str(error) for error in line["errors"]],
                seconds,
            )
        except (KeyError, TypeError, OverflowError) as error:
            raise ValueError(f"no line of the step traffic: {error!r}") from None


@dataclass(frozen=True)
class Recovery:
    """How the faulted exchange was got over: so many tries of its API until one was answered well, in so long."""

    tries: int
    seconds: float


@dataclass(frozen=True)
class Verdict:
    """Outcome of a run, the same in a sentence, and what else is to be said."""

    outcome: str
    text: str
    notes: list[str] = field(default_factory=list)


def judge(
    told: Told | None, stored: Stored, *, fired: float, ended: str, due: int = 0, recovery: Recovery | None = None
) -> Verdict:
    """Return the verdict about a run. `told` is None if the program told nothing, `ended` says how its process ended
    (`killed` or `exit code …`, which is below 0 for a signal), `fired` how often the rule acted, `due` how many records
    the program had to write."""
    if told is None:
        if ended.startswith("killed"):
            return Verdict("hung", ended)
        return Verdict("died", ended)
    found = list(mistakes(told, stored))
    if ended.startswith("killed"):
        found.append(("hung", f"the program reported everything and did not exit: {ended}"))
    elif ended.startswith("exit code -"):
        found.append(("died", f"the program reported everything and crashed: {ended}"))
    if not found and len(set(told.sent)) < due:  # else that is what kept it
        found.append(("hung", f"it wrote {len(set(told.sent))} of {due} records and reported no reason"))
    if not fired and not found:
        return Verdict("not exercised", "the rule had nothing to act on")
    if not found:
        return Verdict("recovered", recovered(told, recovery))
    outcome = min((one for one, _ in found), key=GRAVITY.index)
    texts = [text for one, text in found if one == outcome]
    rest = [text for one, text in found if one != outcome]
    rest += [] if fired else ["the rule had not acted, so it was not the cause"]
    return Verdict(outcome, "; ".join(texts), rest)


def recovered(told: Told, recovery: Recovery | None) -> str:
    """Return how it was got over, in words."""
    if recovery is None:
        return f"nothing was noticed; the program took {told.seconds:.1f} s"
    if recovery.tries == 0:
        return f"the next exchange was good, after {recovery.seconds:.1f} s"
    tries = "1 try" if recovery.tries == 1 else f"{recovery.tries} tries"
    return f"in {tries} and {recovery.seconds:.1f} s"


def mistakes(told: Told, stored: Stored) -> Iterator[tuple[str, str]]:
    """Yield the outcomes that this is, each with its sentence."""
    values = Counter(stored.values())
    acknowledged = {value for value, _, _ in told.acknowledged}
    yield from about_reads(told, stored)
    lost = sorted(value for value in acknowledged if not values[value])
    if lost:
        yield "lost", these(lost, "acknowledged record", "are not stored")
    elsewhere = [v for v, p, o in told.acknowledged if o >= 0 and values[v] and stored.get((p, o)) != v]
    if elsewhere:
        yield "lied", these(elsewhere, "record", "were acknowledged at places where others are")
    twice = sorted(value for value, count in values.items() if value is not None and count > 1)
    if twice:
        yield "doubled", these(twice, "record", "are stored more than once")
    failed = {value for value, _ in told.failed}
    if failed:
        there = sum(values[value] > 0 for value in failed)
        why = some(dict.fromkeys(error for _, error in told.failed))
        yield "raised", f"{plural(len(failed), 'write')} failed, of which {there} {verb(there, 'are')} stored: {why}"
    unsaid = [value for value in told.sent if value not in acknowledged and value not in failed]
    if unsaid:
        yield "hung", f"{plural(len(unsaid), 'write')} had no result in {told.seconds:.0f} s ({some(unsaid)})"
    if told.errors:
        yield "raised", some(dict.fromkeys(told.errors))


def about_reads(told: Told, stored: Stored) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with what was read."""
    places = Counter((partition, offset) for _, partition, offset in told.read)
    strange = [value for value, p, o in told.read if (p, o) not in stored or stored[p, o] != value]
    if strange:
        yield "lied", these(strange, "record", "were read but not stored there")
    again = [place for place, count in places.items() if count > 1]
    if again:
        yield "doubled", these(again, "record", "were read more than once")
    furthest: dict[int, int] = {}
    for partition, offset in places:
        furthest[partition] = max(offset, furthest.get(partition, -1))
    acknowledged = {value for value, _, _ in told.acknowledged}
    unread = [(place, value) for place, value in stored.items() if place not in places and value in acknowledged]
    passed = [value for (partition, offset), value in unread if offset < furthest.get(partition, -1)]
    ahead = [value for (partition, offset), value in unread if offset > furthest.get(partition, -1)]
    if passed:
        yield "lost", these(passed, "stored record", "were passed over by the reader")
    if ahead:
        yield "hung", these(ahead, "stored record", f"were not read in {told.seconds:.0f} s")


def these(things: Sequence[Any], noun: str, said: str) -> str:
    """Return a sentence about things, with the first few of them. `said` begins with a verb in the plural."""
    word, _, rest = said.partition(" ")
    return f"{plural(len(things), noun)} {verb(len(things), word)} {rest} ({some(things)})"


def verb(count: int, word: str) -> str:
    """Return a verb for so many, given for several."""
    return {"are": "is", "were": "was"}[word] if count == 1 else word


def some(things: Any) -> str:
    """Return the first few of these in a line, each cut."""
    shown = list(things)
    more = f" and {len(shown) - SHOWN} more" if len(shown) > SHOWN else ""
    return ", ".join(" ".join(str(one).split())[:160] for one in shown[:SHOWN]) + more
