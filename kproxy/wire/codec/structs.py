"""Layouts to functions: `decode` and `encode` of any struct, compiled at first use.

Strategy: the fast functions of `make_decoder` and `make_encoder` either succeed or fail without a word. Then the slow
ones (`trace`, `complete`) look at the same bytes or values and say what is wrong. Whatever the bytes are, `decode`
raises nothing but DecodeError; whatever the values are, `encode` raises nothing but EncodeError.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from kproxy.errors import DecodeError, EncodeError
from kproxy.wire.primitives import Buffer
from kproxy.wire.table.layout import Struct

from . import decode_support, encode_support
from .complete import complete
from .decoder import make_decoder
from .encoder import make_encoder
from .trace import diagnosis


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
    except decode_support.TooManyElements as problem:
        raise DecodeError(str(problem), api=api, version=version, path=path) from None
    except decode_support.FAILURES:
        raise diagnosis(layout, data, pos, api, version, path) from None
    return result


def encode(layout: Struct, value: Any, *, api: str = "struct", version: int = 0) -> bytes:
    """Write one struct. Names left out get their defaults; names the layout lacks are an error."""
    written = bytearray()  # no list of pieces: a million of them would be freed in one go
    write = encoder(layout, f"{api} v{version}")
    try:
        write(value, written.extend)
    except encode_support.FAILURES:
        written.clear()
        try:
            write(complete(layout, value), written.extend)
        except encode_support.FAILURES as mistake:
            raise EncodeError(f"{api} v{version} {mistake}") from None
    return bytes(written)
