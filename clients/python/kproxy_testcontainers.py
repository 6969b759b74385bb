"""kproxy as a container of Testcontainers: tests inject faults into the traffic between a Kafka client and its brokers.

`KproxyContainer` is the container, and `Kproxy` is the view of one test with its own rules and exchanges.
"""

from __future__ import annotations

import json
import random
import socket
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from testcontainers.core.container import DockerContainer
from testcontainers.core.wait_strategies import HttpWaitStrategy

FOLDER = "/etc/kproxy"
ADMIN_PORT = 9190
ATTEMPTS = 100  # to find consecutive free ports
PORTS = range(20_000, 32_768)  # below the ports of outgoing connections, which could take a released port
RULE_TTL = "1h"  # removes the rules of a test that was killed
PAGE_SIZE = 1000
LONGEST_WAIT = 60.0  # seconds that kproxy waits for exchanges
REQUEST_TIMEOUT = LONGEST_WAIT + 30.0  # seconds; covers a wait for exchanges
CONFIG = """\
clusters:
  main: {{bootstrap: {upstream}}}
listeners:
  - {{name: host, bind: "0.0.0.0:{port}", cluster: main, advertise: {{host: "{host}", ports: {first}-{last}}}}}
admin: {{bind: "0.0.0.0:{admin}", token: "${{KPROXY_TOKEN}}"}}
view: {{record_from_start: true}}
rules: {rules}
"""


class KproxyContainer(DockerContainer):
    """A container with kproxy in front of the brokers `upstream`, host:port,…, as kproxy reaches them from inside.

    kproxy listens on the ports that it advertises. So the container binds free ports of the host to the same ports
    inside: one for `bootstrap_servers`, followed by one for each of `brokers`. `rules` are rule files that apply from
    the start. `host` is the advertised host (default: the host of the container engine). Other arguments are those of
    `DockerContainer`.
    """

    def __init__(
        self,
        image: str,
        upstream: str,
        *,
        brokers: int = 3,
        rules: Iterable[str | Path] = (),
        host: str | None = None,
        **arguments: Any,
    ) -> None:
        super().__init__(image, **arguments)
        self.upstream, self.brokers, self.host, self.token = upstream, brokers, host, str(uuid.uuid4())
        self.port = 0  # until the first start
        self._reserved: list[socket.socket] = []
        self._rules: list[str] = []
        for path in rules:
            self._rules.append(f"rules-{len(self._rules) + 1}.yaml")
            self.with_copy_into_container(Path(path).read_bytes(), f"{FOLDER}/{self._rules[-1]}")
        self.with_command(["run", "--config", f"{FOLDER}/kproxy.yaml"])
        self.with_env("KPROXY_TOKEN", self.token)
        self.with_exposed_ports(ADMIN_PORT)
        self.waiting_for(HttpWaitStrategy(ADMIN_PORT, "/readyz"))

    @property
    def bootstrap_servers(self) -> str:
        """host:port for clients."""
        return f"{self._advertised_host()}:{self.port}"

    @property
    def admin_url(self) -> str:
        """URL of the admin API, whose full token is `token`."""
        return f"http://{self.get_container_host_ip()}:{self.get_exposed_port(ADMIN_PORT)}"

    def config(self) -> str:
        """The config document of kproxy."""
        upstream = json.dumps([server.strip() for server in self.upstream.split(",")])
        return CONFIG.format(
            upstream=upstream, port=self.port, host=self._advertised_host(), first=self.port + 1,
            last=self.port + self.brokers, admin=ADMIN_PORT, rules=json.dumps(self._rules),
        )  # fmt: skip

    def _advertised_host(self) -> str:
        return self.host or self.get_docker_client().host()

    def _configure(self) -> None:
        if not self.port:  # a container that starts again keeps its address
            self._reserved = reserve_ports(self.brokers + 1)
            self.port = self._reserved[0].getsockname()[1]
            for port in range(self.port, self.port + self.brokers + 1):
                self.with_bind_ports(port, port)
            self.with_copy_into_container(self.config().encode(), f"{FOLDER}/kproxy.yaml")

    def _transfer_into_container(self, *arguments: Any) -> None:
        self._release_ports()  # the container exists; the engine binds its ports when it starts
        super()._transfer_into_container(*arguments)

    def stop(self, *arguments: Any, **named: Any) -> None:
        self._release_ports()  # of a start that failed before the container existed
        super().stop(*arguments, **named)

    def _release_ports(self) -> None:
        while self._reserved:
            self._reserved.pop().close()


def reserve_ports(count: int) -> list[socket.socket]:
    """Return sockets that are bound to `count` consecutive free ports, in ascending order."""
    for _ in range(ATTEMPTS):
        found: list[socket.socket] = []
        first = random.randrange(PORTS.start, max(PORTS.stop - count, PORTS.start + 1))
        with suppress(OSError, OverflowError):  # a port is taken, or above 65535
            for port in range(first, first + count):
                found.append(socket.socket())
                found[-1].bind(("", port))
            return found
        for one in found:
            one.close()
    raise OSError(f"expected {count} consecutive free ports, got none")


class Refusal(Exception):
    """Error response of the admin API. `code` is stable; `mistakes` has `where` and `message` of each error."""

    def __init__(self, code: str, message: str, mistakes: Sequence[Mapping[str, str]] = ()) -> None:
        super().__init__("\n".join([message, *(f"  {one['where']}: {one['message']}" for one in mistakes)]))
        self.code, self.mistakes = code, list(mistakes)


class Counters(NamedTuple):
    """Counters of a rule: its selectors matched, its trigger fired, its change was sent."""

    matched: int
    fired: int
    applied: int


class Rule:
    """A rule of a test."""

    def __init__(self, kproxy: Kproxy, name: str) -> None:
        self.kproxy, self.name = kproxy, name

    def counters(self) -> Counters:
        return counters_of(self._ask("GET"))

    def wait(self, hits: int = 1, timeout: float = 30) -> Counters:
        """Return when the rule has fired `hits` times. Raises AssertionError after `timeout` seconds."""
        found = self._ask("POST", f"/wait?hits={hits}&timeout={round(timeout * 1000)}ms")
        counters = counters_of(found["rule"])
        if not found["reached"]:
            raise AssertionError(f"rule {self.name!r}: expected to fire {hits} times in {timeout:g} s, got {counters}")
        return counters

    def remove(self) -> None:
        """Remove the rule; no error if it has been removed."""
        try:
            self._ask("DELETE")
        except Refusal as refusal:
            if refusal.code != "no_such_rule":
                raise

    def _ask(self, method: str, path: str = "") -> Any:
        return self.kproxy.ask(method, f"/api/rules/{quote(self.name, safe='')}{path}")


def counters_of(rule: Mapping[str, Any]) -> Counters:
    return Counters(rule["matched"], rule["fired"], rule["applied"])


class Kproxy:
    """View of one test: its rules, which `close` removes, and the exchanges since it was made; a context manager."""

    def __init__(self, container: KproxyContainer) -> None:
        self.bootstrap_servers = container.bootstrap_servers
        self._admin_url, self._token = container.admin_url, container.token
        self._rules: list[Rule] = []
        self._place = self.ask("GET", "/api/exchanges?limit=1")["place"]

    def inject(self, rule: str | Mapping[str, Any]) -> Rule:
        """Apply a rule, as YAML or a mapping without a name, from the next frame of each connection on."""
        added = Rule(self, f"injected {uuid.uuid4().hex[:8]}")
        path = f"/api/rules/{quote(added.name)}?origin=test&ttl={RULE_TTL}"
        self.ask("POST", path, rule if isinstance(rule, str) else json.dumps(rule), yaml=isinstance(rule, str))
        self._rules.append(added)
        return added

    def assert_applied(self, *rules: Rule) -> None:
        """Assert that each of these rules, or each injected one, changed something that was sent."""
        checked = rules or tuple(self._rules)
        if not checked:
            raise AssertionError("expected an injected rule, got none")
        for rule in checked:
            if not (counters := rule.counters()).applied:
                raise AssertionError(f"rule {rule.name!r}: expected to be applied, got {counters}")

    def exchanges(self, filter: str = "") -> list[dict[str, Any]]:  # noqa: A002 -- the parameter of the API
        """Return the finished exchanges of the test that match, oldest first, with the columns of the live view.

        `filter` is in the language of `kproxy tail`, such as `~k produce ~t orders`.
        """
        found: list[dict[str, Any]] = []
        before = ""
        while True:
            page = self._page(filter=filter, limit=PAGE_SIZE, before=before)
            if page["gone"] != 0:
                kept = "the last 20,000, and at most 64 MiB"
                raise AssertionError(f"expected all exchanges of the test, got a part: kproxy keeps {kept}")
            found += (dict(zip(page["columns"], row, strict=True)) for row in page["rows"])
            before = page["next"]
            if before is None:
                return [one for one in reversed(found) if one["outcome"] is not None]

    def wait_for_exchanges(self, filter: str = "", count: int = 1, timeout: float = 30) -> list[dict[str, Any]]:  # noqa: A002
        """Return the same when `count` match. Raises AssertionError after `timeout` seconds, a minute at most."""
        wait = min(timeout, LONGEST_WAIT)
        if not self._page(filter=filter, limit=1, wait=f"{round(wait * 1000)}ms", count=count)["reached"]:
            raise AssertionError(f"{filter!r}: expected {count} exchanges in {wait:g} s, got fewer")
        return self.exchanges(filter)

    def _page(self, **query: Any) -> Any:
        return self.ask("GET", f"/api/exchanges?{urlencode({**query, 'after': self._place})}")

    def ask(self, method: str, path: str, body: str = "", *, yaml: bool = False) -> Any:
        """Return the JSON response of the admin API. Raises Refusal."""
        headers = {
            "Authorization": f"Bearer {self._token}",
            "Content-Type": "application/yaml" if yaml else "application/json",
        }
        data = body.encode() if method == "POST" else None
        request = urllib.request.Request(self._admin_url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=REQUEST_TIMEOUT) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            with error:
                raise Refusal(**json.load(error)["error"]) from None

    def close(self) -> None:
        """Remove the rules of the test."""
        while self._rules:
            self._rules.pop().remove()

    def __enter__(self) -> Kproxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
