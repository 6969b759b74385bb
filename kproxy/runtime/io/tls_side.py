"""Side whose socket speaks TLS: the same as `Side`, three differences apart.

"not now" comes as SSLWantReadError and SSLWantWriteError, which are OSErrors but no BlockingIOErrors
OpenSSL may hold bytes that epoll does not see: they must be read before the side goes back to waiting
what is read comes in records of 16 KiB at most: several are gathered, so that session and peer see one piece
"""

from __future__ import annotations

import socket
import ssl
from contextlib import suppress
from errno import ECONNRESET
from functools import partial
from typing import Any, cast

from .reactor import IN, OUT
from .side import TLS_WRITE, VIEW, Side
from .tls import reason
from .turns import BUFFER

RECORD = 16384  # RFC 8446 §5.1: the longest plain text of a record
ROOM = len(BUFFER) - RECORD
MOST_RECORDS = 64
"""Records that are read in one go: each costs as much as its bytes are few, and a peer may send one byte in each."""
MOST_SKIPPED = 15
"""Looks for more behind a short record that are left out at most, after several in vain."""


class TlsSide(Side):
    """Side on an `ssl.SSLSocket` whose handshake is done."""

    plain = False

    skipped = to_skip = 0
    """Looks for more behind a short record: how many were last left out at once, how many are yet to be left out."""

    def open(self, sock: socket.SocketType) -> None:
        tls = cast("ssl.SSLSocket", sock)
        self.tls_recv: Any = tls.recv_into
        self.tls_send: Any = tls.send
        self.recv, self.send = self.read_records, self.send_tls
        if tls.pending():
            self.conn.reactor.soon(self.again)

    def read_records(self, buffer: bytearray | memoryview) -> int:
        """Read as many records as are here and fit. After it, epoll sees what is left, or `again` is set.

        Whether more is behind a short record only another read can tell. Without it, records that wait would be passed
        on one by one, and whoever reads them next would see as many short ones. A client that sends one request at a
        time never has more: the looks are left out for longer and longer while they find nothing.
        """
        n: int = 0
        records = 0
        try:
            while True:
                got = self.tls_recv(VIEW[n:])
                if not got:
                    break
                n += got
                records += 1
                if n > ROOM or records == MOST_RECORDS:
                    return n
                if got < RECORD and self.to_skip and not self.held():
                    self.to_skip -= 1
                    return n
        except ssl.SSLWantReadError:
            if not n:
                raise BlockingIOError from None
            self.to_skip = self.skipped = 0 if records > 1 else min(2 * self.skipped + 1, MOST_SKIPPED)
            return n
        except ssl.SSLWantWriteError:  # a key update wants to be answered first (RFC 8446 §4.6.3)
            self.mute(TLS_WRITE)
            self.want((self.mask | OUT) & ~IN)
            if not n:
                raise BlockingIOError from None
            return n
        except (OSError, ValueError) as error:
            if not n:
                raise clear(error) from None
        if n:  # the end, or an error, lies behind what was read; epoll need not see it
            self.conn.reactor.soon(self.again)
        return n

    def send_tls(self, data: bytes | memoryview) -> int:
        try:
            return cast("int", self.tls_send(data))
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
            raise BlockingIOError from None
        except (OSError, ValueError) as error:
            raise self.alert() or clear(error) from None

    def alert(self) -> OSError | None:
        """Return why the other end is gone, if it has said so: its alert lies unread when writing fails."""
        try:
            self.tls_recv(bytearray(1))
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
            return None
        except ssl.SSLError as error:
            return clear(error)
        except (OSError, ValueError):
            return None
        return None

    def held(self) -> int:
        """Return the number of bytes that OpenSSL has decrypted and nobody has read."""
        return cast("ssl.SSLSocket", self.sock).pending() if self.sock is not None else 0

    def handle_event(self, mask: int) -> None:
        if mask & OUT and self.muted & TLS_WRITE:
            self.muted &= ~TLS_WRITE
            self.want(self.mask | IN)
            mask |= IN
        super().handle_event(mask)

    def unmute(self, reason: int) -> None:
        super().unmute(reason)
        if not self.muted and self.held():
            self.conn.reactor.soon(self.again)

    def yield_to_others(self) -> None:
        if self.held():
            self.conn.reactor.soon(self.again)

    def again(self) -> None:
        """Read what OpenSSL holds, in a turn of its own."""
        if self.sock is not None and not self.muted and not self.conn.frozen:
            self.ready(IN)

    def over(self) -> None:
        super().over()
        if self.held():
            self.conn.reactor.soon(self.again)

    def shut(self) -> None:
        """Say nothing: OpenSSL would lose what comes after its own close_notify. The other end sees it when all is
        done.

        Where nothing is to be read any more either, there is `half_close`.
        """

    def half_close(self) -> None:
        """Send close_notify and FIN; what still comes is read as bytes, undeciphered."""
        sock = self.sock
        if sock is None:
            return
        self.say_goodbye()
        with suppress(OSError):
            socket.socket.shutdown(sock, socket.SHUT_WR)  # SSLSocket's own would forget the TLS state
        self.recv = partial(socket.socket.recv_into, sock)

    def drain_unread(self) -> None:
        """Read nothing: close_notify comes with `drop`."""

    def drop(self, reset: bool = False) -> None:
        if not reset:
            self.say_goodbye()
        super().drop(reset)
        self.tls_recv = self.tls_send = None

    def say_goodbye(self) -> None:
        with suppress(OSError, ValueError):
            if self.sock is not None:
                cast("ssl.SSLSocket", self.sock).unwrap()  # sends close_notify, and need not wait for the answer


def clear(error: Exception) -> OSError:
    """Return the same error, in OpenSSL's case with the words that help only: `tlsv13 alert certificate required`."""
    if isinstance(error, OSError) and not isinstance(error, ssl.SSLError):
        return error
    return ConnectionResetError(ECONNRESET, reason(error))
