"""Rule files that change under a running proxy."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kproxy.cli.admin_client import Admin
from tests.support.raw_client import RawClient
from tests.support.wait import until

HIDE = "rules:\n  - {name: hide, kind: hide_node, node: 0}\n"
HOST = "rules:\n  - {name: host, kind: advertise, host: elsewhere.example}\n"
NONE = "rules: []\n"
BAD = "rules:\n  - {name: hide, kind: hide_nod, node: 0}\n"


@pytest.fixture
def start(fake: Callable[..., Any], kproxy_process: Callable[..., Any]) -> Callable[..., Any]:
    """A proxy before a fake broker, with these rule files and folders."""

    def start(*paths: Path) -> Any:
        arguments = [word for path in paths for word in ("--rules", str(path))]
        return kproxy_process(fake().address, arguments=arguments)

    return start


def api(proxy: Any) -> Any:
    return Admin(f"http://{proxy.admin}")


def loads(proxy: Any) -> int:
    """How often files were read and taken in."""
    return int(proxy.metric("kproxy_rules_loaded_total", origin="file"))


def replace(file: Path, text: str) -> None:
    """As editors do it: another file is renamed over it."""
    other = file.with_name(f".{file.name}.tmp")
    other.write_text(text)
    other.rename(file)


def test_a_changed_file_is_in_force_at_the_next_frame(start: Callable[..., Any], tmp_path: Path) -> None:
    """Of connections that are open, which are not cut; the version follows in metrics and API."""
    file = tmp_path / "r.yaml"
    file.write_text(NONE)
    proxy = start(file)
    with RawClient(proxy.bootstrap) as client:
        assert list(client.brokers()) == [0]
        before = api(proxy)("GET", "/api/version")["rules"]
        replace(file, HIDE)
        until(lambda: not client.brokers())
        version = api(proxy)("GET", "/api/version")["rules"]
        assert version != before
        assert [labels for labels, _ in proxy.samples("kproxy_rules_info")] == [{"version": version}]
        file.write_text(NONE)
        until(lambda: list(client.brokers()) == [0])
    assert api(proxy)("GET", "/api/version")["rules"] == before


def test_a_bad_file_changes_nothing_and_is_reported(start: Callable[..., Any], tmp_path: Path) -> None:
    """In the log, the metrics and the API, with its line and column, until it is right again."""
    file = tmp_path / "r.yaml"
    file.write_text(HIDE)
    proxy = start(file)
    with RawClient(proxy.bootstrap) as client:
        assert client.brokers() == {}
        replace(file, BAD)
        until(lambda: proxy.metric("kproxy_rules_rejected_total", origin="file") == 1)
        assert client.brokers() == {}
        found = api(proxy)("GET", "/api/rules")
        mistake = found["last_rejection"]["mistakes"][0]
        assert mistake["where"] == f"{file}:2:24"
        assert 'did you mean "hide_node"' in mistake["message"]
        assert [rule["name"] for rule in found["rules"]] == ["hide"]
        assert any(line["mistake"].startswith(f"{file}:2:24: ") for line in proxy.said("rules rejected"))
        replace(file, NONE)
        until(lambda: list(client.brokers()) == [0])
    assert api(proxy)("GET", "/api/rules")["last_rejection"] is None


def test_counters_of_unchanged_rules_go_on(start: Callable[..., Any], tmp_path: Path) -> None:
    """A rule that is beside them starts at 0."""
    file = tmp_path / "r.yaml"
    file.write_text(HIDE)
    proxy = start(file)
    with RawClient(proxy.bootstrap) as client:
        client.brokers()
        client.brokers()
        replace(file, f"{HIDE}  - {{name: slow, kind: delay, delay: 1ms}}\n")
        until(lambda: loads(proxy) == 2)
        client.brokers()

    rules = api(proxy)("GET", "/api/rules")["rules"]
    assert [(rule["name"], rule["fired"]) for rule in rules] == [("hide", 3), ("slow", 1)]


def test_what_kubernetes_does_to_a_config_map(start: Callable[..., Any], tmp_path: Path) -> None:
    """The files are links through a link to a folder, and that link is swapped for one to another folder."""
    for version, text in (("..1", NONE), ("..2", HIDE)):
        (tmp_path / version).mkdir()
        (tmp_path / version / "r.yaml").write_text(text)
    (tmp_path / "..data").symlink_to("..1")
    (tmp_path / "r.yaml").symlink_to("..data/r.yaml")
    proxy = start(tmp_path)
    with RawClient(proxy.bootstrap) as client:
        assert list(client.brokers()) == [0]
        (tmp_path / "..data_tmp").symlink_to("..2")
        (tmp_path / "..data_tmp").rename(tmp_path / "..data")
        until(lambda: not client.brokers())
    assert not proxy.said("rules rejected")


def test_files_of_a_folder_come_and_go(start: Callable[..., Any], tmp_path: Path) -> None:
    """In the order of their names."""
    (tmp_path / "b.yaml").write_text(NONE)
    proxy = start(tmp_path)
    (tmp_path / "a.yaml").write_text(HIDE)
    until(lambda: [rule["position"] for rule in api(proxy)("GET", "/api/rules")["rules"]] == [f"{tmp_path}/a.yaml:2:5"])
    (tmp_path / "a.yaml").unlink()
    until(lambda: api(proxy)("GET", "/api/rules")["rules"] == [])


@pytest.mark.deep
def test_a_file_that_is_gone_leaves_its_rules_in_force(start: Callable[..., Any], tmp_path: Path) -> None:
    """It was named, so it is missed; for a moment it may be away without a word."""
    file = tmp_path / "r.yaml"
    file.write_text(HIDE)
    proxy = start(file)
    file.rename(tmp_path / "away")
    until(lambda: proxy.metric("kproxy_rules_rejected_total", origin="file") == 1)
    found = api(proxy)("GET", "/api/rules")
    assert [rule["name"] for rule in found["rules"]] == ["hide"]
    assert "cannot be read" in found["last_rejection"]["mistakes"][0]["message"]
    (tmp_path / "away").rename(file)
    until(lambda: api(proxy)("GET", "/api/rules")["last_rejection"] is None)


def test_sighup_reads_the_files(start: Callable[..., Any], tmp_path: Path) -> None:
    """Changed or not; a proxy without files only says so."""
    file = tmp_path / "r.yaml"
    file.write_text(HIDE)
    proxy = start(file)
    os.kill(proxy.pid, signal.SIGHUP)
    until(lambda: loads(proxy) == 2)
    without = start()
    os.kill(without.pid, signal.SIGHUP)
    until(lambda: loads(without) == 2)


def test_open_connections_keep_what_they_are_bound_to(start: Callable[..., Any], tmp_path: Path) -> None:
    """They are listed as outdated, and recycled they come back under the new rules."""
    file = tmp_path / "r.yaml"
    file.write_text(NONE)
    proxy = start(file)
    with RawClient(proxy.bootstrap) as old:
        before = old.brokers()
        replace(file, HOST)
        until(lambda: loads(proxy) == 2)
        with RawClient(proxy.bootstrap) as new:
            assert [address.partition(":")[0] for address in new.brokers().values()] == ["elsewhere.example"]
            assert old.brokers() == before
            listed = api(proxy)("GET", "/api/connections")["connections"]
            assert [(one["rules"], one["outdated"]) for one in listed] == [([], True), (["host"], False)]
            assert api(proxy)("POST", "/api/connections/recycle") == {"connections": 1}
            assert old.rest() == b""
            assert new.brokers()
    until(lambda: proxy.metric("kproxy_connections_closed_total", cause="recycled") == 1)


def test_many_swaps_lose_nothing(start: Callable[..., Any]) -> None:
    """Each answer obeys one of two rule sets, and the last one the last of them; no connection is cut."""
    proxy = start()
    admin = api(proxy)
    bodies = [json.dumps({"rules": rules}).encode() for rules in ([], [{"name": "h", "kind": "hide_node", "node": 0}])]
    seen: list[int] = []
    stop = threading.Event()

    def ask() -> None:
        with RawClient(proxy.bootstrap) as client:
            while not stop.is_set():
                seen.append(len(client.brokers()))
            seen.append(len(client.brokers()) + 10)

    asking = [threading.Thread(target=ask) for _ in range(4)]
    for thread in asking:
        thread.start()
    for number in range(200):
        admin("PUT", "/api/rules", bodies[number % 2])
    stop.set()
    for thread in asking:
        thread.join(60)

    assert sorted(set(seen)) == [0, 1, 10]
    assert seen.count(10) == 4
    assert len(proxy.said("connection closed")) == 0
    assert proxy.metric("kproxy_rules_loaded_total", origin="api") == 200


def test_the_first_line_says_what_begins(start: Callable[..., Any]) -> None:
    """Its version, where its config is from, and its listeners."""
    proxy = start()
    first = json.loads(proxy.child.log.read_text().splitlines()[0])

    assert list(first)[:3] == ["timestamp", "level", "event"]
    assert (first["event"], first["config"], first["workers"]) == ("kproxy starts", "flags", 1)
    assert first["listeners"] == [f"main {proxy.bootstrap} to main"]
    assert first["version"]
