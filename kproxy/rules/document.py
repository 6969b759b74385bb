"""Rule documents → a rule set; every mistake of every file at once.

rules:
  - name: orders lives under another name upstream
    kind: rename_topic
    topics: {orders: prod.orders}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from kproxy.rules.explain import found, unknown, validate
from kproxy.rules.kinds import KINDS
from kproxy.rules.kinds.base import Rule
from kproxy.rules.rule_checks import check_rules
from kproxy.rules.rule_set import RuleSet
from kproxy.rules.source import Source, raise_mistakes
from kproxy.rules.values import to_value
from kproxy.rules.written import Place, Written

TOP_KEYS = ("rules",)
ENDINGS = (".yaml", ".yml")


def load_rules(paths: Iterable[str | Path], listeners: Mapping[str, Place] | None = None) -> RuleSet:
    """Rules of these files and folders, in order. With `listeners`, rules are also checked against them.

    Raises DocumentError with all mistakes of all files.
    """
    return rules_from([Source.open(path) for path in rule_files(paths)], listeners)


def parse_rules(text: str | bytes, file: str = "<rules>", listeners: Mapping[str, Place] | None = None) -> RuleSet:
    """Rules of one document that is not a file. Raises DocumentError."""
    return rules_from([Source(file, text)], listeners)


def rules_from(sources: list[Source], listeners: Mapping[str, Place] | None = None) -> RuleSet:
    """Rules of documents that are already read. Raises DocumentError with what was noted in them, too."""
    written = [one for source in sources for one in read_rules(source)]
    check_rules(written, listeners)
    raise_mistakes(sources)
    valid = [(one.rule, one.position) for one in written if one.rule is not None]
    return RuleSet([rule for rule, _ in valid], [position for _, position in valid])


def rule_files(paths: Iterable[str | Path]) -> list[Path]:
    """Files as given; folders with all `*.yaml` and `*.yml` below them, sorted, without hidden ones (a mounted
    Kubernetes ConfigMap holds its files a second time under `..data`) and without `*.test.yaml`."""
    files: list[Path] = []
    for path in map(Path, paths):
        below = path.rglob("*") if path.is_dir() else ()
        inside = [one for one in below if one.suffix in ENDINGS and one.is_file() and not _is_left_out(one, path)]
        files += sorted(inside) if path.is_dir() else [path]
    return list(dict.fromkeys(files))


def _is_left_out(file: Path, folder: Path) -> bool:
    hidden = any(part.startswith(".") for part in file.relative_to(folder).parts)
    return hidden or Path(file.stem).suffix == ".test"


def read_rules(source: Source) -> list[Written]:
    """The rules of one document; mistakes are noted in the source."""
    if not source.is_yaml:
        return []
    document = to_value(source)
    if document is None:
        source.note_at(1, 1, "the document is empty, it begins with rules:")
        return []
    if not isinstance(document, dict):
        source.note((), f"a rule document is a mapping that begins with rules:, found {found(document)}")
        return []
    for key in document:
        if key not in TOP_KEYS:
            source.note((key,), unknown("key", key, TOP_KEYS), key=True)
    if "rules" not in document:
        return []
    if not isinstance(document["rules"], list):
        source.note(("rules",), f"a list of rules is wanted, found {found(document['rules'])}")
        return []
    return [_read_rule(source, index, raw) for index, raw in enumerate(document["rules"])]


def _read_rule(source: Source, index: int, raw: Any) -> Written:
    at = ("rules", index)
    if not isinstance(raw, dict):
        source.note(at, f"a rule is a mapping with name and kind, found {found(raw)}")
        return Written(None, None, source, index)
    name = raw.get("name")
    rule = _make_rule(source, at, raw)
    return Written(name if isinstance(name, str) else None, rule, source, index)


def _make_rule(source: Source, at: tuple[Any, ...], raw: dict[Any, Any]) -> Rule | None:
    kind = raw.get("kind")
    if "kind" not in raw:
        source.note(at, f'"kind" is missing, one of {", ".join(KINDS)}')
    elif not isinstance(kind, str):
        source.note((*at, "kind"), f"a kind is wanted, one of {', '.join(KINDS)}, found {found(kind)}")
    elif kind not in KINDS:
        source.note((*at, "kind"), unknown("kind", kind, KINDS))
    else:
        return validate(KINDS[kind], raw, source, at)
    if "name" not in raw:
        source.note(at, '"name" is missing')
    return None
