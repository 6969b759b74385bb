"""Authentication of a listener's clients: its terms, made from its settings, and the file of its users."""

from __future__ import annotations

from pathlib import Path
from secrets import token_bytes, token_hex

from structlog.typing import FilteringBoundLogger

from kproxy.config.document import ListenerConfig
from kproxy.config.sasl import ListenerSasl, users_in
from kproxy.core.sasl.server import Terms
from kproxy.errors import InternalError
from kproxy.net.dial.own_connection import NONCE
from kproxy.sasl.server import Checker, LoginWork
from kproxy.sasl.users import Users

KEY = 32
"""Bytes of the process' own key."""


def terms_of(listener: ListenerConfig, config: ListenerSasl, log: FilteringBoundLogger, patience: float = 0.0) -> Terms:
    """Make the terms of authentication. `patience`: seconds that a client has to authenticate in, 0: any. Raises
    InternalError when no users can be read."""
    try:
        users = UsersFile(config.users, log)
    except InternalError as error:
        raise InternalError(f"listener {listener.name}, {listener.bind}: {error}") from error
    checker = Checker(users, token_bytes(KEY), lambda: token_hex(NONCE))
    return Terms(tuple(config.mechanisms), checker, config.max_session, config.failure_delay, patience)


class UsersFile:
    """Users of a listener, called for each authentication: a look at the file's time is cheap beside it. Raises
    InternalError when made."""

    def __init__(self, path: str, log: FilteringBoundLogger) -> None:
        self.path, self.log = Path(path), log
        self.stamp = self.look()
        try:
            self.users = users_in(self.path)
        except ValueError as error:
            raise InternalError(str(error)) from None

    def look(self) -> tuple[int, int, int] | None:
        try:
            stat = self.path.stat()
        except OSError:
            return None
        return stat.st_mtime_ns, stat.st_size, stat.st_ino

    def __call__(self) -> Users | LoginWork:
        """Return the users, or, where the file has changed, how they are read: a large file takes a second."""
        return self.users if self.look() == self.stamp else LoginWork(self.read)

    def read(self) -> Users:
        """Read the file again unless somebody else has just done that. To be called in a thread, one call at a time."""
        stamp = self.look()
        if stamp != self.stamp:
            try:
                self.users = users_in(self.path)
                self.log.info("users read again", file=str(self.path), users=len(self.users.names))
            except ValueError as error:
                self.log.error("users changed and cannot be used, the old ones stay", error=str(error))
            self.stamp = stamp
        return self.users
