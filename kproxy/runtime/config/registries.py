"""Schema registries in the config: `registries: {main: {url: "https://schemas.example:8081"}}`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from kproxy.record.otlp.config import parse_url
from kproxy.rules.values.model import Model, ValidWords, Wrong
from kproxy.rules.values.tls import Secret, UpstreamTls

from .network import Name, PositiveSeconds


def _url(text: str) -> str:
    parse_url(text, "http://HOST:PORT or https://HOST:PORT", "`username` and `password`")
    return text


class RegistryConfig(Model):
    """Schema registry with Confluent's REST API."""

    url: Annotated[str, AfterValidator(_url)] = Field(
        description="base address, such as https://schemas:8081; Apicurio: with the path /apis/ccompat/v7"
    )
    clusters: list[Name] = Field(
        default_factory=list,
        description="clusters whose records have ids of this registry; required with several registries (default: all)",
    )
    username: str | None = Field(default=None, min_length=1, description="user name (basic authentication)")
    password: Secret | None = Field(default=None, description="password of the user")
    tls: UpstreamTls | None = Field(default=None, description="TLS settings of an https:// URL")
    timeout: PositiveSeconds = Field(default=2.0, description="time of one request, with connecting and its response")
    cache: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        default=10_000, description="schemas in memory per worker process; together they have at most 64 MiB"
    )
    id_bytes: Literal[4, 8] = Field(
        default=4, description="bytes of the id in front of a value: 4 (Confluent) or 8 (Apicurio)"
    )

    @classmethod
    def cross_check(cls, raw: dict[Any, Any]) -> Iterable[Wrong]:
        """Check that user name and password are set together, and that only an https:// URL has TLS settings."""
        username, url = raw.get("username"), raw.get("url")
        if (username is None) != (raw.get("password") is None):
            missing = "password" if username is not None else "username"
            yield (), f"expected username and password, got no {missing}"
        if isinstance(username, str) and ":" in username:
            yield ("username",), "expected a user name without a colon"
        if isinstance(url, str) and url.startswith("http://") and raw.get("tls") is not None:
            yield ("tls",), "the URL begins with http://, which has no TLS"


def registry_mistakes(raw: Any, clusters: Any) -> Iterator[Wrong]:
    """Yield registries with unknown clusters, without clusters among several registries, and with a cluster of another
    registry. `raw`: the part of the document."""
    if not isinstance(raw, dict) or not isinstance(clusters, dict):
        return
    known, taken = ValidWords("cluster", map(str, clusters)), dict[str, str]()
    for name, one in raw.items():
        named = one.get("clusters") if isinstance(one, dict) else None
        if isinstance(one, dict) and not named and len(raw) > 1:
            yield ("registries", name), "expected clusters, as ids of several registries overlap"
        for index, cluster in enumerate(named if isinstance(named, list) else ()):
            where = ("registries", name, "clusters", index)
            if isinstance(cluster, str) and cluster not in clusters:
                yield where, known.unknown(cluster)
            elif taken.setdefault(str(cluster), name) != name:
                yield where, f"expected one registry of a cluster, got {taken[str(cluster)]} and {name}"
