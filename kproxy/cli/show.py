"""`kproxy show`: prints an exchange of a capture as a tree with its bytes, or one of an event file as its columns."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import click

from kproxy.base.errors import DecodeError
from kproxy.base.terminal import say
from kproxy.cli.exchange_input import AnyView, Trouble, tell, views
from kproxy.cli.exchange_rows import milliseconds
from kproxy.cli.exchange_tree import hex_tree, record_lines
from kproxy.cli.filters import is_file, make_filter
from kproxy.cli.tail import unjudged
from kproxy.protocol import decode_request, decode_response
from kproxy.record.captures.reader import MOST_FRAME
from kproxy.record.exchange import Form, Frame, ObservedExchange
from kproxy.record.filter.filter import Filter
from kproxy.record.filter.view import ExchangeView
from kproxy.record.observer.records import NotKept, record_fields

from .frame_text import as_json

FORMS = ("tree", "json")


@click.command("show")
@click.argument("file")
@click.argument("which", metavar="[NUMBER | FILTER]", nargs=-1)
@click.option("-n", "--number", type=click.IntRange(min=1), default=1, help="Show so many (default 1).")
@click.option("--records", type=click.IntRange(min=0), default=20, help="Records shown of a partition (default 20).")
@click.option("--most", type=click.IntRange(min=1), default=MOST_FRAME, help="Bytes kept of a frame (default 1 MiB).")
@click.option("-o", "--output", type=click.Choice(FORMS), default="tree", help="How to print them.")
def command(*, file: str, which: tuple[str, ...], number: int, records: int, most: int, output: str) -> None:
    """Print one exchange of FILE with all its fields: the one with this number, counted from 1, or the first that
    FILTER holds for."""
    if not is_file(file):
        raise click.UsageError(f"there is no file {file}")
    first, wanted = selection(which)
    trouble, left = Trouble(), number
    with closing(chosen(file, first, wanted, trouble, most)) as found:
        for place, view in found:
            show(place, view, output, records)
            left -= 1
            if not left:
                break
    unjudged(wanted.unknown, wanted.why)
    if left == number:
        tell(trouble)
        asked = f"number {first}" if first > 1 else "exchange" if not wanted else f"exchange that fits {wanted}"
        say(f"kproxy: there is no {asked} in {file}", err=True)
        raise click.exceptions.Exit(1)


def selection(words: tuple[str, ...]) -> tuple[int, Filter]:
    """Return the number of the first exchange that is looked at, from 1, and the filter. Raises UsageError for 0."""
    if len(words) == 1 and words[0].isdecimal():
        if not int(words[0]):
            raise click.UsageError("exchanges are counted from 1")
        return int(words[0]), Filter()
    return 1, make_filter(" ".join(words))


def chosen(file: str, first: int, wanted: Filter, trouble: Trouble, most: int) -> Any:
    """Yield number and view of each exchange from the `first` on that the filter holds for."""
    for place, view in enumerate(views(file, trouble, most), 1):
        if place >= first and wanted.holds(view):
            yield place, view


def show(place: int, view: AnyView, output: str, records: int) -> None:
    if not isinstance(view, ExchangeView):
        say(json.dumps(view.data, indent=2, ensure_ascii=False))
    elif output == "json":
        say(writable(json.dumps(json_of(place, view.seen), ensure_ascii=False)))
    else:
        for line in tree_of(place, view, records):
            say(writable(line))


def writable(line: str) -> str:
    r"""Return a text whose bytes that are no UTF-8 are written as `\udcff`, which JSON, too, takes for one letter."""
    return line if line.isascii() else line.encode("utf-8", "backslashreplace").decode()


def tree_of(place: int, view: ExchangeView, records: int) -> Iterator[str]:
    """Yield the lines of an exchange: its client and broker, times and outcome, then both frames, then the records."""
    seen, get = view.seen, view.get
    node = "" if get("node") is None else f" (node {get('node')})"
    yield (
        f"exchange {place}: {seen.api} v{seen.version}, correlation id {seen.correlation_id}, connection "
        f"{get('connection')}, {get('client_address')}:{get('client_port')} → {get('broker') or '?'}{node}, "
        f"client id {json.dumps(seen.client_id, ensure_ascii=False)}"
    )
    yield f"{view.data.get('request_in', '?')}, {outcome_of(view)}"
    for direction, frame in (("request", seen.request), ("response", seen.response)):
        yield ""
        if frame is None:
            yield f"{direction}: none"
            continue
        yield f"{direction}: {frame.size} bytes with the 4 of its length"
        yield from hex_tree(seen, direction, frame)
    yield from records_of(seen, records)


def outcome_of(view: ExchangeView) -> str:
    """Return the outcome of an exchange in words: `answered after 12ms, errors …, rules …`."""
    said = [str(view.get("outcome")).replace("_", " ")]
    if view.get("latency_ms") is not None:
        said[0] += f" after {milliseconds(view.get('latency_ms'))}"
    if view.get("answered_by") == "kproxy":
        said.append("by kproxy in the broker's place")
    if view.get("errors") or view.get("error"):
        said.append(f"errors {', '.join(view.get('errors') or [view.get('error')])}")
    if view.get("rules"):
        said.append(f"rules {', '.join(view.get('rules'))}")
    if view.get("unread"):
        said.append(f"unread: {view.get('unread')}")
    return ", ".join(said)


def records_of(seen: ObservedExchange, most: int) -> Iterator[str]:
    """Yield the lines of an exchange's records, each partition below a blank line; none for APIs without records."""
    try:
        fields = record_fields(seen)
    except NotKept as error:
        yield ""
        yield f"records: not shown, {error}"
        return
    for field in fields:
        yield ""
        yield from record_lines(field, most)


def json_of(place: int, seen: ObservedExchange) -> dict[str, Any]:
    """Return an exchange with both frames as `kproxy decode --json` has them; a frame that is missing is None."""
    return {
        "number": place,
        "outcome": seen.outcome,
        "request": _frame_json(seen, "request", seen.request),
        "response": _frame_json(seen, "response", seen.response),
    }


def _frame_json(seen: ObservedExchange, direction: str, frame: Frame | None) -> dict[str, Any] | None:
    if frame is None:
        return None
    said: dict[str, Any] = {"bytes": frame.size, "kept": len(frame.data)}
    if frame.withheld:
        said["withheld"] = frame.withheld
    if frame.form is Form.WHOLE:
        try:
            if direction == "request":
                message = decode_request(frame.data, trailing=True)
            else:
                message = decode_response(frame.data, seen.key, seen.version, trailing=True)
            said.update(json.loads(as_json(message)))
        except DecodeError as error:
            said["unread"] = str(error)
    return said
