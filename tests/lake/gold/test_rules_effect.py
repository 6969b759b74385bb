"""What each rule did."""


def test_counts_and_requests_of_a_rule_by_day(answer):
    """The rules' own counts beside the requests on record, their clients and topics; a rule that met no request on
    record has none."""
    rules = [
        {"action": "fired", "rule": "slow", "kind": "delay", "matched": 10, "fired": 5, "applied": 4},
        {"action": "fired", "rule": "slow", "kind": "delay", "matched": 1, "fired": 1, "applied": 1},
        {"action": "fired", "rule": "slow", "kind": "delay", "matched": 1, "time": "2026-11-21 10:00:00"},
        {"action": "swapped", "rules": 3},
    ]
    requests = [
        {"rules": ["slow", "other"], "client_id": "a", "topics_named": ["t", "u"], "responder": "kproxy"},
        {"rules": ["slow"], "client_id": "b", "topics_named": ["t"], "responder": "broker"},
        {"rules": [], "client_id": "c", "topics_named": ["t"]},
        {"client_id": "c"},
    ]
    tenant = {"rule": "tenant", "kind": "prefix"}
    connections = [
        {"action": "open", "bound_rules": [tenant, {"rule": "outside", "kind": "advertise"}]},
        {"action": "open", "bound_rules": [tenant]},
        {"action": "open"},
        {"action": "close", "bound_rules": [tenant]},
    ]
    rows = answer("rules_effect", rules=rules, requests=requests, connections=connections)
    found = {(row["rule"], row["day"]): row for row in rows}

    slow, later, other = (
        found[key] for key in (("slow", "2026-11-20"), ("slow", "2026-11-21"), ("other", "2026-11-20"))
    )
    assert len(found) == 5
    bound = [found[rule, "2026-11-20"] for rule in ("tenant", "outside")]
    assert [(row["kind"], row["connections"], row["matched"]) for row in bound] == [
        ("prefix", 2, 0),
        ("advertise", 1, 0),
    ]
    names = ("matched", "fired", "applied", "requests", "answered", "clients", "topics")
    assert (11, 6, 5, 2, 1, 2, 2) == tuple(slow[name] for name in names)
    assert (["a", "b"], ["t", "u"], "delay") == (slow["client_names"], slow["topic_names"], slow["kind"])
    assert (1, 0, 0, 0, 0, 0, 0) == tuple(later[name] for name in names)
    assert (0, 0, 0, 1, 1, 1, 2, False) == (*(other[name] for name in names), "kind" in other)
