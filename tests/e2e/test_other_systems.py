"""kproxy where what only Linux has is not there: on a system made of this one (tests/support/other_system)."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from click.testing import CliRunner

from kproxy.app.config import document
from kproxy.app.config.document import load_config
from kproxy.cli import main
from kproxy.testing import one_request
from kproxy.testing.cluster import MockCluster
from kproxy.testing.process import Proxy, free_port

FOLDER = Path(__file__).parents[1] / "support" / "other_system"
KPROXY = (sys.executable, "-m", "kproxy")


@pytest.fixture(params=["macos", "windows"])
def system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The system of all Pythons that are started from now on."""
    monkeypatch.setenv("KPROXY_TEST_SYSTEM", request.param)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(FOLDER), *filter(None, [os.environ.get("PYTHONPATH")])]))
    return str(request.param)


def run(*words: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(words, capture_output=True, text=True, timeout=110, check=False, cwd=folder)


def descriptors(pid: int) -> str:
    """What a process has open, as Linux names it."""
    return " ".join(str(one.readlink()) for one in Path(f"/proc/{pid}/fd").iterdir() if one.is_symlink())


SUITE = """
    import importlib
    import pkgutil

    from confluent_kafka import Consumer, Producer

    import kproxy as package

    QUICK = {"log_level": 0, "retry.backoff.ms": 20, "retry.backoff.max.ms": 50}

    def test_all_of_kproxy_can_be_imported():
        for module in pkgutil.walk_packages(package.__path__, "kproxy."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)

        from kproxy.runtime.io.pollers import make_poller, trio_poller
        from kproxy.base import sockets, system

        parts = vars(system) | vars(sockets)
        assert {name for name, there in parts.items() if name.startswith("HAS_") and there} == {THERE}
        assert make_poller is trio_poller

    def test_a_fault(kproxy):
        kproxy.inject("rename_topic", topics={"orders": "prod.orders"})
        kproxy.inject("error", error="NOT_LEADER_OR_FOLLOWER", match={"api": "Produce", "topic": "orders"},
                      when={"first": 2})
        producer = Producer({"bootstrap.servers": kproxy.bootstrap_servers, **QUICK})
        producer.produce("orders", b"x" * 500_000)  # more than is spliced elsewhere
        assert producer.flush(30) == 0
        kproxy.assert_applied("error 1")
        consumer = Consumer({"bootstrap.servers": kproxy.bootstrap_servers, "group.id": "g",
                             "auto.offset.reset": "earliest", **QUICK})
        consumer.subscribe(["orders"])
        message = consumer.poll(30)
        assert message.topic() == "orders" and message.value() == b"x" * 500_000
        consumer.close()
        assert kproxy.exchanges(api="Fetch")
"""
THERE = {"macos": {"HAS_LIMITS", "HAS_LOCKS", "HAS_REUSE"}, "windows": set()}


@pytest.mark.deep
def test_a_suite_with_the_plugin(system: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No module asks for what is not there before it is used, and that is known to be missing. A record of a test of a
    user's goes through a rename and a fault, and comes back."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # those of other projects take their time
    (tmp_path / "test_suite.py").write_text(dedent(SUITE).replace("{THERE}", repr(THERE[system])))
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    plugin = ("-p", "no:cacheprovider", "-p", "kproxy.testing.pytest_plugin")
    done = run(sys.executable, "-m", "pytest", "-q", *plugin, folder=tmp_path)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


@pytest.mark.deep
def test_the_demo(system: str) -> None:
    """It starts `kproxy run` as a process, moves records through it, and finds its figures right."""
    done = run(*KPROXY, "demo", "--records", "100")

    assert (done.returncode, done.stderr) == (0, "")
    assert "100 of 100 records delivered, none lost or changed." in done.stdout
    assert "2 writes failed because a rule said so" in done.stdout
    assert "No client was told the address of a broker." in done.stdout


def test_the_mock_cluster_with_kproxy_in_front(system: str) -> None:
    """Its first line is kproxy's address, which leads to the brokers; it ends with its standard input."""
    words = [*KPROXY, "mock", "--admin", "127.0.0.1:0", "--topic", "orders:2", "--until-eof"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None and process.stdin is not None
            bootstrap, admin = process.stdout.readline().strip(), process.stdout.readline().strip()
            assert one_request.topics(bootstrap) == {"orders": 2}
            with urllib.request.urlopen(f"{admin}/api/exchanges?filter=~k+metadata&wait=20s", timeout=60) as answer:
                assert json.load(answer)["rows"]
            process.stdin.close()
            assert process.wait(60) == 0
        finally:
            process.kill()


def config(port: int, **parts: Any) -> dict[str, Any]:
    return {
        "clusters": {"main": {"bootstrap": [f"127.0.0.1:{port}"], **parts.pop("cluster", {})}},
        "listeners": [{"name": "main", "bind": f"127.0.0.1:{free_port()}", "cluster": "main", **parts.pop("on", {})}],
        **parts,
    }


def test_a_proxy_that_records(system: str, tmp_path: Path) -> None:
    """`kproxy run` serves by trio alone, takes a changed rule file in, and ends in order; event files are written where
    they can be locked."""
    rules = tmp_path / "rules.yaml"
    rules.write_text("rules: []")
    audit = {"dir": str(tmp_path / "audit"), "flush": "100ms"} if system == "macos" else None
    with MockCluster(1) as cluster:
        cluster.create_topic("orders", 2)
        port = int(cluster.bootstrap.rpartition(":")[2])
        with Proxy(config=config(port, rules=[str(rules)], audit=audit)) as proxy:
            assert "[timerfd]" not in descriptors(proxy.pid)
            assert one_request.topics(proxy.bootstrap) == {"orders": 2}
            rules.write_text("rules: [{name: all, kind: rename_topic, topics: {'*': 'prod.*'}}]")
            assert proxy.child is not None
            proxy.child.wait_until(lambda: bool(proxy.logged("serving")), 60, "kproxy")
            proxy.child.wait_until(lambda: one_request.topics(proxy.bootstrap) == {}, 60, "the rename")
            proxy.child.signal(signal.SIGTERM)
            assert proxy.child.wait(60) == 0, proxy.logs()
    lines = [
        line for file in tmp_path.glob("audit/dt=*/*.gz") for line in gzip.decompress(file.read_bytes()).split(b"\n")
    ]
    assert any(b"connection" in line for line in lines) is (system == "macos")


LINUX_ONLY = {
    "workers: 2": "several workers need Linux, because they pass connections between processes",
    "transparent: true": "transparent needs Linux, because its kernel diverts connections",
    "mark: 7": "mark needs Linux, because its firewall matches it; 0: none",
}
NOT_WINDOWS = {
    "unix:/run/kafka.sock": "unix:/run/kafka.sock is a socket with a path, which this system does not have",
    "dir: audit": "event files need locks that go with their process, which Windows does not have; "
    "audit.kafka needs none",
}


def test_what_the_system_lacks_is_refused_at_its_place(system: str, tmp_path: Path) -> None:
    """Each setting with the line and the column where it stands. As a document the config is right."""
    text = dedent("""\
        clusters:
          main:
            bootstrap: ["unix:/run/kafka.sock", "127.0.0.1:9092"]
            mark: 7
        listeners:
          - {name: main, bind: "127.0.0.1:0", cluster: main, transparent: true}
        workers: 2
        audit: {dir: audit}
        """)
    (tmp_path / "config.yaml").write_text(text)

    done = run(*KPROXY, "run", "--config", "config.yaml", folder=tmp_path)

    assert load_config(tmp_path / "config.yaml").workers == 2
    wanted = LINUX_ONLY | (NOT_WINDOWS if system == "windows" else {})
    assert done.returncode != 0 and done.stdout == ""
    said = dict(reversed(line.split(": ", 1)) for line in done.stderr.splitlines())  # message: place
    assert set(said) == set(wanted.values())
    for written, message in wanted.items():
        line = next(number for number, one in enumerate(text.splitlines(), 1) if written in one)
        assert said[message].startswith(f"config.yaml:{line}:"), written


def test_workers_are_refused_on_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document, "HAS_WORKERS", False)
    done = CliRunner().invoke(main, ["run", "--upstream", "127.0.0.1:9092", "--workers", "2"])

    assert done.exit_code == 2
    assert "--workers: several workers need Linux" in done.stderr
