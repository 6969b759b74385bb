"""Sockets, and how to wait for many of them: what a system has beyond what all have."""

from __future__ import annotations

import ctypes
import os
import select
import socket
from errno import EINPROGRESS, EWOULDBLOCK

HAS_EPOLL = hasattr(select, "epoll") and hasattr(ctypes.CDLL(None), "timerfd_create")
"""One set of descriptors tells which of them are ready, and a timer can be one of them."""
HAS_SPLICE = hasattr(os, "splice")
"""Bytes can go from socket to socket inside the kernel."""
HAS_MARK = hasattr(socket, "SO_MARK")
"""The firewall can tell kproxy's own connections from others."""
HAS_DIVERSION = hasattr(socket, "IP_TRANSPARENT")
"""The kernel can divert connections to kproxy, and says where they were to go."""
HAS_HAND_OVER = hasattr(socket, "MSG_CMSG_CLOEXEC")
"""A descriptor can be a message of its own to another process (SOCK_SEQPACKET, unix(7))."""
HAS_TCP_STATE = hasattr(socket, "TCP_INFO")
"""The kernel tells that the other end of a socket is closed, whatever lies unread."""
CONNECT_TELLS = HAS_EPOLL
"""A second `connect` of a socket that is connecting tells what came of it; elsewhere only its event does."""

NONBLOCK: int = getattr(socket, "SOCK_NONBLOCK", 0)
"""For the type of a socket that never blocks; 0: it has to be told so afterwards."""
UNIX = int(getattr(socket, "AF_UNIX", -1))
"""Family of sockets with a path; -1: there are none."""
KEEPIDLE: int = getattr(socket, "TCP_KEEPIDLE", getattr(socket, "TCP_KEEPALIVE", 0x10))
"""Option with the seconds of silence before the first question, which macOS gives another name."""
UNDER_WAY = (EINPROGRESS,) if os.name == "posix" else (EINPROGRESS, EWOULDBLOCK)
"""Error numbers of a `connect` that goes on; on POSIX EWOULDBLOCK is the refusal of a Unix socket."""
HAS_REUSE = os.name == "posix"
"""SO_REUSEADDR is about connections that are over; on Windows it would take ports from programs that listen."""
