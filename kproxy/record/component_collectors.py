"""Prometheus metrics of parts of the proxy: the counters of rules, the audit, a supervisor with its workers, and the
process itself with its version, whether it is ready, and when its certificates expire.

Labels of the rules' counters are their names, which users choose. Only `limits.rule_labels` rules have lines of their
own; the others of each kind are summed under the name "other". Values of the proxy as a whole, not of a worker, are
added by the process with the admin address.
"""

from __future__ import annotations

import platform
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from kproxy.base.distribution import own_version
from kproxy.base.named_file import read_named
from kproxy.protocol.table.releases import RELEASES
from kproxy.record.metrics.traffic import counter_family
from kproxy.rules.document.store import RuleStore
from kproxy.rules.kinds.base.rule import Family

if TYPE_CHECKING:
    from kproxy.app.config.keeper import ConfigKeeper
    from kproxy.app.workers.worker_pool import WorkerPool
    from kproxy.record.audit.recorder import Recorder
    from kproxy.runtime.capacity import ConnectionCounts
    from kproxy.runtime.rule_keeper import Loads

OTHER = "other"
RULE_COUNTERS = {
    "kproxy_rule_matched": "Requests (or connections) that match the selectors of a live rule.",
    "kproxy_rule_fired": "Matching requests for which the trigger of a live rule fired.",
    "kproxy_rule_applied": "Requests where what a live rule changed has been handed to the kernel.",
    "kproxy_rule_problems": "Failures inside a rule, such as a user's function that raised.",
    "kproxy_rule_throttled": "Requests that a rule throttled: they waited for a quota, or their client was throttled.",
    "kproxy_rule_throttle_duration_seconds": "Seconds of throttles by a rule: waits for a quota, and after responses "
    "the mute or, if longer, the reported throttle_time_ms.",
}


RECORDS_SEEN = "Records that a live rule has seen, matched, changed, withheld or rejected, or could not read."
AUDIT_TOTALS = {
    "kproxy_audit_written": ("written", "Events that are durable."),
    "kproxy_audit_bytes": ("bytes", "Bytes of the lines of durable events, before compression."),
    "kproxy_audit_files": ("files", "Event files that were published."),
    "kproxy_audit_unclean_shutdowns": (
        "unclean_shutdowns",
        "Earlier processes with an unclean shutdown whose events were recovered.",
    ),
}
AUDIT_LEVELS = {
    "kproxy_audit_queued": ("queued", "Events that are not durable yet."),
    "kproxy_audit_queued_bytes": ("queued_bytes", "Bytes of the lines of events that are not durable yet."),
    "kproxy_audit_last_durable_timestamp_seconds": ("last_durable", "When events last became durable; 0: never."),
}
AUDIT_BY_REASON = {
    "kproxy_audit_dropped": ("dropped", "Events lost, by reason."),
    "kproxy_audit_errors": ("errors", "Failed attempts to write, sync or publish, by reason."),
}


class RuleCollector(Collector):
    """Collector of the counters of the rules in a store, and of the version in force."""

    def __init__(self, store: RuleStore, loads: Loads, most: int) -> None:
        self.store, self.loads, self.most = store, loads, most

    def collect(self) -> Iterator[Metric]:
        store = self.store
        counts = self.counts()
        for number, (name, text) in enumerate(RULE_COUNTERS.items()):
            family = CounterMetricFamily(name, text, labels=["rule", "kind", "fault"])
            for labels, numbers in counts.items():
                family.add_metric(labels, numbers[number])
            yield family
        family = CounterMetricFamily("kproxy_rule_records", RECORDS_SEEN, labels=["rule", "kind", "result"])
        for (name, kind), by_result in self.records().items():
            for result, number in by_result.items():
                family.add_metric([name, kind, result], number)
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
        yield GaugeMetricFamily(
            "kproxy_faults_disabled", "1 while faults are disabled.", value=int(store.faults_disabled)
        )

    def counts(self) -> dict[tuple[str, str, str], list[float]]:
        """Return the numbers of RULE_COUNTERS by rule, kind, and "true" for a fault or "false"."""
        counts: dict[tuple[str, str, str], list[float]] = defaultdict(lambda: [0] * len(RULE_COUNTERS))
        for rule in list(self.store.stored_rules.values()):
            if rule.running is not None:
                name = rule.name if len(counts) < self.most else OTHER
                into = counts[name, rule.rule.kind, "true" if rule.is_fault else "false"]
                own = rule.running
                numbers = own.matched, own.fired, own.applied, own.problems, own.throttles, own.throttle_seconds
                for number, count in enumerate(numbers):
                    into[number] += count
        return counts

    def records(self) -> dict[tuple[str, str], Counter[str]]:
        """Return the records that rules have seen, by rule and kind and then by result."""
        counts: dict[tuple[str, str], Counter[str]] = {}
        for rule in list(self.store.stored_rules.values()):
            if rule.running is not None and rule.running.records.seen:
                into = counts.setdefault((rule.name if len(counts) < self.most else OTHER, rule.rule.kind), Counter())
                into.update(asdict(rule.running.records))
        return counts


class ConfigCollector(Collector):
    """Collector of the version of the config in force, and of how often it was changed."""

    def __init__(self, configs: ConfigKeeper) -> None:
        self.configs = configs

    def collect(self) -> Iterator[Metric]:
        info = GaugeMetricFamily(
            "kproxy_config_info", "1, with the version of the config in force.", labels=["version"]
        )
        info.add_metric([self.configs.version], 1)
        yield info
        yield CounterMetricFamily("kproxy_config_applied", "Configs put in force since the start.",
                                  value=self.configs.applied)  # fmt: skip
        yield CounterMetricFamily("kproxy_config_rejected", "Configs refused, those in force stayed.",
                                  value=self.configs.rejected)  # fmt: skip


class WorkerCollector(Collector):
    """Collector of a supervisor's own counts.

    Workers also count refused connections with a failed TLS handshake.
    """

    def __init__(self, pool: WorkerPool, counts: ConnectionCounts) -> None:
        self.pool, self.counts = pool, counts

    def collect(self) -> Iterator[Metric]:
        yield CounterMetricFamily(
            "kproxy_worker_restarts",
            "Worker processes that were started in place of one that ended.",
            value=self.pool.restarts,
        )
        ready = len(self.pool.ready)
        workers = GaugeMetricFamily("kproxy_workers", "Worker processes, by state.", labels=["state"])
        workers.add_metric(["ready"], ready)
        workers.add_metric(["down"], len(self.pool.workers) - ready)
        yield workers
        yield counter_family(
            "kproxy_connections_refused", "Client connections refused, by cause.", "cause", self.counts.refused
        )


class AuditCollector(Collector):
    """Collector of the audit's counters, by outlet: files, kafka."""

    def __init__(self, events: Recorder) -> None:
        self.events = events

    def collect(self) -> Iterator[Metric]:
        outlets = self.events.counters
        for name, (field, text) in AUDIT_TOTALS.items():
            yield filled(CounterMetricFamily(name, text, labels=["outlet"]), outlets, field)
        for name, (field, text) in AUDIT_LEVELS.items():
            yield filled(GaugeMetricFamily(name, text, labels=["outlet"]), outlets, field)
        for name, (field, text) in AUDIT_BY_REASON.items():
            family = CounterMetricFamily(name, text, labels=["outlet", "reason"])
            for outlet, counters in outlets.items():
                for reason, count in dict(getattr(counters, field)).items():
                    family.add_metric([outlet, reason], count)
            yield family
        failing = GaugeMetricFamily("kproxy_audit_failing", "1 while events cannot be written.", labels=["outlet"])
        yield filled(failing, outlets, "failing")
        yield GaugeMetricFamily(
            "kproxy_audit_blocked",
            "1 while clients are not read because events cannot be written.",
            value=int(self.events.blocked),
        )


def filled(family: CounterMetricFamily | GaugeMetricFamily, outlets: Mapping[str, object], field: str) -> Metric:
    """Return the family with one line for each outlet."""
    for outlet, counters in outlets.items():
        family.add_metric([outlet], float(getattr(counters, field)))
    return family


CertificateSide = Literal["client", "broker"]
CertificateFiles = Mapping[tuple[CertificateSide, str], str]
"""(side, name of the listener or cluster) → PEM file with the certificate that kproxy shows there."""

MAX_CERTIFICATE_BYTES = 1 << 20
"""Bytes of a PEM file that are read; a chain of certificates has some kilobytes."""


@dataclass(frozen=True, slots=True)
class Expiry:
    """End of a file's certificates.

    `stamp`: (mtime_ns, size, inode) of the file when it was read; `at`: the earliest `not after`, None where the file
    has no readable certificate.
    """

    stamp: tuple[int, int, int]
    at: datetime | None


class ProcessCollector(Collector):
    """Collector of build information, readiness and the end of certificates.

    The scrape sets `ready` and `clusters`, since workers have to be queried for them. `look` is called before it with
    the current `files`, in a thread.
    """

    def __init__(self, certificates: CertificateFiles) -> None:
        self.certificates = certificates
        self.ready = False
        self.clusters: Mapping[str, bool] = {}
        self.read: dict[str, Expiry] = {}

    def collect(self) -> Iterator[Metric]:
        build = GaugeMetricFamily(
            "kproxy_build_info", "1, with the versions of kproxy and Python, and the newest Kafka that it knows.",
            labels=["version", "python", "kafka"],
        )  # fmt: skip
        build.add_metric([own_version(), platform.python_version(), RELEASES[-1]], 1)
        yield build
        yield GaugeMetricFamily("kproxy_ready", "1 while /readyz answers 200.", value=int(self.ready))
        clusters = GaugeMetricFamily("kproxy_cluster_ready", "1 while /readyz/CLUSTER answers 200.", labels=["cluster"])
        for cluster, ready in self.clusters.items():
            clusters.add_metric([cluster], int(ready))
        yield clusters
        expiry = GaugeMetricFamily(
            "kproxy_certificate_not_after_timestamp_seconds",
            "UNIX time of the earliest certificate expiry of a listener or cluster.",
            labels=["side", "name"],
        )
        for (side, name), file in self.certificates.items():
            if (read := self.read.get(file)) is not None and read.at is not None:
                expiry.add_metric([side, name], read.at.timestamp())
        yield expiry

    @property
    def files(self) -> Collection[str]:
        return set(self.certificates.values())

    def read_expiries(self, files: Collection[str]) -> None:
        """Find out when the certificates in these files expire. Blocks. A file is read again only after a change.
        Unreadable files have no number: the next handshake logs the error."""
        before, found = self.read, dict[str, Expiry]()
        for file in files:
            with suppress(OSError):
                stat = Path(file).stat()
                stamp, known = (stat.st_mtime_ns, stat.st_size, stat.st_ino), before.get(file)
                if known is None or known.stamp != stamp:
                    known = Expiry(stamp, first_expiry(file))
                found[file] = known
        self.read = found


def first_expiry(file: str) -> datetime | None:
    """Return the earliest `not after` of the certificates in a PEM file; None without certificates. Raises OSError."""
    from cryptography.x509 import load_pem_x509_certificates  # 10 MB and 50 ms, only for those who use TLS

    text = read_named(file, MAX_CERTIFICATE_BYTES)
    try:
        return min(one.not_valid_after_utc for one in load_pem_x509_certificates(text))
    except ValueError:
        return None


def certificate_files(
    listeners: Iterable[tuple[str, str | None]], clusters: Iterable[tuple[str, str | None]]
) -> CertificateFiles:
    """Return the files of those (name, certificate file or None) that have one, by side and name."""
    sides: tuple[tuple[CertificateSide, Iterable[tuple[str, str | None]]], ...] = (
        ("client", listeners),
        ("broker", clusters),
    )
    return {(side, name): file for side, named in sides for name, file in named if file is not None}
