"""A program for `kproxy explore -- python stays.py`: it fails at the first fault that it meets, and at the next one it
hangs, with a daemon beside it; once there is a file `again` it fails at each. It has no client library, so that it
begins in milliseconds."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

METADATA = bytes.fromhex("0000000f 0003 0000 00000001 0001 78 00000000")
"""A request for all topics, version 0, of the client `x`."""
BOOTSTRAP = os.environ["KPROXY_BOOTSTRAP"]


def answered() -> bool:
    """Return True if a request gets an answer."""
    host, _, port = BOOTSTRAP.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), 20) as stream:
            stream.sendall(METADATA)
            return bool(stream.recv(4))
    except OSError:
        return False


def stay() -> None:
    """Start a daemon, tell where kproxy is, and hang."""
    subprocess.Popen(["setsid", "sh", "-c", "sleep 1000 & sleep 1000"])
    Path("stays.part").write_text(BOOTSTRAP)
    Path("stays.part").rename("stays")
    time.sleep(1000)


if not answered():
    if not Path("again").exists():
        try:
            os.close(os.open("failed", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            stay()
    sys.exit("it has failed")
