"""Metrics about the running proxy itself: its version, whether it is ready, and when its certificates expire.

They belong to the proxy as one thing and not to a worker process, so the process with the admin address adds them.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from kproxy.distribution import own_version
from kproxy.wire.table.releases import RELEASES

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
    """Collector of `kproxy_build_info`, `kproxy_ready`, `kproxy_cluster_ready` and `kproxy_certificate_expiry_seconds`.

    `ready` and `clusters` are set by whoever asks for a scrape, since workers have to be asked for them.
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
            "kproxy_certificate_expiry_seconds",
            "Seconds until the first certificate of a listener or cluster expires, negative afterwards.",
            labels=["side", "name"],
        )
        for (side, name), file in self.certificates.items():
            if (at := self.expiry(file)) is not None:
                expiry.add_metric([side, name], (at - datetime.now(UTC)).total_seconds())
        yield expiry

    def expiry(self, file: str) -> datetime | None:
        """Return when the first certificate of a PEM file expires; the file is read again only when it has changed."""
        try:
            stat = Path(file).stat()
            stamp = stat.st_mtime_ns, stat.st_size, stat.st_ino
            known = self.read.get(file)
            if known is None or known.stamp != stamp:
                known = self.read[file] = Expiry(stamp, first_expiry(file))
        except OSError:  # the log says so at the next handshake, which is what users notice
            return None
        return known.at


def first_expiry(file: str) -> datetime | None:
    """Return the earliest `not after` of the certificates in a PEM file, None where there is none. Raises OSError."""
    from cryptography.x509 import load_pem_x509_certificates  # 10 MB and 50 ms, only for those who use TLS

    with open(file, "rb") as pem:
        text = pem.read(MAX_CERTIFICATE_BYTES)
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
