"""Authentication of a listener's clients, made from its settings."""

from __future__ import annotations

from secrets import token_bytes, token_hex

from structlog.typing import FilteringBoundLogger

from kproxy.config import ListenerConfig
from kproxy.core.sasl_server import Terms
from kproxy.errors import WeDidWrong
from kproxy.sasl.server import Checker
from kproxy.sasl_config import ListenerSasl

from .login import NONCE
from .users_file import UsersFile

KEY = 32
"""Bytes of the process' own key."""


def terms_of(listener: ListenerConfig, config: ListenerSasl, log: FilteringBoundLogger, patience: float = 0.0) -> Terms:
    """Make the terms of authentication. `patience`: seconds that a client has to authenticate in, 0: any. Raises
    WeDidWrong when no users can be read."""
    try:
        users = UsersFile(config.users, log)
    except WeDidWrong as error:
        raise WeDidWrong(f"listener {listener.name}, {listener.bind}: {error}") from error
    checker = Checker(users, token_bytes(KEY), lambda: token_hex(NONCE))
    return Terms(tuple(config.mechanisms), checker, config.max_session, config.failure_delay, patience)
