"""The `otlp` section: what it may hold, and each mistake at its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from kproxy.record.otlp.config import CollectorAddress, parse_endpoint
from tests.test_config import BASE, mistakes, read


def test_secrets_come_from_the_environment_and_from_files(tmp_path: Path) -> None:
    """They are shown nowhere; headers' names are as HTTP compares them."""
    (tmp_path / "key").write_text("k3y\n")
    headers = '{Authorization: "Bearer ${TOKEN}", X-Key: "file:key"}'
    text = f'otlp: {{endpoint: "https://c:4318/x/", headers: {headers}, metrics: 30s, tls: {{}}}}'
    config = read(BASE + text, tmp_path, TOKEN="t0ken")

    assert config.otlp is not None
    assert {name: value.get_secret_value() for name, value in config.otlp.headers.items()} == {
        "authorization": "Bearer t0ken", "x-key": "k3y",
    }  # fmt: skip
    assert (config.otlp.metrics, config.otlp.logs, config.otlp.encoding) == (30.0, None, "json")
    assert config.measured
    assert not {"t0ken", "k3y"} & set(repr(config).replace("'", " ").split())


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        ("http://collector:4318", CollectorAddress(False, "collector", 4318, "")),
        ("https://otlp.example.com/tenant/7/", CollectorAddress(True, "otlp.example.com", 443, "/tenant/7")),
        ("http://[::1]", CollectorAddress(False, "::1", 80, "")),
    ],
)  # fmt: skip
def test_an_endpoint(text: str, endpoint: CollectorAddress) -> None:
    """Ports are HTTP's where none is given, and a path goes in front of the signal's."""
    assert parse_endpoint(text) == endpoint


@pytest.mark.parametrize(
    ("endpoint", "why"),
    [
        ("collector:4318", "expected http://HOST"),
        ("grpc://collector:4317", "expected http://HOST"),
        ("http://", "expected http://HOST"),
        ("http://:4318", "expected http://HOST"),
        ("http://c:99999", "out of range"),
        ("http://c:0", "expected a port"),
        ("http://[::1", "Invalid IPv6"),
        ("http://me:secret@c:4318", "without user and password"),
        ("http://c:4318/?a=b", "expected only a host"),
        ("http://c:4318/v1/metrics", "appends /v1/metrics"),
        ("http://c:4318/a b", "expected only a host"),
        ("http://c\\u2603:4318", "expected http://HOST"),
        ("http://c:4318/\\r\\nx: y", "expected http://HOST"),
    ],
)  # fmt: skip
def test_wrong_endpoints(endpoint: str, why: str) -> None:
    """Each says what is wrong, and no password is repeated."""
    (line,) = mistakes(BASE + f'otlp: {{endpoint: "{endpoint}", metrics: 30s}}')

    assert line.startswith("3:18: ")
    assert why in line
    assert "secret" not in line


@pytest.mark.parametrize(
    ("section", "line"),
    [
        ('{endpoint: "http://c:1"}', "3:7: nothing is sent: set at least one of metrics, logs, traces"),
        ('{metrics: 30s}', '3:7: "endpoint" is missing'),
        ('{endpoint: "http://c:1", metrics: 10ms}', "3:41: expected at least 1 s, got 10ms"),
        ('{endpoint: "http://c:1", metrics: 30s, tls: {}}', "3:51: the endpoint begins with http://, which has no TLS"),
        ('{endpoint: "http://c:1", logs: audit}',
         "3:38: logs need `audit`, for example {}"),
        ('{endpoint: "http://c:1", logs: all}', '3:38: expected one of audit, got text "all"'),
        ('{endpoint: "http://c:1", metrics: 9s, encoding: xml}',
         '3:55: expected one of json, protobuf, got text "xml"'),
        ('{endpoint: "http://c:1", metrics: 9s, semconv: 1.30}',
         '3:54: expected text in quotes, "1.30" or "1.44", got the number 1.3 (YAML reads 1.30 as 1.3)'),
        ('{endpoint: "http://c:1", metrics: 9s, semconv: "2"}', '3:54: expected one of 1.30, 1.44, got text "2"'),
        ('{endpoint: "http://c:1", metrics: 9s, timeout: 0}', "3:54: expected more than 0, got 0"),
        ('{endpoint: "http://c:1", metrics: 9s, headers: {Host: x}}', '3:55: kproxy sets "Host" itself'),
        ('{endpoint: "http://c:1", metrics: 9s, headers: {"a b": x}}',
         "3:55: expected a name of an HTTP header, got 'a b'"),
        ('{endpoint: "http://c:1", metrics: 9s, headers: {a: "x\\r\\ny: z"}}',
         "3:58: its character 2 is one that no header carries"),
        ('{endpoint: "http://c:1", metrics: 9s, headers: {a: x, A: y}}', '3:64: the header "A" stands here twice'),
        ('{endpoint: "http://c:1", metrics: 9s, headers: {a: "file:nothing"}}',
         '3:58: the secret\'s file "nothing" cannot be read: no such file or directory'),
        ('{endpoint: "http://c:1", traces: {}}', '3:40: "topics" is missing'),
        ('{endpoint: "http://c:1", traces: {topics: "/(/"}}',
         '3:49: the regular expression "(" cannot be used: missing ): ('),
        ('{endpoint: "http://c:1", traces: {topics: o, sample: 1.5}}', "3:60: expected at most 1, got 1.5"),
        ('{endpoint: "http://c:1", traces: {topics: o, links: -1}}', "3:59: expected at least 0, got -1"),
    ],
)  # fmt: skip
def test_mistakes(section: str, line: str) -> None:
    """Each at its place."""
    assert mistakes(BASE + f"otlp: {section}") == [line]


def test_an_audit_may_go_to_the_collector_alone() -> None:
    """It needs somewhere to write to, and that is one."""
    otlp = 'otlp: {endpoint: "http://c:1", logs: audit}\n'
    assert read(BASE + otlp + "audit: {}").audit is not None

    (line,) = mistakes(BASE + "audit: {}")
    assert line == "3:8: an audit needs `dir` or `kafka`, somewhere to write to, or `logs: audit` in `otlp`"


def test_metrics_by_label_may_go_to_the_collector_alone() -> None:
    """No admin address is needed where numbers are exported."""
    otlp = 'otlp: {endpoint: "http://c:1", metrics: 30s}\n'
    assert read(BASE + otlp + "metrics: {by: [topic]}").measured
