"""SASL settings: what kproxy logs in to brokers with."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from pydantic import Field

from kproxy.rules.explain import Model, Wrong
from kproxy.sasl.client import is_extension
from kproxy.tls_config import ExistingFile, Secret

Scram = Literal["SCRAM-SHA-256", "SCRAM-SHA-512"]
Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
OAUTH = "OAUTHBEARER"


class UpstreamSasl(Model):
    """kproxy's own login at the brokers, in place of the clients'."""

    mechanism: Mechanism = Field(description="how the brokers want it")
    username: str | None = Field(default=None, min_length=1, description="who kproxy is to the brokers")
    password: Secret | None = Field(default=None, description="better as ${VARIABLE} or file:NAME")
    token_file: ExistingFile | None = Field(
        default=None, description="for OAUTHBEARER: a file with a token, read anew at each login; blanks around it go"
    )
    extensions: dict[str, str] = Field(
        default_factory=dict, description="for OAUTHBEARER: extensions (KIP-342), such as logicalCluster"
    )

    @classmethod
    def cross_check(cls, raw: dict[Any, Any]) -> Iterable[Wrong]:
        """Each mechanism wants its own."""
        mechanism = raw.get("mechanism")
        if not isinstance(mechanism, str):
            return
        bearer = mechanism == OAUTH
        wanted, foreign = (("token_file",), ("username", "password")) if bearer else (("username", "password"), ())
        for name in wanted:
            if raw.get(name) is None:
                yield ("mechanism",), f'{mechanism} needs "{name}"'
        for name in (*foreign, *(() if bearer else ("token_file", "extensions"))):
            if raw.get(name):
                yield (name,), f'"{name}" is never used with {mechanism}'
        for name, value in (raw.get("extensions") or {}).items() if isinstance(raw.get("extensions"), dict) else ():
            if bearer and not is_extension(str(name), str(value)):
                yield ("extensions", name), f'"{name}" is no extension: its name has letters only and is not auth'
