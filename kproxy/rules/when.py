"""`when:`: which of the requests that a rule is about it acts on, and from when until when."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from kproxy.rules.document.model import Model, Wrong
from kproxy.rules.document.units import Seconds, parse_duration
from kproxy.rules.seed import Seed


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, int) and not isinstance(value, bool) else value


def _requests_or_time(value: Any) -> Any:
    return parse_duration(value) if isinstance(value, str) else value


Number = Annotated[int, Field(ge=1)]
OrdinalNumbers = Annotated[
    list[Number], BeforeValidator(_as_list, json_schema_input_type=int | list[int]), Field(min_length=1)
]

After = Annotated[
    int | float,
    BeforeValidator(_requests_or_time, json_schema_input_type=int | str),
    Field(ge=0),
]
"""A number of requests (int), or seconds (float)."""


class When(Model):
    """Words of `when:`, evaluated in this order: after, then nth/first/every, then probability and ramp, then for and
    times.

    What is counted are requests with at least one entity that matches, retries included, in order of arrival.
    """

    nth: OrdinalNumbers | None = Field(
        default=None, description="only the request with this number, or these numbers, from 1"
    )
    first: Number | None = Field(default=None, description="only so many requests")
    every: Number | None = Field(default=None, description="each request whose number is a multiple of this")
    times: Number | None = Field(default=None, description="acts so often at most")
    once: Literal[True] | None = Field(default=None, description="the same as `times: 1`")
    probability: float | None = Field(default=None, gt=0, le=1, description="acts with this chance")
    seed: Seed | None = Field(
        default=None, description="of the chances; drawn and shown in the log when it is left out"
    )
    after: After | None = Field(
        default=None, description="lets so many requests go first (a number), or all for so long (a duration)"
    )
    for_: Seconds | None = Field(default=None, alias="for", description="acts for so long after that, and never again")
    ramp: Seconds | None = Field(
        default=None, description="the chance grows from 0 to `probability` (else 1) in this time"
    )
    hold: Literal[True] | None = Field(
        default=None, description="the request waits until it is released by the admin API or a test"
    )
    count_per: Literal["rule", "connection", "client"] = Field(
        default="rule",
        description="what has a count of its own: the rule, each connection, or each client id",
    )

    @classmethod
    def cross_check(cls, raw: dict[Any, Any]) -> Iterable[Wrong]:
        """Yield the words that exclude each other, as mistakes."""
        if "once" in raw and "times" in raw:
            yield ("once",), '"once" is the same as "times: 1"; one of the two is enough'
        if "nth" in raw and ("first" in raw or "every" in raw):
            yield ("nth",), '"nth" names the requests; "first" and "every" beside it would only take some away again'
        if "seed" in raw and not ("probability" in raw or "ramp" in raw):
            yield ("seed",), '"seed" is for chances, and there is no "probability" or "ramp"'

    @property
    def limit(self) -> int | None:
        """Return how often the rule acts at most; None: without end."""
        return 1 if self.once else self.times

    @property
    def by_chance(self) -> bool:
        """Return True if the rule acts by chance, so that a seed is needed."""
        return self.probability is not None or self.ramp is not None
