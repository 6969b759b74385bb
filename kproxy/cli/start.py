"""Begin the process with standard streams that may be closed, and end it if output cannot be written.

Strategy: a closed standard stream leaves its number to the next file, and that would be a socket: text for standard
error would go to a broker. So the null device takes closed numbers from 0 to 2 before any file is opened. An unexpected
OSError (mostly a full disk under standard output) is a message and exit code 1.
"""

from __future__ import annotations

import os
import sys

import kproxy
from kproxy.base.terminal import printable
from kproxy.cli import main

_MODES = {"stdin": "r", "stdout": "w", "stderr": "w"}


def start() -> None:
    """Run the command line as a process. Does not return."""
    open_closed_streams()
    leave_current_folder()
    try:
        main(prog_name="kproxy")
    except OSError as error:
        drop_output()
        where = f"{error.filename}: " if error.filename is not None else ""
        fail(f"kproxy: {where}{(error.strerror or str(error)).lower()}")


def open_closed_streams() -> None:
    """Put the null device where a standard stream is closed."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(number)
    for number, (name, mode) in enumerate(_MODES.items()):
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115 (open until the end)


def leave_current_folder() -> None:
    """Remove the current folder from the import path: it may be one that others, or kproxy itself, can write.

    `python -m kproxy` and empty elements of PYTHONPATH add it. It stays if a non-empty element names it, or if kproxy
    or Python's library is in it.
    """
    named = (one for one in os.environ.get("PYTHONPATH", "").split(os.pathsep) if one)
    library = os.path.dirname(os.__file__), os.path.dirname(os.path.dirname(kproxy.__file__))
    here = os.path.realpath(os.curdir)
    if here not in map(os.path.realpath, (*named, *library)):
        sys.path[:] = [one for one in sys.path if os.path.realpath(one) != here]


def drop_output() -> None:
    """Send buffered output to the null device: Python would try to write it once more when it ends."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)


def fail(message: str) -> None:
    """Print a message to standard error, where that is possible, and end with exit code 1."""
    try:
        sys.stderr.write(f"{printable(message)}\n")
        sys.stderr.flush()
    except OSError:
        os._exit(1)  # standard error is full, too; an ordinary end would try again
    sys.exit(1)
