"""Rule and config documents of any bytes.

- nothing is raised but DocumentError; each mistake is one printable line `file:line:column: message`, in file order
- a document that is accepted can be bound for any client, shown, and found again by what it says
- config documents are read or refused in the same way; what is asked of a refused one (is it a config, which rule
  files) raises nothing either
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import yaml

from kproxy.app.config.document import Config, config_from, is_config, rule_paths
from kproxy.base.errors import DocumentError
from kproxy.rules.document.read import parse_rules
from kproxy.rules.exchange import Facts
from kproxy.rules.kinds import KINDS
from kproxy.rules.values.source import Source, json_source
from kproxy.runtime.config.network import Limits
from kproxy.session.plan import ConnectionSettings, Plan

FACTS = (Facts("main", "main", "10.1.2.3"), Facts("main", "main", "::1", "b1.example", "CN=alice", 3))
PLAIN = b"rules:\n- name: a\n  kind: "


def check(data: bytes) -> None:
    """One input; its first byte says as what it is read."""
    kind, text = data[:1], data[1:]
    if kind < b"\x60":
        rules(text)
    elif kind < b"\xa0":
        rules(PLAIN + text)
    elif kind < b"\xc0":
        try:
            json_source("f", text)
        except DocumentError as error:
            lines(error.mistakes)
    else:
        config(text)


def rules(text: bytes) -> None:
    try:
        found = parse_rules(text, "f")
    except DocumentError as error:
        lines(error.mistakes)
        return
    for facts in FACTS:
        bound = found.bind(facts)
        Plan(ConnectionSettings.of(bound, advertise=bound.advertise is not None), bound.live)
    for rule in found.rules:
        assert rule.name
        assert rule.kind in KINDS


def config(text: bytes) -> None:
    source = Source("f", text)
    made = config_from(source, environment={"A": "x"})
    lines(source.lines())
    assert (made is None) == bool(source.lines())
    assert all(isinstance(path, str) for path in rule_paths(source, Path()))
    assert is_config(source) in (True, False)


def lines(mistakes: list[str]) -> None:
    """Of the form that editors know."""
    places = []
    for mistake in mistakes:
        file, line, column, message = mistake.split(":", 3)
        assert file == "f"
        assert message.strip()
        assert message.isprintable()
        assert len(message) < 1000
        places.append((int(line), int(column)))
    assert places == sorted(places)
    assert all(line > 0 and column > 0 for line, column in places)


def seeds() -> Iterator[bytes]:
    """The example of each kind, and configs."""
    for model in KINDS.values():
        yield b"\0rules:\n" + model.example.encode()
    yield b"\x60rename_topic\n  topics: {a: b}\n"
    yield b'\xa0{"rules": [{"name": "a", "kind": "delay", "delay": "5ms"}]}'
    base = {"clusters": {"main": {"bootstrap": ["127.0.0.1:9"]}},
            "listeners": [{"name": "main", "bind": "127.0.0.1:0", "cluster": "main"}]}  # fmt: skip
    yield b"\xc0" + yaml.safe_dump(base).encode()
    yield (
        b"\xc0" + yaml.safe_dump(base | {"limits": {"max_buffered_bytes": "1MiB"}, "admin": {"bind": "a:1"}}).encode()
    )
    yield b"\xc0" + b"clusters: &a {main: {bootstrap: ['${A}:1']}}\nlisteners: *a\nrules: [x.yaml]\n"


WORDS = [
    *(word.encode() for word in (*KINDS, *Limits.keys(), *Config.keys())),
    *(word.encode() for model in KINDS.values() for word in model.keys()),  # noqa: SIM118 -- no dict
    b"rules:\n- name: ", b"\n  kind: ", b"match: {", b"not: {", b"when: {", b"nth: ", b"probability: ", b"10s",
    b"64KiB", b"!!", b"&a ", b"*a",
    b"<<: ", b"? ", b": |\n", b"${A}", b"\xe2\x80\xa8", b"\xff\xfe", b"1e400", b"0x", b".inf", b"/(a|b)*/",
]  # fmt: skip
