"""Evaluation of one rule for one request, with the reasons as text, and the texts of decisions and plan depths."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from kproxy.base.terminal import duration
from kproxy.protocol.table import errors as error_codes
from kproxy.protocol.table.api_keys import PRODUCE
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
)
from kproxy.rules.kinds.advertise import AdvertiseRule
from kproxy.rules.kinds.base.name_rule import NameRule
from kproxy.rules.kinds.base.rule import Direction, LiveRule, Rule
from kproxy.rules.kinds.client_rack import ClientRack
from kproxy.rules.kinds.limit_versions import LimitVersions, spelled
from kproxy.rules.names.composed import NameMaps
from kproxy.rules.rule_set import ActiveRule
from kproxy.rules.trigger import When
from kproxy.session.plan import HEAD, LIVE, STOP, STREAM, WHOLE, Step
from kproxy.session.rewrite.addresses import carries_addresses
from kproxy.session.rewrite.names import name_rewrite
from kproxy.session.rewrite.racks import rack_rewrite
from kproxy.tools.rehearse.explain.target import Target

from .target import SelectorFinding, SelectorFindings, explain_selectors

ENDS = {
    "fin": "the connection is closed",
    "rst": "the connection is reset",
    "half": "kproxy sends nothing more to the client",
}
WAYS = {"pass": "goes on", "close": "takes its connection along"}
AFTER = {"stall": "nothing more comes on the connection", "close": "the connection is closed", "continue": "it goes on"}


def words(decision: Decision, matched: Sequence[Entity], direction: str) -> str:
    """Return in words the effect of a decision on a request or its response. `matched`: the entities it is about."""
    match decision:
        case Fail(code=code, entities=chosen, whole=whole, records=records):
            where = "in the broker's place" if direction == "request" else "after the broker's work"
            of = "" if whole else told(chosen or matched)
            named = f", names {len(records)} record{'s' * (len(records) != 1)}" if records else ""
            return f"answers {error(code)} {where}{of}{named}"
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


OPAQUE = "none: passes as it streams in"
WHOLE_TEXT = "fields: held until it is whole, and gone through for names and addresses"
LIVE_DEPTHS = {
    FrameDepth.HEADER: "header: its header is read, the rest streams on",
    FrameDepth.BODY: "full: held until it is whole, and decoded",
}
PLAIN = {
    HEAD: "header: acks is read, the rest streams on",
    WHOLE: WHOLE_TEXT,
    STREAM: "fields: streams on when it is long, its end is gone through for addresses",
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
        if depth == FrameDepth.NOTHING or (depth == FrameDepth.HEADER and plain.startswith("fields")):
            return plain
        if direction == "response":
            return f"{LIVE_DEPTHS[depth]}, if a rule has fired for the request; else {plain}"
        return LIVE_DEPTHS[depth]
    if step.api == "ApiVersions" and direction == "response":
        return "full: held until it is whole, and cut to what may be used"
    return PLAIN.get(getattr(step, direction) or 0, OPAQUE)


Word = Literal["acts", "depends", "not now", "dry run", "no", "never"]
DIRECTIONS: tuple[Direction, ...] = ("request", "response")
SPACES = {"topics": "topic", "groups": "group", "transactional_ids": "transactional_id"}


@dataclass(frozen=True)
class Opinion:
    """Opinion of one rule about a target, in a word; `lines` has the reasons or the effects of the rule.

    The rule acts; depends on unknown facts; does not act now, since its trigger does not fire; is a dry run; does not
    act (no), since a selector fails; or never acts on a request of this API and version.
    """

    rule: Rule
    word: Word
    lines: tuple[str, ...]


def opinion(rule: Rule, running: ActiveRule | None, target: Target, now: float) -> Opinion:
    """Return the opinion of a rule about a target, which the rule counts as the proxy would."""
    if running is not None and isinstance(rule, LiveRule):
        return of_live(rule, running, target, now)
    return of_connection(rule, target)


def reasons(findings: Sequence[SelectorFinding]) -> tuple[str, ...]:
    return tuple(
        f"not: {one.text}" if one.selector.startswith("not ") and one.word == "fails" else one.text for one in findings
    )


# ---- live rules


def of_live(rule: LiveRule, running: ActiveRule, target: Target, now: float) -> Opinion:
    depths = {direction: rule.depth(direction, target.key, target.version) for direction in DIRECTIONS}
    judged = explain_selectors(rule, target.subject)
    shaped = running.effect.shape(target.exchange(set()).connection) is not None
    if rule.connects or shaped:
        return of_opening(rule, judged, depths, shaped)
    if all(depth == FrameDepth.NOTHING for depth in depths.values()):
        return Opinion(rule, "never", (f"{rule.kind}, as it is written here, does nothing with {target.subject.api}",))
    if judged.word == "fails":
        always = any(one.selector in ("api", "version") or "requests say no" in one.text or "has no acks" in one.text
                     for one in judged.findings)  # fmt: skip
        return Opinion(rule, "never" if always else "no", reasons(judged.findings))
    if judged.word == "open":
        return Opinion(rule, "depends", (*reasons(judged.findings), *chance(rule.when)))
    fired = running.trigger.fires(now, 1, target.message.header.get("client_id"))
    running.count(fired=fired)
    by_chance = rule.when is not None and rule.when.by_chance
    if not fired and not by_chance:
        return Opinion(rule, "not now", (not_its_turn(rule.when, running),))
    reads: set[str] = set()
    conditions = tuple(one.text for one in judged.findings if one.selector == "records")
    lines = (*chance(rule.when), *conditions, *does(running, target, judged, depths, now, reads))
    if reads:
        fields = ", ".join(sorted(reads))
        return Opinion(
            rule, "depends", (*chance(rule.when), f"looks at {fields} of the request, which a frame would tell")
        )
    if rule.when is not None and rule.when.hold:
        lines = ("the request waits until it is resumed", *lines)
    return Opinion(rule, "dry run" if running.dry_run else "acts", lines)


def of_opening(rule: LiveRule, judged: SelectorFindings, depths: dict[Direction, FrameDepth], shaped: bool) -> Opinion:
    """Return the opinion of a rule that acts when a connection opens, or on how its bytes flow (`shaped`)."""
    what = "how the bytes of the connection flow" if shaped else "a connection when it opens"
    lines = (f"is about {what}, whatever is in its frames", *chance(rule.when))
    if rule.connects and any(depths.values()):
        lines = (f"is about {what}, and about frames",)
    if judged.word == "fails":
        return Opinion(rule, "no", reasons(judged.findings))
    if judged.word == "open":
        return Opinion(rule, "depends", (*reasons(judged.findings), *lines))
    return Opinion(rule, "dry run" if rule.mode == "dry_run" else "acts", lines)


def chance(when: When | None) -> Iterator[str]:
    if when is not None and when.by_chance:
        grows = f", which grows for {when.ramp:g} s" if when.ramp else ""
        yield f"by chance: {when.probability or 1:g}{grows}"


def not_its_turn(when: When | None, running: ActiveRule) -> str:
    written = {} if when is None else when.model_dump(by_alias=True, exclude_unset=True)
    said = ", ".join(f"{name}: {value}" for name, value in written.items())
    return f"it is not its turn: when {{{said}}}, and this is request {running.matched} that it is about"


def does(
    running: ActiveRule,
    target: Target,
    judged: SelectorFindings,
    depths: dict[Direction, FrameDepth],
    now: float,
    reads: set[str],
) -> Iterator[str]:
    """Yield the effects: the decisions about the request, and a note that decisions about the response follow.

    `reads` gets the unknown fields of the request that the effect looked at."""
    matched = judged.entities if target.frame is not None else target.entities
    if running.rule.judged_late(target.key):
        yield "has its say when the response has come"
        return
    if running.rule.family == "code":  # a user's function may have side effects, and no client has sent this
        yield f"calls {getattr(running.rule, 'call', 'a function')}"
        return
    if depths["request"] != FrameDepth.NOTHING:
        try:
            decided = running.effect.on_request(target.exchange(reads), matched, now)
        except Exception as error:  # noqa: BLE001  # any exception of a rule is reported
            yield f"goes wrong: {type(error).__name__}: {error}"
            return
        for decision in decided:
            yield words(decision, matched, "request")
        if not decided and depths["response"] == FrameDepth.NOTHING:
            yield "lets this request pass as it is"
    if depths["response"] != FrameDepth.NOTHING:
        acks = target.message.body.get("acks") if target.key == PRODUCE else None
        yield "nothing comes of it: with acks 0 there is no response" if acks == 0 else "acts on the response"


# ---- rules of connections


def of_connection(rule: Rule, target: Target) -> Opinion:
    judged = explain_selectors(rule, target.subject)
    if judged.word == "fails":
        return Opinion(rule, "no", reasons(judged.findings))
    word, lines = binding(rule, target)
    if word == "acts" and judged.word == "open":
        return Opinion(rule, "depends", (*reasons(judged.findings), *lines))
    return Opinion(rule, word, lines)


def binding(rule: Rule, target: Target) -> tuple[Word, tuple[str, ...]]:
    """Return the effects, with reasons, of a rule that binds when a connection opens on a request and its response."""
    if isinstance(rule, NameRule):
        return renaming(rule, target)
    if isinstance(rule, AdvertiseRule):
        if target.version not in carries_addresses(target.key):
            return "never", (f"responses of {target.subject.api} name no broker's address",)
        return "acts", (f"brokers in the response have the addresses {advertised(rule)}",)
    if isinstance(rule, ClientRack):
        if rack_rewrite(target.key, target.version, rule.rack.encode()) is None:
            return "never", (f"requests of {target.subject.api} {target.version} say no rack of the client",)
        return "acts", (f"the rack is {rule.rack} where the client says none",)
    if isinstance(rule, LimitVersions):
        span = rule.limit.span(target.key)
        if span is None:
            return "never", (f"says nothing about {target.message.api.name}",)
        if span[0] <= target.version <= span[1]:
            return "acts", (f"allows versions {spelled(span)}, this one passes",)
        return "acts", (f"allows versions {spelled(span)}: a request in this one closes the connection",)
    return "acts", ("holds for the connection",)


def renaming(rule: NameRule, target: Target) -> tuple[Word, tuple[str, ...]]:
    names = NameMaps.of(rule.layers())
    if names is None or not any(name_rewrite(target.key, target.version, one, names) for one in DIRECTIONS):
        return "never", (f"{target.subject.api} carries no such names",)
    lines, named = [], target.frame is not None
    for entity in target.subject.entities:
        for field, selector in SPACES.items():
            name, mapped = getattr(entity, selector), getattr(names, field)
            if name is None or mapped is None:
                continue
            named = True
            broker = mapped.to_broker(name.encode())
            if mapped.is_unreachable(name.encode()):
                lines.append(f"{selector.replace('_', ' ')} {name} cannot be reached, its spelling belongs to another")
            elif broker != name.encode():
                lines.append(
                    f"{selector.replace('_', ' ')} {name} is {broker.decode('utf-8', 'replace')} on the brokers"
                )
    if not named:
        return "acts", ("changes names in requests and in responses",)
    return "acts", tuple(dict.fromkeys(lines)) or ("leaves these names as they are",)


def advertised(rule: AdvertiseRule) -> str:
    if rule.nodes is not None:
        return ", ".join(f"{node}: {address}" for node, address in rule.nodes.items())
    if rule.sni is not None:
        return rule.sni
    return f"{rule.host or 'of the listener'}, ports {rule.ports or 'after its own'}"
