"""Options of `kproxy replay`, and their values."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Literal

import click

from kproxy.named_file import reason, text_named
from kproxy.replay.compare import IgnoredFields
from kproxy.replay.player import PATIENCE, Pace
from kproxy.rules.document.address import Address, parse_target

LONGEST_PASSWORD = 65_536
"""Bytes that a file with a password has at most."""


@dataclass(frozen=True)
class Options:
    """Options of one replay, as texts of the command line. The methods read them, and raise BadParameter or NoSuchGroup
    for wrong ones."""

    to: str | None
    serve: str | None
    speed: str
    order: Literal["all", "connection"]
    patience: float | None
    ignore: tuple[str, ...]
    compare: tuple[str, ...]
    fail_on_difference: bool
    sasl_plain: str | None
    tls: bool
    tls_ca: str | None
    side: Literal["client", "broker"]
    dry_run: bool
    yes: bool
    output: str

    def normal(self) -> IgnoredFields:
        return IgnoredFields(self.ignore, self.compare)

    def pace(self) -> Pace:
        try:
            factor = None if self.speed == "max" else float(self.speed)
        except ValueError:
            factor = -1.0
        if factor is not None and not 0 < factor < float("inf"):
            problem = f'"{self.speed}" is no speed, a number above 0 or max is wanted'
            raise click.BadParameter(problem, param_hint="--speed")
        return Pace(factor, self.order, self.patience or PATIENCE)

    def target(self) -> Address:
        return address("--to", self.to or "")

    def place(self) -> Address:
        return address("--serve", self.serve or "")

    def user(self) -> tuple[str, str] | None:
        """Return the user and password of --sasl-plain, whose file is read; None without that option."""
        if self.sasl_plain is None:
            return None
        user, _, file = self.sasl_plain.partition(":")
        if not user or not file:
            raise click.BadParameter("write USER:FILE, where FILE holds the password", param_hint="--sasl-plain")
        try:
            return user, text_named(file, LONGEST_PASSWORD).rstrip("\r\n")
        except OSError as error:
            problem = f"{file}: {reason(error)}"
            raise click.BadParameter(problem, param_hint="--sasl-plain") from None

    def tls_context(self) -> ssl.SSLContext | None:
        """Return a TLS context with the system's authorities, or those in a file; None for plain text."""
        if not self.tls and self.tls_ca is None:
            return None
        try:
            return ssl.create_default_context(cafile=self.tls_ca)
        except ssl.SSLError as error:
            raise click.BadParameter(f"{self.tls_ca}: {error.reason}", param_hint="--tls-ca") from None


def address(option: str, text: str) -> Address:
    try:
        return parse_target(text) if option == "--to" else Address.parse(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=option) from None


def is_loopback(host: str) -> bool:
    """Return True for localhost and loopback IPs; any other name may lead to another machine."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
