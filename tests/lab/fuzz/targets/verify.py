"""`kproxy verify` on captures and event files of any bytes.

- it ends with an exit code and words of its own, never with an exception
- its JSON says the same as its text and its page: whether something is proved, or could not be read
- what it says of good traffic between peers that keep to Kafka's rules is for others to test; here anything may be said
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from click.testing import CliRunner, Result

from kproxy.cli import main
from tests.lab.fuzz.feed import Feed
from tests.lab.fuzz.targets import captures, events

CODES = {0, 1, 2}
"""Nothing was found, something was, or the input cannot be judged to its end."""


def check(data: bytes) -> None:
    """One input: events or a capture, by its first byte."""
    feed = Feed(data)
    kind = feed.below(3)
    file = captures.packets(feed) if kind == 0 else feed.rest()
    with captures.path_of(file) as path:
        found = verify(path, "-o", "json")
        text = verify(path)
        page = Path(path).with_suffix(".html")
        try:
            verify(path, "--html", str(page))
        finally:
            page.unlink(missing_ok=True)
    assert found.exit_code == text.exit_code, (found.output, text.output)
    if found.exit_code != 2:
        told = json.loads(found.stdout)
        assert bool([one for one in told["findings"] if one["level"] == "proved"]) == (found.exit_code == 1)


def verify(*words: str) -> Result:
    done = CliRunner().invoke(main, ["verify", *words])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code in CODES, done.output
    assert done.exit_code != 2 or done.stderr.strip() or done.stdout.strip()
    return done


def seeds() -> Iterator[bytes]:
    """Inputs to begin with: those of captures and of events."""
    for one in captures.seeds():
        yield (b"\x00" if one[0] else b"\x01") + one[2:]
    for one in events.seeds():
        _, brace, rest = one.partition(b"{")
        yield b"\x02" + brace + rest


WORDS = [*events.WORDS, b'"kproxy.request.v1"', b'"Produce"', b'"Fetch"', b'"base_offset": ', b'"sequence": ']
