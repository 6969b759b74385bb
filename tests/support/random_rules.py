"""Random rule sets over all kinds: each rule is the example of its kind with other selectors, triggers and parameters.

What is made follows what users may write: a rule that is refused when it loads is left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from random import Random
from typing import Any

import yaml

from kproxy.base.errors import DocumentError
from kproxy.protocol.table import schema
from kproxy.rules.document.read import parse_rules
from kproxy.rules.kinds import KINDS
from kproxy.rules.kinds.base.frame_rule import FrameRule
from kproxy.rules.kinds.base.rule import Direction, LiveRule

Change = Callable[[dict[str, Any]], None]
WAYS: tuple[Direction, ...] = ("request", "response")
NAMES = ("name-0", "name-1", "name-*", "/name-[0-9]/", "orders", "topic-1", "*", "a")
SELECTORS: dict[str, tuple[Any, ...]] = {
    "topic": NAMES,
    "partition": (0, "0-3", 1),
    "group": NAMES,
    "transactional_id": NAMES,
    "client_id": ("tester", "etl-*", "größe", "other"),
    "principal": ("alice",),
    "client_software": ("*/1*",),
    "acks": (0, 1, "all", [0, 1]),
    "size": (">100", "1-60", ">1kB"),
    "version": (">=4", "0-9", 12),
    "error": ("any", 3, "NOT_LEADER_OR_FOLLOWER"),
    "member": ("", "*"),
}
WHEN: dict[str, tuple[Any, ...]] = {
    "nth": (1, 2, [1, 3]),
    "first": (1, 3),
    "every": (2, 3),
    "times": (1, 2),
    "probability": (0.3, 0.7),
    "after": (1, 2, "20ms"),
    "for": ("50ms", "2s"),
    "ramp": ("50ms",),
    "hold": (True,),
    "count_scope": ("connection", "client", "rule"),
    "count": ("all", "unhandled"),
}
PARAMETERS: dict[str, tuple[Any, ...]] = {
    "at": ("request", "response", "both", "produce", "fetch"),
    "close_with": ("fin", "rst", "half"),
    "connection": ("stall", "close", "continue"),
    "what": ("request", "response"),
    "delay": ("5ms", "40ms", {"uniform": ["1ms", "60ms"]}),
    "mute": (True, False),
    "where": ("header", "body", "records"),
    "bytes": (1, 10, 100),
    "times": (1, 3),
    "error": (3, 6, 29, 41, 72, "NOT_LEADER_OR_FOLLOWER"),
    "level": ("top", "entity"),
    "by": (1, -1, 5),
    "produce": ("1kB/s", "10MB/s"),
    "fetch": ("1kB/s", "50MB/s"),
    "requests": ("5/s", "1000/s"),
    "per": (["client_id"], ["topic"], []),
}


@cache
def example(kind: str) -> Any:
    """Return the rule in the example of this kind."""
    return yaml.safe_load(KINDS[kind].example)[0]


@cache
def acts_on(kind: str, apis: tuple[str, ...]) -> list[str]:
    """Return those of these APIs that rules of this kind can be about."""
    without = {name: value for name, value in example(kind).items() if name not in ("match", "not")}
    text = json.dumps({"rules": [without if loads(json.dumps({"rules": [without]})) else example(kind)]})
    rule = parse_rules(text).rules[0]
    assert isinstance(rule, LiveRule)
    found = []
    for name in apis:
        api = schema.load(schema.names()[name])
        if any(rule.depth(way, api.key, version) for way in WAYS for version in api.versions):
            found.append(name)
    return found


def live_kinds() -> list[str]:
    """Return the kinds that act on frames, in the order of their table."""
    return [kind for kind, model in KINDS.items() if issubclass(model, LiveRule)]


def frame_kinds() -> list[str]:
    """Return the kinds that lose, delay, cut, spoil or repeat single frames."""
    return [kind for kind, model in KINDS.items() if issubclass(model, FrameRule)]


def random_rule(kind: str, random: Random, apis: list[str], name: str = "") -> dict[str, Any]:
    """Return a rule of this kind that loads: every random variation is tried alone first, and left out when it is
    refused."""
    rule: dict[str, Any] = json.loads(json.dumps(example(kind)))
    rule["name"] = name or kind
    if not issubclass(KINDS[kind], LiveRule):
        return rule
    tried = [change for change in (_without("match"), _without("when")) if random.random() < 0.8]
    able = acts_on(kind, tuple(apis))
    if able and random.random() < 0.6:
        tried.append(_setting("match", "api", random.sample(able, min(len(able), random.choice((1, 1, 4))))))
    for _ in range(random.choice((0, 0, 1, 2))):
        word = random.choice(list(SELECTORS))
        where = "match" if random.random() < 0.8 else "not"
        tried.append(_setting(where, word, random.choice(SELECTORS[word])))
    for _ in range(random.choice((0, 0, 1, 2))):
        word = random.choice(list(WHEN))
        tried.append(_setting("when", word, random.choice(WHEN[word])))
    words = [word for word in KINDS[kind].model_fields if word in PARAMETERS and random.random() < 0.5]
    tried += [_setting("", word, random.choice(PARAMETERS[word])) for word in words]
    if random.random() < 0.1:
        tried.append(_setting("", "mode", "dry_run"))
    for change in tried:
        changed = json.loads(json.dumps(rule))
        change(changed)
        if loads(json.dumps({"rules": [changed]})):
            rule = changed
    return rule


def _without(word: str) -> Change:
    def change(rule: dict[str, Any]) -> None:
        rule.pop(word, None)

    return change


def _setting(where: str, word: str, value: Any) -> Change:
    def change(rule: dict[str, Any]) -> None:
        (rule.setdefault(where, {}) if where else rule)[word] = value

    return change


def random_rules(random: Random, apis: list[str], kinds: list[str], count: int) -> list[dict[str, Any]]:
    """Return at most `count` rules of these kinds that can be in force together."""
    made: list[dict[str, Any]] = []
    for number in range(count):
        rule = random_rule(random.choice(kinds), random, apis, f"rule {number}")
        if loads(json.dumps({"rules": [*made, rule]})):
            made.append(rule)
    return made


@cache
def loads(text: str) -> bool:
    """Return True if `text` is a rule document without mistakes."""
    try:
        parse_rules(text)
    except DocumentError:
        return False
    return True
