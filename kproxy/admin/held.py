"""Operations on frames that rules hold: look at them, change them, let them go, answer or drop them."""

from __future__ import annotations

from functools import partial

from starlette.responses import Response

from kproxy.record.live_view.rows import joined
from kproxy.rules.kinds.base.rule import LiveRule

from .backend import Backend
from .guard import JSON
from .held_frames import MOST_LISTED
from .held_models import (
    AnswerBody,
    ClaimBody,
    CloseBody,
    DropBody,
    ExtendBody,
    HeldBody,
    HeldFrameShown,
    HeldListShown,
    HeldQuery,
    HeldShown,
    ResumeAllBody,
    ResumeBody,
    ResumedShown,
)
from .long_answer import CountedResponse, room_for_answer
from .member import Member, MemberGone
from .operation import Operation, OperationCall
from .problem import Problem
from .resources import LONGEST_NUMBER


async def list_held(backend: Backend, call: OperationCall) -> Response:
    """Answer with what all members hold, oldest first."""
    room_for_answer()
    lists = await backend.ask_members(lambda member: member.held())
    rows = sorted(row for each in lists for row in each.rows)[:MOST_LISTED]
    rules = (running.rule for running in backend.keeper.store.rule_set.live)
    most = sum(most_of(rule) for rule in rules)
    passed_over = sum(each.passed_over for each in lists)
    head = HeldListShown(held=[], most=most, passed_over=passed_over).model_dump_json().encode()
    held = joined(row.encode() for _, _, row in rows)
    return CountedResponse(head.replace(b'"held":[]', b'"held":' + held, 1), media_type=JSON)


def most_of(rule: LiveRule) -> int:
    """Return how many frames a rule may hold at a time; 0 for one that is not made for it."""
    return getattr(rule, "most", 0) if rule.kind == "intercept" else 0


async def get_held(backend: Backend, call: OperationCall) -> Response:
    number = call.path["id"]
    check_view(backend)
    room_for_answer()
    try:
        text = await holder(backend, number).held_frame(number, call.query.first)
    except Problem as error:
        raise worker_gone(error) from None
    return CountedResponse(text, media_type=JSON)


async def preview(backend: Backend, call: OperationCall) -> Response:
    """Have the member that holds the frame show it with an edit."""
    number, body = call.path["id"], call.body
    assert isinstance(body, ResumeBody), "the table says so"
    check_view(backend)
    room_for_answer()
    try:
        text = await holder(backend, number).held_preview(number, body)
    except Problem as error:
        raise worker_gone(error) from None
    return CountedResponse(text, media_type=JSON)


async def act(action: str, backend: Backend, call: OperationCall) -> HeldShown:
    """Have the member that holds the frame do what is asked."""
    number, body = call.path["id"], call.body
    assert isinstance(body, HeldBody), "the table says so"
    check_view(backend, writes=True)
    who = body.who or call.who
    try:
        shown = await holder(backend, number).held_action(action, number, body.model_copy(update={"who": who}))
    except Problem as error:
        raise worker_gone(error) from None
    if action != "claim":
        backend.log.info("held frame", action=action, held=number, rule=shown.rule, who=who or None)
    return shown


async def resume_all(backend: Backend, call: OperationCall) -> ResumedShown:
    """Let go what a rule holds, or all that is held. Raises NoSuchRule."""
    body = call.body
    assert isinstance(body, ResumeAllBody), "the table says so"
    check_view(backend, writes=True)
    if body.rule is not None:
        _ = backend.keeper.store[body.rule]
    who = body.who or call.who
    count = sum(await backend.ask_members(lambda member: member.resume_held(body.rule, who)))
    backend.log.info("held frames resumed", rule=body.rule, frames=count, who=who or None)
    return ResumedShown(resumed=count)


def holder(backend: Backend, number: str) -> Member:
    """Return the member that holds a frame: its id begins with its connection's number. Raises Problem."""
    connection, dash, count = number.partition("-")
    if not dash or not (connection.isdecimal() and count.isdecimal()) or len(number) > 2 * LONGEST_NUMBER:
        raise Problem(404, "no_such_held", f'no frame "{number[:60]}" is held')
    return backend.members[int(connection) % len(backend.members)]


def check_view(backend: Backend, *, writes: bool = False) -> None:
    """Raise Problem if the config does not let anybody look into frames, or change them."""
    if not backend.view.enabled:
        raise Problem(403, "view_off", "the config has `view: {enabled: false}`")
    if writes and not backend.view.write:
        raise Problem(403, "read_only", "the config has `view: {write: false}`")


def worker_gone(error: Problem) -> Problem:
    """Return the problem itself, or that the worker is gone: it has ended, or another one begins in its place."""
    if not isinstance(error, MemberGone) and not (error.code == "internal" and error.message.startswith("worker ")):
        return error
    return Problem(503, "worker_gone", f"what it held is gone with it: {error.message}")


REFUSALS = ("no_such_held", "held_changed", "worker_gone", "view_off", "invalid_body")
EDITS = ("not_editable", "invalid_edit", "too_large")


def action(name: str, summary: str, body: type[HeldBody], *more: str) -> Operation:
    """Return the operation that does this to one held frame; `more`: codes of other refusals than all have."""
    return Operation("POST", f"/api/held/{{id}}/{name}", f"{name}_held", summary, partial(act, name), HeldShown,
                     body=body, refusals=(*REFUSALS, *more))  # fmt: skip


OPERATIONS = (
    Operation("GET", "/api/held", "list_held", "Frames that rules hold now.", list_held, HeldListShown,
              refusals=("too_many_answers",)),
    Operation("POST", "/api/held/resume", "resume_all_held", "Let go all that a rule holds, or all that is held.",
              resume_all, ResumedShown, body=ResumeAllBody, refusals=("no_such_rule", "invalid_body", "view_off")),
    Operation("GET", "/api/held/{id}", "get_held", "One of them, with its bytes.", get_held, HeldFrameShown, HeldQuery,
              refusals=("no_such_held", "worker_gone", "view_off", "too_many_answers")),
    Operation("POST", "/api/held/{id}/preview", "preview_held", "The frame as it would leave with an edit; nothing "
              "happens.", preview, HeldFrameShown, body=ResumeBody, changes=False,
              refusals=(*REFUSALS, *EDITS, "too_many_answers")),
    action("resume", "Let it go on, with other fields or bytes, or unchanged.", ResumeBody, *EDITS),
    action("answer", "Answer the request in the broker's place.", AnswerBody, "no_answer_due", *EDITS),
    action("drop", "Let it go nowhere.", DropBody),
    action("close", "Close its connection.", CloseBody),
    action("extend", "Hold it longer, ten minutes in all at most.", ExtendBody, "not_editable"),
    action("claim", "Say who edits it, and hold it for half a minute at least, ten minutes in all at most.", ClaimBody),
)  # fmt: skip
