"""Exported names against the attribute registry of OpenTelemetry's semantic conventions (semconv.yaml)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from kproxy.record.audit.otlp_outlet import log_record
from kproxy.record.fanout import ClusterMetadata
from kproxy.record.otlp.export import Exporter, OtlpCounters, OtlpSettings
from kproxy.record.otlp.payload import ROOTS, Semconv
from kproxy.record.otlp.trace_sink import TraceSink, span_of, traced_records
from tests.record.audit.conftest import Log
from tests.record.otlp.test_trace_sink import fetch, of, produce, record
from tests.support.otlp_collector import Collector

REGISTRY = yaml.safe_load((Path(__file__).parent / "semconv.yaml").read_text())
LINE = b'{"specversion":"1.0","id":"1","source":"a","type":"b","time":"2023-11-14T22:13:20Z","data":{}}\n'
ALWAYS = {"messaging.system", "messaging.operation.name", "messaging.operation.type", "messaging.destination.name"}


def test_semconv_values_are_those_of_the_registry() -> None:
    assert list(get_args(Semconv)) == list(REGISTRY)


@pytest.mark.parametrize("encoding", ["json", "protobuf"])
@pytest.mark.parametrize("semconv", REGISTRY)
def test_exported_names_are_in_the_registry(
    collector: Collector, settings: Callable[..., OtlpSettings], semconv: str, encoding: str
) -> None:
    """All attributes outside of kproxy's own namespace, and the schema URL of resource and scope, for each signal."""
    published, way = REGISTRY[semconv], settings(encoding, semconv=semconv)
    pictures = {"main": ClusterMetadata("main", "MkU3OEVBNTcwNTJENDM2Qk")}
    sink = TraceSink(way, OtlpCounters(), Log(), [lambda topic: True], 1.0, 3, pictures, flush=0.01)
    sink.start()
    for seen in (produce(record(1)), fetch(record(1)), produce(record(1), error=6), produce(record(1), record(2))):
        sink.take(seen)
    sink.close()
    for signal, tree in (("logs", log_record(LINE)), ("metrics", {"name": "kproxy.requests"})):
        exporter = Exporter(signal, way, OtlpCounters(), Log())
        assert exporter.send([tree], 1).outcome == "ok"
        exporter.close()

    names: set[str] = set()
    for request in collector.messages():
        (resource,) = next(getattr(request, field.name) for field in request.DESCRIPTOR.fields)
        names |= {one.key for one in resource.resource.attributes}
        (scope,) = next(value for field, value in resource.ListFields() if field.name.startswith("scope_"))
        assert (resource.schema_url, scope.schema_url) == (published["schema"], published["schema"])
    assert {request.DESCRIPTOR.fields[0].name for request in collector.messages()} == {
        f"resource_{signal}" for signal in ("metrics", "logs", "spans")
    }
    names |= {one.key for one in collector.log_records()[0].attributes}
    for span in collector.spans():
        told = of(span)
        names |= told.keys()
        assert told.keys() >= ALWAYS
        assert span.name == f"{told['messaging.operation.name']} {told['messaging.destination.name']}"
        assert all(told[name] in values for name, values in published["values"].items())
    own = {name for name in names if name.startswith("kproxy.")}
    assert names - own <= set(published["attributes"])
    assert ("messaging.kafka.cluster.id" in names) == (semconv == "1.44")
    assert len(collector.messages()) >= len(ROOTS)


def test_changed_semconv_applies_to_the_next_request(
    collector: Collector, settings: Callable[..., OtlpSettings]
) -> None:
    own = settings()
    exporter = Exporter("metrics", own, OtlpCounters(), Log())
    for version in ("1.44", "1.30"):
        own.use(own.way._replace(semconv=version))
        assert exporter.send([{"name": "kproxy.requests"}], 1).outcome == "ok"
    exporter.close()
    schemas = [request.resource_metrics[0].schema_url for request in collector.messages()]
    assert schemas == [REGISTRY[version]["schema"] for version in ("1.44", "1.30")]


def test_span_omits_an_unknown_cluster_id_and_cuts_a_long_one() -> None:
    seen = produce(record(1))
    found = traced_records(seen, lambda topic: True, 1.0, 3)
    told: list[Any] = []
    for cluster_id in (None, "", "x" * 100_000):
        attributes = {one["key"]: one["value"] for one in span_of(seen, found, float, 3, cluster_id)["attributes"]}
        told.append(len(attributes.get("messaging.kafka.cluster.id", {}).get("stringValue", "")))
    assert told == [0, 0, 500]
