"""One operation of the API as data. Routes and the OpenAPI description are both made from the same table of these."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from kproxy.rules.explain import unknown
from kproxy.rules.json_tree import json_source
from kproxy.rules.source import Source

from .backend import Backend
from .guard import JSON, YAML, media_type
from .problem import Problem
from .shown import Shown

Method = Literal["GET", "POST", "PUT", "DELETE"]

LONGEST_BODY = 4 << 20
"""Bytes; some ten thousand rules."""
API = "<api>"
"""What stands for a file's name in the places of mistakes."""


@dataclass(frozen=True, slots=True)
class Call:
    """What a request asks: its path parameters, its query as the operation's model, its body as a document."""

    path: Mapping[str, str]
    query: Any
    body: Source | None


Handle = Callable[[Backend, Call], Awaitable["Shown | Response"]]


class NoQuery(BaseModel, extra="forbid"):
    """No parameters."""


@dataclass(frozen=True, slots=True)
class Operation:
    """`body`: what is sent, a rule or a document of rules. `refusals`: codes beside those that any request may get.

    `media`: of the answer; for another than JSON `handle` gives the whole response.
    """

    method: Method
    path: str
    name: str
    summary: str
    handle: Handle
    answer: type[Shown]
    query: type[BaseModel] = NoQuery
    body: Literal["rule", "document"] | None = None
    status: int = 200
    refusals: Sequence[str] = field(default=())
    media: str = JSON

    async def call(self, request: Request) -> Call:
        """Read the request. Raises Problem."""
        path = {name: value.replace(SLASH, "/") for name, value in request.path_params.items()}
        query = self._query(request)
        body = None
        if self.body is not None:
            kind = media_type(request, (JSON, YAML))
            data = await read_body(request)
            body = json_source(API, data) if kind == JSON else Source(API, data)
        elif self.method in ("POST", "PUT"):
            media_type(request, (JSON,))
            await read_body(request)
        return Call(path, query, body)

    def _query(self, request: Request) -> BaseModel:
        given = dict(request.query_params)
        names = {info.alias or name for name, info in self.query.model_fields.items()}
        wrong = [f"{name}: {_unknown(name, names)}" for name in given if name not in names]
        try:
            made = self.query.model_validate({name: value for name, value in given.items() if name in names})
        except ValidationError as error:
            wrong += [f"{'.'.join(map(str, one['loc'][:1]))}: {_words(one)}" for one in error.errors()]
        if wrong:
            raise Problem(422, "invalid_query", "; ".join(wrong))
        return made


SLASH = "\x00"
"""Stands for a slash within a path parameter, %2F, which is none of the path's own. No name has this character."""


async def read_body(request: Request) -> bytes:
    """The body. Raises Problem when it is too long, without reading on."""
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > LONGEST_BODY:
        raise _too_large(int(length))
    data = bytearray()
    async with aclosing(request.stream()) as stream:
        async for piece in stream:
            data += piece
            if len(data) > LONGEST_BODY:
                raise _too_large(len(data))
    return bytes(data)


def _too_large(length: int) -> Problem:
    return Problem(413, "too_large", f"the body has {length} bytes or more, at most {LONGEST_BODY} are taken",
                   headers={"Connection": "close"})  # fmt: skip


def _unknown(name: str, names: set[str]) -> str:
    return unknown("parameter", name, sorted(names)) if names else f'unknown parameter "{name}", there are none'


def _words(error: Any) -> str:
    message = str(error.get("ctx", {}).get("error", error["msg"]))
    return f"{message[0].lower()}{message[1:]}, found {error['input']!r}"
