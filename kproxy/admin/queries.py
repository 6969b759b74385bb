"""Models of the queries of requests to the admin API."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field, WithJsonSchema

from kproxy.rules.document.read import LONGEST_TTL
from kproxy.rules.values.quantities import parse_duration
from kproxy.runtime.rules.waiters import CounterName

LONGEST_WAIT = 3600.0
"""Seconds; who wants to wait longer asks again."""


def duration(value: Any) -> Any:
    """Return the seconds of a text such as 10s; what is no text stays as it is, to be checked by who asked."""
    return float(value) if isinstance(value, str) and value.isdecimal() else parse_duration(value)


AS_TEXT = WithJsonSchema({"type": ["string", "number"], "examples": ["10s", "500ms", 3]})
Ttl = Annotated[float, BeforeValidator(duration), Field(gt=0, le=LONGEST_TTL), AS_TEXT]
Timeout = Annotated[float, BeforeValidator(duration), Field(ge=0, le=LONGEST_WAIT), AS_TEXT]


class Query(BaseModel, extra="forbid"):
    """Base of all queries."""


PageId = Annotated[str, Field(max_length=64, pattern=r"^[A-Za-z0-9_-]*$")]
"""Random id that a page of the view gives itself; empty: none."""


class PutQuery(Query):
    """Query with rules that are added."""

    origin: Literal["api", "test"] = Field(
        default="api", description="rules of a test stand behind all others, and always have a ttl"
    )
    ttl: Ttl | None = Field(
        default=None, description="after which they go away by themselves, such as 30s, for rules without a `ttl:`"
    )
    page: PageId = Field(
        default="", description="id of a page: its rules are removed when it has had no stream (`/api/view`) for 30 s"
    )


class AddQuery(PutQuery):
    """Query with a document of rules that is added."""

    replace: bool = Field(default=False, description="rules of the same names and origin are replaced in their places")


class OriginQuery(Query):
    """Origin of the rules to remove."""

    origin: Literal["api", "test"] = Field(default="api", description="where they came from")


class ReplaceQuery(Query):
    """Query with the API's whole document."""

    ttl: Ttl | None = Field(
        default=None, description="after which its rules go away by themselves, for those without a `ttl:`"
    )


class WaitQuery(Query):
    """Number that a rule's counter has to reach."""

    hits: int = Field(default=1, ge=1, description="until the counter is at least this")
    count: CounterName = Field(default="fired", description="which counter")
    timeout: Timeout = Field(default=10.0, description="how long at most, such as 10s")


class CloseQuery(Query):
    """Manner of closing a connection."""

    reset: bool = Field(default=False, description="with a reset, and without what still waits to be written")


class RecycleQuery(Query):
    """Choice of the connections to recycle."""

    which: Literal["outdated", "all"] = Field(
        default="outdated", description="those that are bound to other rules than a new one would be, or all"
    )


def printable(name: str) -> str:
    """Return a name that somebody gives without what a terminal would obey."""
    return "".join(char if char.isprintable() else "?" for char in name).strip()
