"""Differences of sockets between Linux, macOS and Windows. Not in system.py: pure code must not import `socket`.

Each feature is detected by its presence, never by the system's name.
"""

from __future__ import annotations

import ctypes
import os
import select
import socket
from errno import EINPROGRESS, EWOULDBLOCK

HAS_EPOLL = hasattr(select, "epoll") and hasattr(ctypes.CDLL(None), "timerfd_create")
HAS_SPLICE = hasattr(os, "splice")  # from socket to socket inside the kernel
HAS_MARK = hasattr(socket, "SO_MARK")  # firewall rules match kproxy's own connections by it
HAS_DIVERSION = hasattr(socket, "IP_TRANSPARENT")  # the kernel keeps the original destination
HAS_HAND_OVER = hasattr(socket, "MSG_CMSG_CLOEXEC")  # descriptors in SOCK_SEQPACKET messages (unix(7))
HAS_TCP_STATE = hasattr(socket, "TCP_INFO")  # shows a closed peer even with unread bytes
CONNECT_TELLS = HAS_EPOLL
"""A second `connect` of a connecting socket reports the result; elsewhere only its event does."""

NONBLOCK: int = getattr(socket, "SOCK_NONBLOCK", 0)  # bit of the socket type; 0: call setblocking(False)
UNIX = int(getattr(socket, "AF_UNIX", -1))  # address family
KEEPIDLE: int = getattr(socket, "TCP_KEEPIDLE", getattr(socket, "TCP_KEEPALIVE", 0x10))
"""Option with the idle seconds before the first keepalive probe; macOS has another name for it."""
UNDER_WAY = (EINPROGRESS,) if os.name == "posix" else (EINPROGRESS, EWOULDBLOCK)
"""Error numbers of a pending `connect`. On POSIX, EWOULDBLOCK is the refusal of a Unix socket."""
HAS_REUSE = os.name == "posix"
"""SO_REUSEADDR concerns closed connections. On Windows it would take ports from listening programs."""
