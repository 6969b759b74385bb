"""Whatever a document holds, reading it ends with a result or with mistakes at places in it, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from kproxy.app.config.document import Config, config_from, is_config, rule_paths
from kproxy.base.errors import DocumentError
from kproxy.rules.document.read import parse_rules
from kproxy.rules.kinds import KINDS
from kproxy.rules.values.source import Source
from kproxy.runtime.config.network import Limits

WORDS = list(dict.fromkeys([
    *Config.keys(), *Limits.keys(), *KINDS, *(key for model in KINDS.values() for key in model.keys()),  # noqa: SIM118
    "bootstrap", "tls", "dial", "bind", "cluster", "name", "main", "listener", "client_address", "sni", "cert", "ca",
    "b1:9092", "[::1]:1", "0.0.0.0:1", "10.0.0.0/8", "a*", "*", "p.*", "/x/", "b{node}.c:1", "1-2", "", "${A}",
    "file:x",
    "a\n\u2028b", "\x1b[2J", "x" * 900, "{", "10s", "64KiB",
]))  # fmt: skip
scalars = st.one_of(st.sampled_from(WORDS), st.integers(-2, 70_000), st.booleans(), st.none(), st.floats(width=16))
keys = st.one_of(st.sampled_from(WORDS), st.integers(0, 3))
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(keys, inner, max_size=5)),
    max_leaves=30,
)
rules = st.fixed_dictionaries(
    {"name": st.sampled_from(["a", "b"]), "kind": st.sampled_from(list(KINDS))},
    optional=dict.fromkeys(("topics", "match", "not", "host", "ports", "nodes", "sni"), values),
)
configs = st.fixed_dictionaries(
    {"clusters": st.dictionaries(keys, values, max_size=2), "listeners": st.lists(values, max_size=2)},
    optional={key: values for key in Config.keys() if key not in ("clusters", "listeners")},  # noqa: SIM118
)


def check_lines(lines: list[str]) -> None:
    """Each is `file:line:column: message`, one line, in order."""
    places = []
    for text in lines:
        file, line, column, message = text.split(":", 3)
        assert file == "f"
        assert message.strip()
        assert message.isprintable()
        assert len(message) < 700
        places.append((int(line), int(column)))
    assert places == sorted(places)


@settings(deadline=None)
@given(st.one_of(values, st.fixed_dictionaries({"rules": st.lists(rules, max_size=3)})))
def test_any_rule_document_is_read_or_refused(value: Any) -> None:
    """Values of every shape in every place."""
    try:
        parse_rules(yaml.safe_dump(value), "f")
    except DocumentError as error:
        check_lines(error.mistakes)


@pytest.mark.filterwarnings("ignore:Generating overly large repr")  # a config has many keys, and each has a value
@settings(deadline=None)
@given(st.one_of(values, configs))
def test_any_config_document_is_read_or_refused(value: Any) -> None:
    source = Source("f", yaml.safe_dump(value))
    config = config_from(source, environment={})

    check_lines(source.lines())
    assert (config is None) == bool(source.lines())
    assert all(isinstance(path, str) for path in rule_paths(source, Path()))
    assert is_config(source) in (True, False)
