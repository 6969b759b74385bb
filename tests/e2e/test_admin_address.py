"""The admin address: health, metrics, and who may see them."""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kproxy.testing.process import free_port
from tests.support.raw_client import RawClient
from tests.support.wait import until


def get(address: str, path: str, **headers: str) -> tuple[int, str]:
    """Status and text."""
    connection = http.client.HTTPConnection(address, timeout=60)
    try:
        connection.request("GET", path, headers={key.title(): value for key, value in headers.items()})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_ready_means_that_a_broker_answers(fake: Callable[..., Any], proxy_with: Callable[..., Any]) -> None:
    """503 with the reason while nothing answers, 200 once a broker does; alive it is all the time."""
    port = free_port()
    proxy = proxy_with(f"127.0.0.1:{port}", wait=False)

    assert get(proxy.admin, "/livez") == (200, "ok\n")
    until(lambda: "refused" in get(proxy.admin, "/readyz")[1])
    status, text = get(proxy.admin, "/readyz")
    assert status == 503
    reason = f"cluster main: 127.0.0.1:{port}: connection refused"
    said = json.loads(text)
    assert not said["ready"]
    # of each worker, where there are some
    assert {re.sub(r"^worker \d: ", "", one) for one in said["waiting_for"]} == {reason}

    fake(port=port)
    until(lambda: get(proxy.admin, "/readyz")[0] == 200)
    ready = {"ready": True, "waiting_for": []}
    assert json.loads(get(proxy.admin, "/readyz")[1]) == ready | {"clusters": {"main": ready}}
    assert json.loads(get(proxy.admin, "/readyz/main")[1]) == ready


def test_a_server_that_is_no_kafka_is_not_ready(fake: Callable[..., Any], proxy_with: Callable[..., Any]) -> None:
    """An open port is not enough: what it says must be an answer."""

    def nonsense(broker: Any, stream: Any, request: Any) -> None:
        stream.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    proxy = proxy_with(fake(answers={18: nonsense}).address, wait=False)
    until(lambda: f"got one of {int.from_bytes(b'HTTP', 'big')}" in get(proxy.admin, "/readyz")[1])
    assert get(proxy.admin, "/readyz")[0] == 503


def test_metrics_are_well_formed(fake: Callable[..., Any], kproxy_process: Callable[..., Any]) -> None:
    """Prometheus' own parser reads them; histograms are cumulative; what passed is in them."""
    proxy = kproxy_process(fake().address)
    with RawClient(proxy.bootstrap) as client:
        for _ in range(30):
            client.brokers()
        text = get(proxy.admin, "/metrics")[1]
    families = {family.name: family for family in text_string_to_metric_families(text)}

    assert len(families) == text.count("# TYPE ")
    assert all(family.documentation for family in families.values())
    requests = {sample.labels["api"]: sample for sample in families["kproxy_requests"].samples}
    assert (requests["Metadata"].value, requests["Metadata"].labels["version"]) == (30, "4")
    assert sum(sample.value for sample in families["kproxy_connections_opened"].samples) == 1
    assert {sample.labels["side"] for sample in families["kproxy_read_bytes"].samples} == {"client", "broker"}
    for name in (
        "kproxy_upstream_request_duration_seconds",
        "kproxy_processing_duration_seconds",
        "kproxy_buffered_duration_seconds",
    ):
        assert families[name].type == "histogram"
        buckets = [sample for sample in families[name].samples if sample.name.endswith("_bucket")]
        counts = [sample.value for sample in buckets if sample.labels.get("api", "Metadata") == "Metadata"]
        assert counts == sorted(counts)
        assert (
            counts[-1]
            >= {
                "kproxy_upstream_request_duration_seconds": 30,
                "kproxy_processing_duration_seconds": 16,
                "kproxy_buffered_duration_seconds": 1,
            }[name]
        )
    assert families["process_resident_memory_bytes"].samples[0].value > 1e6


def test_other_hosts_names_are_refused(fake: Callable[..., Any], kproxy_process: Callable[..., Any]) -> None:
    """A page in a browser that reaches loopback under its own name sees no metrics (DNS rebinding)."""
    proxy = kproxy_process(fake().address)

    assert get(proxy.admin, "/metrics", host="localhost:9190")[0] == 200
    assert get(proxy.admin, "/metrics", host="evil.example:9190")[0] == 403
    assert get(proxy.admin, "/metrics", host="localhost.evil.example")[0] == 403
    assert get(proxy.admin, "/livez", host="evil.example")[0] == 200
    assert get(proxy.admin, "/nothing")[0] == 404


def test_a_token_is_asked_for(fake: Callable[..., Any], proxy_with: Callable[..., Any]) -> None:
    """With a token, metrics need it, whatever the Host header says; it stands in no log."""
    admin = {"bind": f"127.0.0.1:{free_port()}", "token": "s3cr3t-word"}
    proxy = proxy_with(fake().address, admin=admin, wait=False)
    proxy.admin = admin["bind"]

    assert get(proxy.admin, "/metrics")[0] == 401
    assert get(proxy.admin, "/metrics", authorization="Bearer wrong")[0] == 401
    assert get(proxy.admin, "/metrics", authorization="Bearer s3cr3t-word", host="kproxy.example")[0] == 200
    assert get(proxy.admin, "/livez")[0] == 200
    assert "s3cr3t" not in proxy.logs(1000)


@pytest.mark.parametrize("host", ["::1", "localhost"])
def test_the_admin_address_by_name_or_ipv6(fake: Callable[..., Any], proxy_with: Callable[..., Any], host: str) -> None:
    """Each is served and allowed as its own Host."""
    port = free_port("127.0.0.1")
    bind = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    proxy = proxy_with(fake().address, admin={"bind": bind}, wait=False)

    assert get(bind, "/metrics")[0] == 200
    assert len(proxy.said("admin")) == 1
