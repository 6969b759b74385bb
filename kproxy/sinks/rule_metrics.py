"""Prometheus metrics of the rules' counters.

The labels are rules' names, which users choose: only so many rules have lines of their own (`limits.rule_labels`), the
others of each kind are added up under the name "other".
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Protocol, get_args

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from kproxy.rules.kinds.base.rule import Family
from kproxy.rules.store import RuleStore

from .metrics import counter_family

OTHER = "other"
COUNTERS = {
    "kproxy_rule_matched": "Requests (of some rules: connections) for which a live rule's selectors held.",
    "kproxy_rule_fired": "Requests for which a live rule's trigger held, too.",
    "kproxy_rule_applied": "Requests where what a live rule changed has been handed to the kernel.",
    "kproxy_rule_problems": "Failures inside a rule, such as a user's function that raised.",
}


class RuleSetCounts(Protocol):
    """Counts of the rule sets that were taken in or refused, by origin."""

    loaded: dict[str, int]
    rejected: dict[str, int]


class RuleCollector(Collector):
    """Collector of the counters of the rules in a store, and of the version in force."""

    def __init__(self, store: RuleStore, loads: RuleSetCounts, most: int) -> None:
        self.store, self.loads, self.most = store, loads, most

    def collect(self) -> Iterator[Metric]:
        store = self.store
        counts = self.counts()
        for number, (name, text) in enumerate(COUNTERS.items()):
            family = CounterMetricFamily(name, text, labels=["rule", "kind", "fault"])
            for labels, numbers in counts.items():
                family.add_metric(labels, numbers[number])
            yield family
        info = GaugeMetricFamily("kproxy_rules_info", "1, with the version of the rules in force.", labels=["version"])
        info.add_metric([store.rule_set.id], 1)
        yield info
        states = GaugeMetricFamily("kproxy_rules", "Rules by whether they are in force, and by family.",
                                   labels=["state", "family"])  # fmt: skip
        rules = Counter(
            ("in_force" if one.active else "off", one.rule.family) for one in list(store.stored_rules.values())
        )
        for family in get_args(Family):
            for state in ("in_force", "off"):
                states.add_metric([state, family], rules[state, family])
        yield states
        yield counter_family("kproxy_rules_loaded", "Sets of rules taken in, by origin.", "origin", self.loads.loaded)
        yield counter_family(
            "kproxy_rules_rejected", "Sets of rules refused, by origin.", "origin", self.loads.rejected
        )
        yield gauge_family("kproxy_faults_killed", "1 while the kill switch is on.", None, {"": int(store.killed)})

    def counts(self) -> dict[tuple[str, str, str], list[int]]:
        """Return matched, fired, applied and problems by rule, kind, and "true" for a fault, else "false"."""
        counts: dict[tuple[str, str, str], list[int]] = defaultdict(lambda: [0, 0, 0, 0])
        for rule in list(self.store.stored_rules.values()):
            if rule.running is not None:
                name = rule.name if len(counts) < self.most else OTHER
                into = counts[name, rule.rule.kind, "true" if rule.is_fault else "false"]
                own_counts = (rule.running.matched, rule.running.fired, rule.running.applied, rule.running.problems)
                for number, count in enumerate(own_counts):
                    into[number] += count
        return counts


def gauge_family(name: str, text: str, label: str | None, numbers: Mapping[str, int]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=[] if label is None else [label])
    for word, number in numbers.items():
        family.add_metric([] if label is None else [word], number)
    return family
