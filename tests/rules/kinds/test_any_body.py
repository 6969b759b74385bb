"""Kinds that change bodies, on bodies of random values: null arrays, unknown tags, records that are no records."""

from __future__ import annotations

import textwrap
from random import Random
from typing import Any

import pytest

from kproxy.protocol import Message, encode
from kproxy.protocol.table import layout, schema
from kproxy.rules.document.read import parse_rules
from kproxy.rules.entity import entities
from kproxy.rules.exchange import Edit, Exchange, FrameDepth
from kproxy.rules.kinds import KINDS
from kproxy.rules.kinds.base.records_rule import RecordsRule
from kproxy.rules.kinds.base.rule import LiveRule, SelectingRule
from tests.support.random_values import random_struct

CHANGING = [kind for kind, model in KINDS.items() if issubclass(model, SelectingRule | RecordsRule)]
ROUNDS = 12


def rule_of(kind: str) -> LiveRule:
    """The kind's example, for everything and always."""
    (rule,) = parse_rules("rules:\n" + textwrap.indent(KINDS[kind].example, "  ")).rules
    assert isinstance(rule, LiveRule)
    return rule.model_copy(update={"match": None, "when": None})


def exchanges(hand: Any, key: int, version: int, random: Random) -> Any:
    """An exchange of random bodies; what a request says of itself is readable, since the engine has read it."""
    api = schema.load(key)
    header: dict[str, Any] = {"request_api_key": key, "request_api_version": version, "correlation_id": 1}
    if api.header_version("request", version):  # ControlledShutdown 0 names no client
        header["client_id"] = "c"
    asked = Message(api, version, header, random_struct(layout.body(key, version, "request"), random))
    said = Message(api, version, {"correlation_id": 1}, random_struct(layout.body(key, version, "response"), random))
    exchange = Exchange(hand.connection(), api, version, 1, "c", 100, 0.0)
    exchange.read_request, exchange.read_response = (lambda: asked), (lambda: said)
    exchange.find = lambda: entities(asked)
    return exchange


@pytest.mark.parametrize("kind", CHANGING)
def test_what_comes_of_it_can_be_written(kind: str, hand: Any) -> None:
    """Nothing is raised, an edited body has an encoding, and one that is not said to be edited is as it was."""
    rule = rule_of(kind)
    random = Random(kind)
    seen = 0
    for api in schema.apis():
        for version in api.versions:
            for direction in ("request", "response"):
                if rule.depth(direction, api.key, version) != FrameDepth.BODY:
                    continue
                for number in range(ROUNDS):
                    effect = rule.start()
                    exchange = exchanges(hand, api.key, version, random)
                    message = exchange.request if direction == "request" else exchange.response
                    before = encode(message)
                    act = effect.on_request if direction == "request" else effect.on_response
                    decided = act(exchange, exchange.entities, float(number))
                    after = encode(message)
                    assert after == before or any(isinstance(one, Edit) for one in decided)
                    seen += 1
    assert seen
