"""Words for decisions of live rules, and for how deep a plan looks at frames."""

from __future__ import annotations

from collections.abc import Sequence

from kproxy.protocol.table import errors as error_codes
from kproxy.rules.entity import Entity
from kproxy.rules.exchange import (
    Answer,
    Await,
    Close,
    Decision,
    Delay,
    Drop,
    Edit,
    Fail,
    FrameDepth,
    Hold,
    LeaveOut,
    Reframe,
    Repeat,
    Swallow,
    Swap,
    Throttle,
)  # fmt: skip
from kproxy.session.step import HEAD, LIVE, STOP, STREAM, WHOLE, Step

ENDS = {
    "fin": "the connection is closed",
    "rst": "the connection is reset",
    "half": "kproxy sends nothing more to the client",
}
WAYS = {"pass": "goes on", "close": "takes its connection along"}
AFTER = {"stall": "nothing more comes on the connection", "close": "the connection is closed", "continue": "it goes on"}


def words(decision: Decision, matched: Sequence[Entity], direction: str) -> str:
    """Return in words what a decision does to a request or its response. `matched`: the entities it is about."""
    match decision:
        case Fail(code=code, entities=chosen, whole=whole):
            where = "in the broker's place" if direction == "request" else "after the broker's work"
            of = "" if whole else told(chosen or matched)
            return f"answers {error(code)} {where}{of}"
        case Delay(seconds=seconds):
            return f"the {direction} waits for {duration(seconds)}"
        case Await():
            return f"the {direction} waits until the debt of its quota is paid"
        case Throttle(throttle_time=throttle_time, mute=mute):
            parts = [f"the response reports throttle_time_ms {round(throttle_time * 1000)}"] if throttle_time else []
            parts += [f"the client's channel is muted for {duration(mute)}"] if mute else []
            return ", ".join(parts)
        case Hold(seconds=seconds, then=then):
            end = (
                f"is answered {error(then)}"
                if isinstance(then, int)
                else {"pass": "goes on", "close": "is closed"}[then]
            )
            return f"the {direction} is held until somebody lets it go; after {duration(seconds)} it {end}"
        case Drop(then=then):
            return f"the {direction} is lost, {AFTER[then]}"
        case Close(how=how):
            return f"{ENDS[how]} in place of the {direction}"
        case Answer():
            return "kproxy answers in the broker's place"
        case Edit() | LeaveOut():
            return f"the {direction} is changed"
        case Reframe(then=then):
            end = "" if then is None else f", then {ENDS[then]}"
            return f"the {direction}'s bytes are spoiled{end}"
        case Repeat(times=times):
            return f"the response comes {times + 1} times"
        case Swap():
            return "the response comes after the next one"
        case Swallow():
            return "nothing goes anywhere on this connection any more"


def error(code: int) -> str:
    known = error_codes.numbers().get(code)
    return f"{known.name} ({code})" if known is not None else str(code)


def duration(seconds: float) -> str:
    return f"{round(seconds * 1000, 3):g} ms" if seconds < 1 else f"{round(seconds, 3):g} s"


def told(entities: Sequence[Entity]) -> str:
    """Return the first three entities in words, `, for topic orders partition 0 and 2 more`; empty for none."""
    names = [named(one) for one in entities]
    names = [one for one in names if one]
    if not names:
        return ""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f", for {'; '.join(names[:3])}{more}"


def named(entity: Entity) -> str:
    """Return the parts of an entity that are known, in words: `topic orders partition 0`."""
    values = {
        name: getattr(entity, name)
        for name in ("topic", "topic_id", "partition", "group", "transactional_id", "member")
    }
    if values["topic"] is not None:
        values["topic_id"] = None
    said = [f"{name.replace('_', ' ')} {value}" for name, value in values.items() if value not in (None, "")]
    return " ".join(said)


OPAQUE = "opaque: passes as it streams in"
WHOLE_TEXT = "walk: held until it is whole, and gone through for names and addresses"
LIVE_DEPTHS = {
    FrameDepth.HEADER: "head: its header is read, the rest streams on",
    FrameDepth.BODY: "full: held until it is whole, and decoded",
}
PLAIN = {
    HEAD: "head: acks is read, the rest streams on",
    WHOLE: WHOLE_TEXT,
    STREAM: "walk: streams on when it is long, its end is gone through for addresses",
}


def sides(step: Step) -> tuple[str, str]:
    """Return in words how deep a plan's step looks at the request and at its response."""
    return side(step, "request"), side(step, "response")


def side(step: Step, direction: str) -> str:
    if step.request == STOP:
        return f"stopped: the connection is closed, {step.stop}" if direction == "request" else "there is none"
    if getattr(step, direction) == LIVE and step.program is not None:
        depth: FrameDepth = getattr(step.program, direction)
        plain = side(step.plain, direction)
        if depth == FrameDepth.NOTHING or (depth == FrameDepth.HEADER and plain.startswith("walk")):
            return plain
        if direction == "response":
            return f"{LIVE_DEPTHS[depth]}, if a rule has fired for the request; else {plain}"
        return LIVE_DEPTHS[depth]
    if step.api == "ApiVersions" and direction == "response":
        return "full: held until it is whole, and cut to what may be used"
    return PLAIN.get(getattr(step, direction) or 0, OPAQUE)
