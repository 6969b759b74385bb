"""Decoding and encoding of whole frames, strictly.

A frame ends with its last field, and an unknown version is an error. Header and body are dicts under the names of the
protocol guide. Unknown tags are in `_tagged_fields`, as (tag, bytes) pairs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from kproxy.base.cooperative import defer_free, yield_point, yielding
from kproxy.base.errors import DecodeError, EncodeError, plural
from kproxy.protocol.primitives import Buffer
from kproxy.protocol.table import layout
from kproxy.protocol.table.api_keys import API_VERSIONS, PRODUCE
from kproxy.protocol.table.schema import Api

from . import structs as codec
from .structs import find, read_request_header, read_response_header, write_header

UNSUPPORTED_VERSION = b"\x00\x23"
"""Error 35, in bytes 4 and 5 of an ApiVersions response."""


@dataclass(frozen=True, slots=True)
class Message:
    """Request or response: its API, its version, and its header and body as dicts.

    `trailing`: bytes after the last field. Some clients and brokers send them (librdkafka in Metadata 13), and
    receivers ignore them. `encode` writes them again.
    """

    api: Api
    version: int
    header: dict[str, Any]
    body: dict[str, Any]
    trailing: bytes = b""

    @property
    def direction(self) -> str:
        """Return `request` or `response`; only a request's header names the api."""
        return "request" if "request_api_key" in self.header else "response"

    def copy(self) -> Message:
        return Message(self.api, self.version, self.header, defer_free(copied(self.body)), self.trailing)


def copied(value: Any) -> Any:
    """Return a deep copy of a decoded value; values in it that cannot change are shared."""
    if isinstance(value, dict):
        yield_point()
        return {name: copied(inner) for name, inner in value.items()}
    return [copied(inner) for inner in yielding(value)] if isinstance(value, list) else value


def awaits_response(request: Message) -> bool:
    """Return False for a Produce request with acks 0, which brokers do not answer."""
    return request.api.key != PRODUCE or request.body["acks"] != 0


def known(api: Api, version: int) -> None:
    if version not in api.versions:
        raise DecodeError("this version is not known", api=api.name, version=version, expected=str(api.versions))


def read_body(
    frame: bytes, pos: int, api: Api, version: int, direction: str, *, trailing: bool
) -> tuple[dict[str, Any], bytes]:
    """Return the body, and what comes behind it. Raises DecodeError if there is something, unless `trailing`."""
    fields = layout.body(api.key, version, direction)
    body, end = codec.decode(fields, frame, pos, api=api.name, version=version)
    if end != len(frame) and not trailing:
        raise DecodeError(
            f"{plural(len(frame) - end, 'byte')} left over",
            api=api.name,
            version=version,
            offset=end,
            expected=f"a frame of {end} bytes",
        )
    return defer_free(body), frame[end:]


def decode_request(frame: Buffer, *, trailing: bool = False) -> Message:
    """Read a request's frame, without its 4-byte length. Raises DecodeError, and nothing else, for any bytes.

    `trailing`: bytes behind the last field are kept in the message instead of being an error.
    """
    data = bytes(frame)
    api, version, header, pos = read_request_header(data)
    known(api, version)
    return Message(api, version, header, *read_body(data, pos, api, version, "request", trailing=trailing))


def decode_response(frame: Buffer, api_key: int, version: int, *, trailing: bool = False) -> Message:
    """Decode a response frame for a request of this API and version. Raises only DecodeError.

    A broker without the version of an ApiVersions request responds with error 35 in version 0 (KIP-511). The message
    then has version 0. `trailing`: as in `decode_request`.
    """
    data, api = bytes(frame), find(api_key)
    fallback = api_key == API_VERSIONS and data[4:6] == UNSUPPORTED_VERSION
    if not fallback or version in api.versions:
        try:
            return read_response(data, api, version, trailing=trailing and not fallback)
        except DecodeError:
            if not fallback:
                raise
    return read_response(data, api, 0, trailing=trailing)


def read_response(data: bytes, api: Api, version: int, *, trailing: bool) -> Message:
    known(api, version)
    header, pos = read_response_header(data, api, version)
    return Message(api, version, header, *read_body(data, pos, api, version, "response", trailing=trailing))


def encode(message: Message) -> bytes:
    """Write a message's frame, without the 4-byte length. Names left out get their defaults. Raises EncodeError."""
    api, version, header, direction = message.api, message.version, message.header, message.direction
    if version not in api.versions:
        raise EncodeError(f"{api.name} v{version}: this version is not known, expected {api.versions}")
    if direction == "request":
        named = header.get("request_api_key"), header.get("request_api_version")
        if named != (api.key, version):
            raise EncodeError(
                f"{api.name} v{version}: header names api and version {named}, expected {api.key, version}"
            )
    fields = layout.body(api.key, version, direction)
    body = codec.encode(fields, message.body, api=api.name, version=version)
    return write_header(api, version, direction, header) + body + message.trailing


def in_json(value: Any, binary: Callable[[bytes], Any]) -> Any:
    """Return a value of a message in a form that JSON has. `binary` converts bytes, and text that is not UTF-8; UUIDs
    and infinities become text."""
    match value:
        case bytes() | bytearray() | memoryview():
            return binary(bytes(value))
        case str():
            data = value.encode("utf-8", "surrogateescape")
            return value if is_utf8(data) else binary(data)
        case UUID():
            return str(value)
        case float() if not math.isfinite(value):
            return str(value)
        case dict():
            return {name: in_json(inner, binary) for name, inner in value.items()}
        case list() | tuple():
            return [in_json(inner, binary) for inner in yielding(value)]
    return value


def is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
