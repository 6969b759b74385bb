"""Runs one target under libFuzzer: `python -m tests.lab.fuzz.one NAME [folder] [-options of libFuzzer]`.

Strategy. kproxy is imported through atheris, which puts counters on every branch. The programs that kproxy makes of its
tables at run time (decoders, walks) do not come from files, so they are instrumented where they are built.
"""

from __future__ import annotations

import sys
from typing import Any

import atheris

MOST_LINES = 60
"""Of a program that is instrumented: it takes a millisecond a line, and the long ones are made of the same parts."""


def instrument_made_programs() -> None:
    """Decoders, encoders, walks, checks for endpoints and readers of rows."""
    from kproxy.protocol.codec.decoder import SourceCode

    build = SourceCode.build

    def build_counted(self: SourceCode, function: str, label: str) -> Any:
        made = build(self, function, label)
        return atheris.instrument_func(made) if len(self.lines) <= MOST_LINES else made

    SourceCode.build = build_counted


def main() -> None:
    name, arguments = sys.argv[1], sys.argv[2:]
    with atheris.instrument_imports(include=["kproxy", "yaml"], enable_loader_override=False):
        instrument_made_programs()
        from tests.lab.fuzz.corpus import target

        check = target(name).check
    atheris.Setup([f"fuzz {name}", *arguments], check)
    atheris.Fuzz()


main()
