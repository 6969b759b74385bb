"""Peers that vanish without a word, as when a machine loses its power or its network.

Strategy: a socket filter (classic BPF, socket(7)) that throws away every packet that arrives. The kernel of the peer
then answers nothing, neither data nor keep-alive questions, and it needs no privileges and no network of its own.
"""

from __future__ import annotations

import ctypes
import socket
import struct

SO_ATTACH_FILTER = 26  # asm-generic/socket.h
DROP_ALL = struct.pack("HBBI", 0x06, 0, 0, 0)  # BPF_RET | BPF_K with 0: keep no byte of the packet


def vanish(sock: socket.socket) -> None:
    """Attach a filter to the socket: from now on it gets no packet, and its peer gets no reply."""
    program = ctypes.create_string_buffer(DROP_ALL)
    sock.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HL", 1, ctypes.addressof(program)))
