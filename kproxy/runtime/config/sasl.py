"""SASL settings: kproxy's own login at the brokers, and the clients that may log in to kproxy."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationInfo

from kproxy.base.named_file import PathGuard, read_named, reason
from kproxy.protocol.sasl.mechanisms import is_extension
from kproxy.protocol.sasl.scram import Users, read_users
from kproxy.rules.values.model import Model, Wrong
from kproxy.rules.values.quantities import Seconds
from kproxy.rules.values.tls import ExistingFile, Secret, files_of

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
        """Check that each setting that the mechanism needs is given, and no other."""
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


LARGEST = 16 << 20
"""Bytes that a file of users has at most; some hundred thousand lines."""


def users_in(path: Path, guard: PathGuard | None = None) -> Users:
    """Return the users of a file. Raises ValueError with the numbers of its wrong lines, and without their text."""
    try:
        return read_users(read_named(path, LARGEST, guard).decode())
    except OSError as error:
        raise ValueError(f'the file of users "{path}" cannot be read: {reason(error)}') from None
    except UnicodeDecodeError:
        raise ValueError(f'the file of users "{path}" is not UTF-8 text') from None
    except ValueError as error:
        raise ValueError(f'the file of users "{path}": {error}') from None


def _with_users(path: str, info: ValidationInfo) -> str:
    users_in(Path(path), files_of(info).guard)
    return path


class ListenerSasl(Model):
    """Login of clients to kproxy, of which the brokers see nothing."""

    users: Annotated[ExistingFile, AfterValidator(_with_users)] = Field(
        description="file of users, made by `kproxy user`; read anew at the next login after it changed"
    )
    mechanisms: list[Literal["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"]] = Field(
        default=["SCRAM-SHA-256", "SCRAM-SHA-512"],
        min_length=1,
        description="what clients may use; PLAIN shows kproxy the password, and all who listen if there is no TLS",
    )
    max_session: Seconds = Field(
        default=0.0,
        description="a client has to log in again within this time (KIP-368), on the open connection; 0: never",
    )
    failure_delay: Annotated[Seconds, Field(le=30)] = Field(
        default=0.1,
        description="what a wrong password takes at least, so that guessing takes long; Kafka's default, too",
    )
