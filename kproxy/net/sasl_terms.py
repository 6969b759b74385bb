"""What a listener's clients authenticate by, made from its settings."""

from __future__ import annotations

from secrets import token_bytes, token_hex

from structlog.typing import FilteringBoundLogger

from kproxy.core.sasl_server import Terms
from kproxy.sasl.server import Checker
from kproxy.sasl_config import ListenerSasl

from .login import NONCE
from .users_file import UsersFile

KEY = 32
"""Bytes of the process' own key."""


def terms_of(config: ListenerSasl, log: FilteringBoundLogger, patience: float = 0.0) -> Terms:
    """`patience`: seconds that a client has to authenticate in, 0: any. Raises WeDidWrong when there are no users to be
    read."""
    checker = Checker(UsersFile(config.users, log), token_bytes(KEY), lambda: token_hex(NONCE))
    return Terms(tuple(config.mechanisms), checker, config.max_session, config.failure_delay, patience)
