"""Frame headers of every version, and which frame has which.

The table holds the rule and its exceptions: a request has header 2 if its version is flexible, else 1; a response has
1 or 0 (KIP-482). ControlledShutdown v0 requests have header 0, without a client id. ApiVersions responses always have
header 0, so that a client can read them before it knows what the broker speaks (KIP-511). SaslHandshake is never
flexible. The client id of header 2 is a classic string, which the field's `classic` mark says.
"""

from __future__ import annotations

from typing import Any

from kproxy.errors import DecodeError
from kproxy.wire.primitives import Buffer, read_int16
from kproxy.wire.table import schema
from kproxy.wire.table.layout import header
from kproxy.wire.table.schema import Api

from .structs import decode, encode

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
    """Return the api, its version, the header and the offset of the body. The version may be one that the table
    lacks."""
    if len(frame) < 4:
        raise DecodeError(f"{len(frame)} bytes left", path="header", expected="4 bytes of api key and version")
    key, _ = read_int16(frame, 0)
    version, _ = read_int16(frame, 2)
    api = find(key)
    layout = header("request", header_version(key, version, "request"))
    value, pos = decode(layout, frame, api=api.name, version=version, path="header")
    return api, version, value, pos


def read_response_header(frame: Buffer, api: Api, version: int) -> tuple[dict[str, Any], int]:
    """Return header and offset of the body of a response to a request of this version."""
    layout = header("response", header_version(api.key, version, "response"))
    return decode(layout, frame, api=api.name, version=version, path="header")


def write_header(api: Api, version: int, direction: str, value: dict[str, Any]) -> bytes:
    """Return the header's bytes, in the header version that belongs to the api's."""
    layout = header(direction, header_version(api.key, version, direction))
    return encode(layout, value, api=f"{api.name} header", version=version)
