"""Operations on frames that rules hold: look at them, change them, let them go, answer or drop them."""

from __future__ import annotations

from functools import partial

from kproxy.rules.kinds.base.live import LiveRule

from .backend import Backend
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
from .member import Member, MemberGone
from .operation import Operation, OperationCall, OperationHandler
from .problem import Problem
from .resources import LONGEST_NUMBER


async def list_held(backend: Backend, call: OperationCall) -> HeldListShown:
    """Answer with what all members hold, oldest first."""
    lists = await backend.ask_members(lambda member: member.held())
    held = sorted((one for each in lists for one in each.held), key=lambda one: (one.since, one.id))
    rules = (running.rule for running in backend.keeper.store.rule_set.live)
    most = sum(most_of(rule) for rule in rules)
    return HeldListShown(held=held[:MOST_LISTED], most=most, passed_over=sum(each.passed_over for each in lists))


def most_of(rule: LiveRule) -> int:
    """Return how many frames a rule may hold at a time; 0 for one that is not made for it."""
    return getattr(rule, "most", 0) if rule.kind == "intercept" else 0


async def get_held(backend: Backend, call: OperationCall) -> HeldFrameShown:
    number = call.path["id"]
    check_view(backend)
    try:
        return await holder(backend, number).held_frame(number, call.query.first)
    except Problem as error:
        raise worker_gone(error) from None


async def act(action: str, backend: Backend, call: OperationCall) -> HeldShown:
    """Have the member that holds the frame do what is asked."""
    number, body = call.path["id"], call.body
    assert isinstance(body, HeldBody), "the table says so"
    check_view(backend, writes=action != "preview")
    who = body.who or call.who
    try:
        given = body.model_copy(update={"who": who}).model_dump(mode="json")
        shown = await holder(backend, number).held_action(action, number, given)
    except Problem as error:
        raise worker_gone(error) from None
    if action not in ("preview", "claim"):
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


def action(
    name: str, summary: str, body: type[HeldBody], *, answer: type[HeldShown] = HeldShown, more: tuple[str, ...] = ()
) -> Operation:
    """Return the operation that does this to one held frame."""
    handle: OperationHandler = partial(act, name)
    refusals = ("no_such_held", "held_changed", "worker_gone", "view_off", *more)
    return Operation("POST", f"/api/held/{{id}}/{name}", f"{name}_held", summary, handle, answer, body=body,
                     refusals=refusals, changes=None if name != "preview" else False)  # fmt: skip


EDITS = ("not_editable", "invalid_edit", "too_large", "invalid_body")

OPERATIONS = (
    Operation("GET", "/api/held", "list_held", "Frames that rules hold now.", list_held, HeldListShown),
    Operation("POST", "/api/held/resume", "resume_all_held", "Let go all that a rule holds, or all that is held.",
              resume_all, ResumedShown, body=ResumeAllBody, refusals=("no_such_rule", "invalid_body", "view_off")),
    Operation("GET", "/api/held/{id}", "get_held", "One of them, with its bytes.", get_held, HeldFrameShown, HeldQuery,
              refusals=("no_such_held", "worker_gone", "view_off")),
    action("preview", "The frame as it would leave with an edit; nothing happens.", ResumeBody, answer=HeldFrameShown,
           more=EDITS),
    action("resume", "Let it go on, with other fields or bytes, or unchanged.", ResumeBody, more=EDITS),
    action("answer", "Answer the request in the broker's place.", AnswerBody, more=("no_answer_due", *EDITS)),
    action("drop", "Let it go nowhere.", DropBody, more=("invalid_body",)),
    action("close", "Close its connection.", CloseBody, more=("invalid_body",)),
    action("extend", "Hold it longer, ten minutes in all at most.", ExtendBody, more=("not_editable", "invalid_body")),
    action("claim", "Say who is at it, for half a minute.", ClaimBody, more=("invalid_body",)),
)  # fmt: skip
