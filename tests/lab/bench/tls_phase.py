"""TLS on both sides: HAProxy and kproxy, each ending the client's TLS and beginning its own to the broker.

The load program and the broker stand-in speak no TLS. So one HAProxy before each target begins it and one behind all
ends it; they are the same for all targets, and only the CPU of what is between them is counted.
"""

from __future__ import annotations

import json
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.lab.bench import frames
from tests.lab.bench.frames_phase import FIFTY, MANY, ONE, SIXTEEN, Case, StandIns
from tests.lab.bench.machine import Processes, first_answer
from tests.lab.bench.rows import Rows
from tests.lab.bench.targets import HOST, KPROXY, tool
from tests.support.certificates import Authority

NAMES = ("haproxy", "kproxy")
CASES = tuple(
    Case(f"TLS: {name}", frame, in_flight, connections)
    for name, frame, in_flight, connections in (
        (ONE, "produce9-200", 1, 1),
        (FIFTY, "produce9-200", 1, 50),
        (MANY, "produce9-200", 32, 1),
        (SIXTEEN, "produce9-16000", 16, 1),
        ("1 MB, 4 in flight", "produce9-1000000", 4, 1),
    )
)
CIPHER = "TLS_AES_128_GCM_SHA256"


class Borders:
    """The certificates, and what begins and ends TLS around the targets."""

    def __init__(self, stand_ins: StandIns) -> None:
        self.stand_ins, folder = stand_ins, stand_ins.folder
        authority = Authority(folder)
        self.trusted, self.certificate = authority.file, authority.issue("localhost", HOST)
        self.broker = stand_ins.ports()
        self.relay("tls-broker", self.broker, f"ssl crt {self.certificate}", stand_ins.small, "")

    def relay(self, name: str, listen: int, bind: str, upstream: int, server: str) -> subprocess.Popen[Any]:
        """An HAProxy on `listen`, with these words behind its two addresses."""
        path = self.stand_ins.folder / f"{name}.cfg"
        path.write_text(
            f"global\n  nbthread 1\n  maxconn 5000\n  ssl-default-bind-ciphersuites {CIPHER}\n"
            f"  ssl-default-server-ciphersuites {CIPHER}\ndefaults\n  mode tcp\n  timeout connect 5s\n"
            "  timeout client 1h\n  timeout server 1h\nlisten kafka\n"
            f"  bind {HOST}:{listen} {bind}\n  server broker {HOST}:{upstream} {server}\n"
        )
        return self.stand_ins.processes.start(name, tool("haproxy", "haproxy"), "-db", "-f", path)

    def wrapped(self, name: str) -> tuple[subprocess.Popen[Any], int]:
        """The target's process, and the port without TLS that leads through it."""
        before, listen = self.stand_ins.ports(), self.stand_ins.ports()
        trust = f"ssl verify required ca-file {self.trusted} sni str(localhost) verifyhost localhost"
        if name == "haproxy":
            process = self.relay("tls-haproxy", listen, f"ssl crt {self.certificate}", self.broker, trust)
        else:
            process = self.stand_ins.processes.start("tls-kproxy", *self.kproxy(listen))
        self.relay(f"tls-before-{name}", before, "", listen, trust)
        first_answer(before, frames.api_versions())
        return process, before

    def kproxy(self, listen: int) -> list[object]:
        tls = {"cert": str(self.certificate)}
        document = {
            "clusters": {
                "main": {"bootstrap": [f"localhost:{self.broker}"], "tls": {"ca": str(self.trusted)}},
            },
            "listeners": [{"name": "main", "bind": f"{HOST}:{listen}", "cluster": "main", "tls": tls}],
        }
        path = self.stand_ins.folder / "tls-kproxy.yaml"
        path.write_text(json.dumps(document))
        return [KPROXY, "run", "--config", path]


def measure(folder: Path, rows: Rows, *, rounds: int, seconds: float, only: str = "") -> None:
    """All cases whose names have `only` in them, `rounds` times."""
    with Processes(folder) as processes:
        stand_ins = StandIns(processes)
        borders = Borders(stand_ins)
        running = {name: borders.wrapped(name) for name in NAMES}
        for turn in range(rounds):
            for case in (one for one in CASES if only in one.name):
                for name in NAMES[turn % len(NAMES) :] + NAMES[: turn % len(NAMES)]:
                    process, port = running[name]
                    rows.add(case.name, name, stand_ins.measured(case, process, port, seconds, turn))
            print(f"TLS ({ssl.OPENSSL_VERSION}): round {turn + 1} of {rounds}", file=sys.stderr)
