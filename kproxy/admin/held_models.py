"""Models of held frames: what the API tells of them, and what it takes to decide about one."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field

from kproxy.rules.exchange import AfterDrop
from kproxy.rules.rule_set import HowGone
from kproxy.session.holding.held import LONGEST_HOLD

from .models import Shown
from .queries import AS_TEXT, Query, duration, printable

MOST_CHANGES = 10_000
LONGEST_WHO = 100
"""Characters of a name that somebody gives."""

GivenName = Annotated[str, AfterValidator(printable)]
By = Annotated[float, BeforeValidator(duration), Field(ge=1.0, le=LONGEST_HOLD), AS_TEXT]


class HeldExchangeShown(Shown):
    """Exchange of a held frame."""

    connection: int
    listener: str
    client_address: str
    client: str | None = Field(description="client id")
    principal: str | None
    api: str
    version: int
    correlation_id: int


class HeldShown(Shown):
    """Frame that a rule holds."""

    id: str = Field(description="CONNECTION-NUMBER")
    rule: str = Field(description="the first of `rules`")
    rules: list[str] = Field(description="rules that hold it")
    at: Literal["request", "response"]
    exchange: HeldExchangeShown
    since: str = Field(description="ISO 8601")
    ends_in: float | None = Field(description="seconds until it goes on by itself, null: it does not")
    longest: float | None = Field(
        description="seconds until it goes on however often it is extended, null: it does not"
    )
    then: str = Field(description="what becomes of it then: pass, close, or the name of an error")
    revision: int = Field(description="to be named by whoever decides: another one means that it has changed")
    behind: int = Field(description="frames on its connection that wait behind it")
    bytes: int = Field(description="with its size")
    client_ended: bool = Field(
        description="its client sends nothing more: it has left, or waits for answers only; who has left is seen to be "
        "gone after a minute"
    )
    editable: bool
    why_not: str | None = Field(description="why it is not editable")
    claimed_by: str | None = Field(description="who is at it")
    gone: HowGone | None = Field(description="how it went, null while it is held")


class HeldListShown(Shown):
    """Frames that are held now, each once, whatever number of rules holds it."""

    held: list[HeldShown]
    most: int = Field(description="frames that rules made for it may hold at a time, in each process")
    passed_over: int = Field(description="frames that passed since as many or as much was held as may be")


class HeldRows(Shown):
    """Frames that one process holds, oldest first."""

    rows: list[tuple[str, str, str]] = Field(description="since, id, and the frame as JSON")
    passed_over: int


class HeldFrameShown(HeldShown):
    """Frame that a rule holds, with its bytes."""

    frame: dict[str, Any] | None = Field(description="in the client's names; null: not all of it is here")
    broker: dict[str, Any] | None = Field(description="a response as the broker sent it, null where it is the same")
    records: list[dict[str, Any]] = Field(description="by partition: batches with their records, values in base64")


class ResumedShown(Shown):
    """Count of frames that were let go."""

    resumed: int


class HeldQuery(Query):
    """Part of the steps that is wanted."""

    first: int = Field(default=0, ge=0, alias="from", description="number of the first step of each frame")


class HeldBody(BaseModel, extra="forbid"):
    """Base of what is sent about held frames."""

    who: GivenName = Field(default="", max_length=LONGEST_WHO, description="who does it, as others are told")


class RevisedBody(HeldBody):
    """Decision about one revision of a held frame."""

    revision: int = Field(description="the one that was looked at")


class FieldChange(BaseModel, extra="forbid"):
    """Field and the value to put there."""

    path: str = Field(max_length=1000, description="such as topic_data[0].name")
    value: Any = Field(description="null where it may be; bytes as text or hex:0a0b")


class ResumeBody(RevisedBody):
    """Way in which a held frame goes on: with other fields, as other bytes, or unchanged."""

    set: list[FieldChange] | None = Field(default=None, max_length=MOST_CHANGES)
    bytes: str | None = Field(default=None, description="base64, without the size")


class AnswerBody(RevisedBody):
    """Answer to a held request in the broker's place, one of three."""

    error: str | int | None = Field(default=None, description="by name or number")
    body: dict[str, Any] | None = Field(default=None, description="fields of the response, others have their defaults")
    bytes: str | None = Field(default=None, description="base64, without the size")


class DropBody(RevisedBody):
    """Fate of a connection whose frame is dropped."""

    then: AfterDrop = "stall"


class CloseBody(RevisedBody):
    """Manner of closing the connection of a held frame."""

    how: Literal["fin", "rst"] = "fin"


class ExtendBody(HeldBody):
    """Time for which a frame is held longer, ten minutes in all at most."""

    by: By


class ClaimBody(HeldBody):
    """Name of the user who edits a held frame, shown to others for half a minute; may be empty."""


class ResumeAllBody(HeldBody):
    """Rule whose frames are let go; all that are held if none is named."""

    rule: str | None = None


BODIES: dict[str, type[HeldBody]] = {
    "preview": ResumeBody, "resume": ResumeBody, "answer": AnswerBody, "drop": DropBody, "close": CloseBody,
    "extend": ExtendBody, "claim": ClaimBody,
}  # fmt: skip
"""Models of what is sent for each of the actions on one held frame."""
