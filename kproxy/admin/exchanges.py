"""`GET /api/exchanges`: list, search and details of kept exchanges, and `POST /api/exchanges/{id}/send`.

Each process keeps its own exchanges. A list covers all processes, newest first, and takes at most 0.2 seconds; `next`
continues it. `place` marks a position in time: tests read it at their start, request later exchanges with `after`, and
wait for `count` of them with `wait`.

A wait registers as a viewer at each member before it counts kept exchanges, so it misses nothing between both. It
counts as a listener until its client disconnects, at most one minute.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Mapping
from functools import partial
from heapq import merge
from typing import TYPE_CHECKING, Annotated, Any, Literal

import trio
from pydantic import BaseModel, BeforeValidator, Field

from kproxy.record.live_view.masks import ViewerMasks
from kproxy.record.live_view.rows import COLUMNS, exchange_id, joined
from kproxy.record.live_view.watch import UNKNOWN, ViewPart

from .guard import BYTES, JSON
from .held import check_view_writes
from .kept import FoundExchanges, SourceExchanges
from .models import AS_TEXT, Query, SentAgainShown, Shown, duration
from .operation import Operation, OperationCall
from .problem import Problem
from .responses import CountedResponse, attachment, check_listeners, read_parts
from .sources import source_of
from .tail import filter_of_query, sees_originals
from .view import MOST_ROWS, ViewSource, place_of, places_in

if TYPE_CHECKING:
    from .backend import Backend
    from .worker_api import Member

LONGEST_WAIT = 60.0  # Seconds; who wants to wait longer asks again, behind the place of the answer or from the same one
FIRST_PLACE = 0  # Place before all that a process keeps
MOST_LISTED = 1000
MOST_STEPS = 100_000
_BEFORE = re.compile(r"\d{1,4}-\d{1,18}(?:\.\d{1,4}-\d{1,18}){0,255}")
_ONE = re.compile(r"(\d{1,4})-(\d{1,18})")
LIVE = "live"  # Source of live traffic; other sources are opened captures
WaitSeconds = Annotated[float, BeforeValidator(duration), Field(ge=0, le=LONGEST_WAIT), AS_TEXT]
SourceId = Annotated[str, Field(max_length=20, description="live: live traffic; or an id of /api/sources")]


class ExchangesQuery(Query):
    """Choice of the exchanges that are listed."""

    source: SourceId = LIVE
    filter: str = Field(default="", description="in the filter language; empty: all")
    before: str = Field(default="", description="an id, or `next` of the previous response: only older exchanges")
    limit: int = Field(default=200, ge=1, le=MOST_LISTED, description="how many at most")
    after: str = Field(default="", description="`place` of an earlier response: only exchanges completed later")
    wait: WaitSeconds | None = Field(
        default=None, description="timeout, such as 10s: responds once `count` matching exchanges are complete"
    )
    count: int = Field(default=1, ge=1, le=MOST_LISTED, description="number of exchanges for `wait`")


class DetailQuery(Query):
    """Part of the details of an exchange."""

    source: SourceId = LIVE
    first: int = Field(
        default=0, ge=0, le=MOST_STEPS, alias="from", description="number of the first step of each frame"
    )


class ExchangeSourceQuery(Query):
    """Choice of where an exchange is."""

    source: SourceId = LIVE


class FrameQuery(Query):
    """Choice of one frame of an exchange."""

    source: SourceId = LIVE
    of: Literal["request", "response"] = Field(default="request", description="which of the two")
    side: Literal["client", "broker"] = Field(default="client", description="as the client, or the broker, saw it")


class ExchangesShown(Shown):
    """Exchanges, the newest first."""

    columns: list[str] = Field(description="names of the values in a row")
    rows: list[list[Any]]
    next: str | None = Field(description="`before` of a query for older exchanges; null: no more")
    searched: int = Field(description="exchanges that were looked at for this answer")
    unknown: int = Field(description="of them, those that the filter could not judge")
    place: str = Field(description="`after` of a query for later exchanges; empty for captures")
    gone: int | None = Field(description="evicted exchanges after `after`; null: unknown")
    reached: bool | None = Field(description="true: `count` exchanges matched; null without `wait`")


class ExchangeShown(Shown):
    """One exchange with all that was kept of it."""

    id: str
    source: str
    again_of: str | None = Field(description="id of the exchange that was sent again")
    event: dict[str, Any] = Field(description="the data of its request event, as the audit has it")
    request: dict[str, Any] | None = Field(description="client, broker (null when it is the same), changed")
    response: dict[str, Any] | None
    records: list[dict[str, Any]] = Field(description="by partition: batches with their records, values in base64")


async def list_exchanges(backend: Backend, call: OperationCall) -> CountedResponse:
    query = call.query
    filter_of_query(backend, call)
    before, after = places(query.before, backend), places_after(query, backend)
    text, limit = query.filter, query.limit
    reached = None
    if query.wait is not None:
        counted = ExchangeCount(backend, text, after or {}, query.count)
        reached = await call.while_connected(partial(counted.wait, query.wait))

    async def ask(member: Member) -> tuple[int, FoundExchanges]:
        index = member.index
        behind = None if after is None else after.get(index, FIRST_PLACE)
        return index, await member.exchanges(text, before.get(index), limit, behind)

    if query.source == LIVE:
        found = dict(await backend.ask_members(ask))
    else:
        found = {0: await exchanges_of(backend, query.source).exchanges(text, before.get(0), limit)}
    lists = [[(-when, index, number, row) for when, number, row in one.rows] for index, one in found.items()]
    ordered = [*merge(*lists)][:limit]
    rows = [row.encode() for _, _, _, row in ordered]
    last = {index: number for _, index, number, _ in ordered}
    rest: dict[int, int] = {}
    over = True
    for index, one in found.items():
        told = sum(at == index for _, at, _, _ in ordered)
        if told < len(one.rows):  # the next page returns these matches
            rest[index] = last.get(index, before.get(index, 1 + max((number for _, number, _ in one.rows), default=0)))
            over = False
        else:
            rest[index] = 0 if one.next is None else one.next
            over &= one.next is None
    following = None if over else ".".join(exchange_id(index, number) for index, number in sorted(rest.items()))
    gone = [one.gone for one in found.values()]
    seen_up_to = place_of(backend.stream, {index: one.place for index, one in found.items()})
    head = ExchangesShown(
        columns=list(COLUMNS), rows=[], next=following, searched=sum(one.searched for one in found.values()),
        unknown=sum(one.unknown for one in found.values()), reached=reached,
        gone=None if UNKNOWN in gone else sum(gone), place=seen_up_to if query.source == LIVE else "",
    ).model_dump_json().encode()  # fmt: skip
    return CountedResponse(head.replace(b'"rows":[]', b'"rows":' + joined(rows), 1), media_type=JSON)


def places(before: str, backend: Backend) -> Mapping[int, int]:
    """Return the upper bound of exchange numbers by process. Raises Problem."""
    if not before:
        return {}
    if not _BEFORE.fullmatch(before):
        raise Problem(422, "invalid_query", f"before: expected an id such as 0-812, got {before[:80]!r}")
    return {int(index): int(number) for index, number in (one.split("-") for one in before.split("."))}


def places_after(query: ExchangesQuery, backend: Backend) -> Mapping[int, int] | None:
    """Return the position after which exchanges are listed, by process; None: all. Raises Problem."""
    if query.source != LIVE and (query.after or query.wait is not None):
        raise Problem(422, "invalid_query", "after, wait: expected a query about live traffic, got one about a capture")
    if not query.after:
        return None
    found = places_in(query.after, backend.stream)
    if found is None:
        raise Problem(422, "invalid_query", f"after: expected a `place` of this kproxy, got {query.after[:80]!r}")
    return found


async def get_exchange(backend: Backend, call: OperationCall) -> CountedResponse:
    member, number = found_member(backend, call)
    return CountedResponse(
        await member.exchange(number, call.query.first, sees_originals(backend, call)), media_type=JSON
    )


async def get_frame(backend: Backend, call: OperationCall) -> CountedResponse:
    member, number = found_member(backend, call)
    data = b64decode(await member.exchange_frame(number, call.query.of, call.query.side, sees_originals(backend, call)))
    return attachment(data, f"exchange-{member.index}-{number}-{call.query.of}.bin")


async def save_exchange(backend: Backend, call: OperationCall) -> CountedResponse:
    member, number = found_member(backend, call)
    data = b64decode(await member.saved_exchange(number, sees_originals(backend, call)))
    return attachment(data, f"exchange-{member.index}-{number}.pcapng")


def exchanges_of(backend: Backend, source: str) -> SourceExchanges:
    """Return the exchanges of an opened capture. Raises Problem."""
    masks = ViewerMasks(lambda: backend.keeper.store.rule_set)
    return SourceExchanges(source_of(backend, source), backend.view.records, masks)


def found_member(backend: Backend, call: OperationCall) -> tuple[Member | SourceExchanges, int]:
    """Return the process or source of an exchange's id, and its number there. Raises Problem."""
    match = _ONE.fullmatch(call.path["id"])
    if match is not None and call.query.source != LIVE and match[1] == "0":
        return exchanges_of(backend, call.query.source), int(match[2])
    if call.query.source != LIVE:
        raise no_such_exchange(call.path["id"])
    return live_member(backend, call.path["id"])


def live_member(backend: Backend, name: str) -> tuple[Member, int]:
    """Return the process that keeps a live exchange, and the number of the exchange there. Raises Problem."""
    match = _ONE.fullmatch(name)
    if match is None or int(match[1]) >= len(backend.members):
        raise no_such_exchange(name)
    member = backend.members[int(match[1])]
    if member.process is None:
        raise Problem(410, "exchange_gone", f"worker {member.index} is not running, and has kept nothing")
    return member, int(match[2])


def no_such_exchange(name: str) -> Problem:
    return Problem(404, "no_such_exchange", f"expected the id of a kept exchange, got {name[:80]!r}")


REFUSALS = ("no_such_exchange", "no_such_source", "exchange_gone", "view_off", "too_many_answers")
OPERATIONS = (
    Operation("GET", "/api/exchanges", "list_exchanges", "List stored exchanges, newest first.",
              list_exchanges, ExchangesShown, ExchangesQuery,
              refusals=("view_off", "no_such_source", "too_many_answers", "too_many_listeners")),
    Operation("GET", "/api/exchanges/{id}", "get_exchange", "Return one exchange with decoded frames.",
              get_exchange, ExchangeShown, DetailQuery, refusals=REFUSALS),
    Operation("GET", "/api/exchanges/{id}/frame", "get_frame", "Return the bytes of one frame.",
              get_frame, Shown, FrameQuery,
              refusals=REFUSALS, media=BYTES),
    Operation("GET", "/api/exchanges/{id}/capture", "save_exchange", "Return one exchange as a pcapng file.",
              save_exchange, Shown, ExchangeSourceQuery, refusals=REFUSALS, media=BYTES),
)  # fmt: skip


class ExchangeCount:
    """Number of matching exchanges in all processes."""

    def __init__(self, backend: Backend, text: str, after: Mapping[int, int], wanted: int) -> None:
        self.backend, self.text, self.after, self.wanted = backend, text, after, wanted
        self.number = next(backend.numbers)
        self.matched: dict[int, int] = {}
        self.sources: list[ViewSource] = []

    @property
    def reached(self) -> bool:
        return sum(self.matched.values()) >= self.wanted

    async def wait(self, seconds: float) -> bool:
        """Return True once `wanted` exchanges match, False after the timeout. Raises Problem if too many clients
        listen."""
        check_listeners(self.backend)
        self.backend.listeners.add(self.number)
        try:
            with trio.move_on_after(seconds):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(trio.sleep_forever)  # members may end, and others begin in their places
                    for member in self.backend.members:
                        if member.process is not None:
                            nursery.start_soon(self.count, member, nursery.cancel_scope)
        finally:
            self.backend.listeners.discard(self.number)
            for source in self.sources:
                source.end()
        return self.reached

    async def count(self, member: Member, scope: trio.CancelScope) -> None:
        """Count matches at one member until it ends; cancel the scope once the total is reached."""
        source = member.view(self.text, MOST_ROWS, self.after.get(member.index, FIRST_PLACE))
        self.sources.append(source)

        async def take(part: ViewPart) -> None:
            self.matched[member.index] = part.matched
            if self.reached:
                scope.cancel()

        await read_parts(source, take, self.backend.log, "waiting for exchanges", member)


LONGEST_NAME = 100  # Characters of an API's name


class SendAgainBody(BaseModel, extra="forbid"):
    """Word of whoever sends a request again that it may change something."""

    confirm: str = Field(
        default="", max_length=LONGEST_NAME, description="its API, where the request changes something"
    )


async def send_again(backend: Backend, call: OperationCall) -> SentAgainShown:
    assert isinstance(call.body, SendAgainBody), "the table says so"
    check_view_writes(backend)
    member, number = live_member(backend, call.path["id"])
    shown = await member.send_again(number, call.body.confirm)
    backend.log.info("exchange sent again", of=shown.again_of, exchange=shown.id, outcome=shown.outcome,
                     who=call.who or None)  # fmt: skip
    return shown


SEND_OPERATIONS = (
    Operation(
        "POST", "/api/exchanges/{id}/send", "send_exchange_again",
        "Send a request again through its listener.", send_again, SentAgainShown, body=SendAgainBody,
        refusals=(*(one for one in REFUSALS if one not in ("no_such_source", "too_many_answers")), "not_sendable",
                  "cannot_log_in", "not_let_in", "confirm_first", "too_many_sent", "invalid_body"),
    ),
)  # fmt: skip
