"""Operations of the API as data: the routes and the OpenAPI description are made from one table."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from urllib.parse import unquote

import trio
from pydantic import BaseModel, ValidationError
from pydantic.json_schema import models_json_schema
from starlette.requests import Request
from starlette.responses import Response

from kproxy.base.distribution import own_version
from kproxy.base.errors import plural
from kproxy.rules.document.reference import document_schema
from kproxy.rules.values.model import unknown
from kproxy.rules.values.source import Source, json_source
from kproxy.runtime.rule_keeper import DOCUMENTS, TurnCheck, do_nothing

from .guard import BYTES, JSON, SLASH, YAML, media_type
from .limits import LONGEST_BODY, body_of, check_length
from .models import FailureShown, Shown, printable
from .problem import CODES, Problem
from .responses import LongResponse

if TYPE_CHECKING:
    from .backend import Backend

T = TypeVar("T")
HttpMethod = Literal["GET", "POST", "PUT", "DELETE"]

API = "<api>"  # File name of errors in a request's body


ReceiveBody = Callable[[], AsyncGenerator[bytes, None]]  # Gives the pieces of a body of bytes, as they come
MayWrite = Callable[[], bool]
"""Looks again at who asks; returns whether something may be changed. Raises Problem if it is not allowed to ask."""


@dataclass(frozen=True, slots=True)
class OperationCall:
    """Request of an operation: its path parameters, its query as the operation's model, its body as a document or as a
    model."""

    path: Mapping[str, str]
    query: Any
    body: Any
    may_write: bool = True  # True if the token allows changes
    check: TurnCheck = do_nothing
    """Raises Problem if the token is no longer valid. Called after long work, since a reload may change tokens."""
    who: str = ""  # Name in the header `Kproxy-Who`, empty without one. It is for people to read, and proves nothing.
    receive: ReceiveBody | None = None  # For operations with a body of bytes only
    last_event: str = ""  # Id of the event that it saw last, where it takes up a stream: the header `Last-Event-ID`
    until_gone: Callable[[], Awaitable[object]] = trio.sleep_forever
    """Returns when its client has closed the connection, once the body has been read, if there is one."""

    async def while_connected(self, work: Callable[[], Awaitable[T]]) -> T:
        """Return the result of `work`, which may wait long. Raises its error, and Problem if the client disconnects
        first. This bounds what clients that disconnect and retry leave running."""
        done, failed = list[T](), list[Exception]()
        async with trio.open_nursery() as nursery:

            async def leave() -> None:
                await self.until_gone()
                nursery.cancel_scope.cancel()

            nursery.start_soon(leave)
            try:
                done.append(await work())
            except Exception as error:  # noqa: BLE001  # it is raised as it is, and not in a group
                failed.append(error)
            nursery.cancel_scope.cancel()
        if failed:
            raise failed[0]
        if not done:
            raise Problem(408, "too_slow", "the client disconnected before the response")
        return done[0]


OperationHandler = Callable[["Backend", OperationCall], Awaitable["Shown | LongResponse | Response"]]


class NoQuery(BaseModel, extra="forbid"):
    """Query without parameters."""


@dataclass(frozen=True, slots=True)
class Operation:
    """Operation of the API. `body`: a rule, a document of rules, bytes, or this model. `refusals`: codes besides those
    of every operation.

    `media`: of the response; if it is not JSON, `handle` returns the whole response. `changes`: True requires the full
    token and logs the change; None: every method except GET. `longest`: limit in bytes for a body of bytes, which the
    operation reads in pieces.
    """

    method: HttpMethod
    path: str
    name: str
    summary: str
    handle: OperationHandler
    answer: type[Shown]
    query: type[BaseModel] = NoQuery
    body: Literal["rule", "document", "bytes"] | type[BaseModel] | None = None
    status: int = 200
    refusals: Sequence[str] = field(default=())
    media: str = JSON
    changes: bool | None = None
    longest: int = LONGEST_BODY

    @property
    def writes(self) -> bool:
        return self.method != "GET" if self.changes is None else self.changes

    @asynccontextmanager
    async def called(self, request: Request, check: MayWrite) -> AsyncIterator[OperationCall]:
        """Read path, query and body of an authorized request, then call `check` again. The body counts towards
        ALL_BODIES until the context ends, since parsed values are larger and an operation may wait. Raises Problem."""
        async with AsyncExitStack() as bodies:
            yield await self._call(request, check, bodies)

    async def _call(self, request: Request, check: MayWrite, bodies: AsyncExitStack) -> OperationCall:
        path = {name: value.replace(SLASH, "/") for name, value in request.path_params.items()}
        query = self._query(request)
        body: Any = None
        receive = None
        if self.body == "bytes":
            media_type(request, (BYTES,))
            check_length(request, self.longest)
            receive = request.stream
        elif isinstance(self.body, type):
            media_type(request, (JSON,))
            data = await bodies.enter_async_context(body_of(request))
            body = await trio.to_thread.run_sync(read_model, self.body, data, limiter=DOCUMENTS)
        elif self.body is not None:
            read = json_source if media_type(request, (JSON, YAML)) == JSON else Source
            data = await bodies.enter_async_context(body_of(request))
            body = await trio.to_thread.run_sync(read, API, data, limiter=DOCUMENTS)
        elif self.method in ("POST", "PUT"):
            media_type(request, (JSON,))
            async with body_of(request):
                pass
        may_write = check()  # the body may have taken its time
        last_event = request.headers.get("last-event-id", "")
        gone = partial(until_gone, request)
        return OperationCall(path, query, body, may_write, check, who_of(request), receive, last_event, gone)

    def _query(self, request: Request) -> BaseModel:
        given = dict(request.query_params)
        counts = Counter(name for name, _ in request.query_params.multi_items())
        names = {info.alias or name for name, info in self.query.model_fields.items()}
        wrong = [f"{name}: {_unknown(name, names)}" for name in given if name not in names]
        wrong += [f"{name}: given {counts[name]} times" for name in given if name in names and counts[name] > 1]
        try:
            query = self.query.model_validate({name: value for name, value in given.items() if name in names})
        except ValidationError as error:
            wrong += [f"{'.'.join(map(str, one['loc'][:1]))}: {_words(one)}" for one in error.errors()]
        if wrong:
            raise Problem(422, "invalid_query", "; ".join(wrong))
        return query


LONGEST_WHO = 60  # Characters of a name in `Kproxy-Who` that are kept


def who_of(request: Request) -> str:
    """Return the name in the header `Kproxy-Who`: printable, short, empty if absent. It is percent-decoded: %C3%BC for
    ü."""
    name = unquote(request.headers.get("kproxy-who", "")[: 9 * LONGEST_WHO], errors="replace")[:LONGEST_WHO]
    return printable(name)


def read_model(model: type[BaseModel], data: bytes) -> BaseModel:
    if not has_few_values(data):
        raise Problem(422, "invalid_body", f"more than {MOST_VALUES} values, or nested deeper than {MOST_NESTED} times")
    try:
        return model.model_validate_json(data or b"{}")
    except ValidationError as error:
        count = error.error_count()
        known = count <= MOST_VALUES // 10  # report all mistakes at once
        found = error.errors(include_url=False, include_context=False, include_input=False) if known else []
    mistakes = [(".".join(map(str, one["loc"])), one["msg"]) for one in found[:MOST_MISTAKES]]
    raise Problem(422, "invalid_body", plural(count, "mistake"), mistakes)


MOST_MISTAKES = 100
MOST_VALUES = 50_000  # Values in a JSON body. The parser does not yield: this many take ten milliseconds.
MOST_NESTED = 100
_SIGN = re.compile(rb'[\[\]{},"]')
_TEXT = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)


def has_few_values(data: bytes) -> bool:
    """Return False for JSON with too many or too deeply nested values. Invalid JSON returns True."""
    at = count = depth = 0
    while found := _SIGN.search(data, at):
        at, sign = found.end(), found[0]
        if sign == b'"':
            at = text_end(data, at)
            continue
        count += sign in b"[{,"
        depth += (sign in b"[{") - (sign in b"]}")
        if count > MOST_VALUES or depth > MOST_NESTED:
            return False
    return True


def text_end(data: bytes, at: int) -> int:
    """Return the position after the closing quote of the text at `at`; the end of data without one."""
    found = _TEXT.match(data, at)
    return found.end() if found is not None else len(data)


async def until_gone(request: Request) -> None:
    """Return once the client has disconnected."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _unknown(name: str, names: set[str]) -> str:
    return unknown("parameter", name, sorted(names)) if names else f'unknown parameter "{name}", there are none'


def _words(error: Any) -> str:
    message = str(error.get("ctx", {}).get("error", error["msg"]))
    return f"{message[0].lower()}{message[1:]}, got {error['input']!r}"


SCHEMAS = "#/components/schemas/{model}"
ALWAYS = ("unauthorized", "foreign_host", "foreign_origin", "foreign_site", "invalid_query", "internal",
          "worker_gone")  # fmt: skip
"""Codes that any operation may answer with."""

DESCRIPTION = """\
Rules and connections of a running kproxy. Every refusal has the same form; `error.code` is stable.

On loopback no token is needed, and the Host header must name this machine. POST and PUT need a Content-Type of
`application/json`, with a body or without; documents of rules may also be `application/yaml`, and captures are
`application/octet-stream`.

With the token for reading all is refused that changes something (403 `read_only`). What changes something is logged,
with the address it came from, and with the name in the header `Kproxy-Who` where that is sent.
"""


def describe(operations: Sequence[Operation]) -> dict[str, Any]:
    answers: list[type[BaseModel]] = list(
        dict.fromkeys([FailureShown, *(operation.answer for operation in operations)])
    )
    bodies = dict.fromkeys(one.body for one in operations if isinstance(one.body, type))
    models: list[tuple[type[BaseModel], Literal["validation", "serialization"]]] = [
        *((model, "serialization") for model in answers), *((model, "validation") for model in bodies)
    ]  # fmt: skip
    _, shown = models_json_schema(models, ref_template=SCHEMAS)
    document, rules = document_schema(SCHEMAS)
    paths: dict[str, Any] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation)
    return {
        "openapi": "3.1.0",
        "info": {"title": "kproxy admin API", "version": own_version(), "description": DESCRIPTION,
                 "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"}},
        "servers": [{"url": "/"}],
        "security": [{}, {"token": []}],
        "paths": paths,
        "components": {
            "schemas": {**shown["$defs"], **rules, "Document": document},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }  # fmt: skip


def _operation(operation: Operation) -> dict[str, Any]:
    inside = [part[1:-1] for part in operation.path.split("/") if part.startswith("{")]
    description: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in inside
        ] + list(_query(operation.query)),
        "responses": {str(operation.status): _answer(operation)} | _refusals(operation),
    }  # fmt: skip
    if operation.body == "bytes":
        content = {BYTES: {"schema": {"type": "string", "format": "binary"}}}
        description["requestBody"] = {"required": True, "content": content}
    elif isinstance(operation.body, type):
        schema = {"$ref": SCHEMAS.format(model=operation.body.__name__)}
        description["requestBody"] = {"required": True, "content": {JSON: {"schema": schema}}}
    elif operation.body is not None:
        schema = {"$ref": SCHEMAS.format(model="Rule" if operation.body == "rule" else "Document")}
        description["requestBody"] = {"required": True, "content": {kind: {"schema": schema} for kind in (JSON, YAML)}}
    return description


def _answer(operation: Operation) -> dict[str, Any]:
    schema = {"$ref": SCHEMAS.format(model=operation.answer.__name__)}
    return {"description": operation.answer.__doc__, "content": {operation.media: {"schema": schema}}}


def _refusals(operation: Operation) -> dict[str, Any]:
    """Describe the refusals by status; codes of one status share a description."""
    sent = ("unsupported_media_type", "too_slow", "too_many_bodies") if operation.method in ("POST", "PUT") else ()
    wanted = {*ALWAYS, *operation.refusals, *sent, *(("read_only",) if operation.writes else ())}
    failure = {"schema": {"$ref": SCHEMAS.format(model=FailureShown.__name__)}}
    by_status = {}
    for status, codes in CODES.items():
        words = [f"`{code}`: {text}" for code, text in codes.items() if code in wanted]
        if words:
            by_status[str(status)] = {"description": "; ".join(words), "content": {JSON: failure}}
    return by_status


def _query(model: type[BaseModel]) -> Iterable[dict[str, Any]]:
    schema = model.model_json_schema()
    for name, described in schema.get("properties", {}).items():
        described.pop("title", None)
        text = described.pop("description", "")
        yield {"name": name, "in": "query", "required": name in schema.get("required", ()), "description": text,
               "schema": described}  # fmt: skip
