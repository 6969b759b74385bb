"""`kproxy decode`: prints frames as JSON, or as a tree with offsets. Also parses APIs and frames for other commands.

An API is a name, an alias or a key. Frames are lines of hex, a dump of 0x numbers, or raw bytes with 4-byte lengths. A
line of hex is one frame; all 0x numbers of a text are one stream. `#` starts a comment.
"""

from __future__ import annotations

import json
import re
import string
import sys
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from typing import Any, NamedTuple

import click

from kproxy.base.errors import DecodeError, InputError, plural
from kproxy.base.named_file import read_named, reason
from kproxy.base.terminal import console, in_line, say
from kproxy.protocol import decode_request, decode_response
from kproxy.protocol.codec.message import Message, in_json, known
from kproxy.protocol.codec.structs import find, header_version
from kproxy.protocol.codec.trace import TraceStep, trace
from kproxy.protocol.framing import RESPONSE_HEADER, split
from kproxy.protocol.primitives import read_int16
from kproxy.protocol.table import layout
from kproxy.protocol.table.layout import Slot, Struct
from kproxy.protocol.table.schema import Api, load, names, paths
from kproxy.record.observer.credentials import SECRET_KINDS, WITHHELD

MOST_FRAMES = 256 << 20
"""Most bytes of input: room for the longest frame, of 100 MiB, in hex."""


@click.command("decode")
@click.argument("file", default="-")
@click.option(
    "--request", "direction", flag_value="request", default="request", help="The frames are requests (default)."
)
@click.option("--response", "direction", flag_value="response", help="They are responses; needs --api and --version.")
@click.option("--api", "name", help="Name or key of the API of these responses.")
@click.option("--version", type=int, help="Its version.")
@click.option("--json", "form", flag_value="json", default="json", help="Print JSON (default), a line each in pipes.")
@click.option("--tree", "form", flag_value="tree", help="Print each field with offset and size in bytes.")
@click.option("--raw", is_flag=True, help="Read bytes with 4-byte lengths; otherwise seen from the input.")
@click.option("--lengths/--no-lengths", default=None, help="Frames begin with their length (default: detected).")
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
                say(f"frame {number} ({plural(len(frame), 'byte')}): {error}", err=True)
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
    """Return the API of the responses to read, None for requests. Raises UsageError for contradictory options."""
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
    say(f"{found.name} v{number} {direction}, {plural(len(frame), 'byte')}")
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


NUMBER = re.compile(r"\b0x([0-9a-fA-F]{1,2})\b")
TEXT = frozenset(string.printable.encode())


class FrameInputError(InputError):
    """Input that is neither hex nor frames."""


def frames(data: bytes, raw: bool = False, lengths: bool | None = None) -> Iterator[bytes]:
    """Yield the frames in `data`, without lengths. `raw`: `data` is bytes even if it looks like text.

    Raises FrameInputError for text that is not hex, DecodeError for wrong lengths.
    """
    if raw or not set(data) <= TEXT:
        yield from [data] if lengths is False else split(data, smallest=0)
        return
    lines = [line.partition("#")[0].strip() for line in data.decode("ascii").splitlines()]
    if any(NUMBER.search(line) for line in lines):
        numbers = bytes(int(number, 16) for line in lines for number in NUMBER.findall(line))
        yield from stream(numbers, lengths)
        return
    for number, line in enumerate(lines, 1):
        if line:
            yield from stream(hex_line(line, number), lengths)


def hex_line(line: str, number: int) -> bytes:
    try:
        return bytes.fromhex(line.replace(":", " "))
    except ValueError:
        raise FrameInputError(f"line {number}: expected hex digits, got {line[:40]!r}") from None


def stream(data: bytes, lengths: bool | None) -> list[bytes]:
    """Return the frames of length-prefixed bytes, or all the bytes as one frame without a length."""
    if lengths is False:
        return [data]
    try:
        return list(split(data, smallest=RESPONSE_HEADER if lengths is None else 0))
    except DecodeError:
        if lengths:
            raise
        return [data]


def find_api(text: str) -> Api:
    """Return the API of this name, alias or key. Raises UsageError with the nearest name if the API is unknown."""
    from kproxy.rules.select.selected import number_in  # imported here: most calls name no API

    if (key := number_in(text)) is not None:
        if key not in paths():
            raise click.UsageError(f"no API has the key {text}, there are 0 to {max(paths())}")
        return load(key)
    lower = {name.lower(): name for name in names()}
    if text.lower() in lower:
        return load(names()[lower[text.lower()]])
    close = get_close_matches(text.lower(), lower, n=1, cutoff=0.5)
    hint = f", did you mean {lower[close[0]]}?" if close else "; `kproxy protocol` lists them"
    raise click.UsageError(f"no API is called {text!r}{hint}")


def known_version(api: Api, version: int) -> int:
    """Return the version if the API has it. Raises UsageError otherwise."""
    if version not in api.versions:
        raise click.UsageError(f"{api.name} has versions {api.versions}, not {version}")
    return version


SHOWN = 48
"""Bytes of a bytes field in one line of the tree."""


def plain(value: Any) -> Any:
    return in_json(value, lambda data: {"hex": data.hex()})


def withheld(struct: Struct, value: dict[str, Any]) -> dict[str, Any]:
    found = dict(value)
    for slot in struct.all_slots:
        inner = value[slot.name]
        if inner is None:
            continue
        if slot.kind in SECRET_KINDS:
            found[slot.name] = [WITHHELD for _ in inner] if slot.array else WITHHELD
        elif (deeper := slot.struct) is not None:
            found[slot.name] = [withheld(deeper, item) for item in inner] if slot.array else withheld(deeper, inner)
    return found


def as_json(message: Message, secrets: bool = False, indent: int | None = None) -> str:
    """Return a message as a JSON object: api, key, version, direction, header, body. `secrets`: show them."""
    fields = layout.body(message.api.key, message.version, message.direction)
    shown = {
        "api": message.api.name,
        "key": message.api.key,
        "version": message.version,
        "direction": message.direction,
        "header": plain(message.header),
        "body": plain(message.body if secrets else withheld(fields, message.body)),
    }
    return json.dumps(shown, ensure_ascii=False, indent=indent)


class Row(NamedTuple):
    """Line of a tree. `start` and `end` are the offsets of its bytes in the frame; `end` is None for a name above the
    fields that belong to it. `depth` is 0 for the outermost lines."""

    start: int
    end: int | None
    depth: int
    text: str


def rows(api: Api, version: int, direction: str, frame: bytes, show: Callable[[TraceStep], str]) -> Iterator[Row]:
    """Yield the tree of a frame, row by row, with the text that `show` returns for a value. Raises DecodeError at the
    first byte that does not fit."""
    end = 0
    parents: list[str] = []
    parts = [
        ("header", layout.header(direction, header_version(api.key, version, direction))),
        ("body", layout.body(api.key, version, direction)),
    ]
    for name, struct in parts:
        for step in trace(struct, frame, end, name):
            *above, last = step.path.replace("[", ".[").split(".")
            for depth, parent in enumerate(above):
                if above[: depth + 1] != parents[: depth + 1]:
                    yield Row(step.start, None, depth, parent)
            parents = [*above, last]
            yield Row(step.start, step.end, len(above), f"{last}: {show(step)}")
            end = step.end
    if end < len(frame):
        yield Row(end, len(frame), 0, f"left over: {short(frame[end:])}")


def tree(api: Api, version: int, direction: str, frame: bytes, secrets: bool = False) -> Iterator[str]:
    """Yield lines `offset  bytes  name: value` of a frame. Raises DecodeError as `rows`."""
    for start, end, depth, text in rows(api, version, direction, frame, lambda step: shown(step, secrets)):
        size = "" if end is None else end - start
        yield f"{start:>8} {size:>6}  {'  ' * depth}{text}"


def shown(step: TraceStep, secrets: bool) -> str:
    """Return the value of a step as text for one line; secrets only if `secrets`."""
    slot: Slot | None = step.slot
    match step.what:
        case "count":
            return "null" if step.value < 0 else plural(step.value, "element")
        case "present":
            return "present" if step.value else "null"
        case "tags":
            return plural(step.value, "tagged field")
        case "tag":
            return f"tag {step.value}"
    if step.value is not None and not secrets and slot is not None and slot.kind in SECRET_KINDS:
        return WITHHELD
    if isinstance(step.value, (bytes, memoryview)):
        return short(step.value)
    return json.dumps(plain(step.value), ensure_ascii=False)


def short(data: bytes | memoryview) -> str:
    """Return the first bytes in hex, and the total number of bytes."""
    more = " …" if len(data) > SHOWN else ""
    return f"{plural(len(data), 'byte')}{': ' if len(data) else ''}{data[:SHOWN].hex(' ')}{more}"
