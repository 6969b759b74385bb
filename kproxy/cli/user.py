"""`kproxy user`: makes and changes the file of users of a listener. Passwords come from a prompt or standard input."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from secrets import token_bytes

import click

from kproxy.base.errors import InternalError
from kproxy.base.named_file import reason, text_named
from kproxy.base.terminal import say
from kproxy.protocol.sasl.scram import (
    HASHES,
    ITERATIONS,
    LARGEST,
    LEAST_ITERATIONS,
    MOST_ITERATIONS,
    SALT,
    check_name,
    make_line,
    names_in,
)

LONGEST = 4096
"""Characters of a password at most; a longer text is another file by mistake."""

FILE = click.argument("file", type=click.Path(dir_okay=False, path_type=Path))


@click.group("user")
def command() -> None:
    """Make the file of users who may log in to kproxy (`sasl: {users: FILE}` of a listener).

    It holds what SCRAM keeps of a password, not the password. A running kproxy reads it again when it has changed.
    """


@command.command("set")
@FILE
@click.argument("name")
@click.option(
    "--mechanism", "mechanisms", multiple=True, type=click.Choice(list(HASHES)), default=list(HASHES),
    show_default=True, help="A line is made for each; PLAIN is checked against any.",
)  # fmt: skip
@click.option(
    "--iterations", type=click.IntRange(LEAST_ITERATIONS, MOST_ITERATIONS), default=ITERATIONS, show_default=True,
    help="Hashes that one guess costs.",
)  # fmt: skip
def set_user(file: Path, name: str, mechanisms: Sequence[str], iterations: int) -> None:
    """Add the user NAME to FILE, or give it another password, which is asked for or read from standard input."""
    try:
        check_name(name)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="NAME") from None
    lines = others(file, name)
    password = ask()
    lines += [make_line(name, mechanism, password, token_bytes(SALT), iterations) for mechanism in mechanisms]
    replace(file, lines)
    say(f"{name}: {', '.join(mechanisms)}")


@command.command("remove")
@FILE
@click.argument("name")
def remove(file: Path, name: str) -> None:
    """Take the user NAME out of FILE. Connections that are open stay."""
    before, after = read(file), others(file, name)
    if before == after:
        raise InternalError(f'unknown user "{name}" in {file}')
    replace(file, after)


@command.command("list")
@FILE
def list_users(file: Path) -> None:
    """List the users in FILE with their mechanisms."""
    found: dict[str, list[str]] = {}
    for name, mechanism in parsed(file, "\n".join(read(file))):
        found.setdefault(name, []).append(mechanism)
    for name, mechanisms in found.items():
        say(f"{name}: {', '.join(mechanisms)}")


def ask() -> str:
    if sys.stdin.isatty():
        password: str = click.prompt("Password", hide_input=True, confirmation_prompt=True)
    else:
        password = sys.stdin.readline(LONGEST + 1).removesuffix("\n").removesuffix("\r")
    if not password or len(password) > LONGEST:
        raise InternalError(f"expected a password of 1 to {LONGEST} characters, got {len(password)}")
    return password


def read(file: Path) -> list[str]:
    """Return the lines of a file of users; none if it does not exist yet. Raises InternalError for a bad file."""
    try:
        text = text_named(file, LARGEST)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise InternalError(f"{file} cannot be read: {reason(error)}") from None
    parsed(file, text)
    return text.splitlines()


def parsed(file: Path, text: str) -> list[tuple[str, str]]:
    try:
        return list(names_in(text))
    except ValueError as error:
        raise InternalError(f"{file}: {error}") from None


def others(file: Path, name: str) -> list[str]:
    """Return all lines of the file except for those of this user."""
    return [line for line in read(file) if not line.startswith(f"{name}:")]


def replace(file: Path, lines: Sequence[str]) -> None:
    """Write the file's lines all at once. A new file can be read by its owner only; an existing one keeps its mode."""
    number, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    try:
        with os.fdopen(number, "w") as new:
            new.write("".join(f"{line}\n" for line in lines))
            with suppress(FileNotFoundError):
                os.chmod(name, file.stat().st_mode & 0o777)
            new.flush()
            os.fsync(new.fileno())
        os.replace(name, file)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(name)
        raise
