"""Processes of the bench: starting, stopping, what they have used, where they connect; and the machine they run on."""

from __future__ import annotations

import os
import platform
import re
import resource
import socket
import subprocess
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from kproxy.testing.process import process_tree
from tests.support.processes import connections_to, sockets_of

PATIENCE = 60.0
ALL_PORTS = set(range(1, 65536))
TICKS = os.sysconf("SC_CLK_TCK")


def cpu(pid: int) -> float:
    """Seconds of CPU of all threads that there are, of the process and of its children (a proxy's workers), by the
    scheduler's own clock, which is finer than ticks."""
    total = 0
    for member in process_tree(pid):
        for task in Path(f"/proc/{member}/task").iterdir():
            total += int((task / "schedstat").read_text().split()[0])
    return total / 1e9


def rss(pid: int) -> float:
    """Resident memory in kB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return float(line.split()[1])
    raise LookupError(f"process {pid} has no VmRSS")


class Meter:
    """CPU seconds of `proxy` while the block runs, in `used`, and how many cores others had meanwhile, in `others`.

    `ours` are the processes of the bench that live before and after; those that begin and end in between are ours, too.
    """

    def __init__(self, proxy: int | None, ours: Iterable[int]) -> None:
        self.proxy, self.ours = proxy, tuple(ours)
        self.used = self.others = 0.0

    def __enter__(self) -> Self:
        self._start, self._strange, self._used = time.monotonic(), self._not_ours(), self._of_proxy()
        return self

    def __exit__(self, *error: object) -> None:
        self.used = self._of_proxy() - self._used
        self.others = max(0.0, (self._not_ours() - self._strange) / (time.monotonic() - self._start))

    def _of_proxy(self) -> float:
        return cpu(self.proxy) if self.proxy else 0.0

    def _not_ours(self) -> float:
        return busy() - gone() - sum(cpu_in_ticks(member) for pid in self.ours for member in process_tree(pid))


def cpu_in_ticks(pid: int) -> float:
    """Seconds of CPU in steps of 10 ms; unlike `cpu` with those of threads that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def busy() -> float:
    """Seconds that the machine's cores have worked since it was started."""
    user, nice, system, _, _, *interrupts = Path("/proc/stat").read_text().splitlines()[0].split()[1:8]
    return sum(map(int, (user, nice, system, *interrupts))) / TICKS


def gone() -> float:
    """CPU seconds of this process and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def processor(cpuinfo: str | None = None) -> str:
    """Return the processor type, such as "Intel Xeon": the model name without trademarks, numbers and clock rate."""
    text = Path("/proc/cpuinfo").read_text() if cpuinfo is None else cpuinfo
    found = re.search(r"^model name\s*: (.*)$", text, re.MULTILINE)
    name = found[1] if found else platform.machine()
    words = re.sub(r"\((R|TM)\)|@.*|\bCPU\b|\bProcessor\b", " ", name, flags=re.IGNORECASE).split()
    known = [word for word in words if not re.search(r"\d", word)]
    return " ".join(known or words)


def description() -> str:
    """Return cores, processor type and kernel in one line."""
    return f"{len(os.sched_getaffinity(0))} cores, {processor()}, Linux {platform.release()}"


def free_ports(count: int) -> int:
    """The first of `count` ports in a row that nobody uses now, below those that kernel and kproxy.testing give out."""
    for first in range(10000, 12000 - count, count):
        try:
            for port in range(first, first + count):
                socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return first
    raise OSError(f"no {count} free ports in a row")


class Processes:
    """What was started; the end of the block stops it all, by process id. Their output is kept in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.running: list[subprocess.Popen[Any]] = []
        self.logs: list[IO[bytes]] = []

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *error: object) -> None:
        for process in self.running:
            process.terminate()
        for process in self.running:
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for log in self.logs:
            log.close()

    def start(self, name: str, *command: object, **more: Any) -> subprocess.Popen[Any]:
        log = (self.folder / f"{name}.log").open("wb")
        self.logs.append(log)
        more = {"stdout": log, "stderr": subprocess.STDOUT, "cwd": self.folder, "env": as_installed()} | more
        process = subprocess.Popen([str(word) for word in command], **more)
        self.running.append(process)
        return process

    def stop(self, process: subprocess.Popen[Any]) -> None:
        process.terminate()
        process.wait(PATIENCE)
        self.running.remove(process)

    def tail(self, name: str, lines: int = 15) -> str:
        text = (self.folder / f"{name}.log").read_text(errors="replace")
        return "\n".join(text.splitlines()[-lines:])


def as_installed() -> dict[str, str]:
    """Return this process' environment, in which bytecode may be written: pip writes it for an installed kproxy.

    A checkout that may not would compile all of kproxy at each start, which doubles its time.
    """
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def first_answer(port: int, request: bytes) -> None:
    """Return as soon as a connection to `port` gets an answer to `request`."""
    start = time.monotonic()
    while time.monotonic() - start < PATIENCE:
        try:
            with socket.create_connection(("127.0.0.1", port), 1) as sock:
                sock.settimeout(PATIENCE)
                sock.sendall(request)
                if sock.recv(4):
                    return
        except OSError:
            pass
        time.sleep(0.005)
    raise TimeoutError(f"no answer on port {port} in {PATIENCE:g} s")


class PortWatch:
    """The remote ports that a process is connected to while the block runs, as the kernel lists them, in `seen`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.seen: set[int] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(0.2 if self.seen else 0.02):  # clients keep a connection for as long as they live
            established = connections_to(ALL_PORTS)
            self.seen |= {established[inode] for inode in sockets_of(self.pid) & established.keys()}
