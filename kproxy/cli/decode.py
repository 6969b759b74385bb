"""`kproxy decode`: prints frames as JSON, or as a tree with offsets."""

from __future__ import annotations

import sys

import click

from kproxy.base.errors import DecodeError, InputError
from kproxy.base.named_file import read_named, reason
from kproxy.base.terminal import console, in_line, say
from kproxy.protocol import decode_request, decode_response
from kproxy.protocol.codec.message import Message, known
from kproxy.protocol.codec.structs import find
from kproxy.protocol.primitives import read_int16
from kproxy.protocol.table.schema import Api

from .frame_text import as_json, find_api, frames, known_version, tree

MOST_FRAMES = 256 << 20
"""Bytes of input at most: room for the longest frame, of 100 MiB, in hex."""


@click.command("decode")
@click.argument("file", default="-")
@click.option(
    "--request", "direction", flag_value="request", default="request", help="The frames are requests (default)."
)
@click.option("--response", "direction", flag_value="response", help="They are responses; needs --api and --version.")
@click.option("--api", "name", help="Name or key of the API whose responses these are.")
@click.option("--version", type=int, help="Its version.")
@click.option("--json", "form", flag_value="json", default="json", help="Print JSON (default), a line each in pipes.")
@click.option("--tree", "form", flag_value="tree", help="Print each field with offset and size in bytes.")
@click.option("--raw", is_flag=True, help="Read bytes with 4-byte lengths; otherwise seen from the input.")
@click.option("--lengths/--no-lengths", default=None, help="Whether frames begin with their length; otherwise guessed.")
@click.option("--show-secrets", is_flag=True, help="Print passwords and SASL tokens too.")
def command(
    *,
    file: str,
    direction: str,
    name: str | None,
    version: int | None,
    form: str,
    raw: bool,
    lengths: bool | None,
    show_secrets: bool,
) -> None:
    """Print the fields of the frames in FILE, or standard input.

    FILE holds a frame a line in hex, or a dump of 0x numbers, or the bytes of a connection with their 4-byte lengths.
    In JSON, bytes are {"hex": "…"}. Passwords and SASL tokens are printed as (withheld).
    """
    api = response_of(direction, name, version)
    failed, number = False, 0
    try:
        for number, frame in enumerate(frames(read(file), raw, lengths), 1):
            try:
                show(frame, api, version, form, show_secrets)
            except DecodeError as error:
                say(f"frame {number} ({len(frame)} bytes): {error}", err=True)
                failed = True
    except InputError as error:
        say(f"kproxy: {error}", err=True)
        failed = True
    if number == 0 and not failed:
        say("kproxy: no frame in the input", err=True)
    if failed or number == 0:
        raise click.exceptions.Exit(1)


def read(file: str) -> bytes:
    """Return the bytes of a file, or of standard input. Raises InputError, or BadParameter for a file."""
    if file == "-":
        data = sys.stdin.buffer.read(MOST_FRAMES + 1)
        if len(data) > MOST_FRAMES:
            raise InputError(f"standard input has more than {MOST_FRAMES:,} bytes")
        return data
    try:
        return read_named(file, MOST_FRAMES)
    except OSError as error:
        raise click.BadParameter(f"{in_line(file)} cannot be read: {reason(error)}", param_hint="FILE") from None


def response_of(direction: str, name: str | None, version: int | None) -> Api | None:
    """Return the API whose responses are read, None for requests. Raises UsageError if options do not go together."""
    if direction == "request":
        if name is not None or version is not None:
            raise click.UsageError("--api and --version are for --response; a request names its own")
        return None
    if name is None or version is None:
        raise click.UsageError("--response needs --api and --version: a response names neither")
    api = find_api(name)
    known_version(api, version)
    return api


def show(frame: bytes, api: Api | None, version: int | None, form: str, secrets: bool) -> None:
    """Print one frame. Raises DecodeError; a tree is printed as far as the frame can be read."""
    if form == "tree":
        show_tree(frame, api, version, secrets)
    else:
        message = decode_request(frame) if api is None else decode_response(frame, api.key, version or 0)
        show_json(message, secrets)


def show_json(message: Message, secrets: bool) -> None:
    if sys.stdout.isatty():
        console().print_json(as_json(message, secrets, indent=2))
    else:
        say(as_json(message, secrets))


def show_tree(frame: bytes, api: Api | None, version: int | None, secrets: bool) -> None:
    mistake: DecodeError | None = None
    try:
        message = decode_request(frame) if api is None else decode_response(frame, api.key, version or 0)
        found, number, direction = message.api, message.version, message.direction
    except DecodeError as error:
        mistake = error
        found, number, direction = named(frame, api, version)
    say(f"{found.name} v{number} {direction}, {len(frame)} bytes")
    try:
        for text in tree(found, number, direction, frame, secrets):
            say(text)
    except DecodeError as error:
        mistake = mistake or error
    if mistake is not None:
        raise mistake


def named(frame: bytes, api: Api | None, version: int | None) -> tuple[Api, int, str]:
    """Return the API, version and direction of a frame that cannot be decoded as a whole.

    A request names API and version in its first bytes. Raises DecodeError if they are not known, or cut off.
    """
    if api is not None and version is not None:
        return api, version, "response"
    key, _ = read_int16(frame, 0)
    number, _ = read_int16(frame, 2)
    found = find(key)
    known(found, number)
    return found, number, "request"
