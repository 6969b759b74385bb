"""Words on the command line of `tail`, `show` and `stats`: first files, then a filter."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from kproxy.errors import FilterError
from kproxy.observe.filter.filter import Filter
from kproxy.terminal import say

FILE_ENDINGS = (".pcapng", ".pcap", ".ndjson", ".gz", ".cap")


def make_filter(text: str) -> Filter:
    """Return the filter that a text stands for. Prints what is wrong with a bad one, and raises Exit with code 2."""
    try:
        return Filter(text)
    except FilterError as error:
        say(f"kproxy: {error}", err=True)
        raise click.exceptions.Exit(2) from None


def files_and_filter(words: Sequence[str]) -> tuple[list[str], Filter]:
    """Return the files in front (- is standard input), and the filter of all words behind them.

    Raises UsageError for a word with the ending of a file that does not exist: it would be an odd filter.
    """
    files: list[str] = []
    for number, word in enumerate(words):
        if not is_file(word):
            return files, make_filter(" ".join(words[number:]))
        files.append(word)
    return files, Filter()


def is_file(word: str) -> bool:
    """Return True if a word names a file or a directory. Raises UsageError if it looks like a file but is not there."""
    if word == "-":
        return True
    try:
        there = Path(word).exists()
    except OSError:  # a filter may be longer than file names can be
        there = False
    if not there and word.endswith(FILE_ENDINGS) and " " not in word:
        raise click.UsageError(f"there is no file {word}")
    return there
