"""Every query of the dashboard in deploy/grafana is one that Prometheus answers, over what a real kproxy serves."""

from __future__ import annotations

import json
import shutil
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kproxy.testing.cluster import MockCluster
from kproxy.testing.process import Child, free_port
from tests.support.wait import until

pytestmark = pytest.mark.tools("prometheus")
DASHBOARD = Path(__file__).parents[2] / "deploy" / "grafana" / "kproxy.json"
QUIET = {
    "Abnormal closes",
    "Broker addresses removed from responses",
    "Unreachable brokers",
    "Events",
    "Workers",  # one process
    "Time until certificates expire",  # no TLS
    "Topics: errors",
}
"""Panels that have nothing to show when all is well."""


def queries() -> dict[str, list[str]]:
    """By panel, with Grafana's variables filled in."""
    filled = {"$__rate_interval": "5s", "$instance": ".+"}
    found = {}
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        texts = [target["expr"] for target in panel["targets"]]
        for name, value in filled.items():
            texts = [text.replace(name, value) for text in texts]
        found[panel["title"]] = texts
    return found


def ask(address: str, query: str) -> list[Any]:
    """The series of an answer. Raises HTTPError for a query that is none."""
    url = f"http://{address}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    with urllib.request.urlopen(url, timeout=60) as answer:
        result: list[Any] = json.load(answer)["data"]["result"]
    return result


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], str]]:
    """Starts one that scrapes the given address ten times a second; its own address."""
    path = shutil.which("prometheus")
    assert path, "no prometheus found, tests of the dashboard need it (Debian: apt-get install prometheus)"
    folder, port, running = tmp_path_factory.mktemp("prometheus"), free_port(), []

    def start(target: str) -> str:
        scrape = {"job_name": "kproxy", "static_configs": [{"targets": [target]}]}
        settings = {"global": {"scrape_interval": "100ms", "scrape_timeout": "100ms"}, "scrape_configs": [scrape]}
        (folder / "config.json").write_text(json.dumps(settings))  # JSON is YAML
        words = [path, f"--config.file={folder}/config.json", f"--storage.tsdb.path={folder}/data"]
        running.append(Child([*words, f"--web.listen-address=127.0.0.1:{port}"], folder / "log", cwd=folder))
        return f"127.0.0.1:{port}"

    yield start
    for child in running:
        child.stop()


def test_the_dashboard_shows_what_a_busy_proxy_does(
    prometheus: Callable[[str], str], kproxy_process: Any, tmp_path: Path
) -> None:
    """With an audit, a rename and a fault at work, each panel has something to show, unless all is well with it."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    with MockCluster(1) as mock:
        mock.create_topic("prod.orders", 1)
        rules = [
            {"name": "names", "kind": "rename_topic", "topics": {"orders": "prod.orders"}},
            {"name": "late", "kind": "delay", "match": {"api": "Produce"}, "delay": "1ms"},
            {"name": "told", "kind": "throttle_time", "match": {"api": "Produce"}, "delay": "5ms"},
        ]
        config = {
            "clusters": {"main": {"bootstrap": [mock.bootstrap]}},
            "listeners": [{"name": "main", "bind": f"127.0.0.1:{free_port()}", "cluster": "main"}],
            "audit": {"dir": str(tmp_path / "audit"), "flush": "100ms", "level": "requests"},
            "metrics": {"by": ["topic", "client_id", "principal", "group"]},
        }
        proxy = kproxy_process(config=config, rules=rules)
        address = prometheus(proxy.admin)
        producer = Producer({"bootstrap.servers": proxy.bootstrap})

        consumer = Consumer({"bootstrap.servers": proxy.bootstrap, "group.id": "readers"})

        def shown() -> bool:
            consumer.commit(offsets=[TopicPartition("orders", 0, 0)], asynchronous=False)
            producer.produce("orders", b"value")
            assert producer.flush(10) == 0
            missing.intersection_update(empty_panels(address))  # a scrape may be late
            return missing <= QUIET

        missing = set(queries())
        until(shown, 60)


def empty_panels(address: str) -> set[str]:
    """Panels none of whose queries has an answer; Prometheus may not be up yet."""
    try:
        return {title for title, texts in queries().items() if not any(ask(address, text) for text in texts)}
    except ConnectionError:
        return set(queries())
    except urllib.error.URLError as error:
        if isinstance(error, urllib.error.HTTPError) and error.code != 503:  # 503: it is reading its log of before
            raise
        return set(queries())
