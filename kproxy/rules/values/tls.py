r"""Names that clients' certificates give them, by rules in the notation of Kafka's `ssl.principal.mapping.rules`.

    RULE:^CN=([^,]+),OU=Services.*$/$1/L    the whole subject must match; $1 … are its groups; L or U: lower, upper case
    DEFAULT                                 the subject as it is

The first that matches gives the name (KIP-371). Patterns are RE2's, which know no look-around; in pattern and
replacement `\\/` is a slash.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, ValidationInfo

from kproxy.base.named_file import PathGuard, not_for_headers, read_named, reason
from kproxy.rules.values.model import Model, Wrong

DEFAULT: Final = "DEFAULT"
MOST_MEMORY: Final = 1 << 20
"""Bytes that a pattern may take; those of names take some kB."""

_RULE = re.compile(r"RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)")
_GROUP = re.compile(r"\$([0-9])")
_CASES: dict[str, Callable[[str], str]] = {"": str, "L": str.lower, "U": str.upper}


class PrincipalRules:
    """Rules of one listener, parsed from text, in order. Raises ValueError."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.rules = [(text, None if text == DEFAULT else PrincipalRule(text)) for text in texts]

    def name(self, subject: str) -> str | None:
        """Return the name of the client with this subject; None: no rule matches."""
        for _, rule in self.rules:
            name = subject if rule is None else rule.name(subject)
            if name is not None:
                return name
        return None


class PrincipalRule:
    """Rule that makes a name from the subjects that match its pattern."""

    def __init__(self, text: str) -> None:
        import re2  # 10 ms, and most listeners have no pattern

        match = _RULE.fullmatch(text)
        if match is None:
            raise ValueError(f'expected RULE:pattern/replacement/ (with L or U at the end) or DEFAULT, got "{text}"')
        options = re2.Options()
        options.log_errors, options.max_mem = False, MOST_MEMORY
        try:
            self.pattern: Any = re2.compile(match[1].replace("\\/", "/"), options=options)
        except re2.error as error:
            problem = error.args[0]
            reason = problem.decode(errors="replace") if isinstance(problem, bytes) else str(problem)
            raise ValueError(f'the pattern of "{text}" cannot be read: {reason}') from None
        self.replacement, self.case = match[2].replace("\\/", "/"), _CASES[match[3]]
        for number in map(int, _GROUP.findall(self.replacement)):
            if number > self.pattern.groups:
                raise ValueError(f'"{text}" has ${number}, and its pattern has {self.pattern.groups} groups')

    def name(self, subject: str) -> str | None:
        match = self.pattern.fullmatch(subject)
        if match is None:
            return None
        return self.case(_GROUP.sub(lambda group: match[int(group[1])] or "", self.replacement))


MAX_SECRET = 64 * 1024
"""Maximum bytes of a secret's file. A larger file is a wrong file."""
MOST_FILE = 16 << 20
"""Bytes that any other file named in a setting has at most: certificates of all authorities have some 300 kB."""


class FileContext(NamedTuple):
    """Context of a document that is validated. `folder`: relative file names start there. `guard`: checks the file
    names of a document over the admin API; None for a document that is a file."""

    folder: Path = Path()
    guard: PathGuard | None = None


def files_of(info: ValidationInfo) -> FileContext:
    return info.context if isinstance(info.context, FileContext) else FileContext()


def _resolve(value: Any, info: ValidationInfo) -> Any:
    """Return a text as a path. Raises ValueError for an empty text, one with a NUL, and one that the guard refuses."""
    if isinstance(value, str) and value:
        if "\0" in value:
            raise ValueError(f"a file name cannot hold the character 0: {value!r}")
        files = files_of(info)
        if files.guard is not None:
            try:
                files.guard.check_name(files.folder / value)
            except OSError as error:
                raise ValueError(reason(error)) from None
        return str(files.folder / value)
    if value == "":
        raise ValueError("expected a file name, got nothing")
    return value


def _existing(value: Any, info: ValidationInfo) -> Any:
    path = _resolve(value, info)
    if isinstance(path, str):
        try:
            read_named(path, MOST_FILE, files_of(info).guard)
        except OSError as error:
            raise ValueError(f'the file "{path}" cannot be read: {reason(error)}') from None
    return path


def _secret(value: Any, info: ValidationInfo) -> Any:
    if isinstance(value, SecretStr):
        return value
    if not isinstance(value, str):
        raise ValueError("a secret is text, ${VARIABLE} or file:NAME; numbers must be quoted")
    if value.startswith("file:"):
        value = _read_secret(value.removeprefix("file:"), files_of(info))
    if not value:
        raise ValueError("the secret is empty")
    return SecretStr(value)


def _secret_file(value: Any, info: ValidationInfo) -> Any:
    if isinstance(value, str) and value and not value.startswith("file:"):
        value = f"file:{value}"
    return _secret(value, info)


def _read_secret(name: str, files: FileContext) -> str:
    """Return the content of a secret's file. Raises ValueError."""
    path = files.folder / name
    # Over the admin API a name may be the value of a variable, which no message repeats.
    named = f'the secret\'s file "{path}"' if files.guard is None else "the secret's file"
    try:
        data = read_named(path, MAX_SECRET, files.guard)
    except OSError as error:
        raise ValueError(f"{named} cannot be read: {reason(error)}") from None
    try:
        return data.decode("utf-8-sig").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise ValueError(f"{named} is not UTF-8 text") from None


def _header_secret(secret: SecretStr) -> SecretStr:
    problem = not_for_headers(secret.get_secret_value())
    if problem is not None:
        raise ValueError(problem)
    return secret


FileName = Annotated[str, BeforeValidator(_resolve, json_schema_input_type=str)]
"""A path as text, absolute or relative to the process; it need not exist."""
ExistingFile = Annotated[str, BeforeValidator(_existing, json_schema_input_type=str)]
"""A path as text of a file that exists and can be read when the config is."""
Secret = Annotated[SecretStr, BeforeValidator(_secret, json_schema_input_type=str)]
"""A secret, which is never shown: not in errors, logs or `repr`."""
SecretFile = Annotated[SecretStr, BeforeValidator(_secret_file, json_schema_input_type=str)]
"""A secret in a file, absolute or relative to the document's folder."""
HeaderSecret = Annotated[Secret, AfterValidator(_header_secret)]
"""A secret in an HTTP header of a client or of kproxy."""
HeaderSecretFile = Annotated[SecretFile, AfterValidator(_header_secret)]
"""A secret for an HTTP header, in a file."""
TlsVersion = Annotated[Literal["1.2", "1.3"], BeforeValidator(str)]
"""TLS version. `1.2` without quotes is a number in YAML and is accepted."""


def _ciphers(text: str) -> str:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).set_ciphers(text)
    except ssl.SSLError:
        raise ValueError(f'OpenSSL knows no cipher of "{text}"') from None
    return text


def _principal_rules(texts: Sequence[str]) -> Sequence[str]:
    PrincipalRules(texts)
    return texts


Ciphers = Annotated[str, AfterValidator(_ciphers)]
"""Cipher list in OpenSSL's form, with at least one known cipher."""


def _key_without_cert(raw: dict[Any, Any]) -> Iterable[Wrong]:
    for name in ("key", "key_password"):
        if raw.get(name) is not None and raw.get("cert") is None:
            yield (name,), f'"{name}" is given without "cert"'


class ListenerTls(Model):
    """TLS towards clients. Changed PEM files are read again at the next handshake."""

    cert: ExistingFile = Field(description="certificate chain of this listener, PEM")
    key: ExistingFile | None = Field(default=None, description="private key, PEM (default: in the file of cert)")
    key_password: Secret | None = Field(default=None, description="password of the private key")
    client_ca: ExistingFile | None = Field(
        default=None, description="CA certificates that verify client certificates, PEM"
    )
    client_auth: Literal["none", "optional", "required"] | None = Field(
        default=None,
        description="client certificates (default: required with client_ca, otherwise none)",
    )
    principals: Annotated[list[str], AfterValidator(_principal_rules)] = Field(
        default_factory=list,
        description="mapping of subjects to principals, as in ssl.principal.mapping.rules (default: subject)",
    )
    min_version: TlsVersion = Field(default="1.2", description="minimum TLS version")
    ciphers: Ciphers | None = Field(
        default=None,
        description="OpenSSL cipher list for TLS 1.2, such as ECDHE+AESGCM; ciphers of TLS 1.3 are fixed",
    )

    @classmethod
    def cross_check(cls, raw: dict[Any, Any]) -> Iterable[Wrong]:
        """Check that there are authorities where certificates are asked for, and nowhere else."""
        auth = raw.get("client_auth")
        if auth in ("optional", "required") and raw.get("client_ca") is None:
            yield ("client_auth",), f'client_auth {auth} needs "client_ca" to check certificates with'
        if raw.get("principals") and raw.get("client_ca") is None:
            yield ("principals",), 'principals need "client_ca": without it no client shows a certificate'
        if auth == "none" and raw.get("client_ca") is not None:
            yield ("client_ca",), '"client_ca" is never used with client_auth none'

    @property
    def verify_clients(self) -> Literal["none", "optional", "required"]:
        """Return `client_auth`, or its default: required with a `client_ca`, otherwise none."""
        return self.client_auth or ("required" if self.client_ca else "none")


class UpstreamTls(Model):
    """TLS towards brokers. With nothing set: the system's authorities, and host names are checked."""

    ca: ExistingFile | None = Field(
        default=None, description="CA certificates that verify brokers, PEM (default: the system's)"
    )
    cert: ExistingFile | None = Field(
        default=None, description="kproxy's client certificate for brokers that request one, PEM"
    )
    key: ExistingFile | None = Field(default=None, description="private key, PEM (default: in the file of cert)")
    key_password: Secret | None = Field(default=None, description="password of the private key")
    server_name: str | None = Field(
        default=None,
        min_length=1,
        description="server name (SNI) to send and verify instead of each broker's host name",
    )
    verify: bool = Field(default=True, description="false: accept any certificate, for tests only")
    min_version: TlsVersion = Field(default="1.2", description="minimum TLS version")
    ciphers: Ciphers | None = Field(
        default=None,
        description="OpenSSL cipher list for TLS 1.2, such as ECDHE+AESGCM; ciphers of TLS 1.3 are fixed",
    )

    @classmethod
    def cross_check(cls, raw: dict[Any, Any]) -> Iterable[Wrong]:
        """Check that a key has a certificate, and that authorities are given only if brokers are verified."""
        yield from _key_without_cert(raw)
        if raw.get("verify") is False and raw.get("ca") is not None:
            yield ("ca",), '"ca" is never used with verify false'
