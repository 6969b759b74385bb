"""`kproxy rules` and `kproxy connections` on a running proxy."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kproxy.cli import main
from kproxy.testing.process import free_port
from tests.support.raw_client import RawClient

RULES = """
rules:
  - {name: hide it, kind: hide_node, node: 0}
  - {name: other, kind: delay, delay: 1ms, mode: dry_run}
"""


class Command:
    """Runs `kproxy …` with the proxy's address in the environment."""

    def __init__(self, proxy: Any) -> None:
        self.proxy = proxy

    def __call__(self, *words: str, code: int = 0, **environment: str) -> str:
        """Standard output; the exit code must be this. `self.errors` is the rest."""
        env = {"KPROXY_ADMIN": f"http://{self.proxy.admin}", **environment}
        ran = CliRunner().invoke(main, list(words), env=env)
        self.errors = ran.stderr
        assert ran.exit_code == code, ran.output
        return ran.stdout


@pytest.fixture
def run(fake: Callable[..., Any], kproxy_process: Callable[..., Any]) -> Command:
    """The command, for a proxy with one rule in a file."""
    base = {"name": "base", "kind": "rename_topic", "topics": {"a": "b"}}
    return Command(kproxy_process(fake().address, rules=[base]))


def test_rules_are_added_listed_and_removed(run: Command, tmp_path: Path) -> None:
    """In pipes a line is a rule, its cells between tabs."""
    file = tmp_path / "more.yaml"
    file.write_text(RULES)
    assert run("rules", "add", str(file)) == ""
    with RawClient(run.proxy.bootstrap) as client:
        assert client.brokers() == {}

    assert [line.split("\t") for line in run("rules", "list").splitlines()] == [
        ["base", "rename_topic", "names", "file", "on", "-", "-", "-"],
        ["hide it", "hide_node", "fault", "api", "on", "1", "1", "1"],
        ["other", "delay", "fault", "api", "dry run", "1", "1", "0"],
    ]
    assert [rule["name"] for rule in json.loads(run("rules", "list", "--json"))["rules"]] == [
        "base",
        "hide it",
        "other",
    ]
    shown = dict(line.split("\t") for line in run("rules", "show", "hide it").splitlines())
    assert (shown["position"], shown["rule"]) == ("<api>:3:5", '{"name": "hide it", "kind": "hide_node", "node": 0}')
    run("rules", "rm", "hide it", "other")
    assert len(run("rules", "list").splitlines()) == 1


def test_a_document_with_mistakes_is_refused_whole(run: Command, tmp_path: Path) -> None:
    """The places are those of the file; names that are taken are one of them unless they are to be replaced."""
    file = tmp_path / "more.yaml"
    file.write_text(RULES.replace("hide_node", "hide_nod"))
    run("rules", "add", str(file), code=1)
    assert run.errors.startswith(f'{file}:3:27: unknown kind "hide_nod", did you mean "hide_node"?')
    assert len(run("rules", "list").splitlines()) == 1

    file.write_text(RULES)
    run("rules", "add", str(file), "--ttl", "1h")
    run("rules", "add", str(file), code=1)
    assert run.errors == 'kproxy: the name "hide it" is taken, by a rule of origin api\n'
    run("rules", "add", str(file), "--replace")
    run("rules", "add", str(tmp_path / "none.yaml"), code=1)
    assert "cannot be read: no such file" in run.errors


def test_rules_and_faults_are_turned_off_and_on(run: Command, tmp_path: Path) -> None:
    """The list says which of these it is."""
    file = tmp_path / "more.yaml"
    file.write_text(RULES)
    run("rules", "add", str(file))

    def states() -> list[str]:
        return [line.split("\t")[4] for line in run("rules", "list").splitlines()]

    run("rules", "disable", "base", "other")
    assert states() == ["off", "on", "off"]
    run("rules", "enable", "base", "other")
    went = [line.split("\t")[:4] for line in run("faults", "disable").splitlines()]
    assert went == [["hide it", "hide_node", "fault", "off"], ["other", "delay", "fault", "off"]]
    assert states() == ["on", "faults disabled", "faults disabled"]
    assert [line.split("\t")[3] for line in run("faults", "status").splitlines()] == ["off", "off"]
    assert run.errors == "faults are disabled\n"
    assert json.loads(run("faults", "status", "--json"))["disabled"] is True
    run("faults", "enable")
    assert states() == ["on", "on", "dry run"]
    run("rules", "disable", "bose", code=1)
    assert run.errors == 'kproxy: unknown rule "bose", did you mean "base"?\n'


def test_waiting_for_hits(run: Command, tmp_path: Path) -> None:
    """Exit code 0 once it has acted so often, 1 when it has not in time."""
    file = tmp_path / "more.json"
    file.write_text(json.dumps({"rules": [{"name": "hide/it", "kind": "hide_node", "node": 0}]}))
    run("rules", "add", str(file))
    ended: list[str] = []
    waiting = threading.Thread(target=lambda: ended.append(run("rules", "wait", "hide/it", "--hits", "2")))
    waiting.start()
    with RawClient(run.proxy.bootstrap) as client:
        client.brokers()
        client.brokers()
    waiting.join(60)
    assert ended == [""]

    command = Command(run.proxy)
    command("rules", "reset", "hide/it")
    command("rules", "wait", "hide/it", "--timeout", "0s", "--count", "applied", code=1)
    assert command.errors == 'kproxy: the rule "hide/it" has applied 0 of 1 times after 0s\n'
    command("rules", "reset", "--all")
    assert command("rules", "resume", "hide/it") == "hide/it\t0\n"


def test_connections_are_listed_closed_and_recycled(run: Command) -> None:
    """By number; without one, those that are outdated."""
    with RawClient(run.proxy.bootstrap) as one, RawClient(run.proxy.bootstrap) as two:
        one.brokers()
        two.brokers()
        lines = [line.split("\t") for line in run("connections", "list").splitlines()]
        assert [line[1] for line in lines] == [":".join(map(str, each.socket.getsockname())) for each in (one, two)]
        run("connections", "close", lines[0][0])
        assert one.rest() == b""
        assert run("connections", "recycle") == "0\n"
        run("rules", "disable", "base")
        assert run("connections", "recycle") == "1\n"
        assert two.rest() == b""
    assert run("connections", "recycle", "--all") == "0\n"
    run("connections", "close", "12345", code=1)
    assert run.errors == 'kproxy: there is no connection "12345"\n'


def test_when_nothing_answers(run: Command) -> None:
    """It says where it looked and what to do; something that is no kproxy is told apart."""
    port = free_port()
    run("rules", "list", code=1, KPROXY_ADMIN=f"127.0.0.1:{port}")
    assert run.errors == (
        f"kproxy: nothing answers at 127.0.0.1:{port} (connection refused); is a proxy running there with --admin?\n"
    )
    run("rules", "list", code=2, KPROXY_ADMIN="ftp://x")
    run("rules", "list", code=1, KPROXY_ADMIN=f"http://{run.proxy.admin}/elsewhere")
    assert "there is no /elsewhere/api/rules here" in run.errors
    run("rules", "reset", code=2)


def test_a_token_is_sent(fake: Callable[..., Any], proxy_with: Callable[..., Any], tmp_path: Path) -> None:
    """From the environment or a file; without one the message says how to give it."""
    proxy = proxy_with(fake().address, admin={"bind": f"127.0.0.1:{free_port()}", "token": "s3cret"}, wait=False)
    proxy.admin = proxy.said("admin")[0]["url"].removeprefix("http://")
    run = Command(proxy)
    (tmp_path / "token").write_text("s3cret\n")

    run("rules", "list", code=1, KPROXY_TOKEN="wrong")
    assert run.errors == "kproxy: a bearer token is needed, in KPROXY_TOKEN or by --token-file\n"
    assert run("rules", "list", KPROXY_TOKEN="s3cret") == ""
    assert run("rules", "list", "--token-file", str(tmp_path / "token")) == ""
    run("rules", "list", "--token-file", str(tmp_path / "none"), code=2)
