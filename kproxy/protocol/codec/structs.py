"""Layouts to functions: `decode` and `encode` of any struct, compiled at first use; headers of frames.

Strategy: the fast functions of `make_decoder` and `make_encoder` either succeed or fail without a word. Then the slow
ones (`trace`, `complete`) look at the same bytes or values and say what is wrong. Whatever the bytes are, `decode`
raises nothing but DecodeError; whatever the values are, `encode` raises nothing but EncodeError.

Headers. The table holds the rule and its exceptions: a request has header 2 if its version is flexible, else 1; a
response has 1 or 0 (KIP-482). ControlledShutdown v0 requests have header 0, without a client id. ApiVersions responses
always have header 0, so that a client can read them before it knows what the broker speaks (KIP-511). SaslHandshake is
never flexible. The client id of header 2 is a classic string, which the field's `classic` mark says.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from kproxy.base.errors import DecodeError, EncodeError
from kproxy.protocol.primitives import Buffer, read_int16
from kproxy.protocol.scan.head import body_start
from kproxy.protocol.table import schema
from kproxy.protocol.table.layout import Struct, header
from kproxy.protocol.table.schema import Api

from .compiled import FAILURES as BAD_BYTES
from .compiled import TooManyElements
from .decoder import make_decoder
from .encoder import FAILURES as BAD_VALUES
from .encoder import make_encoder
from .trace import complete, diagnosis


@cache
def decoder(layout: Struct, label: str) -> Any:
    """Return the function `decode(buf: bytes, pos, end) -> (dict, position)` of this layout."""
    return make_decoder(layout, label)


@cache
def encoder(layout: Struct, label: str) -> Any:
    """Return the function `encode(value, add) -> None` of this layout."""
    return make_encoder(layout, label)


def decode(
    layout: Struct, buf: Buffer, pos: int = 0, *, api: str = "struct", version: int = 0, path: str = ""
) -> tuple[dict[str, Any], int]:
    """Read one struct at `pos`; the end of `buf` is the end. Gives (dict, position after it).

    Bytes and records are views into the frame, or into a copy of it if `buf` is not `bytes`. `api` and `version` name
    the message in errors and tracebacks, `path` stands before the field paths in errors.
    """
    data = buf if type(buf) is bytes else bytes(buf)
    try:
        result: tuple[dict[str, Any], int] = decoder(layout, f"{api} v{version}")(data, pos, len(data))
    except TooManyElements as problem:
        raise DecodeError(str(problem), api=api, version=version, path=path) from None
    except BAD_BYTES:
        raise diagnosis(layout, data, pos, api, version, path) from None
    return result


def encode(layout: Struct, value: Any, *, api: str = "struct", version: int = 0) -> bytes:
    """Write one struct. Names left out get their defaults; names the layout lacks are an error."""
    written = bytearray()  # no list of pieces: a million of them would be freed in one go
    write = encoder(layout, f"{api} v{version}")
    try:
        write(value, written.extend)
    except BAD_VALUES:
        written.clear()
        try:
            write(complete(layout, value), written.extend)
        except BAD_VALUES as mistake:
            raise EncodeError(f"{api} v{version} {mistake}") from None
    return bytes(written)


NEWEST_WRITTEN = 99
"""The table writes exceptions for versions up to here; newer ones have the same header as this one."""


def find(key: int) -> Api:
    """Return the API of this key. Raises DecodeError if there is none."""
    try:
        return schema.load(key)
    except KeyError:
        raise DecodeError(f"api key {key} is not known", expected=f"0 to {max(schema.paths())}") from None


def header_version(key: int, version: int, direction: str) -> int:
    """Return the header version of a frame, for versions that the table lacks too: they are taken to be flexible.

    An ApiVersions request of a version from the future thus has header 2, as brokers read it (KIP-511).
    """
    return find(key).header_version(direction, min(version, NEWEST_WRITTEN))


def read_request_header(frame: Buffer) -> tuple[Api, int, dict[str, Any], int]:
    """Return the api, its version, the header and the offset of the body. Raises DecodeError.

    The version may be one that the table lacks.
    """
    if len(frame) < 4:
        raise DecodeError(f"{len(frame)} bytes left", path="header", expected="4 bytes of api key and version")
    key, _ = read_int16(frame, 0)
    version, _ = read_int16(frame, 2)
    api = find(key)
    form = header_version(key, version, "request")
    body_start(frame, 0, len(frame), form, "request")  # raises for too many tags
    value, pos = decode(header("request", form), frame, api=api.name, version=version, path="header")
    return api, version, value, pos


def read_response_header(frame: Buffer, api: Api, version: int) -> tuple[dict[str, Any], int]:
    """Return header and offset of the body of a response to a request of this version. Raises DecodeError."""
    form = header_version(api.key, version, "response")
    body_start(frame, 0, len(frame), form, "response")  # raises for too many tags
    return decode(header("response", form), frame, api=api.name, version=version, path="header")


def write_header(api: Api, version: int, direction: str, value: dict[str, Any]) -> bytes:
    """Return the header's bytes, in the header version that belongs to the api's."""
    layout = header(direction, header_version(api.key, version, direction))
    return encode(layout, value, api=f"{api.name} header", version=version)
