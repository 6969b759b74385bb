"""Schema registries of commands that read files. Lookups block, as nothing else waits."""

from __future__ import annotations

from base64 import b64encode
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

from kproxy.base.terminal import say
from kproxy.rules.content.schemas import SchemaCache, SchemaKey

if TYPE_CHECKING:
    from kproxy.rules.content.lookups import LookupResult
    from kproxy.runtime.config.registries import RegistryConfig


class FileRegistries:
    """Registries of a config document; none without one. Raises DocumentError."""

    def __init__(self, config: str | None) -> None:
        self.registries: dict[str, tuple[RegistryConfig, SchemaCache]] = {}
        self.problems: dict[str, tuple[str, int]] = {}
        if config is None:
            return
        from kproxy.app.config.document import load_config  # only commands with --config need it

        for name, one in load_config(config).registries.items():
            self.registries[name] = one, SchemaCache(monotonic, one.cache, one.id_bytes, partial(self.fetch, name))

    def cache(self, cluster: str | None) -> SchemaCache | None:
        """Return the schemas of a cluster's registry; None if it has none. A capture without the name of its cluster
        uses the only registry."""
        for config, cache in self.registries.values():
            if not config.clusters or cluster in config.clusters or (cluster is None and len(self.registries) == 1):
                return cache
        return None

    def fetch(self, name: str, key: SchemaKey) -> None:
        """Look up a key. A registry that does not respond is not asked again for that key."""
        result = self.result(self.registries[name][0], key)
        self.registries[name][1].put(key, result.found)
        if result.outcome not in ("ok", "not_found"):
            self.problems[name] = result.problem, self.problems.get(name, ("", 0))[1] + 1

    @staticmethod
    def result(config: RegistryConfig, key: SchemaKey) -> LookupResult:
        from kproxy.record.otlp.config import parse_url
        from kproxy.record.otlp.export import HttpSender, HttpTarget, Undelivered
        from kproxy.rules.content.lookups import ACCEPT, MOST_BODY, LookupResult, Response, look_up

        address = parse_url(config.url, "", "")
        headers, tls = [("accept", ACCEPT), ("user-agent", "kproxy")], None
        if config.username is not None and config.password is not None:
            user = f"{config.username}:{config.password.get_secret_value()}"
            headers.append(("authorization", f"Basic {b64encode(user.encode()).decode()}"))
        if address.tls:
            import structlog

            from kproxy.rules.values.tls import UpstreamTls
            from kproxy.runtime.io.tls import upstream_files

            tls = upstream_files(config.tls or UpstreamTls(), structlog.get_logger()).get
        server_name = None if config.tls is None else config.tls.server_name
        sender = HttpSender(HttpTarget(address.host, address.port, address.prefix, headers, tls, server_name,
                                       config.timeout))  # fmt: skip
        requests = look_up(key)
        try:
            path = next(requests)
            while True:
                answer = sender.get(path, MOST_BODY)
                path = requests.send(Response(answer.status, answer.body))
        except StopIteration as end:
            found: LookupResult = end.value
            return found
        except Undelivered as error:
            return LookupResult("unreachable", problem=str(error))
        finally:
            sender.close()

    def tell(self) -> None:
        """Print to standard error the number of failed lookups of each registry, with the last reason."""
        for name, (reason, count) in self.problems.items():
            say(f"kproxy: {count} lookups in registry {name} failed, the last: {reason}", err=True)
