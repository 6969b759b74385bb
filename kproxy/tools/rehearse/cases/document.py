"""Reading of a `*.test.yaml` file and its rules, into cases that are ready to be played or into a list of all mistakes;
and encoding of the requests and responses that it describes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kproxy.base.errors import DocumentError, EncodeError
from kproxy.protocol import Message, encode
from kproxy.protocol.table import schema
from kproxy.rules.document.read import ENDINGS, Document, check_documents, read_document
from kproxy.rules.kinds.base.rule import LiveRule
from kproxy.rules.values.model import found, validate
from kproxy.rules.values.source import Source, Where, nearest, to_value
from kproxy.tools.rehearse.dialogue import sized

from .model import Case, CaseFile, CaseStep, ClientConnection, SentAnswer, SentRequest
from .values import Reader

TEST = ".test"


@dataclass(frozen=True)
class Ready:
    """A case of a test file that has no mistakes. `at` is its path in the source."""

    source: Source
    case: Case
    at: Where
    rules: tuple[Path, ...]
    connections: Mapping[str, ClientConnection]

    @property
    def name(self) -> str:
        return self.case.name

    def documents(self) -> list[Document]:
        """Return the rules, read anew. Raises DocumentError."""
        return [read_document(Source.open(path)) for path in self.rules]


def case_files(paths: Iterable[str | Path]) -> list[Path]:
    """Return the files as given, and for folders all `*.test.yaml` below them, sorted, without hidden ones."""
    files: list[Path] = []
    for path in map(Path, paths):
        if path.is_dir():
            files += sorted(
                one
                for one in path.rglob("*")
                if is_case_file(one) and not any(part.startswith(".") for part in one.relative_to(path).parts)
            )
        else:
            files.append(path)
    return list(dict.fromkeys(files))


def is_case_file(path: Path) -> bool:
    """Return True if the path is named like a file of cases, such as `orders.test.yaml`."""
    return path.suffix in ENDINGS and Path(path.stem).suffix == TEST


def load_cases(file: Path) -> list[Ready]:
    """Return the cases of one file. Raises DocumentError with all mistakes in it and in its rules."""
    source = Source.open(file)
    model = _read(source)
    paths = _rule_paths(source, file, model)
    documents = [read_document(Source.open(path)) for path in paths if path.exists()]
    check_documents(documents, None)
    if model is not None:
        _check(source, model, documents)
    mistakes = [*source.lines(), *(line for document in documents for line in document.source.lines())]
    if mistakes or model is None:
        raise DocumentError(mistakes)
    return [
        Ready(source, case, ("tests", index), tuple(paths), _connections(model, case))
        for index, case in enumerate(model.tests)
    ]


def _read(source: Source) -> CaseFile | None:
    if not source.is_yaml:
        return None
    value = to_value(source)
    if not isinstance(value, dict):
        source.note((), f"a file of tests is a mapping with tests:, found {found(value)}")
        return None
    return validate(CaseFile, value, source)


def _rule_paths(source: Source, file: Path, model: CaseFile | None) -> list[Path]:
    if model is None:
        return []
    if model.rules is None:
        path = file.with_name(Path(file.stem).stem + file.suffix)
        if not path.exists():
            source.note((), f'there is no "{path.name}" beside it, say with rules: which rules are meant')
        return [path]
    paths = [file.parent / name for name in model.rules]
    for index, path in enumerate(paths):
        if not path.exists():
            source.note(("rules", index), f'there is no file "{path}"')
    return paths


def _connections(model: CaseFile, case: Case) -> dict[str, ClientConnection]:
    """Return the connections of a case by name. The empty name is the one for steps that name no connection, and for
    names that the file says nothing about."""
    return {"": case.connection or model.connection or ClientConnection(), **(case.connections or {})}


def _check(source: Source, model: CaseFile, documents: list[Document]) -> None:
    """Note mistakes that the models cannot see: names that are not there, and bodies that do not fit."""
    rules = {one.rule.name: one.rule for document in documents for one in document.parsed_rules if one.rule is not None}
    names: dict[str, int] = {}
    for index, case in enumerate(model.tests):
        if (first := names.setdefault(case.name, index)) != index:
            line = source.place(("tests", first, "name"))[0]
            source.note(("tests", index, "name"), f'the name "{case.name}" is taken, in line {line}')
        for number, step in enumerate(case.steps):
            at = ("tests", index, "steps", number)
            for where, name in (((*at, "release"), step.release), *(((*at, "counts", each), each) for each in
                                                                  step.counts or ())):  # fmt: skip
                if name is not None and not isinstance(rules.get(name), LiveRule):
                    _note_rule(source, where, name, [rule for rule in rules if isinstance(rules[rule], LiveRule)])
            _check_bodies(source, step, at)


def _note_rule(source: Source, where: Where, name: str, live: list[str]) -> None:
    close = nearest(name, live)
    hint = f', did you mean "{close}"?' if close else f"; there are: {', '.join(live) or 'none'}"
    source.note(where, f'there is no rule "{name}" that has counters{hint}', key="counts" in where)


def _check_bodies(source: Source, step: CaseStep, at: Where) -> None:
    """Note the values in the bodies of a step that do not fit. Bodies of responses and of expected frames are checked
    only where there is one for each request, since their API and version are those of the request."""
    sent = step.client or []
    for index, one in enumerate(sent):
        if one.hex is None:
            Reader(source).body(one.key, one.number, "request", one.body, (*at, "client", index, "body"))
    for word, direction, written in (
        ("to_broker", "request", step.to_broker), ("broker", "response", step.broker),
        ("to_client", "response", step.to_client),
    ):  # fmt: skip
        if written is None or len(written) != len(sent):
            continue
        for index, (each, asked) in enumerate(zip(written, sent, strict=True)):
            _check_body(source, each, asked, direction, (*at, word, index))


def _check_body(source: Source, written: object, asked: SentRequest, direction: str, at: Where) -> None:
    if asked.hex is not None:
        return
    for name in ("body", "exactly"):
        raw = getattr(written, name, None)
        changed = getattr(written, "api", None) is not None or getattr(written, "version", None) is not None
        if raw and not changed:
            reader = Reader(source, expected=hasattr(written, "exactly"))
            reader.body(asked.key, asked.number, direction, raw, (*at, name))


CORRELATION = slice(4, 8)
"""Position of the correlation id in a request without its length in front."""


def request(source: Source, sent: SentRequest, at: Where, correlation: int) -> bytes:
    """Return the request as a frame with its length. Raises EncodeError for a value that does not fit."""
    if sent.hex is not None:
        return from_hex(sent.hex, correlation)
    body = Reader(source).body(sent.key, sent.number, "request", sent.body, at)
    header = {"request_api_key": sent.key, "request_api_version": sent.number, "correlation_id": correlation}
    return framed(sent.key, sent.number, header | {"client_id": sent.client_id}, body)


def from_hex(text: str, correlation: int) -> bytes:
    """Return a frame that was captured, with the correlation id that it has in this dialogue. Raises EncodeError for a
    frame that is too short."""
    frame = bytearray.fromhex(text)
    if len(frame) >= 4 and int.from_bytes(frame[:4], "big") == len(frame) - 4:
        del frame[:4]
    if len(frame) < 10:
        raise EncodeError(f"a request has at least 10 bytes, found {len(frame)}")
    frame[CORRELATION] = correlation.to_bytes(4, "big")
    return sized(bytes(frame))


def answer(source: Source, answered: SentAnswer, at: Where, key: int, version: int, correlation: int) -> bytes:
    """Return the response as a frame with its length. Raises EncodeError for a value that does not fit."""
    body = Reader(source).body(key, version, "response", answered.body, at)
    return framed(key, version, {"correlation_id": correlation}, body)


def framed(key: int, version: int, header: dict[str, Any], body: dict[str, Any]) -> bytes:
    """Return a frame with its length; fields that are left out get their defaults."""
    return sized(encode(Message(schema.load(key), version, header, body)))
