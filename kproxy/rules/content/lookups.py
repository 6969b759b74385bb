"""Requests to a schema registry, without sockets: paths, and what their responses mean.

The API is Confluent's, which Redpanda, Karapace and Apicurio (`/apis/ccompat/v7`) also serve.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Literal, NamedTuple
from urllib.parse import quote

import msgspec

from .avro_types import MOST_SCHEMA, SchemaError
from .schemas import Found, Schema, SchemaKey

MOST_BODY = 2 << 20
"""Bytes of a response: a schema of 1 MiB with its escapes."""
DEEPEST_REFERENCE = 16
MOST_REFERENCES = 64
MOST_SUBJECTS = 1000
OUTAGES = frozenset((401, 403, 407, 408, 429))
"""Statuses 4xx that concern all requests: credentials, and load."""
ACCEPT = "application/vnd.schemaregistry.v1+json, application/json"

LookupOutcome = Literal["ok", "not_found", "invalid", "refused", "unreachable"]
"""ok: found · not_found: 404 · invalid: a rejected request, or a schema or response that kproxy cannot use ·
refused: any other status, such as 401 or a redirect · unreachable: no response."""


class Response(NamedTuple):
    """Response of the registry. `body`: None if it is longer than MOST_BODY."""

    status: int
    body: bytes | None


class LookupResult(NamedTuple):
    """Result of a lookup. `problem`: the reason for another outcome than ok."""

    outcome: LookupOutcome
    found: Found = None
    problem: str = ""

    @property
    def is_answer(self) -> bool:
        """Return True if the result can be cached: the registry has responded."""
        return self.outcome in ("ok", "not_found", "invalid")


class Failed(Exception):
    """End of a lookup with another outcome than ok."""

    def __init__(self, outcome: LookupOutcome, problem: str) -> None:
        self.result = LookupResult(outcome, problem=problem)


class WrittenReference(msgspec.Struct):
    """Reference to a schema of another subject."""

    subject: str
    version: int


class WrittenSchema(msgspec.Struct):
    """Schema as the registry returns it."""

    schema: str
    kind: str | None = msgspec.field(default=None, name="schemaType")
    references: list[WrittenReference] | None = None


class WrittenVersion(msgspec.Struct):
    """Version of a subject."""

    subject: str
    id: int = 0


Requests = Generator[str, Response, Any]
"""Yields paths, and gets their responses. Raises Failed."""


def look_up(key: SchemaKey) -> Generator[str, Response, LookupResult]:
    """Yield the paths to request for a key, and return the result."""
    try:
        match key.lookup:
            case "subjects":
                versions = yield from request(f"/schemas/ids/{key.text}/versions", list[WrittenVersion])
                return LookupResult("ok", tuple(dict.fromkeys(one.subject for one in versions[:MOST_SUBJECTS])))
            case "latest":
                latest = yield from request(f"/subjects/{quote(key.text, safe='')}/versions/latest", WrittenVersion)
                return LookupResult("ok", (str(latest.id),))
        path = f"/schemas/ids/{key.text}" if key.lookup == "id" else f"/schemas/guids/{key.text}"
        written = yield from request(path, WrittenSchema)
        texts: dict[tuple[str, int], str] = {}
        yield from references(written, texts, ())
        try:
            return LookupResult("ok", Schema(written.kind or "AVRO", written.schema, list(texts.values())))
        except SchemaError as error:
            raise Failed("invalid", str(error)) from None
    except Failed as failed:
        return failed.result


def references(
    written: WrittenSchema, texts: dict[tuple[str, int], str], path: tuple[tuple[str, int], ...]
) -> Requests:
    """Put the texts of all references of a schema into `texts`, each after its own references. `path`: those that lead
    to the schema."""
    for one in written.references or ():
        name = one.subject, one.version
        if name in path:
            raise Failed("invalid", f"expected references without a loop, got {one.subject} again")
        if name in texts:
            continue
        if len(path) >= DEEPEST_REFERENCE or len(texts) + len(path) >= MOST_REFERENCES:
            raise Failed("invalid", f"expected at most {MOST_REFERENCES} references on {DEEPEST_REFERENCE} levels")
        place = f"/subjects/{quote(one.subject, safe='')}/versions/{one.version}"
        other = yield from request(place, WrittenSchema)
        yield from references(other, texts, (*path, name))
        texts[name] = other.schema
        if sum(map(len, texts.values())) > MOST_SCHEMA:
            raise Failed("invalid", f"expected references of at most {MOST_SCHEMA} bytes")


def request(path: str, kind: Any) -> Requests:
    """Return the response of a path, as this type."""
    response = yield path
    if response.status == 404:
        raise Failed("not_found", "the registry does not have it")
    if 400 <= response.status < 500 and response.status not in OUTAGES:
        # Producers choose ids, so an id that the registry rejects does not count as an outage of the registry.
        raise Failed("invalid", f"expected status 200, got {response.status}")
    if response.status != 200:
        raise Failed("refused", f"expected status 200, got {response.status}")
    if response.body is None:
        raise Failed("invalid", f"expected a response of at most {MOST_BODY} bytes, got more")
    try:
        return msgspec.json.decode(response.body, type=kind)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise Failed("invalid", f"expected a response of a schema registry, got: {error}") from None
