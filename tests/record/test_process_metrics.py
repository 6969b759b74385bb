"""What a scrape says of the running proxy itself: version, readiness, certificates."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme
from prometheus_client.parser import text_string_to_metric_families

from kproxy.base.distribution import own_version
from kproxy.record.component_collectors import ProcessCollector, certificate_files
from kproxy.record.metrics.traffic import exposition, registry_of

DAY = 86400.0


def samples(collector: ProcessCollector) -> dict[str, float]:
    """Numbers by "name{label values}", labels in the order of their names."""
    collector.read_expiries(collector.files)
    text = b"".join(exposition(registry_of(collector))).decode()
    return {
        f"{sample.name}{{{','.join(value for _, value in sorted(sample.labels.items()))}}}": sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def certificate(path: Path, days: float) -> str:
    """Write a certificate and its key that expire in so many days."""
    issued = trustme.CA().issue_cert("proxy.test", not_before=datetime.now(UTC) - timedelta(days=90),
                                     not_after=datetime.now(UTC) + timedelta(days=days))  # fmt: skip
    issued.private_key_and_cert_chain_pem.write_to_path(str(path))
    return str(path)


def test_version_and_readiness_are_told() -> None:
    """The version is that of the distribution; ready is what was set, of the whole and of each cluster."""
    collector = ProcessCollector({})
    before = samples(collector)
    collector.ready, collector.clusters = True, {"main": True, "other": False}
    ready = {name: value for name, value in samples(collector).items() if "cluster" in name}
    assert ready == {"kproxy_cluster_ready{main}": 1, "kproxy_cluster_ready{other}": 0}

    assert [name for name in before if name.startswith("kproxy_build_info{") and own_version() in name]
    assert (before["kproxy_ready{}"], samples(collector)["kproxy_ready{}"]) == (0, 1)


def test_the_expiry_of_each_certificate_is_told(tmp_path: Path) -> None:
    """A UNIX time, also for an expired certificate; listeners without TLS have no line."""
    good, over = certificate(tmp_path / "good.pem", 30), certificate(tmp_path / "over.pem", -2)
    found = samples(ProcessCollector(certificate_files([("outside", good), ("inside", None)], [("main", over)])))

    expiries = {name: value for name, value in found.items() if "not_after" in name}
    assert expiries == {
        "kproxy_certificate_not_after_timestamp_seconds{outside,client}": pytest.approx(time.time() + 30 * DAY, abs=60),
        "kproxy_certificate_not_after_timestamp_seconds{main,broker}": pytest.approx(time.time() - 2 * DAY, abs=60),
    }


def test_a_renewed_certificate_is_read_again(tmp_path: Path) -> None:
    """Once its file has changed, and not before; a file that is gone or is none has no line."""
    file = tmp_path / "cert.pem"
    collector = ProcessCollector({("client", "a"): certificate(file, 1)})
    name = "kproxy_certificate_not_after_timestamp_seconds{a,client}"
    assert samples(collector)[name] == pytest.approx(time.time() + DAY, abs=60)

    certificate(file, 50)
    assert samples(collector)[name] == pytest.approx(time.time() + 50 * DAY, abs=60)
    file.write_text("no certificate")
    assert name not in samples(collector)
    os.remove(file)
    assert name not in samples(collector)


def test_a_file_that_no_config_has_any_more_is_forgotten(tmp_path: Path) -> None:
    certificates = {("client", "a"): certificate(tmp_path / "a.pem", 1)}
    collector = ProcessCollector(certificates)
    samples(collector)
    certificates["client", "a"] = certificate(tmp_path / "b.pem", 2)
    samples(collector)
    assert list(collector.read) == [str(tmp_path / "b.pem")]


def test_what_is_told_reads_no_file(tmp_path: Path) -> None:
    file = tmp_path / "a.pem"
    collector = ProcessCollector({("client", "a"): certificate(file, 1)})
    collector.read_expiries(collector.files)
    os.remove(file)
    told = {sample.name for metric in collector.collect() for sample in metric.samples}
    assert "kproxy_certificate_not_after_timestamp_seconds" in told
