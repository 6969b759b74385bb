"""Rule documents, with `scenario:`, read into a rule set. All errors of all files are reported at once.

    scenario:
      name: brown-out
      repeat: 2
      stages:
        - {for: 30s, rules: [{name: slow, kind: delay, delay: 200ms}]}
        - {for: 10s, rules: []}

A scenario starts when its document is loaded. Rules under the document's own `rules:` are always in force.
"""

from __future__ import annotations

import errno
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator, Field

from kproxy.base.named_file import PathGuard
from kproxy.rules.kinds import KINDS
from kproxy.rules.kinds.base.rule import LiveRule, Rule
from kproxy.rules.rule_set import RuleSet
from kproxy.rules.values.model import Model, Wrong, found, unknown, validate
from kproxy.rules.values.quantities import Seconds, parse_duration
from kproxy.rules.values.source import Source, Where, counted, nearest, raise_mistakes, to_value
from kproxy.rules.values.tls import FileContext

from .check import ListenerTraits, ParsedRule, check_alone, check_names, check_records, check_together, meets_others


def how_often(value: Any) -> int | bool:
    """Return `value` if it is a whole number from 1, or true. Raises ValueError."""
    if value is True or (type(value) is int and value >= 1):
        return value
    raise ValueError(f"expected a whole number from 1, or true for no end, got {found(value)}")


Repetition = Annotated[
    int | bool,
    BeforeValidator(how_often, json_schema_input_type=Annotated[int, Field(ge=1)] | Literal[True]),
]


class Stage(Model):
    """Stage of a scenario: some rules and how long they are in force."""

    name: Annotated[str, Field(min_length=1, max_length=200)] | None = Field(
        default=None, description="name in logs and the admin API (default: the stage's number, from 1)"
    )
    for_: Annotated[Seconds, Field(ge=0.1)] | None = Field(
        default=None, alias="for", description="duration; the last stage may have none"
    )
    rules: list[Any] = Field(description="rules of the stage; names are unique over all stages and documents")


class Scenario(Model):
    """Scenario of a rule document: stages, one after the other."""

    name: Annotated[str, Field(min_length=1, max_length=200)] | None = Field(
        default=None, description="shown in logs and by the admin API"
    )
    repeat: Repetition | None = Field(
        default=None, description="repetitions of all stages; true: unlimited (default: 1)"
    )
    stages: list[Stage] = Field(min_length=1, description="stages, one after the other")

    def stage_name(self, index: int) -> str:
        """Return the name of a stage, or its number from 1 if it has none."""
        return self.stages[index].name or str(index + 1)

    @classmethod
    def cross_check(cls, raw: dict[Any, Any]) -> Iterable[Wrong]:
        """Yield stages without an end before the last stage as errors: later stages would never start."""
        stages = raw.get("stages")
        if not isinstance(stages, list):
            return
        repeat = raw.get("repeat")
        again = repeat is True or (isinstance(repeat, int) and repeat > 1)
        for index, stage in enumerate(stages):
            if isinstance(stage, dict) and stage.get("for") is None and (again or index < len(stages) - 1):
                what = "it is repeated" if again and index == len(stages) - 1 else "others follow it"
                yield ("stages", index), f'"for" is missing: this stage would never end, and {what}'


class Moment(NamedTuple):
    """Point in a scenario: its round and stage, both from 0, when that stage began and when it ends (infinity: never),
    in seconds since the scenario began."""

    round: int
    stage: int
    began: float
    ends: float


def moment(scenario: Scenario, elapsed: float) -> Moment | None:
    """Return the position in the scenario after `elapsed` seconds, or None after its end."""
    lengths = [math.inf if stage.for_ is None else stage.for_ for stage in scenario.stages]
    whole = math.fsum(lengths)
    endless = whole == math.inf
    number, rest = (0, elapsed) if endless else (int(elapsed // whole), elapsed % whole)
    if scenario.repeat is not True and number >= (scenario.repeat or 1):
        return None
    before, start = 0.0 if endless else number * whole, 0.0
    last = len(lengths) - 1
    for index, length in enumerate(lengths):
        if rest < start + length or index == last:
            return Moment(number, index, before + start, before + start + length)
        start += length
    raise AssertionError("a scenario without stages")


ALL_KINDS = '"kproxy rules kinds" lists all of them'
"""There are too many to name them in a message."""
TOP_KEYS = ("rules", "scenario")
COMMON = ("name", "match", "not", "when", "mode", "format")
"""Fields that a rule may have whatever its kind is; `match` and `not` in the wider form, which all live kinds have."""
ENDINGS = (".yaml", ".yml")
MOST_ENTRIES = 20_000
"""Files and folders below a folder of rules, which is searched once a second."""
LONGEST_TTL = 366 * 86400.0
"""Seconds; a rule that is meant for longer is meant for good."""


@dataclass(frozen=True, slots=True)
class Document:
    """Rules of one document, as far as it can be read: `parsed_rules` are its own, then those of its stages."""

    source: Source
    parsed_rules: list[ParsedRule] = field(default_factory=list)
    scenario: Scenario | None = None


def load_rules(paths: Iterable[str | Path], listeners: Mapping[str, ListenerTraits] | None = None) -> RuleSet:
    """Return the rules of these files and folders, in order. With `listeners`, check the rules against them. Raises
    DocumentError with all errors of all files."""
    return rules_from([Source.open(path) for path in rule_files(paths)], listeners)


def parse_rules(
    text: str | bytes, file: str = "<rules>", listeners: Mapping[str, ListenerTraits] | None = None
) -> RuleSet:
    """Return the rules of one document that is not a file. Raises DocumentError."""
    return rules_from([Source(file, text)], listeners)


def rules_from(sources: list[Source], listeners: Mapping[str, ListenerTraits] | None = None) -> RuleSet:
    """Return the rules of documents that are already read, including all stages of scenarios. Raises DocumentError,
    including errors noted earlier."""
    documents = [read_document(source) for source in sources]
    check_documents(documents, listeners)
    raise_mistakes(sources)
    parsed_rules = [one for document in documents for one in document.parsed_rules]
    valid = [(one.rule, one.position) for one in parsed_rules if one.rule is not None]
    return RuleSet([rule for rule, _ in valid], [position for _, position in valid])


def check_documents(
    documents: Sequence[Document],
    listeners: Mapping[str, ListenerTraits] | None,
    is_on: Callable[[ParsedRule], bool] = lambda parsed: True,
) -> None:
    """Note what is wrong between rules: their names, and what can be in force together. `is_on`: which are."""
    check_names([parsed for document in documents for parsed in document.parsed_rules])
    parsed_rules = [parsed for document in documents for parsed in document.parsed_rules if is_on(parsed)]
    check_alone(parsed_rules, listeners)
    base = [parsed for parsed in parsed_rules if parsed.stage is None]
    check_together(base)
    if not any(parsed.stage is not None and meets_others(parsed) for parsed in parsed_rules):
        return
    stages: dict[tuple[int, int], list[ParsedRule]] = {}
    for parsed in parsed_rules:
        if parsed.stage is not None:
            stages.setdefault((id(parsed.source), parsed.stage), []).append(parsed)
    for stage in stages.values():
        if any(map(meets_others, stage)):
            here = set(map(id, stage))
            check_together([parsed for parsed in parsed_rules if parsed.stage is None or id(parsed) in here])


def rule_files(paths: Iterable[str | Path]) -> list[Path]:
    """Return files as given, and for folders all `*.yaml` and `*.yml` below them, sorted, without hidden ones (a
    mounted Kubernetes ConfigMap holds its files a second time under `..data`) and without `*.test.yaml`."""
    files: list[Path] = []
    for path in map(Path, paths):
        below = _entries(path) if path.is_dir() else ()
        inside = [one for one in below if one.suffix in ENDINGS and one.is_file() and not _is_left_out(one, path)]
        files += sorted(inside) if path.is_dir() else [path]
    return list(dict.fromkeys(files))


def _entries(folder: Path) -> Iterator[Path]:
    """Yield all that is below a folder. Raises OSError for more than MOST_ENTRIES: the folder is not one of rules."""
    for count, entry in enumerate(folder.rglob("*"), 1):
        if count > MOST_ENTRIES:
            raise OSError(errno.EFBIG, f"{folder} has more than {MOST_ENTRIES:,} files and folders")
        yield entry


def _is_left_out(file: Path, folder: Path) -> bool:
    hidden = any(part.startswith(".") for part in file.relative_to(folder).parts)
    return hidden or Path(file.stem).suffix == ".test"


def read_rules(source: Source) -> list[ParsedRule]:
    """Return the rules of one document, including its scenario. Errors are noted in the source."""
    return read_document(source).parsed_rules


def read_document(source: Source, *, from_api: bool = False, code: bool = True) -> Document:
    """Return the rules of one document; errors are noted in the source. `from_api`: each rule may have a `ttl`, and
    none may run code. `code`: whether rules of a file may run code."""
    if not source.is_yaml:
        return Document(source)
    document = to_value(source)
    if document is None:
        source.note_at(1, 1, "the document is empty, it begins with rules:")
        return Document(source)
    if not isinstance(document, dict):
        source.note((), f"expected a rule document (mapping with rules:), got {found(document)}")
        return Document(source)
    with counted(source.hints):
        for key in document:
            if key not in TOP_KEYS:
                source.note((key,), unknown("key", key, TOP_KEYS), key=True)
    terms = _Terms(from_api, code and not from_api)
    parsed_rules = _read_list(source, ("rules",), document.get("rules", []), terms)
    if "scenario" not in document:
        return Document(source, parsed_rules)
    scenario = validate(Scenario, document["scenario"], source, ("scenario",))
    for stage, raw in enumerate(_stages(document["scenario"])):
        parsed_rules += _read_list(source, ("scenario", "stages", stage, "rules"), raw, terms, stage)
    return Document(source, parsed_rules, scenario)


def _stages(scenario: Any) -> Iterator[Any]:
    """Yield the rules of each stage. The model reports values that are not lists."""
    stages = scenario.get("stages") if isinstance(scenario, dict) else None
    for stage in stages if isinstance(stages, list) else ():
        rules = stage.get("rules") if isinstance(stage, dict) else None
        yield rules if isinstance(rules, list) else []


class _Terms(NamedTuple):
    """Permissions of the rules of one document."""

    ttl: bool
    code: bool


def _read_list(source: Source, at: Where, rules: Any, terms: _Terms, stage: int | None = None) -> list[ParsedRule]:
    if not isinstance(rules, list):
        source.note(at, f"expected a list of rules, got {found(rules)}")
        return []
    return [_read_rule(source, (*at, index), raw, terms, stage) for index, raw in enumerate(rules)]


def _read_rule(source: Source, at: Where, raw: Any, terms: _Terms, stage: int | None) -> ParsedRule:
    if not isinstance(raw, dict):
        source.note(at, f"expected a rule (mapping with name and kind), got {found(raw)}")
        return ParsedRule(None, None, source, at, stage)
    name = raw.get("name")
    ttl = None
    if terms.ttl:
        ttl = _read_ttl(source, (*at, "ttl"), raw.pop("ttl", None))
    rule = None if not terms.code and _runs_code(source, at, raw) else _make_rule(source, at, raw)
    parsed = ParsedRule(name if isinstance(name, str) else None, rule, source, at, stage, ttl, raw)
    if rule is not None:
        check_records(parsed)
        _ = rule.content, parsed.position  # evaluated here, since a thread may read a document while the proxy runs
    return parsed


def _read_ttl(source: Source, at: Where, raw: Any) -> float | None:
    if raw is None:
        return None
    try:
        return check_ttl(raw)
    except ValueError as error:
        source.note(at, str(error))
        return None


def check_ttl(raw: Any) -> float:
    """Return seconds from a number or text such as 30s. Raises ValueError."""
    seconds = parse_duration(raw)
    if not isinstance(seconds, float) or not 0 < seconds <= LONGEST_TTL:
        raise ValueError(f"expected a duration of more than 0 s and at most 366 days, got {found(raw)}")
    return seconds


def _runs_code(source: Source, at: Where, raw: dict[Any, Any]) -> bool:
    kind = KINDS.get(str(raw.get("kind")))
    if kind is None or not (getattr(kind, "files_only", False) or getattr(kind, "family", None) == "code"):
        return False
    source.note(
        (*at, "kind"),
        f"rules of the kind {raw['kind']} run code in this process and are taken from files only: those that "
        "kproxy's command line or its own config file names",
    )
    return True


def unknown_kind(word: str) -> str:
    """Return the message for a kind that there is not, with the nearest one."""
    close = nearest(word, KINDS)
    hint = f', did you mean "{close}"?' if close else ";"
    return f'unknown kind "{word}"{hint} {ALL_KINDS}'


def _make_rule(source: Source, at: Where, raw: dict[Any, Any]) -> Rule | None:
    kind = raw.get("kind")
    if isinstance(kind, str) and kind in KINDS:
        # Names of files start at the document's folder. The guard is for documents over the admin API, too.
        return validate(KINDS[kind], raw, source, at, FileContext(Path(source.file).parent, PathGuard()))
    if "kind" not in raw:
        source.note(at, f'"kind" is missing, {ALL_KINDS}')
    elif not isinstance(kind, str):
        source.note((*at, "kind"), f"expected a kind, got {found(kind)}; {ALL_KINDS}")
    else:
        with counted(source.hints):
            source.note((*at, "kind"), unknown_kind(kind))
    _check_common(source, at, raw)
    return None


def _check_common(source: Source, at: Where, raw: dict[Any, Any]) -> None:
    """Note what is wrong in the fields that rules of every kind, or of every live kind, have: the kind is not known."""
    fields = {name: raw[name] for name in COMMON if name in raw}
    validate(LiveRule, {**fields, "kind": ""}, source, at)
