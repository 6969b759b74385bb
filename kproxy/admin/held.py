"""Operations on held frames, and their models."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field

from kproxy.base.cooperative import yield_now
from kproxy.record.exchange import Frame, ObservedExchange, SessionWho
from kproxy.record.filters import whole_frame
from kproxy.record.live_view.detail import without
from kproxy.record.live_view.frame_steps import AT_ONCE, MOST_STEPS, show_frame, show_records
from kproxy.record.live_view.masks import ViewerMasks
from kproxy.record.live_view.rows import encode, joined
from kproxy.rules.bodies import carries_records
from kproxy.rules.exchange import AfterDrop
from kproxy.rules.kinds.base.rule import LiveRule
from kproxy.rules.rule_set import HowGone
from kproxy.session.held_frames import LONGEST_HOLD, HeldFrame

from .guard import JSON
from .models import AS_TEXT, LONGEST_NUMBER, Query, Shown, duration, printable
from .operation import Operation, OperationCall
from .problem import Problem
from .responses import CountedResponse

if TYPE_CHECKING:
    from .backend import Backend
    from .worker_api import Member

MOST_LISTED = 1000  # Frames in one list: more are not held by all rules that a person looks at
MOST_CHANGES = 10_000
LONGEST_WHO = 100  # Characters of a user's name

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
    on_timeout: str = Field(description="action at the timeout: pass, close, or the name of an error")
    revision: int = Field(description="required in decisions; another number means that the frame has changed")
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
    max_frames: int = Field(description="frames that intercept rules may hold at a time, per process")
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


class ResumedFramesShown(Shown):
    """Count of resumed frames."""

    resumed: int


class HeldQuery(Query):
    """Part of the steps that is wanted."""

    first: int = Field(default=0, ge=0, alias="from", description="number of the first step of each frame")


class HeldBody(BaseModel, extra="forbid"):
    """Base of what is sent about held frames."""

    who: GivenName = Field(default="", max_length=LONGEST_WHO, description="name of the user, shown to others")


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

    connection: AfterDrop = "stall"


class CloseBody(RevisedBody):
    """Manner of closing the connection of a held frame."""

    close_with: Literal["fin", "rst"] = "fin"


class ExtendBody(HeldBody):
    """Time for which a frame is held longer, ten minutes in all at most."""

    by: By


class ClaimBody(HeldBody):
    """Name of the user who edits a held frame, shown to others for half a minute; may be empty."""


class ResumeAllBody(HeldBody):
    """Rule whose held frames are resumed; null: all held frames."""

    rule: str | None = None


BODIES: dict[str, type[HeldBody]] = {
    "preview": ResumeBody, "resume": ResumeBody, "answer": AnswerBody, "drop": DropBody, "close": CloseBody,
    "extend": ExtendBody, "claim": ClaimBody,
}  # fmt: skip
"""Request bodies by action on a held frame."""


MOST_DATA = 1 << 20  # Bytes of a frame that are shown


@dataclass(frozen=True, slots=True)
class HeldBytes:
    """Bytes of a held frame without sizes. `frame`: in the client's names; `came`: as received; None: incomplete.
    `records`: users' records may be shown, as `masks` masks them; `first`: number of the first step to show."""

    seen: ObservedExchange
    at: Literal["request", "response"]
    frame: bytes | None
    came: bytes | None
    records: bool
    first: int = 0
    masks: ViewerMasks | None = None

    def shown(self) -> bytes:
        """Return `frame`, `broker` and `records` as members of a JSON object, without its braces."""
        seen, parts = self.seen, []
        kept = None if self.frame is None else self.kept(self.frame)
        parts.append(b'"frame":' + self.side(kept, "client"))
        differs = self.at == "response" and self.came is not None and self.came != self.frame
        broker: Frame | None = self.whole(self.came) if differs and self.came is not None else None
        if broker is not None and self.masks:
            broker = without(replace(self.seen, response=broker), "response")
        parts.append(b'"broker":' + self.side(broker, "broker"))
        records: list[bytes] = []
        if kept is not None and carries_records(seen.key, self.at) and not kept.withheld:
            if self.at == "request":
                seen.request = kept
            else:
                seen.response, seen.outcome = kept, "answered"
            for one in show_records(seen, records=self.records):
                yield_now()
                records.append(encode(one))
        parts.append(b'"records":' + joined(records))
        yield_now()
        return b",".join(parts)

    def kept(self, data: bytes) -> Frame | None:
        frame = self.whole(data)
        return frame if self.masks is None else self.masks.frame(self.seen, self.at, frame)

    def whole(self, data: bytes) -> Frame:
        yield_now()
        return whole_frame(data, self.seen.key, self.seen.version, self.at, 0.0)

    def side(self, kept: Frame | None, side: str) -> bytes:
        if kept is None:
            return b"null"
        yield_now()
        most = min(self.first + AT_ONCE + 1, MOST_STEPS)
        frame = show_frame(self.seen, self.at, kept, records=self.records, most=most)
        yield_now()
        more: dict[str, Any] = {}
        if len(frame.data) > MOST_DATA:
            frame.data, more = frame.data[:MOST_DATA], {"form": "head"}
        told = frame.shown(side, self.first) | more
        yield_now()
        return encode(told)


def bytes_of(
    held: HeldFrame, frame: bytes | None, records: bool, first: int, masks: ViewerMasks | None = None
) -> HeldBytes:
    """Bytes to show for a held frame with `frame` in its place, from step number `first` on."""
    exchange, session = held.evaluation.exchange, held.session
    seen = ObservedExchange(SessionWho(session), 0, exchange.api.key, exchange.version, exchange.correlation_id,
                            exchange.client_id, None, acks=exchange.acks, depth="full")  # fmt: skip
    at: Literal["request", "response"] = "request" if held.at == "request" else "response"
    return HeldBytes(seen, at, frame, held.came() if at == "response" else None, records, first, masks)


async def list_held(backend: Backend, call: OperationCall) -> CountedResponse:
    """Return the held frames of all members, oldest first."""
    lists = await backend.ask_members(lambda member: member.held())
    rows = sorted(row for each in lists for row in each.rows)[:MOST_LISTED]
    rules = (running.rule for running in backend.keeper.store.rule_set.live)
    most = sum(most_of(rule) for rule in rules)
    passed_over = sum(each.passed_over for each in lists)
    head = HeldListShown(held=[], max_frames=most, passed_over=passed_over).model_dump_json().encode()
    held = joined(row.encode() for _, _, row in rows)
    return CountedResponse(head.replace(b'"held":[]', b'"held":' + held, 1), media_type=JSON)


def most_of(rule: LiveRule) -> int:
    """Maximum of frames that a rule holds; 0 for kinds without one."""
    return getattr(rule, "max_frames", 0) if rule.kind == "intercept" else 0


async def get_held(backend: Backend, call: OperationCall) -> CountedResponse:
    number = call.path["id"]
    text = await holder(backend, number).held_frame(number, call.query.first)
    return CountedResponse(text, media_type=JSON)


async def preview(backend: Backend, call: OperationCall) -> CountedResponse:
    number, body = call.path["id"], call.body
    assert isinstance(body, ResumeBody), "the table says so"
    text = await holder(backend, number).held_preview(number, body)
    return CountedResponse(text, media_type=JSON)


async def act(action: str, backend: Backend, call: OperationCall) -> HeldShown:
    number, body = call.path["id"], call.body
    assert isinstance(body, HeldBody), "the table says so"
    check_view_writes(backend)
    who = body.who or call.who
    shown = await holder(backend, number).held_action(number, body.model_copy(update={"who": who}))
    if action != "claim":
        backend.log.info("held frame", action=action, held=number, rule=shown.rule, who=who or None)
    return shown


async def resume_all(backend: Backend, call: OperationCall) -> ResumedFramesShown:
    """Resume the frames of one rule, or of all rules. Raises NoSuchRule."""
    body = call.body
    assert isinstance(body, ResumeAllBody), "the table says so"
    check_view_writes(backend)
    if body.rule is not None:
        _ = backend.keeper.store[body.rule]
    who = body.who or call.who
    count = sum(await backend.ask_members(lambda member: member.resume_held(body.rule, who)))
    backend.log.info("held frames resumed", rule=body.rule, frames=count, who=who or None)
    return ResumedFramesShown(resumed=count)


def holder(backend: Backend, number: str) -> Member:
    """Return the member that holds a frame: the id starts with the connection's number. Raises Problem."""
    connection, dash, count = number.partition("-")
    if not dash or not (connection.isdecimal() and count.isdecimal()) or len(number) > 2 * LONGEST_NUMBER:
        raise Problem(404, "no_such_held", f'no frame "{number[:60]}" is held')
    return backend.members[int(connection) % len(backend.members)]


def check_view_writes(backend: Backend) -> None:
    """Raise Problem if the config does not allow users of the view to change frames."""
    if not backend.view.write:
        raise Problem(403, "read_only", "the config has `view: {write: false}`")


REFUSALS = ("no_such_held", "held_changed", "view_off", "invalid_body")
EDITS = ("not_editable", "invalid_edit", "too_large")


def action(name: str, summary: str, body: type[HeldBody], *more: str) -> Operation:
    """Operation on one held frame; `more`: its additional codes of refusals."""
    return Operation("POST", f"/api/held/{{id}}/{name}", f"{name}_held", summary, partial(act, name), HeldShown,
                     body=body, refusals=(*REFUSALS, *more))  # fmt: skip


OPERATIONS = (
    Operation("GET", "/api/held", "list_held", "List the frames that rules hold.", list_held, HeldListShown,
              refusals=("too_many_answers",)),
    Operation("POST", "/api/held/resume", "resume_all_held", "Resume all held frames of a rule, or of all rules.",
              resume_all, ResumedFramesShown, body=ResumeAllBody,
              refusals=("no_such_rule", "invalid_body", "view_off")),
    Operation("GET", "/api/held/{id}", "get_held", "Return one held frame with its bytes.",
              get_held, HeldFrameShown, HeldQuery,
              refusals=("no_such_held", "view_off", "too_many_answers")),
    Operation("POST", "/api/held/{id}/preview", "preview_held",
              "Return the frame as an edit would send it, without effect.",
              preview, HeldFrameShown, body=ResumeBody, changes=False,
              refusals=(*REFUSALS, *EDITS, "too_many_answers")),
    action("resume", "Resume a frame, unchanged or with other fields or bytes.", ResumeBody, *EDITS),
    action("answer", "Answer a request in place of the broker.", AnswerBody, "no_answer_due", *EDITS),
    action("drop", "Drop a frame.", DropBody),
    action("close", "Close the connection of a frame.", CloseBody),
    action("extend", "Extend a hold, to at most ten minutes in all.", ExtendBody, "not_editable"),
    action("claim", "Set the editor of a frame and extend its hold to at least 30 s.", ClaimBody),
)  # fmt: skip
