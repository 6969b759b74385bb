"""APIs as people name them on the command line: by name, alias or key, in any case."""

from __future__ import annotations

from difflib import get_close_matches

import click

from kproxy.wire.table.schema import Api, load, names, paths


def find_api(text: str) -> Api:
    """Return the API of this name, alias or key. Raises UsageError with the nearest name if there is none."""
    if text.lstrip("-").isdigit():
        if int(text) not in paths():
            raise click.UsageError(f"no API has the key {text}, there are 0 to {max(paths())}")
        return load(int(text))
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
