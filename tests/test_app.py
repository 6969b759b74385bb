"""What connections of one process share, without any socket."""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.app.app import ProxyProcess
from kproxy.app.config.document import Config
from kproxy.base.logs import make_log
from kproxy.rules.exchange import Facts
from kproxy.rules.kinds import KINDS
from kproxy.rules.rule_set import RuleSet


def proxy(*rules: dict[str, Any], **more: Any) -> ProxyProcess:
    """A proxy with one listener "main" before the cluster "main"; rules are named r0, r1 and so on."""
    config = Config.model_validate({
        "clusters": {"main": {"bootstrap": ["127.0.0.1:9"]}},
        "listeners": [{"name": "main", "bind": "127.0.0.1:0", "cluster": "main"}],
        **more,
    })  # fmt: skip
    made = [KINDS[rule["kind"]].model_validate({"name": f"r{n}", **rule}) for n, rule in enumerate(rules)]
    return ProxyProcess(config, RuleSet(made), make_log())


@pytest.mark.parametrize(
    "extra",
    [
        {"match": {"client_address": ["10.0.0.0/8"]}},
        {"not": {"listener": ["other"]}},
        {"nodes": {1: "b1.example.com:9093"}},
    ],
    ids=["match", "not", "nodes"],
)
def test_a_connection_under_an_advertise_rule_gets_a_session(extra: dict[str, Any]) -> None:
    """Whatever the rule selects on or gives; connections under the same rules share one plan."""
    shared = proxy({"kind": "advertise", **extra})
    plans = {
        id(shared.session(shared.server.listeners[0], Facts("main", "main", f"10.0.0.{n}"), None).plan)
        for n in range(3)
    }

    assert len(plans) == 1


def test_plans_do_not_become_more_than_the_rules_can_tell_apart() -> None:
    """More combinations of rules than the rule set keeps ready, in turns, need one plan each and no more."""
    addresses = [f"10.0.{n // 256}.{n % 256}" for n in range(300)]
    rules = [
        {"kind": "rename_topic", "topics": {"a": f"a{n}"}, "match": {"client_address": [address]}}
        for n, address in enumerate(addresses)
    ]
    shared = proxy(*rules)
    for _ in range(2):
        for address in addresses:
            shared.session(shared.server.listeners[0], Facts("main", "main", address), None)

    assert len(shared.plans) == 300


def test_new_traces_are_sampled_by_the_otlp_fraction() -> None:
    """The fraction of `otlp.traces` applies to `{traceparent}` of new connections."""
    assert proxy().shared["main"].trace_sample == 1.0

    otlp = {"endpoint": "http://127.0.0.1:4318", "traces": {"topics": ["t"], "sample": 0.25}}
    shared = proxy(otlp=otlp)
    session = shared.session(shared.server.listeners[0], Facts("main", "main", "10.0.0.1"), None)
    assert session.engine.view.trace_sample == 0.25
