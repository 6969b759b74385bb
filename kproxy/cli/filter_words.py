"""What stands on the command line of `tail`, `show` and `stats`: files, and the words of a filter."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from kproxy.errors import FilterError
from kproxy.terminal import say
from kproxy.watch.filter.filter import Filter

FILE_ENDINGS = (".pcapng", ".pcap", ".ndjson", ".gz", ".cap")


def make_filter(text: str) -> Filter:
    """The filter; a bad one is a usage error."""
    try:
        return Filter(text)
    except FilterError as error:
        say(f"kproxy: {error}", err=True)
        raise click.exceptions.Exit(2) from None


def files_and_filter(words: Sequence[str]) -> tuple[list[str], Filter]:
    """The files in front (- is standard input), and the filter of all words behind them.

    What has the ending of a file but is none is a usage error, since it would be an odd filter.
    """
    files: list[str] = []
    for number, word in enumerate(words):
        if not is_file(word):
            return files, make_filter(" ".join(words[number:]))
        files.append(word)
    return files, Filter()


def is_file(word: str) -> bool:
    """Whether a word names a file or a directory. Raises UsageError for one that is not there."""
    if word == "-":
        return True
    try:
        there = Path(word).exists()
    except OSError:  # longer than names can be
        there = False
    if not there and word.endswith(FILE_ENDINGS) and " " not in word:
        raise click.UsageError(f"there is no file {word}")
    return there
