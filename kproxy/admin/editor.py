"""Operations for editors of rules and filters: check of rules, kinds of rules, the filter language, names.

`POST /api/check` parses a document like `POST /api/rules` and adds it to a copy of the store. So the result includes
taken names and rules that conflict. Each process evaluates the rules on its kept exchanges in a thread, for at most
LONGEST_LOOK seconds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from time import monotonic
from typing import TYPE_CHECKING, Any

import trio
from pydantic import Field

from kproxy.base.errors import DocumentError, FilterError, RuleInUse
from kproxy.protocol.table import errors, schema
from kproxy.record.audit.request_event import whole_event
from kproxy.record.exchange import ObservedExchange
from kproxy.record.filters import Filter
from kproxy.record.live_view.detail import shown
from kproxy.record.live_view.masks import ViewerMasks
from kproxy.rules.document.lint import lint_rules
from kproxy.rules.document.read import COMMON, Document, read_document
from kproxy.rules.document.reference import rows, sentence
from kproxy.rules.document.store import RuleStore
from kproxy.rules.exchange import FrameDepth
from kproxy.rules.filter.exchange_fields import FIELDS
from kproxy.rules.kinds import KINDS
from kproxy.rules.kinds.base.rule import LiveRule, Rule
from kproxy.rules.select.frame_match import FrameMatch
from kproxy.rules.values.source import Source, json_source
from kproxy.runtime.io.scheduler import in_turns
from kproxy.runtime.rule_keeper import DOCUMENTS

from .models import Query, Shown
from .operation import API, Operation, OperationCall

if TYPE_CHECKING:
    from .backend import Backend

LONGEST_LOOK = 0.2  # seconds for the evaluation of kept exchanges, and for the collection of their names
MOST_LINTED = 200  # Rules of one document that are looked at for warnings; `kproxy check` looks at all
MOST_WARNINGS = 100
_PLACE = re.compile(r"(.*?):(\d+):(\d+): (.*)", re.DOTALL)


class CheckQuery(Query):
    """Manner of adding the rules that are checked."""

    replace: bool = Field(default=False, description="rules of the same names and origin would be replaced")


class PlacedShown(Shown):
    """Mistake or warning with its place."""

    where: str = Field(description="file:line:column, the body is <api>; empty where it has no place")
    line: int | None = Field(description="in the body, from 1; null where it is elsewhere")
    column: int | None = Field(description="in the body, from 1; null where it is elsewhere")
    message: str


class CheckShown(Shown):
    """Judgement of a document of rules, which changes nothing."""

    mistakes: list[PlacedShown] = Field(description="with any of these it would be refused")
    warnings: list[PlacedShown] = Field(description="it would be taken, and do something else than one may think")
    rules: int = Field(description="rules that it has")
    matches: MatchesShown | None = Field(description="null if rules are invalid, or too many")


async def check_document(backend: Backend, call: OperationCall) -> CheckShown:
    """Respond with 200 even if the rules have errors."""
    assert call.body is not None, "the operation has a body"
    trial, again = backend.keeper.store.trial(), call.query.replace
    shown, raws = await trio.to_thread.run_sync(check, call.body, trial, again, limiter=DOCUMENTS)
    if raws is not None:
        text = json.dumps({"rules": raws})
        answers = await backend.ask_members(lambda member: member.rehearse(text))
        shown.matches = together(answers)
    return shown


def check(source: Source, trial: RuleStore, again: bool) -> tuple[CheckShown, Sequence[Mapping[str, Any]] | None]:
    """Return errors and warnings of a document, and the raw rules to evaluate on kept exchanges. None: do not
    evaluate. Changes the store."""
    from kproxy.tools.rehearse.whatif.candidate import MOST_RULES

    document = read_document(source, from_api=True)
    parsed = document.parsed_rules
    mistakes = [placed(line) for line in mistakes_of(document, trial, again)]
    warnings = [placed(str(one)) for one in lint_rules(parsed[:MOST_LINTED], trial.listeners)[:MOST_WARNINGS]]
    shown = CheckShown(mistakes=mistakes, warnings=warnings, rules=len(parsed), matches=None)
    if mistakes or len(parsed) > MOST_RULES:
        return shown, None
    return shown, [dict(one.raw) for one in parsed if one.stage is None]


def mistakes_of(document: Document, trial: RuleStore, again: bool) -> list[str]:
    """Return the errors of this document if it is added to the store. Changes the store."""
    try:
        trial.put(document, "api", monotonic(), again=again)
    except DocumentError as error:
        return error.mistakes
    except RuleInUse as error:
        taken = [one for one in document.parsed_rules if f'"{one.name}"' in str(error)]
        return [f"{one.source.position((*one.at, 'name'))}: {error}" for one in taken[:1]] or [str(error)]
    return []


def placed(line: str) -> PlacedShown:
    """Split a `file:line:column: message` line."""
    match = _PLACE.fullmatch(line)
    if match is None:
        return PlacedShown(where="", line=None, column=None, message=line)
    file, row, column, message = match.groups()
    here = file == API
    return PlacedShown(
        where=f"{file}:{row}:{column}", line=int(row) if here else None, column=int(column) if here else None,
        message=message,
    )  # fmt: skip


KEPT = "<kept>"  # Text in place of a file's name: the document was checked before


class RuleMatchesShown(Shown):
    """Matches of one rule among the kept exchanges."""

    name: str
    kind: str
    matched: int = Field(description="exchanges that its selectors held for")
    fired: int = Field(description="those of them that its trigger chose")


class MatchesShown(Shown):
    """Matches of the checked rules among the exchanges that are kept for the view. Rules in force are not looked at."""

    of: int = Field(description="exchanges that were looked at, the latest ones")
    kept: int = Field(description="exchanges that there are to look at; there may not have been the time for all")
    unfit: int = Field(description="exchanges that cannot be looked at, since not all of their bytes are kept")
    matched: int = Field(description="of all rules together")
    fired: int = Field(description="of all rules together")
    rules: list[RuleMatchesShown]


async def rehearse(
    text: str, kept: Sequence[ObservedExchange], records: bool = True, masks: ViewerMasks | None = None
) -> MatchesShown:
    """Return the matches of valid rules among kept exchanges, newest first. `records`: False makes filters on records
    match nothing, because match counts would disclose their content. For the same reason, rules read records as `masks`
    masks them, or overwritten without `records`."""
    return await trio.to_thread.run_sync(rehearsed, text, kept, records, masks, limiter=DOCUMENTS)


def rehearsed(
    text: str, kept: Sequence[ObservedExchange], records: bool = True, masks: ViewerMasks | None = None
) -> MatchesShown:
    from kproxy.tools.rehearse.whatif.candidate import rehearse_kept

    until = monotonic() + LONGEST_LOOK
    document = read_document(json_source(KEPT, text.encode()), from_api=True)
    show = partial(shown_to_user, records=records, masks=masks)
    found = rehearse_kept(document, kept, lambda: monotonic() < until, records=records, show=show)
    rules = [
        RuleMatchesShown(name=one.rule, kind=one.kind, matched=one.matched, fired=one.fired) for one in found.rules
    ]
    return shown_matches(found.of, found.kept, found.unfit, rules)


def shown_to_user(seen: ObservedExchange, *, records: bool, masks: ViewerMasks | None) -> ObservedExchange:
    if not records:
        return shown(seen, False)
    return seen if masks is None else masks.exchange(seen)


def shown_matches(of: int, kept: int, unfit: int, rules: Sequence[RuleMatchesShown]) -> MatchesShown:
    matched, fired = sum(one.matched for one in rules), sum(one.fired for one in rules)
    return MatchesShown(of=of, kept=kept, unfit=unfit, matched=matched, fired=fired, rules=list(rules))


def together(answers: Iterable[MatchesShown]) -> MatchesShown:
    rules: dict[str, RuleMatchesShown] = {}
    of = kept = unfit = 0
    for one in answers:
        of, kept, unfit = of + one.of, kept + one.kept, unfit + one.unfit
        for found in one.rules:
            sums = rules.setdefault(found.name, RuleMatchesShown(name=found.name, kind=found.kind, matched=0, fired=0))
            sums.matched, sums.fired = sums.matched + found.matched, sums.fired + found.fired
    return shown_matches(of, kept, unfit, list(rules.values()))


LONGEST_FILTER = 10_000  # Characters of a filter's text


class KindFieldShown(Shown):
    """Field of a kind of rule."""

    name: str
    what: str = Field(description="type and allowed values")
    default: str = Field(description="empty: it has to be given")
    text: str = Field(description="purpose of the field")


class KindShown(Shown):
    """Kind of rule."""

    kind: str
    group: str
    family: str
    text: str = Field(description="effect in one sentence")
    live: bool = Field(
        description="true: the rule acts from the next frame; false: it binds connections when they open"
    )
    from_files_only: bool = Field(description="it runs code, and is taken from files only")
    example: str = Field(description="YAML of one rule")
    parameters: dict[str, Any] = Field(
        description="parameters of the example, without name, kind, match, not, when, mode and format"
    )
    fields: list[KindFieldShown]
    apis: list[str] | None = Field(
        description="that a rule like the example can act on, but for what it selects; null for kinds that bind "
        "connections"
    )


class KindsShown(Shown):
    """Kinds of rules in the order of their groups, and what all live rules can select by."""

    kinds: list[KindShown]
    selectors: list[KindFieldShown]


async def list_kinds(backend: Backend, call: OperationCall) -> KindsShown:
    return await trio.to_thread.run_sync(kinds_shown, limiter=DOCUMENTS)


@cache
def kinds_shown() -> KindsShown:
    """Return all kinds. The first call imports them and reads the protocol's table."""
    names = [name for group in KINDS.by_group().values() for name in group]
    return KindsShown(kinds=[show_kind(name) for name in names], selectors=fields_of(FrameMatch))


def show_kind(name: str) -> KindShown:
    model = KINDS[name]
    parsed = read_document(Source("example", "rules:\n" + model.example)).parsed_rules[0]
    return KindShown(
        kind=name,
        group=model.group,
        family=model.family,
        text=sentence(model),
        live=issubclass(model, LiveRule),
        from_files_only=bool(getattr(model, "files_only", False)) or model.family == "code",
        example=model.example,
        parameters={name: value for name, value in parsed.raw.items() if name not in (*COMMON, "kind")},
        fields=fields_of(model),
        apis=apis_of(parsed.rule) if isinstance(parsed.rule, LiveRule) else None,
    )


def fields_of(model: type[Rule] | type[FrameMatch]) -> list[KindFieldShown]:
    return [KindFieldShown(name=row.key, what=row.what, default=row.default, text=row.text) for row in rows(model)]


def apis_of(rule: LiveRule) -> list[str]:
    """Return the names of the APIs that a rule affects if it selects everything."""
    wide = rule.model_copy(update={"match": None, "not_": None})
    return sorted(schema.load(key).name for key in schema.paths() if acts_on(wide, key))


def acts_on(rule: LiveRule, key: int) -> bool:
    """True if the rule affects the newest or the oldest version of this API."""
    versions = list(schema.load(key).versions)
    return any(
        rule.depth(direction, key, version) != FrameDepth.NOTHING
        for version in (versions[-1], versions[0])
        for direction in ("request", "response")
    )


class FilterQuery(Query):
    """Text of a filter, right or not yet."""

    text: str = Field(default="", max_length=LONGEST_FILTER, description="in the filter language")


class FilterShown(Shown):
    """Filter in its long form, or what is wrong with it."""

    filter: str | None = Field(description="long form, empty for all exchanges; null if invalid")
    column: int | None = Field(description="column of the error, from 1; null if valid")
    message: str | None = Field(description="error message; null if valid")
    needs_records: bool = Field(description="it asks about the content of records, which not all exchanges have")


async def read_filter(backend: Backend, call: OperationCall) -> FilterShown:
    """Respond with 200 even if the filter is invalid."""
    try:
        wanted = Filter(call.query.text)
    except FilterError as error:
        return FilterShown(filter=None, column=error.at + 1, message=error.problem, needs_records=False)
    return FilterShown(
        filter=str(wanted) if wanted else "", column=None, message=None, needs_records=wanted.needs_records
    )


class FilterFieldShown(Shown):
    """Field of the filter language."""

    name: str
    short: str = Field(description="as in ~k; empty for none")
    group: str
    meaning: str
    example: str


class NamesShown(Shown):
    """Names to complete filters and rules with: those of the tables, and those that the kept exchanges have."""

    fields: list[FilterFieldShown] = Field(description="of the filter language")
    apis: list[str]
    errors: list[str]
    kept: KeptNamesShown = Field(description="that the kept exchanges have, the latest first")


async def list_names(backend: Backend, call: OperationCall) -> NamesShown:
    kept = joined(await backend.ask_members(lambda member: member.names()))
    fields, apis, names = await trio.to_thread.run_sync(constant_names, limiter=DOCUMENTS)
    return NamesShown(fields=fields, apis=apis, errors=names, kept=kept)


@cache
def constant_names() -> tuple[list[FilterFieldShown], list[str], list[str]]:
    """Return the fields of the filter language, and the names of all APIs and errors."""
    fields = [
        FilterFieldShown(
            name=field.name, short=field.short, group=field.group, meaning=field.meaning, example=field.example
        )
        for field in FIELDS
    ]
    return fields, sorted(api.name for api in schema.apis()), sorted(errors.names())


MOST_EXCHANGES = 5000  # Exchanges that are looked at, the latest ones
MOST_NAMES = 500  # Names of each sort; who has more types some letters first
LONGEST_NAME = 249  # Characters; Kafka's topics have no more, and longer names complete nothing


class KeptNamesShown(Shown):
    """Names in the exchanges that are kept for the view, the latest first."""

    topics: list[str] = Field(default=[], description="as clients call them")
    groups: list[str] = []
    client_ids: list[str] = []
    principals: list[str] = []
    transactional_ids: list[str] = []


async def names_in(kept: Sequence[ObservedExchange]) -> KeptNamesShown:
    """Return the names in these exchanges, newest first."""
    found = KeptNamesShown()
    await in_turns(collect(kept[:MOST_EXCHANGES], found, monotonic() + LONGEST_LOOK))
    return found


def collect(kept: Sequence[ObservedExchange], into: KeptNamesShown, until: float) -> Iterator[None]:
    """Add the names of one exchange per step, until a limit is reached."""
    sorts: dict[str, dict[str, None]] = {name: {} for name in KeptNamesShown.model_fields}
    read: set[tuple[object, ...]] = set()
    try:
        for seen in kept:
            if monotonic() > until:
                return
            add(sorts["client_ids"], (seen.client_id,))
            add(sorts["principals"], (seen.who.principal,))
            like = seen.client_id, seen.key, seen.request and seen.request.size
            if like not in read:  # one like it has the same names, most of the time
                read.add(like)
                data = whole_event(seen)
                add(sorts["topics"], (topic.get("topic") for topic in data.get("topics") or ()))
                add(sorts["groups"], (data.get("group"),))
                add(sorts["transactional_ids"], (data.get("transactional_id"),))
            yield
    finally:
        for name, values in sorts.items():
            setattr(into, name, list(values))


def add(names: dict[str, None], more: Iterable[object]) -> None:
    for name in more:
        if isinstance(name, str) and 0 < len(name) <= LONGEST_NAME and len(names) < MOST_NAMES:
            names[name] = None


def joined(answers: Iterable[KeptNamesShown]) -> KeptNamesShown:
    answers = list(answers)
    sorts = {}
    for name in KeptNamesShown.model_fields:
        values: dict[str, None] = {}
        for one in answers:
            add(values, getattr(one, name))
        sorts[name] = list(values)
    return KeptNamesShown(**sorts)


OPERATIONS = (
    Operation("POST", "/api/check", "check_document",
              "Check rules: errors, warnings, and the number of stored exchanges that match.",
              check_document, CheckShown, CheckQuery, "document", refusals=("too_large",), changes=False),
    Operation("GET", "/api/kinds", "list_kinds", "List all kinds of rules with fields and examples.",
              list_kinds, KindsShown),
    Operation("GET", "/api/filter", "read_filter", "Return the long form of a filter, or its error.",
              read_filter, FilterShown, FilterQuery),
    Operation("GET", "/api/names", "list_names", "List names for the completion of filters and rules.",
              list_names, NamesShown),
)  # fmt: skip
