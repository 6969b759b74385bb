"""Operations on rules, and rules as the API shows them."""

from __future__ import annotations

import math
from time import monotonic
from typing import TYPE_CHECKING, Literal

import trio
from pydantic import Field

from kproxy.base.errors import DocumentError
from kproxy.rules.document.read import Scenario
from kproxy.rules.document.store import RuleOrigin, RuleStore, StoreChange, StoredDocument, StoredRule
from kproxy.rules.kinds.base.rule import LiveRule
from kproxy.rules.values.source import Source
from kproxy.rules.values.yaml_file import Mapping, Scalar, Sequence
from kproxy.runtime.rule_keeper import CounterName, Rejection, RuleKeeper

from .models import (
    FaultShown,
    FaultsShown,
    PageId,
    Query,
    RejectionShown,
    ResetShown,
    ResumedShown,
    RuleShown,
    RulesShown,
    ScenarioShown,
    Timeout,
    Ttl,
    WaitShown,
    calendar_time,
)
from .operation import Operation, OperationCall
from .problem import Problem, mistake_of
from .responses import LongResponse

if TYPE_CHECKING:
    from .backend import Backend

MOST_NAMED = 100  # Rules in each list of FaultsShown


class PutQuery(Query):
    """Query with rules that are added."""

    origin: Literal["api", "test"] = Field(
        default="api", description="rules of a test follow all others, and always have a ttl"
    )
    ttl: Ttl | None = Field(default=None, description="lifetime of rules without a `ttl:`, such as 30s")
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

    ttl: Ttl | None = Field(default=None, description="lifetime of rules without a `ttl:`")


class WaitQuery(Query):
    """Number that a rule's counter has to reach."""

    hits: int = Field(default=1, ge=1, description="until the counter is at least this")
    count: CounterName = Field(default="fired", description="which counter")
    timeout: Timeout = Field(default=10.0, description="how long at most, such as 10s")


def show_rule(store: RuleStore, name: str, now: float | None = None) -> RuleShown:
    stored_rule = store[name]
    now = monotonic() if now is None else now
    rule, running = stored_rule.rule, stored_rule.running
    live = isinstance(rule, LiveRule)
    return RuleShown(
        name=stored_rule.name,
        kind=rule.kind,
        family=rule.family,
        fault=stored_rule.is_fault,
        origin=stored_rule.origin,
        position=stored_rule.parsed.position,
        rule=stored_rule.parsed.raw,
        enabled=store.is_enabled(name),
        in_force=stored_rule.active,
        stage=_stage_of(stored_rule),
        binds="frame" if live else "connection",
        mode=rule.mode if isinstance(rule, LiveRule) else "enforce",
        matched=running.matched if running is not None else 0 if live else None,
        fired=running.fired if running is not None else 0 if live else None,
        applied=running.applied if running is not None else 0 if live else None,
        held=len(running.held) if running is not None else 0 if live else None,
        problems=running.problems if running is not None else 0 if live else None,
        problem=(running.problem or None) if running is not None else None,
        seed=running.seed if running is not None else store.seed if live else None,
        since=calendar_time(stored_rule.since),
        ttl_left=None if stored_rule.until is None else round(max(0.0, stored_rule.until - now), 3),
        warnings=list(rule.warnings()) if isinstance(rule, LiveRule) else [],
    )


def show_rules(keeper: RuleKeeper) -> LongResponse:
    store, loads, now = keeper.store, keeper.loads, monotonic()
    last = loads.last
    names = list(store.stored_rules)
    shown = RulesShown(
        version=store.rule_set.id,
        seed=store.seed,
        faults_disabled=store.faults_disabled,
        rules=[],
        scenarios=[
            _show_scenario(stored, stored.document.scenario, now)
            for stored in store.documents
            if stored.document.scenario is not None
        ],
        loaded=dict(loads.loaded),
        rejected=dict(loads.rejected),
        last_rejection=None if last is None else _show_rejection(last),
    )
    return LongResponse(shown, "rules", (show_rule(store, name, now) for name in names if name in store.stored_rules))


def show_faults(store: RuleStore, before: set[str] | None = None) -> FaultsShown:
    """Return all faults, or the faults that changed. `before`: names of the rules that were in force."""
    rules = list(store.stored_rules.values())
    faults = [one for one in rules if one.is_fault and (before is None or one.active is not (one.name in before))]
    unaffected = [one for one in rules if one.active and isinstance(one.rule, LiveRule) and not one.is_fault]
    return FaultsShown(
        disabled=store.faults_disabled,
        version=store.rule_set.id,
        faults=[_show_fault(one, with_note=store.faults_disabled) for one in faults[:MOST_NAMED]],
        unaffected=[_show_fault(one, with_note=False) for one in unaffected[:MOST_NAMED]],
        more=max(len(faults) - MOST_NAMED, 0) + max(len(unaffected) - MOST_NAMED, 0),
    )


def _show_fault(stored: StoredRule, *, with_note: bool) -> FaultShown:
    note = None
    if with_note and stored.may_be_meant_for_good:
        note = f"in force since {calendar_time(stored.since)}"
        note += "; permanent: true keeps such a rule" if "permanent" in type(stored.rule).model_fields else ""
    return FaultShown(
        name=stored.name, kind=stored.rule.kind, family=stored.rule.family, in_force=stored.active, note=note
    )


def _show_rejection(last: Rejection) -> RejectionShown:
    return RejectionShown(at=last.at, origin=last.origin, mistakes=[mistake_of(line) for line in last.mistakes])


def _show_scenario(stored: StoredDocument, scenario: Scenario, now: float) -> ScenarioShown:
    at = stored.moment(now)
    names = [scenario.stage_name(index) for index in range(len(scenario.stages))]
    return ScenarioShown(
        name=scenario.name,
        origin=stored.origin,
        file=stored.document.source.file,
        stages=names,
        stage=None if at is None else names[at.stage],
        round=None if at is None else at.round + 1,
        ends_in=None if at is None or at.ends == math.inf else round(stored.began + at.ends - now, 3),
    )


def _stage_of(stored_rule: StoredRule) -> str | None:
    stage, scenario = stored_rule.parsed.stage, stored_rule.stored_document.document.scenario
    return None if stage is None or scenario is None else scenario.stage_name(stage)


async def list_rules(backend: Backend, call: OperationCall) -> LongResponse:
    await backend.keeper.count()
    return show_rules(backend.keeper)


async def get_rule(backend: Backend, call: OperationCall) -> RuleShown:
    await backend.keeper.count()
    return show_rule(backend.keeper.store, call.path["name"])


async def replace_rules(backend: Backend, call: OperationCall) -> LongResponse:
    document = _body(call)
    await backend.keeper.load_everywhere(
        "api", lambda store, now: store.replace_api(document, now, ttl=call.query.ttl), check=call.check
    )
    return show_rules(backend.keeper)


async def add_rules(backend: Backend, call: OperationCall) -> LongResponse:
    await _load(backend, call, _body(call), again=call.query.replace)
    return show_rules(backend.keeper)


async def clear_rules(backend: Backend, call: OperationCall) -> LongResponse:
    origin = call.query.origin
    await backend.keeper.do_everywhere(
        f"removed all of origin {origin}", lambda store, now: store.clear(origin, now), check=call.check
    )
    return show_rules(backend.keeper)


async def add_rule(backend: Backend, call: OperationCall) -> RuleShown:
    return await _put(backend, call, again=False)


async def put_rule(backend: Backend, call: OperationCall) -> RuleShown:
    return await _put(backend, call, again=True)


async def remove_rule(backend: Backend, call: OperationCall) -> RuleShown:
    name = call.path["name"]
    await backend.keeper.count()
    shown = show_rule(backend.keeper.store, name)
    await backend.keeper.do_everywhere(
        "removed", lambda store, now: store.remove(name, now), rule=name, check=call.check
    )
    return shown


async def enable_rule(backend: Backend, call: OperationCall) -> RuleShown:
    name = call.path["name"]
    await backend.keeper.do_everywhere(
        "enabled", lambda store, now: store.enable(name, now), rule=name, check=call.check
    )
    return show_rule(backend.keeper.store, name)


async def disable_rule(backend: Backend, call: OperationCall) -> RuleShown:
    name = call.path["name"]
    await backend.keeper.do_everywhere(
        "disabled", lambda store, now: store.disable(name, now), rule=name, check=call.check
    )
    return show_rule(backend.keeper.store, name)


async def reset_rule(backend: Backend, call: OperationCall) -> RuleShown:
    name = call.path["name"]
    _live(backend.keeper.store, name)
    await backend.keeper.reset_everywhere(name, check=call.check)
    return show_rule(backend.keeper.store, name)


async def reset_rules(backend: Backend, call: OperationCall) -> ResetShown:
    return ResetShown(reset=await backend.keeper.reset_everywhere(None, check=call.check))


async def resume_rule(backend: Backend, call: OperationCall) -> ResumedShown:
    name = call.path["name"]
    _live(backend.keeper.store, name)
    return ResumedShown(resumed=await backend.keeper.resume_everywhere(name))


async def wait_for_rule(backend: Backend, call: OperationCall) -> WaitShown:
    name, query = call.path["name"], call.query
    _live(backend.keeper.store, name)
    reached = False

    async def wait() -> None:
        nonlocal reached
        await backend.keeper.waiters.wait(name, query.hits, query.count)
        reached = True  # also if the time is over by then, as it is at once with a timeout of 0

    with trio.move_on_after(query.timeout):
        await call.while_connected(wait)
    return WaitShown(reached=reached, rule=show_rule(backend.keeper.store, name))


async def get_faults(backend: Backend, call: OperationCall) -> FaultsShown:
    return show_faults(backend.keeper.store)


async def disable_faults(backend: Backend, call: OperationCall) -> FaultsShown:
    return await _set_faults(backend, call, disabled=True)


async def enable_faults(backend: Backend, call: OperationCall) -> FaultsShown:
    return await _set_faults(backend, call, disabled=False)


async def _set_faults(backend: Backend, call: OperationCall, *, disabled: bool) -> FaultsShown:
    before = {name for name, kept in backend.keeper.store.stored_rules.items() if kept.active}
    what = "faults disabled" if disabled else "faults enabled"
    await backend.keeper.do_everywhere(what, lambda store, now: store.disable_faults(disabled, now), check=call.check)
    return show_faults(backend.keeper.store, before)


def _live(store: RuleStore, name: str) -> None:
    if not isinstance(store[name].rule, LiveRule):
        kind = store[name].rule.kind
        raise Problem(409, "not_counted", f'the rule "{name}" is of the kind {kind}, which binds when connections open')


def _body(call: OperationCall) -> Source:
    assert isinstance(call.body, Source), "the operation has such a body"
    return call.body


async def _put(backend: Backend, call: OperationCall, *, again: bool) -> RuleShown:
    name = call.path["name"]
    await _load(backend, call, as_document(_body(call), name), again=again)
    return show_rule(backend.keeper.store, name)


async def _load(backend: Backend, call: OperationCall, document: Source, *, again: bool) -> None:
    origin: RuleOrigin = call.query.origin
    if origin == "test" and call.query.ttl is None:
        raise Problem(422, "invalid_query", "ttl: rules of a test always have one")
    if call.query.page and isinstance(document.root, Mapping) and document.root.find("scenario") is not None:
        raise Problem(422, "invalid_query", "page: expected rules without a scenario, which is removed as a whole")

    def put(store: RuleStore, now: float) -> StoreChange:
        return store.put(document, origin, now, ttl=call.query.ttl, again=again)

    await backend.keeper.load_everywhere(origin, put, check=call.check)
    stored = backend.keeper.store.stored_rules
    names = [name for name, one in stored.items() if one.stored_document.document.source is document]
    backend.leases.add(call.query.page, names)


def as_document(source: Source, name: str) -> Source:
    """Return a document with this one rule, named by the path. Raises DocumentError if the body has another name."""
    root = source.root
    if isinstance(root, Mapping):
        named = [value for key, value in root.pairs if isinstance(key, Scalar) and key.text == "name"]
        if not named:
            root.pairs.insert(0, (Scalar(1, 1, "name", True), Scalar(1, 1, name, False)))
        elif isinstance(named[0], Scalar) and named[0].text != name:
            source.note_at(
                named[0].line, named[0].column, f'expected the rule "{name}" of the path, got "{named[0].text}"'
            )
            raise DocumentError(source.lines())
    if root is not None:
        source.root = Mapping(1, 1, [(Scalar(1, 1, "rules", True), Sequence(1, 1, [root]))])
    return source


NAMED = ("no_such_rule",)
WRITES = ("invalid_document", "rule_in_use", "too_large", "not_everywhere")
LISTS = "too_many_answers"

OPERATIONS = (
    Operation("GET", "/api/rules", "list_rules", "List all rules in order, with their origins.", list_rules, RulesShown,
              refusals=(LISTS,)),
    Operation("PUT", "/api/rules", "replace_rules", "Replace all rules of the API by those of a document.",
              replace_rules, RulesShown, ReplaceQuery, "document", refusals=(*WRITES, LISTS)),
    Operation("POST", "/api/rules", "add_rules", "Add all rules of a document, or none.",
              add_rules, RulesShown, AddQuery, "document", 201, (*WRITES, LISTS)),
    Operation("DELETE", "/api/rules", "clear_rules", "Remove all rules of the API or of tests.",
              clear_rules, RulesShown, OriginQuery, refusals=("invalid_document", "not_everywhere", LISTS)),
    Operation("POST", "/api/reset", "reset_rules", "Set the counters of all rules to 0 and restart their triggers.",
              reset_rules, ResetShown, refusals=("not_everywhere",)),
    Operation("GET", "/api/rules/{name}", "get_rule", "Return one rule.", get_rule, RuleShown, refusals=NAMED),
    Operation("POST", "/api/rules/{name}", "add_rule", "Add a rule.",
              add_rule, RuleShown, PutQuery, "rule", 201, WRITES),
    Operation("PUT", "/api/rules/{name}", "put_rule", "Add a rule, or replace one of the same origin.",
              put_rule, RuleShown, PutQuery, "rule", refusals=WRITES),
    Operation("DELETE", "/api/rules/{name}", "remove_rule", "Remove a rule of the API or of a test.",
              remove_rule, RuleShown, refusals=(*NAMED, "rule_in_use", "invalid_document", "not_everywhere")),
    Operation("POST", "/api/rules/{name}/enable", "enable_rule", "Enable a rule.",
              enable_rule, RuleShown, refusals=(*NAMED, "invalid_document", "not_everywhere")),
    Operation("POST", "/api/rules/{name}/disable", "disable_rule", "Disable a rule and keep its counters.",
              disable_rule, RuleShown, refusals=(*NAMED, "invalid_document", "not_everywhere")),
    Operation("POST", "/api/rules/{name}/reset", "reset_rule", "Reset the counters and the trigger of a rule.",
              reset_rule, RuleShown, refusals=(*NAMED, "not_counted", "not_everywhere")),
    Operation("POST", "/api/rules/{name}/resume", "resume_rule", "Resume all frames that a rule holds.",
              resume_rule, ResumedShown, refusals=(*NAMED, "not_counted")),
    Operation("POST", "/api/rules/{name}/wait", "wait_for_rule", "Respond when the counter of a rule reaches a number.",
              wait_for_rule, WaitShown, WaitQuery, refusals=(*NAMED, "not_counted"), changes=False),
    Operation("GET", "/api/faults", "get_faults", "Return whether faults are disabled, and list all faults.",
              get_faults, FaultsShown),
    Operation("POST", "/api/faults/disable", "disable_faults", "Disable all faults, including those loaded later.",
              disable_faults, FaultsShown, refusals=("not_everywhere",)),
    Operation("POST", "/api/faults/enable", "enable_faults", "Enable faults again.",
              enable_faults, FaultsShown, refusals=("not_everywhere",)),
)  # fmt: skip
