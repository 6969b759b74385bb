"""`kproxy config`, SIGHUP and `--watch-config` on a running proxy."""

from __future__ import annotations

import json
import os
import signal
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from kproxy.cli import main
from kproxy.testing.process import free_port
from tests.support.live_proxy import NamedBroker
from tests.support.raw_client import RawClient
from tests.support.wait import until

TOKEN, READ = "write-it", "read-it"


class Configured:
    """A proxy whose config file changes, and the command that tells it so."""

    def __init__(self, document: dict[str, Any], proxy: Any) -> None:
        self.document, self.proxy = document, proxy
        self.file = Path(proxy.said("kproxy starts")[0]["config"])

    def listeners(self, *names: str) -> list[dict[str, Any]]:
        """The first listener, and others of these names at free ports."""
        first = self.document["listeners"][0]
        return [first, *({**first, "name": name, "bind": f"127.0.0.1:{free_port()}"} for name in names)]

    def write(self, **changes: Any) -> None:
        """Write the config's file, with these changes."""
        self.file.write_text(yaml.safe_dump(self.document | changes, sort_keys=False))

    def metrics(self) -> set[str]:
        request = urllib.request.Request(
            f"http://{self.proxy.admin}/metrics", headers={"Authorization": f"Bearer {TOKEN}"}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return set(answer.read().decode().splitlines())

    def __call__(self, *words: str, code: int = 0, token: str = TOKEN, stdin: str = "") -> str:
        env = {"KPROXY_ADMIN": f"http://{self.proxy.admin}", "KPROXY_TOKEN": token}
        ran = CliRunner().invoke(main, ["config", *words], env=env, input=stdin)
        self.errors = ran.stderr
        assert ran.exit_code == code, ran.output
        return ran.stdout


@pytest.fixture
def configured(fake: Callable[..., Any], kproxy_process: Callable[..., Any], tmp_path: Path) -> Callable[..., Any]:
    """Starts a proxy with a config file; `token` false leaves the admin address open."""

    def start(*arguments: str, token: bool = True, **more: Any) -> Configured:
        admin: dict[str, Any] = {"bind": f"127.0.0.1:{free_port()}"}
        if token:
            (tmp_path / "read").write_text(READ)
            admin |= {"token": TOKEN, "read_token_file": str(tmp_path / "read")}
        document = {
            "clusters": {"main": {"bootstrap": [fake().address]}},
            "listeners": [{"name": "a", "bind": f"127.0.0.1:{free_port()}", "cluster": "main"}],
            "admin": admin,
        } | more
        proxy = kproxy_process(config=document, arguments=arguments, brokers_answer=False)
        proxy.admin = admin["bind"]
        return Configured(document, proxy)

    return start


def test_a_config_is_shown_compared_and_applied(configured: Callable[..., Any], tmp_path: Path) -> None:
    """What is printed is what happens; each mistake has its place in the file; secrets are not shown; what came over
    the API and is not in the file is told."""
    run = configured()
    assert run("diff") == ""
    assert run.errors == "the same as in force\n"
    other = tmp_path / "other.yaml"
    listeners = run.listeners("b")
    other.write_text(yaml.safe_dump(run.document | {"listeners": listeners, "seed": 3}, sort_keys=False))

    port = listeners[1]["bind"]
    added = f"added\tlisteners.b\t-\topens {port}\n"
    restart = "restart\tseed\tseed\tneeds a restart: rules have begun with another seed\n"
    assert run("diff", str(other)) == added + restart
    assert "needs a restart" not in run("apply", str(other), code=1)
    assert run.errors.startswith("kproxy: a restart is needed for seed")
    assert added in run("apply", str(other), "--except-restart")
    with RawClient(port) as client:
        assert client.brokers()
        found = json.loads(run("show", "--json"))
        assert (found["origin"], found["applied"], found["rejected"]) == ("api", 1, 1)
        assert found["not_in_file"] == ["listeners.b"]
        assert found["config"]["admin"]["token"] == "***"
        assert TOKEN not in json.dumps(found)
        metrics = run.metrics()
        assert f'kproxy_config_info{{version="{found["version"]}"}} 1.0' in metrics
        assert {"kproxy_config_applied_total 1.0", "kproxy_config_rejected_total 1.0"} <= metrics

        other.write_text("clusters: {}\nlisteners:\n  - {name: x, bnd: 1}\n")
        run("apply", str(other), code=1)
        assert f"{other}:1:11: " in run.errors
        assert f'{other}:3:15: unknown key "bnd", did you mean "bind"?' in run.errors
        assert "removed\tlisteners.b\t" in run("diff")
        assert "removed\tlisteners.b\t" in run("apply")
        assert client.rest() == b""
    assert run("show").startswith(f"version\t{json.loads(run('diff', '--json'))['version']}\norigin\tfile\n")


def test_who_may_apply(configured: Callable[..., Any], tmp_path: Path) -> None:
    """The token for reading may look, also at what kproxy's own file would change; no other document is read for it."""
    run = configured()
    other = tmp_path / "other.yaml"
    other.write_text(yaml.safe_dump(run.document | {"listeners": run.listeners("b")}))
    run("diff", token=READ)
    assert json.loads(run("show", "--json", token=READ))["applied"] == 0
    for words in (("apply",), ("apply", str(other)), ("diff", str(other))):
        run(*words, code=1, token=READ)
        assert "the token is for reading" in run.errors
        run(*words, code=1, token="wrong")
        assert "a bearer token is needed" in run.errors
    assert json.loads(run("show", "--json"))["applied"] == 0


def test_without_a_token_kproxy_reads_its_own_file_only(configured: Callable[..., Any], tmp_path: Path) -> None:
    run = configured(token=False)
    other = tmp_path / "other.yaml"
    listeners = run.listeners("b")
    other.write_text(yaml.safe_dump(run.document | {"listeners": listeners}))
    run("apply", str(other), code=1)
    assert "only where the admin address asks for a token" in run.errors
    run.write(listeners=listeners)
    for text in ("# what a template made of nothing\n", "---\n"):
        other.write_text(text)  # a config, though one without anything
        run("apply", str(other), code=1)
        assert "only where the admin address asks for a token" in run.errors
    assert "added\tlisteners.b" in run("apply")
    with RawClient(listeners[1]["bind"]) as client:
        assert client.brokers()


def test_a_config_without_anything_is_not_kproxys_own(configured: Callable[..., Any], tmp_path: Path) -> None:
    """A program that should have written it, and has not, does not get what is in the own file."""
    run = configured()
    run.write(listeners=run.listeners("b"))
    other = tmp_path / "other.yaml"
    for text, says in (
        ("", "is empty"),
        (" \n", "is empty"),
        ("# none\n", "got nothing"),
        ("---\n", "got nothing"),
    ):
        other.write_text(text)
        for words in (("diff", str(other)), ("apply", str(other)), ("diff", "-"), ("apply", "-")):
            run(*words, code=1, stdin=text)
            assert says in run.errors, (text, words, run.errors)
    assert json.loads(run("show", "--json"))["applied"] == 0


def test_sighup_reads_config_and_rules_together(configured: Callable[..., Any], tmp_path: Path) -> None:
    """A rule of a new listener comes with it; what needs a restart is told and the rest applied; a mistake leaves all
    as it is."""
    rules = tmp_path / "rules.yaml"
    rules.write_text("rules: []\n")
    run = configured(rules=[str(rules)], seed=1)
    listeners = run.listeners("b")
    with RawClient(listeners[0]["bind"]) as client:
        assert client.brokers()
        run.write(listeners=listeners, seed=2)
        rules.write_text("rules:\n  - {name: hide, kind: hide_node, node: 0, match: {listener: b}}\n")
        run.proxy.child.signal(signal.SIGHUP)
        until(lambda: run.proxy.said("config applied"))
        (told,) = run.proxy.said("config has changed, a restart is needed for this")
        assert told["changed"] == ["seed"]
        with RawClient(listeners[1]["bind"]) as added:
            assert added.brokers() == {}
        assert client.brokers() != {}

        run.write(listeners=[*listeners, {"name": "c"}])
        run.proxy.child.signal(signal.SIGHUP)
        until(lambda: run.proxy.said("config rejected, the one in force stays"))
        mistakes = [line["mistake"] for line in run.proxy.said("config rejected")]
        assert all(one.startswith(f"{run.file}:") for one in mistakes)
        assert any('"bind" is missing' in one for one in mistakes)
        assert client.brokers() != {}


def test_a_watched_file_is_applied_when_it_changes(configured: Callable[..., Any]) -> None:
    run = configured("--watch-config")
    listeners = run.listeners("b")
    other = run.file.with_name("new")
    other.write_text(json.dumps(run.document | {"listeners": listeners}))
    os.replace(other, run.file)
    until(lambda: run.proxy.said("config applied"))
    with RawClient(listeners[1]["bind"]) as client:
        assert client.brokers()


def test_tokens_and_the_log_change_at_once(configured: Callable[..., Any], tmp_path: Path) -> None:
    """Who shows the old token is refused from the next request on, its tail has an end, and the log tells more."""
    run = configured()
    asked = urllib.request.Request(
        f"http://{run.proxy.admin}/api/tail", headers={"Authorization": f"Bearer {READ}"}
    )  # fmt: skip
    with urllib.request.urlopen(asked, timeout=30) as tail:
        assert b"listening" in tail.readline()
        (tmp_path / "read").write_text("another")
        run.write(log={"level": "debug"}, admin=run.document["admin"] | {"token": "new"})
        steps = run("apply").splitlines()
        assert [line.split("\t")[:2] for line in steps] == [
            ["changed", "log.level"], ["changed", "admin.token"], ["changed", "admin.read_token_file"],
        ]  # fmt: skip
        assert all(not line.strip() for line in tail)
    run("show", code=1)
    assert "a bearer token is needed" in run.errors
    run("show", code=1, token=READ)
    run("show", token="another")
    assert json.loads(run("show", "--json", token="new"))["not_in_file"] == []
    with RawClient(run.document["listeners"][0]["bind"]) as client:
        assert client.brokers()
    until(lambda: any(line["level"] == "debug" for line in run.proxy.said("connection closed")))


def test_config_apply_other_cluster_needs_option(configured: Callable[..., Any], tmp_path: Path) -> None:
    """By the command and by SIGHUP, which has no option and logs the remedy."""
    with NamedBroker("one") as one, NamedBroker("two") as two:
        run = configured(clusters={"main": {"bootstrap": [one.address]}})
        with RawClient(run.document["listeners"][0]["bind"]) as client:
            before = client.brokers()
            run.write(clusters={"main": {"bootstrap": [two.address]}})
            run.proxy.child.signal(signal.SIGHUP)
            until(lambda: run.proxy.said("config rejected, the one in force stays"))
            (refused,) = run.proxy.said("config rejected")
            assert "expected one, got two" in refused["mistake"]
            assert "--allow-cluster-change" in refused["mistake"]
            assert run("apply", code=1) == ""
            assert "listener a leads to another cluster id (cluster main): expected one, got two" in run.errors
            assert client.brokers() == before
            assert "changed\tclusters.main" in run("apply", "--allow-cluster-change")
            assert client.rest() == b""
        assert len(run.proxy.said("clients are moved to another cluster")) == 1


def test_a_cluster_that_cannot_be_reached_stops_no_other(configured: Callable[..., Any]) -> None:
    run = configured()
    until(lambda: json.loads(run.proxy.get("/readyz")[1])["ready"])
    run.write(clusters={**run.document["clusters"], "lost": {"bootstrap": [f"127.0.0.1:{free_port()}"]}})
    run("apply")
    until(lambda: "lost" in json.loads(run.proxy.get("/readyz")[1])["clusters"])
    ready = json.loads(run.proxy.get("/readyz")[1])
    assert ready["ready"]
    assert not ready["clusters"]["lost"]["ready"]
