"""`POST /api/check`: mistakes and warnings in rules, and the kept exchanges that they match.

The document is parsed like a body of `POST /api/rules` and added to a copy of the store. So the result includes taken
names and rules that conflict. Each process evaluates the rules on its kept exchanges in a thread, for at most 0.2
seconds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any

import trio
from pydantic import Field

from kproxy.base.errors import DocumentError, RuleInUse
from kproxy.record.exchange import ObservedExchange
from kproxy.rules.document.lint import lint_rules
from kproxy.rules.document.read import Document, read_document
from kproxy.rules.document.store import RuleStore
from kproxy.rules.values.source import Source, json_source
from kproxy.runtime.rule_keeper import DOCUMENTS

from .models import Query, Shown
from .operation import API, Operation, OperationCall

if TYPE_CHECKING:
    from .backend import Backend

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
    """Respond with 200 even if the rules have mistakes."""
    assert call.body is not None, "the operation has a body"
    trial, again = backend.keeper.store.trial(), call.query.replace
    shown, raws = await trio.to_thread.run_sync(check, call.body, trial, again, limiter=DOCUMENTS)
    if raws is not None:
        text = json.dumps({"rules": raws})
        answers = await backend.ask_members(lambda member: member.rehearse(text))
        shown.matches = together(answers)
    return shown


def check(source: Source, trial: RuleStore, again: bool) -> tuple[CheckShown, Sequence[Mapping[str, Any]] | None]:
    """Return mistakes and warnings of a document, and the raw rules to evaluate on kept exchanges. None: do not
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
    """Return the mistakes that adding this document to the store causes. Changes the store."""
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


OPERATIONS = (
    Operation("POST", "/api/check", "check_document",
              "What is wrong with rules, what is warned of, and how many kept exchanges they would be about.",
              check_document, CheckShown, CheckQuery, "document", refusals=("too_large",), changes=False),
)  # fmt: skip


LONGEST_LOOK = 0.2  # Time limit in seconds for the evaluation of kept exchanges
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


async def rehearse(text: str, kept: Sequence[ObservedExchange], records: bool = True) -> MatchesShown:
    """Return the matches of valid rules among kept exchanges, newest first. `records`: False makes filters on records
    match nothing, because match counts would disclose their content."""
    return await trio.to_thread.run_sync(rehearsed, text, kept, records, limiter=DOCUMENTS)


def rehearsed(text: str, kept: Sequence[ObservedExchange], records: bool = True) -> MatchesShown:
    from kproxy.tools.rehearse.whatif.candidate import rehearse_kept

    until = monotonic() + LONGEST_LOOK
    document = read_document(json_source(KEPT, text.encode()), from_api=True)
    found = rehearse_kept(document, kept, lambda: monotonic() < until, records=records)
    rules = [
        RuleMatchesShown(name=one.name, kind=one.kind, matched=one.matched, fired=one.fired) for one in found.rules
    ]
    return shown_matches(found.of, found.kept, found.unfit, rules)


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
