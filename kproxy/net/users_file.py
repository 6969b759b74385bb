"""File of a listener's users, read again when it has changed."""

from __future__ import annotations

from pathlib import Path

from structlog.typing import FilteringBoundLogger

from kproxy.errors import WeDidWrong
from kproxy.sasl.server import Work
from kproxy.sasl.users import Users
from kproxy.sasl_config import users_in


class UsersFile:
    """Users of a listener, called for each authentication: a look at the file's time is cheap beside it. Raises
    WeDidWrong when made."""

    def __init__(self, path: str, log: FilteringBoundLogger) -> None:
        self.path, self.log = Path(path), log
        self.stamp = self.look()
        try:
            self.users = users_in(self.path)
        except ValueError as error:
            raise WeDidWrong(str(error)) from None

    def look(self) -> tuple[int, int, int] | None:
        try:
            stat = self.path.stat()
        except OSError:
            return None
        return stat.st_mtime_ns, stat.st_size, stat.st_ino

    def __call__(self) -> Users | Work:
        """Return the users, or, where the file has changed, how they are read: a large file takes a second."""
        return self.users if self.look() == self.stamp else Work(self.read)

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
