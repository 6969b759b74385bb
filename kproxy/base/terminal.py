r"""Terminal output with escaped control characters, and click groups that import their commands when called.

Clients, brokers and users choose names, records, paths and error texts. Escape sequences in them could recolour,
overwrite or retitle a terminal; invisible and direction characters can make two names look alike. All output therefore
passes through this module: `say` and `console` clean and style it, `cleaned` wraps the streams for other writers.

A character is escaped as in `\u202e`, as in JSON: cleaned JSON keeps its meaning.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO, cast

import click
from click.shell_completion import CompletionItem

from .errors import RENAMED, DocumentError, KproxyError, plural

if TYPE_CHECKING:
    from rich.console import Console

UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5\u180e"
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ud800-\udfff\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff\U000110bd\U000110cd"
    "\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""Characters that are escaped: control characters except for line ends and tabs, formats (direction, no width, tags),
half surrogates, separators of lines, and letters without ink. These are the categories Cc, Cf, Cs, Zl and Zp of
Unicode, and what is taken for blank (UTS #39)."""
UNSEEN_IN_LINE = re.compile(f"{UNSEEN.pattern}|[\t\n]")

as_json = click.option("--json", "as_json", is_flag=True, help="Print the whole result as JSON.")
"""Decorator that adds the option --json; the command gets the argument `as_json`."""


class OutputForm(click.Choice[str]):
    """Option type for an output format."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value not in self.choices:
            self.fail(f"expected {', '.join(self.choices[:-1])} or {self.choices[-1]}, got {value}", param, ctx)
        return str(value)


def output_option(*forms: str, text: str = "Output format.") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that adds the option -o; the command gets the argument `output`. The first form is the
    default."""
    return click.option("-o", "--output", type=OutputForm(forms), default=forms[0], show_default=True, help=text)


def stable_ids(keys: Iterable[tuple[str, ...]]) -> list[str]:
    """Return an id for each key, which is the same in each run; equal keys have numbers from the second one on."""
    from hashlib import sha256  # help, and what runs a proxy, do without

    seen: Counter[str] = Counter()
    ids = []
    for key in keys:
        made = sha256("\0".join(key).encode("utf-8", "surrogatepass")).hexdigest()[:16]
        seen[made] += 1
        ids.append(made if seen[made] == 1 else f"{made}-{seen[made]}")
    return ids


def printable(value: object) -> str:
    r"""Return the text with its unseen characters escaped as `\u001b`, or as two such escapes beyond U+FFFF."""
    text = value if isinstance(value, str) else str(value)
    return UNSEEN.sub(_escaped, text)


def in_line(value: object) -> str:
    r"""Return the text as by `printable`, with tabs and line ends escaped: `\u0009` and `\u000a`."""
    text = value if isinstance(value, str) else str(value)
    return UNSEEN_IN_LINE.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    return _escape(found[0])


@lru_cache(maxsize=1024)  # names that are nothing else come by the thousand
def _escape(char: str) -> str:
    code = ord(char)
    if code < 0x10000:
        return f"\\u{code:04x}"
    high, low = divmod(code - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"


class Cleaned:
    """Text stream that escapes control characters. `stream` is the one behind it, for text that is clean already."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError("this is a stream of text")  # click finds out by this error that it is no stream of bytes
        self.stream.write(printable(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextmanager
def cleaned() -> Iterator[None]:
    """Have standard output and standard error cleaned, until the context ends."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (
        cast("TextIO", stream if isinstance(stream, Cleaned) else Cleaned(stream)) for stream in before
    )
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def raw(err: bool) -> TextIO:
    """Return the stream without cleaning, for text that is clean already and has styles."""
    stream = sys.stderr if err else sys.stdout
    return stream.stream if isinstance(stream, Cleaned) else stream


def say(text: object = "", *, err: bool = False, nl: bool = True, over: bool = False, **style: Any) -> None:
    """Print a text, cleaned, in this style (keywords of `click.style`). `over`: in place of the line's present text."""
    made = click.style(printable(text), **style) if style else printable(text)
    click.echo("\r\x1b[K" + made if over else made, file=raw(err), nl=nl)


def console(*, err: bool = False, markup: bool = False) -> Console:
    """Return a rich console with cleaned output. `markup`: rich reads `[bold]`; only for kproxy's own text."""
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    class CleanConsole(Console):
        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
            for segment in super().render(renderable, options):
                yield segment if segment.control else Segment(printable(segment.text), segment.style)

    return CleanConsole(file=raw(err), stderr=err, markup=markup, highlight=False, emoji=False)


class StyledLine(NamedTuple):
    """Line of output with rich's style for it."""

    text: str
    style: str = ""


def print_styled(lines: Iterable[StyledLine]) -> None:
    """Print lines, with colours on a terminal, plain in pipes."""
    if not sys.stdout.isatty():
        for line in lines:
            say(line.text)
        return
    from rich.text import Text

    out = console()
    for line in lines:
        out.print(Text(line.text, line.style), soft_wrap=True)


def print_rows(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print a line for each row: a table with heads on a terminal, cells separated by tabs in pipes."""
    if not sys.stdout.isatty():
        for row in rows:
            say("\t".join(cell_text(value) for value in row))
        return
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold", pad_edge=False)
    for head in heads:
        table.add_column(head)
    for row in rows:
        table.add_row(*(Text(cell_text(value)) for value in row))
    console().print(table)


def print_json(value: Any) -> None:
    """Print a value as indented JSON. Letters beyond ASCII are not escaped."""
    import json  # help, and what runs a proxy, do without

    say(json.dumps(value, indent=2, ensure_ascii=False))


def cell_text(value: Any) -> str:
    """Return a cell's text, without tabs or line ends: `-` for None, yes or no, lists separated by commas."""
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case list() | tuple():
            return ", ".join(map(cell_text, value)) or "-"
        case dict():
            import json

            return json.dumps(value, ensure_ascii=False)
        case _:
            return in_line(value) or "-"


Commands = Mapping[str, tuple[str, str]]
"""Commands by name: each is (`module:command`, description in one line)."""


class LazyGroup(click.Group):
    """Command group of `table`; help and completion import no command. A KproxyError ends in a message and exit code
    1."""

    def __init__(self, *arguments: Any, table: Commands, **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        self.table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.table:
            return None
        module, _, name = self.table[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        for old in (" ".join(args[:2]), *args[:1]) if ctx.parent is None else ():
            for new in RENAMED["command"].get(old, ()):
                ctx.fail(f'unknown command "{old}" (renamed to "{new}")')
        if args and not args[0].startswith("-") and args[0] not in self.table:
            ctx.fail(self._unknown(args[0]))
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the completions: options and commands. No command is imported."""
        commands = [CompletionItem(name, help=text) for name, (_, text) in self.table.items()]
        matching = [one for one in commands if one.value.startswith(incomplete)]
        return matching + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self.table.items()])

    def main(self, *arguments: Any, **settings: Any) -> Any:
        """Run the command line with cleaned output."""
        with cleaned():
            return super().main(*arguments, **settings)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, and turn a KproxyError into a message and exit code 1."""
        try:
            return super().invoke(ctx)
        except click.NoSuchOption as error:
            path = error.ctx.command_path if error.ctx is not None else ""
            old = f"{path.removeprefix(f'{ctx.command_path} ')} {error.option_name}"
            for new in RENAMED["option"].get(old, ()):
                raise click.UsageError(f"unknown option {error.option_name} (renamed to {new})", error.ctx) from None
            raise
        except DocumentError as error:
            say(str(error), err=True)
        except KproxyError as error:
            say(f"kproxy: {error}", err=True)
        return ctx.exit(1)

    def _unknown(self, name: str) -> str:
        close = get_close_matches(name, self.table, n=1)
        hint = f', did you mean "{close[0]}"?' if close else ","
        return f'unknown command "{name}"{hint} there are: {", ".join(self.table)}'


def counted(number: int, noun: str) -> str:
    """Return a number of things, with `no` for 0: `no rules`, `1 rule`, `2 rules`."""
    text = plural(number, noun)
    return text if number else f"no{text[1:]}"


def duration(seconds: float) -> str:
    """Return a time in seconds as text: `200 ms`, `1.5 s`."""
    return f"{round(seconds * 1000, 3):g} ms" if seconds < 1 else f"{round(seconds, 3):g} s"
